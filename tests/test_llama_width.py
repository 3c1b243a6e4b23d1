"""perf.llama_width on a narrow model: killed, resumed, and beside transformers."""

import sys

import pytest

from contamination.core.errors import ConfigError
from perf.llama_width import measure

NARROW = [
    "model.architecture.hidden_size=256", "model.architecture.intermediate_size=512",
    "model.architecture.num_attention_heads=4", "model.architecture.num_key_value_heads=4",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_narrow_cell_is_killed_and_resumed_to_the_same_weights(tmp_path):
    table = measure(tmp_path / "runs", NARROW).set_index("")["measured"]
    (weights,) = [name for name in table.index if name.startswith("weights, resumed after step ")]
    assert weights[-1] in "23"
    assert table[weights] == "equal"
    assert float(table["largest difference of a score, nats per token"]) < 1e-5
    assert float(table["peak of the contaminated training, GB"]) > 0.5


def test_a_folder_with_earlier_runs_is_refused(tmp_path):
    (tmp_path / "whole").mkdir()
    with pytest.raises(ConfigError, match="not empty"):
        measure(tmp_path, NARROW)
