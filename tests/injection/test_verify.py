"""The proof, of a corpus put together by hand; a real one is proved by every run."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from contamination.core.config import instantiate_node
from contamination.data.ngrams import hash_windows
from contamination.injection.run import documents_of_part
from contamination.injection.token_stream import Tokenizer
from contamination.injection.verification import (
    CorpusCheck,
    Proof,
    ProofUnits,
    _TokenSearch,
    verify,
)

WIDTH = 8
LETTERS = SimpleNamespace(encode=lambda text: [ord(letter) for letter in text])
EXAMPLES = pd.DataFrame(
    [("a", "an apple", True, 2), ("b", "a much longer text", True, 1), ("c", "none", False, 0),
     ("d", "a d", True, 1), ("e", "drawn zero times", True, 0)],
    columns=["example_id", "text", "member", "occurrences"],
)  # fmt: skip
LEDGER = pd.DataFrame(
    [("d", 0, 5, 5, 8, 0, None), ("a", 0, 1, 0, 8, 0, None), ("a", 1, 6, 1, 5, 0, "pear"),
     ("b", 0, 2, 3, 8, 0, None), ("b", 0, 3, 0, 8, 5, None), ("b", 0, 4, 0, 5, 13, None)],
    columns=["example_id", "copy", "sequence", "token_start", "token_end", "copy_start",
             "reworded"],
)  # fmt: skip
"""Copy 1 of `a` is reworded, and the copy of `b` stands in three sequences."""


@pytest.fixture(autouse=True, params=[1, 1 << 18])
def pieces(request, monkeypatch):
    """Each block is searched alone, or all at once."""
    monkeypatch.setattr("contamination.injection.verification.SEARCHED_AT_ONCE", request.param)


def packed(ledger=LEDGER):
    """The ledger's copies in 8 sequences of zeros."""
    ids, texts = np.zeros((8, WIDTH), np.int32), EXAMPLES.set_index("example_id")["text"]
    for row in ledger.itertuples():
        text = (row.reworded or texts[row.example_id])[row.copy_start :]
        ids[row.sequence, row.token_start : row.token_end] = LETTERS.encode(
            text[: row.token_end - row.token_start]
        )
    return ids


def failures(ids, ledger=LEDGER, examples=EXAMPLES, window=(8, 53)):
    """What the proof says, of blocks of 3, 3 and 2 sequences, and of two parts, each on its own."""
    proof = verify(np.array_split(ids, 3), examples, ledger, LETTERS, window)
    check = CorpusCheck.prepare(examples, ledger, LETTERS, window)
    parts = [check.read_part([ids[:4]]), check.read_part([ids[4:6], ids[6:]], 4, ids[1:4].ravel())]
    assert check.combine_parts(parts) == proof
    assert (proof.rows, proof.tokens) == (len(ledger), ids.size)
    return proof.failures


def test_a_true_corpus_is_proved():
    assert failures(packed()) == []
    assert failures(packed(), LEDGER[:0], EXAMPLES[:0]) == []
    assert str(Proof(1_200, 34_000)) == "1,200 ledger rows proved in 34,000 tokens: all right"
    proof = Proof(2, 3, [f"failure {n}" for n in range(30)])
    head, *lines = str(proof).split("\n")
    assert head == "2 ledger rows proved in 3 tokens: 30 FAILURES"
    assert lines == proof.failures[:20]


def count_occurrences(blocks, ids):
    """How often each text's tokens occur in the stream that the blocks make."""
    search = _TokenSearch(ids)
    for block in blocks:
        search.search_next(block.reshape(-1))
    return search.counts


GONE = "found {} times in the corpus, {} expected".format
DIFFER = "{0} copy {1}: sequence {2}, tokens {3} differ from the example".format


@pytest.mark.parametrize(
    ("sequence", "token", "said"),
    [
        (1, 7, [DIFFER("a", 0, 1, "0..8"), "a (member): " + GONE(0, 1)]),
        (2, 3, [DIFFER("b", 0, 2, "3..8"), "b (member): " + GONE(0, 1)]),
        (3, 4, [DIFFER("b", 0, 3, "0..8"), "b (member): " + GONE(0, 1)]),
        (4, 0, [DIFFER("b", 0, 4, "0..5"), "b (member): " + GONE(0, 1)]),
        (5, 5, [DIFFER("d", 0, 5, "5..8"), "d (member): " + GONE(0, 1)]),
        (6, 4, [DIFFER("a", 1, 6, "1..5"), "a (reworded): " + GONE(0, 1)]),
        (4, 5, []),  # no copy's token
    ],
)
def test_one_changed_token_is_caught(sequence, token, said):
    ids = packed()
    ids[sequence, token] += 1
    assert failures(ids) == said


