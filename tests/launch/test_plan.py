"""What the pipeline's plan refuses before any work."""

import pytest
from hydra import compose, initialize_config_dir

from core.command import CONF
from core.errors import ConfigError
from launch.pipeline import plan, processes_of


def composed(*overrides):
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("pipeline", list(overrides))


def planned(*overrides):
    return plan(composed("experiment=quickstart", *overrides))


def test_recall_needs_a_file_where_nothing_is_held_out(tmp_path):
    assert planned("method=[recall]").injection.injection.held_out == 12
    with pytest.raises(ConfigError, match="recall needs prefix.path.*held-out"):
        planned("method=[recall]", "injection.held_out=0")
    planned("method=[recall]", "injection.held_out=0", f"prefix.path={tmp_path}/given.txt")


def test_an_experiments_own_values_stand():
    assert composed("experiment=paper/table3").masked_lm.path == "bert-base-uncased"


def test_a_value_may_name_another_node():
    cell = plan(composed("experiment=model_size", "model.architecture.hidden_size=32"), read=False)
    assert cell.training.model.name == "tiny_llama_32"


@pytest.mark.parametrize("path", sorted((CONF / "experiment/paper").glob("*.yaml")))
def test_the_papers_design(path):
    """Shi et al. 2024, section 6.1: each member once, a constant rate; Poisson in figure 5c."""
    config = composed(f"experiment=paper/{path.stem}")
    kind = config.occurrences._target_.rpartition(".")[-1]
    assert kind == ("Poisson" if path.stem == "frequency" else "Fixed")
    assert config.occurrences.get("count", 1) == 1
    assert (config.training.schedule, config.training.warmup_steps) == ("constant", 0)


def test_a_warm_up_that_is_never_over_is_refused_before_any_work():
    assert planned("training.warmup_steps=146").order.steps == 147
    with pytest.raises(ConfigError, match="training.warmup_steps is 147, but .* has 147 steps"):
        planned("training.warmup_steps=147")


@pytest.mark.parametrize("window", ["window=[0.5,1.0]", "last_tokens=50_000"])
def test_a_window_of_time_needs_the_corpus_order(window):
    with pytest.raises(ConfigError, match="training.order is 'shuffled'"):
        planned(f"injection.{window}")
    planned(f"injection.{window}", "training.order=corpus")


REFERENCE = "method=[loss,reference]"


def test_the_reference_is_made_only_where_a_method_needs_one(tmp_path):
    made = {
        REFERENCE: True, "method=[loss]": False, f"reference.path={tmp_path}": False,
        "reference.path=base": False,
    }  # fmt: skip
    for words, expected in made.items():
        cell = planned(*dict.fromkeys([REFERENCE, words] if "path" in words else [words]))
        assert cell.makes_reference is expected
        ((_, _, trainings), _) = processes_of(cell)
        assert ("training-reference" in trainings) is expected


def test_with_a_given_model_no_reference_is_made_up():
    given = ("model.path=tests/golden/target", "model.pretraining=null")
    with pytest.raises(ConfigError, match="reference needs reference.path.*`base`.* upper bound"):
        planned(REFERENCE, *given)
    planned(REFERENCE, *given, "reference.path=base")
    planned("method=all", *given)
