"""The stages as a program calls them."""

import pytest

from contamination.analysis import analyse
from contamination.core.errors import UserError
from contamination.injection import inject
from contamination.training import train
from tests.bad_inputs.material import GOLDEN


@pytest.mark.parametrize("stage", [inject, train, analyse])
@pytest.mark.parametrize(
    ("word", "said"),
    [
        (1, "^overrides is 1: give strings"),
        ("seed", "missing EQUAL"),
        ("seed=x", "^seed: Value 'x'"),
        ("sed=1", "sed: unknown field. Did you mean seed"),
        ("runs=", "^runs is '': give a folder"),
    ],
)
def test_bad_words_are_the_callers_error(stage, word, said):
    with pytest.raises(UserError, match=said):
        stage(word)


def test_what_a_disk_or_a_configuration_lacks_is_said_in_words(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="file.*: Not a directory. There is a file where"):
        inject(f"runs={tmp_path / 'file'}", "corpus=local_jsonl", f"corpus.paths={__file__}",
               "corpus.format=text", f"tokenizer.path={GOLDEN / 'target'}", "benchmark=[]",
               "injection.budget_tokens=64", "injection.sequence_tokens=64")  # fmt: skip
    with pytest.raises(UserError, match="^corpus=nws: unknown corpus. Did you mean news"):
        inject("corpus=nws")
    with pytest.raises(UserError, match="^seed is missing: give it a value"):
        analyse("~seed")
