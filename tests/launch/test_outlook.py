"""What a dry run says of the papers' design, without a hub."""

import json
import re
from itertools import islice

import pytest
from hydra import compose, initialize_config_dir

import contamination.injection.run
from contamination.core.config import CONF
from contamination.core.errors import ConfigError
from contamination.data.readers import Document
from contamination.data.readers.embedded import EmbeddedRows
from contamination.data.readers.rows import Tally
from contamination.injection.config import TokenizerConfig
from contamination.injection.token_stream import train_tokenizer
from contamination.launch.forecast import describe_training
from contamination.launch.pipeline import injection_stage_with_tokenizer
from contamination.launch.plan import plan
from contamination.launch.text_checks import plan_cell_insertions

FILES = {
    "boolq": ("BoolQ/combined.jsonl", ["label"]), "imdb": ("imdb/sample.csv", []),
    "truthfulqa": ("TruthfulQA/combined.jsonl", []),
    "commonsenseqa": ("CommonsenseQA/validation.jsonl", []),
}  # fmt: skip
SUBSETS = ("common_crawl", "c4", "github", "arxiv", "wikipedia", "stackexchange")


@pytest.fixture(scope="module")
def at_hand(tmp_path_factory):
    """Overrides that put local files in the hub's place: 400 rows a benchmark, of real lengths.

    LLaMA's tokenizer is not at hand. A BPE of 4,096 entries makes more tokens of a text than one
    of 32,000 does, so what fits with it fits with LLaMA's.
    """
    place = tmp_path_factory.mktemp("at_hand")
    words, texts = [f"corpus.paths={place}/corpus", f"tokenizer.path={place}/tokenizer"], []
    for name, (file, required) in FILES.items():
        found = EmbeddedRows(file, required).rows(Tally("stop", "on_error"))
        rows = [dict(row.value) for row in islice(found, 450)]  # some passages serve twice
        if name == "imdb":  # of which there are 200: the same reviews, backward
            rows += [{**r, "text": " ".join(reversed(r["text"].split(" ")))} for r in rows]
        lines = [json.dumps(row) for row in rows]
        (place / f"{name}.rows").write_text("\n".join(lines))
        texts += [Document(line, name, line) for line in lines]
        rows_of = f"benchmark.{name}.sources.embedded.rows"
        words += [
            f"~benchmark.{name}.sources.hub", f"~{rows_of}",
            f"+{rows_of}={{_target_:contamination.data.readers.files.FileRows,path:{place}/{name}.rows,"
            "format:jsonl}",
        ]  # fmt: skip
    for subset in SUBSETS:
        (place / "corpus" / subset).mkdir(parents=True)
        (place / "corpus" / subset / "a.jsonl").write_text('{"text": "A document."}\n')
    train_tokenizer(TokenizerConfig(vocab_size=4096), iter(texts), place / "tokenizer")
    return words


def planned(*words):
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return plan(compose("pipeline", list(words)), read_benchmarks=False)


def looked_at(*words):
    cell = planned(*words)
    return plan_cell_insertions(cell).text, describe_training(cell)


@pytest.mark.parametrize(
    ("tokens", "steps"),
    [
        (26_000_000, 794),
        *(
            pytest.param(*own, marks=pytest.mark.slow)
            for own in ((170_000, 6), (270_000, 9), (2_600_000, 80))
        ),
    ],
)
def test_each_corpus_size_of_the_papers_fits(at_hand, tokens, steps):
    experiment = ["experiment=paper/corpus_size", f"injection.budget_tokens={tokens}"]
    insertions, training = looked_at(*experiment, *at_hand)
    found = re.match(rf"800 copies, .* ([\d,]+) of {tokens:,} tokens", insertions)
    assert 800 * 100 < int(found[1].replace(",", "")) < 170_000
    assert training == (
        f"training: {steps} steps of 16 × 2,048 tokens, learning rate 0.0001, constant"
    )


def test_copies_that_do_not_fit_are_refused(at_hand):
    words = ["experiment=paper/frequency", "injection.budget_tokens=270_000"]  # 4 times each
    with pytest.raises(ConfigError, match=r"budget_tokens is 270,000, .* have \d{3},\d{3} tokens"):
        looked_at(*words, *at_hand)


def test_nothing_is_read_from_the_hub(at_hand, monkeypatch):
    def load(*_):
        raise AssertionError("the hub was asked")

    monkeypatch.setattr("contamination.data.readers.hub.stream_split", load)
    words = ["experiment=paper/table3", at_hand[0]]
    assert looked_at(*words)[0] == (
        "not known before boolq, imdb, truthfulqa, commonsenseqa can be read from the hub"
    )
    local = looked_at("experiment=paper/table3", at_hand[0], *at_hand[2:])
    assert local[0].endswith("the tokenizer of huggyllama/llama-7b can be read from the hub")


def test_without_the_tokenizer_the_copies_are_not_known():
    insertions, training = looked_at("experiment=quickstart")
    assert insertions == "not known before the tokenizer is trained"
    assert training.endswith("constant_with_warmup, warm-up 10 steps")


@pytest.mark.slow
@pytest.mark.parametrize("tokens", [170_000, 270_000])
def test_the_small_corpora_hold_their_copies_whole(at_hand, tokens, tmp_path):
    words = [
        "experiment=paper/corpus_size", "corpus=embedded", f"injection.budget_tokens={tokens}",
        "injection.num_proc=1", f"runs={tmp_path}", *at_hand[1:],
    ]  # fmt: skip
    made = contamination.injection.run.run(
        injection_stage_with_tokenizer(planned(*words), None)
    )  # which proves its ledger
    assert made.counts["copies"] == 800
    assert made.counts["inserted_tokens"] < made.counts["tokens"] == tokens // 2048 * 2048
