"""What the pipeline's plan refuses before any work."""

import pytest
from hydra import compose, initialize_config_dir

from core.command import CONF
from core.errors import ConfigError
from launch.pipeline import plan


def planned(*overrides):
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return plan(compose("pipeline", ["experiment=quickstart", *overrides]))


def test_recall_needs_a_file_where_nothing_is_held_out(tmp_path):
    assert planned("method=[recall]").injection.injection.held_out == 12
    with pytest.raises(ConfigError, match="recall needs prefix.path.*held-out"):
        planned("method=[recall]", "injection.held_out=0")
    planned("method=[recall]", "injection.held_out=0", f"prefix.path={tmp_path}/given.txt")


def test_an_experiments_own_values_stand():
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("pipeline", ["experiment=paper/table3"])
    assert config.masked_lm.path == "bert-base-uncased"


@pytest.mark.parametrize("window", ["window=[0.5,1.0]", "last_tokens=50_000"])
def test_a_window_of_time_needs_the_corpus_order(window):
    with pytest.raises(ConfigError, match="training.order is 'shuffled'"):
        planned(f"injection.{window}")
    planned(f"injection.{window}", "training.order=corpus")
