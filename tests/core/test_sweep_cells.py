"""A cell's configuration is the one that Hydra composes from all of its overrides."""

import pytest
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

import contamination.launch.run  # noqa: F401  (it registers the schemas of conf/pipeline.yaml)
from contamination.core.config import CONF
from contamination.core.sweep_cells import compose_cell

CELLS = [
    ["seed=3", "training.learning_rate=1e-3"],
    ["model.path=base", "model=tiny_llama_1m", "seed=0"],  # a value, whatever its place
    ["method=[loss,zlib]", "experiment=frequency", "injection.members=7", "injection.members=8"],
    [
        *("occurrences=fixed", "occurrences={count: 3}", "+new=1", "++other=2", "~new"),
        *("name='a, b = {c}'", "seed=null", "hydra.run.dir=elsewhere", "hydra/job_logging=none"),
    ],
]
INVALID = [["sed=1"], ["+seed=1"], ["~analysis.draws"], ["model@elsewhere=tiny_llama"]]


@pytest.fixture(scope="module")
def sweep():
    """A sweep's configuration, with an override of Hydra's own that each cell has too."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        words = ["experiment=quickstart", "hydra.verbose=true"]
        yield (
            GlobalHydra.instance()
            .config_loader()
            .load_configuration("pipeline", words, RunMode.MULTIRUN)
        )


def _compose_with_hydra(overrides):
    loader = GlobalHydra.instance().config_loader()
    config = loader.load_configuration("pipeline", ["hydra.verbose=true", *overrides], RunMode.RUN)
    masked = OmegaConf.masked_copy(config, [key for key in config if key != "hydra"])
    OmegaConf.set_struct(masked, True)
    return masked


def test_it_is_hydras_own(sweep):
    """Also when other cells have been made from the same files before."""
    for overrides in CELLS:
        hydras = _compose_with_hydra(overrides)
        for _ in range(2):
            ours = compose_cell(sweep, overrides)
            assert isinstance(ours, DictConfig)
            assert OmegaConf.to_yaml(ours) == OmegaConf.to_yaml(hydras), overrides


def test_a_group_of_another_search_path_is_hydras_own(tmp_path, sweep):
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "a.yaml").write_text("# @package _global_\nseed: 77\n")
    overrides = [f"hydra.searchpath=[file://{tmp_path}]", "+more=a", "name=b"]
    assert compose_cell(sweep, overrides).seed == 77
    assert OmegaConf.to_yaml(compose_cell(sweep, overrides)) == OmegaConf.to_yaml(
        _compose_with_hydra(overrides)
    )


def test_a_change_of_one_cell_is_not_in_the_next(sweep):
    first = compose_cell(sweep, ["seed=1"])
    first.injection.members = 12345
    assert compose_cell(sweep, ["seed=1"]).injection.members != 12345


@pytest.mark.parametrize("overrides", INVALID, ids=" ".join)
def test_what_hydra_refuses_is_refused(sweep, overrides):
    with pytest.raises(HydraException) as hydras:
        _compose_with_hydra(overrides)
    with pytest.raises(HydraException) as ours:
        compose_cell(sweep, overrides)
    assert type(ours.value) is type(hydras.value)
    assert str(ours.value) == str(hydras.value)
