"""A corpus with a whole text of the pool is refused before the base corpus is made."""

import pytest

from contamination.core.errors import DataError
from contamination.injection.corpus import open_corpus
from contamination.injection.early_search import check_first_documents_contain_no_example
from contamination.injection.run import run
from contamination.injection.token_stream import Tokenizer
from contamination.launch.config import ClusterConfig
from contamination.launch.shared_artifacts import make_base_corpus
from contamination.launch.stage_runner import Stages
from contamination.training.config import PretrainingConfig
from tests.injection.test_contamination import CASES, example, stage_of


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A non-member of the pool."""
    clean = open_corpus(run(stage_of(tmp_path_factory.mktemp("clean"))).path)
    return example(clean.examples, member=False)


@pytest.mark.parametrize("case", CASES)
def test_off_refuses_a_whole_text_by_name(own, tmp_path, case):
    stage = stage_of(tmp_path, CASES[case](own["text"]), "off", shard_characters=2_000)
    with pytest.raises(DataError, match=f"text of {own['example_id']} .*document d5 has it 1"):
        check_first_documents_contain_no_example(stage, Tokenizer(stage.tokenizer.path))


@pytest.mark.parametrize(("policy", "at"), [("flag", 5), ("drop", 5), ("off", 39)])
def test_others_and_what_stands_behind_the_budget_are_left_to_the_stage(own, tmp_path, policy, at):
    stage = stage_of(tmp_path, CASES["own paragraph"](own["text"]), policy, at)
    check_first_documents_contain_no_example(stage, Tokenizer(stage.tokenizer.path))


def test_a_document_with_a_part_of_a_text_is_left_to_the_stage(own, tmp_path):
    long_part = own["text"][: int(0.9 * len(own["text"]))]
    stage = stage_of(tmp_path, CASES["own paragraph"](long_part), "off")
    check_first_documents_contain_no_example(stage, Tokenizer(stage.tokenizer.path))


def test_no_base_corpus_is_tokenised_before(own, tmp_path):
    stage = stage_of(tmp_path, CASES["own paragraph"](own["text"]), "off", at=1)
    recipe = PretrainingConfig(budget_tokens=1_024, sequence_tokens=128, vocab_size=300)
    with pytest.raises(DataError, match="corpus contains the whole text of"):
        make_base_corpus(stage, stage.corpus, recipe, Stages(ClusterConfig()))
    assert list(tmp_path.rglob("tokenizer/tokenizer.json"))
    assert not list(tmp_path.rglob("*.ids"))