@pytest.mark.parametrize("place", [0, 54, 60])  # 54: across a border of two sequences
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("none", "c (non-member): " + GONE(1, 0)),
        ("a d", "d (member): " + GONE(2, 1)),
        ("pear", "a (reworded): " + GONE(2, 1)),
    ],
)
def test_a_pasted_text_is_caught(place, text, said):
    ids = packed()
    ids.reshape(-1)[place : place + len(text)] = LETTERS.encode(text)
    assert failures(ids) == [said]


def test_other_units_are_named_and_may_occur_elsewhere():
    ids, units = packed(), ProofUnits("character", "line", exact=False)
    ids.reshape(-1)[:12] = LETTERS.encode("nonepearnone")
    ids[5, 6] += 1
    proof = verify([ids], EXAMPLES, LEDGER, LETTERS, (9, 53), units)
    assert proof.natural_count == 2 + 1  # twice `none`, once `pear`
    assert str(proof).split("\n") == [
        "6 ledger rows proved in 64 characters: 5 FAILURES",
        "a copy 0: line 1, character 0 lies outside of the window, characters 9 to 53",
        "a copy 0: line 1, characters 0..8 differ from the example",
        "d copy 0: line 5, characters 5..8 differ from the example",
        *("a (member): " + GONE(0, 1), "d (member): " + GONE(0, 1)),
    ]
    few = verify([ids], EXAMPLES, LEDGER.drop(index=4), LETTERS, (8, 53), units)
    assert "b copy 0: 10 of 18 characters listed" in few.failures


def test_a_ledger_that_lists_too_few_or_too_many_is_caught():
    def counted(name, occurrences, copies):
        return f"{name}: {occurrences} occurrences, the ledger has {copies} copies"

    assert failures(packed(), LEDGER.drop(index=0)) == [
        counted("d", 1, 0), "d (member): " + GONE(1, 0)
    ]  # fmt: skip
    twice = pd.concat([LEDGER, LEDGER[:1].assign(copy=7)])
    assert failures(packed(), twice) == [
        counted("d", 1, 2), "d copy 7: sequence 5, tokens 5..8 are also d copy 0",
        "d (member): " + GONE(1, 2),
    ]  # fmt: skip
    assert failures(packed(), LEDGER.drop(index=4)) == ["b copy 0: 10 of 18 tokens listed"]
    more = EXAMPLES.assign(occurrences=[2, 1, 1, 1, 0])
    assert failures(packed(), examples=more) == [counted("c", 1, 0)]


def test_a_copy_outside_of_its_window_is_caught():
    said = "{} lies outside of the window, tokens {} to {}".format
    assert failures(packed(), window=(9, 53)) == [said("a copy 0: sequence 1, token 0", 9, 53)]
    assert failures(packed(), window=(8, 52)) == [said("a copy 1: sequence 6, token 1", 8, 52)]


def test_failures_are_in_the_order_of_the_sequences_and_then_of_the_ledger():
    rows = [("d", copy, 1 - copy % 2, 0, 3, 0, None) for copy in range(64)]
    said = failures(np.zeros((3, WIDTH), np.int32), pd.DataFrame(rows, columns=LEDGER.columns))
    assert [line for line in said if "differ" in line] == [
        DIFFER("d", copy, sequence, "0..3") for sequence in (0, 1) for copy in range(64)
        if copy % 2 != sequence
    ]  # fmt: skip


@pytest.mark.parametrize("left", [6, 5])
def test_a_row_beyond_the_corpus_is_caught(left):
    names = {5: ("d copy 0", "d (member): "), 6: ("a copy 1", "a (reworded): ")}
    gone = range(left, 7)
    assert failures(packed()[:left]) == [
        *(f"{names[n][0]}: sequence {n} does not exist" for n in gone),
        *(names[n][1] + GONE(0, 1) for n in gone),
    ]


