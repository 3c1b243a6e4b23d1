"""The scores of the golden files, which other implementations computed."""

import pytest

from contamination.detection.config import DetectionConfig
from contamination.detection.loaded_model import LoadedModel
from contamination.detection.models.hf_model import HFModel
from contamination.detection.passes import ORIGINAL
from tests.detection import golden


@pytest.fixture(scope="module")
def errors():
    return golden.largest_relative_errors()


@pytest.mark.parametrize("method", golden.METHODS)
def test_equals_the_float64_golden_scores(errors, method):
    assert errors[method] <= 1e-4


def test_tokens_are_the_tokenizers_own_with_its_bos(golden_folder):
    source = HFModel.from_path("model.path", str(golden_folder))
    tokens = LoadedModel(source, DetectionConfig()).tokenize(ORIGINAL, golden.texts())
    assert [t.ids for t in tokens] == [e["token_ids"] for e in golden.examples()]
