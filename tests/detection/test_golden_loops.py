"""The scores of the newer methods beside float64 loops over the golden models."""

import json
import math

import pytest

from contamination.detection.config import DetectionConfig
from contamination.detection.methods.dc_pdd import DcPdd
from contamination.detection.methods.ez_mia import EzMia
from contamination.detection.methods.grad_norm import GradNorm
from contamination.detection.methods.info_rmia import InfoRmia
from contamination.detection.methods.lt_mia import LtMia
from contamination.detection.methods.wbc import Wbc
from contamination.detection.models.hf_model import HFModel
from contamination.detection.pass_collector import Collector
from tests.detection import golden, golden_loops
from tests.scoring import score_text

METHODS = {
    "dc_pdd": DcPdd(corpus=str(golden_loops.CORPUS)),
    "ez_mia": EzMia(),
    "grad_norm": GradNorm(),
    "info_rmia": InfoRmia(),
    "lt_mia": LtMia(),
    "wbc": Wbc(),
}


@pytest.fixture(scope="module")
def scores(tmp_path_factory):
    models = {
        role: HFModel.from_path(f"{role}.path", str(golden.GOLDEN / role))
        for role in ("target", "reference")
    }
    runs, settings = tmp_path_factory.mktemp("runs"), DetectionConfig(device="cpu")
    collector = Collector(runs, models, golden.texts(), settings)
    passes = collector.collect({p for method in METHODS.values() for p in method.passes})
    return {
        name: [score_text(method, text, passes) for text in golden.texts()]
        for name, method in METHODS.items()
    }


@pytest.mark.parametrize("name", golden_loops.METHODS)
def test_equals_the_golden_loop(scores, name):
    expected = [row[name] for row in json.loads(golden_loops.FILE.read_text())]
    assert len(expected) == 32
    assert scores[name] == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_the_file_is_what_its_script_makes():
    """One text is enough: all take a while."""
    stored = json.loads(golden_loops.FILE.read_text())[0]
    made = golden_loops.scores(golden.examples()[0]["token_ids"])
    assert made.keys() == stored.keys() == METHODS.keys()
    assert all(math.isclose(made[name], stored[name], rel_tol=1e-9) for name in made)