def test_counting_equals_a_plain_search_whatever_the_blocks():
    """Texts of this stream, some longer than a probe and than a block, across its borders."""
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 3, size=(3_000, 8)).astype(np.int32)
    flat = ids.ravel()
    wanted = {f"{n} {at}": flat[at - n // 2 :][:n] for n in (3, 8, 9, 16, 17, 40, 100)
              for at in (n // 2, 7_200, 7_203, 16_000)}  # fmt: skip
    for blocks in (1, 10, 300):  # of 2,400 tokens, of 80
        found = count_occurrences(np.array_split(ids, blocks), wanted)
        for name, tokens in wanted.items():
            windows = np.lib.stride_tricks.sliding_window_view(flat, len(tokens))
            assert found[name] == int((windows == tokens).all(axis=1).sum()) > 0
    windows = np.lib.stride_tricks.sliding_window_view(flat, 9)
    assert len(set(hash_windows(flat, 9).tolist())) == len(np.unique(windows, axis=0))


def test_what_stands_before_the_stream_is_no_token():
    texts = {"zero first": np.array([0, 5]), "five": np.array([5])}
    assert count_occurrences([np.array([[5, 6]])], texts) == {"five": 1}


def test_the_ledger_names_the_document_and_its_place(corpus, stage):
    """The text before a copy is that of its document's tokens from BOS on, without other copies."""
    source = instantiate_node("corpus", stage.corpus)
    texts = {d.document_id: d.text for d in documents_of_part(stage, source)}
    ids = np.array(corpus.sequences["input_ids"])
    flat, separator = ids.reshape(-1), len(corpus.tokenizer.encode("\n\n"))
    clean, last, cut = [], 0, 0
    for row in corpus.ledger.sort_values(["sequence", "token_start"]).itertuples():
        opened = row.sequence * ids.shape[1] + row.token_start - separator
        clean += flat[last:opened].tolist()
        last = opened + row.token_end - row.token_start + 2 * separator
        bos = len(clean) - 1 - clean[::-1].index(corpus.tokenizer.hf.bos_token_id)
        text = texts[row.document_id]
        assert corpus.tokenizer.decode(clean[bos:]) == text[: row.char_offset]
        if row.char_offset < len(text) and not text[row.char_offset].isspace():
            assert opened % ids.shape[1] == 0  # a word is cut only where a sequence begins
            cut += 1
    assert cut < len(corpus.ledger) / 2


def test_texts_that_differ_after_a_nul_are_told_apart():
    texts = [f"the same\0{end}" for end in ("longer", "end", "nothing")]
    ids = np.zeros((3, 24), np.int32)
    for sequence, text in enumerate(texts):
        ids[sequence, 5 : 5 + len(text)] = LETTERS.encode(text)
    examples = pd.DataFrame({"example_id": list("abc"), "text": texts})
    examples = examples.assign(member=True, occurrences=1)
    ledger = pd.DataFrame({"example_id": list("abc"), "copy": 0, "sequence": range(3)}).assign(
        token_start=5, token_end=[5 + len(text) for text in texts], copy_start=0, reworded=None
    )
    assert failures(ids, ledger, examples, (0, 72)) == []
    ledger.loc[1, "token_end"] -= 1
    assert failures(ids, ledger, examples, (0, 72)) == ["b copy 0: 11 of 12 tokens listed"]


TOKENIZER = Path("tests/golden/target")
PLANTED = {  # as a document may write a text of the pool
    "nothing": lambda text: "",
    "own paragraph": lambda text: f"\n\n{text}\n\n",
    "in a sentence": lambda text: f" as they wrote {text}, or so",
    "other white space": lambda text: " " + text.replace(" ", "  \t\n") + " ",
    "other case": lambda text: f" {text.upper()} ",
}


@pytest.mark.parametrize("planted", PLANTED)
@pytest.mark.parametrize("separator", ["\n\n", " "])
@pytest.mark.parametrize(
    "texts", [["la la la la"], ["Alpha zeta", "zeta Alpha"], ["la la", "la la la la", "LA la"]]
)
def test_adjacent_copies_spell_no_natural_occurrence(texts, separator, planted):
    """A copy, the separator and the next copy may hold one more text of the pool."""
    tokenizer, width = Tokenizer(str(TOKENIZER)), 64
    ids = tokenizer.encode(f"Some document.{PLANTED[planted](texts[-1])}It goes on, and ends.")
    around, rows = tokenizer.encode(separator), []
    for copy in range(6):
        for name, text in enumerate(texts):
            ids += around
            start, tokens = len(ids), tokenizer.encode(text)
            ids += tokens + around
            for first in range(start, start + len(tokens)):
                sequence, at = divmod(first, width)
                rows.append((str(name), copy, sequence, at, at + 1, first - start, None))
    ids += tokenizer.encode("The next document.")
    ids += [ids[-1]] * (-len(ids) % width)
    blocks = np.array(ids, np.int32).reshape(-1, width)
    examples = pd.DataFrame({"example_id": [*map(str, range(len(texts)))], "text": texts})
    examples = examples.assign(member=True, occurrences=6)
    ledger = pd.DataFrame(rows, columns=LEDGER.columns)
    check = CorpusCheck.prepare(
        examples, ledger, tokenizer, (0, blocks.size), natural=True, folder=TOKENIZER.resolve()
    )
    halves = [check.read_part([blocks[:1]]), check.read_part([blocks[1:]], 1, blocks[0])]
    for proof in (check.combine_parts([check.read_part([blocks])]), check.combine_parts(halves)):
        assert proof.failures == []
        alike = [t for t in texts if planted != "nothing" and t.lower() in texts[-1].lower()]
        counts = dict.fromkeys(alike, 1)
        if len(texts) == 3 and alike:
            assert proof.natural.keys() == counts.keys()
        else:
            assert proof.natural == counts
