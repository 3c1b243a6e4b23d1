import numpy as np
import pandas as pd
import pytest

from core.config import create
from injection.run import _documents
from injection.verify import count_occurrences, verify


@pytest.fixture
def ids(corpus):
    return np.array(corpus.sequences["input_ids"], dtype=np.int32)


def check(ids, corpus, ledger=None, window=None):
    ledger = corpus.ledger if ledger is None else ledger
    window = window or (0, ids.size)
    return verify(np.array_split(ids, 5), corpus.examples, ledger, corpus.tokenizer, window)


def test_a_true_corpus_is_proved(ids, corpus):
    proof = check(ids, corpus)
    assert proof.failures == []
    assert (proof.rows, proof.tokens) == (len(corpus.ledger), ids.size)
    assert "all right" in str(proof)


def test_one_changed_token_is_caught(ids, corpus):
    row = corpus.ledger.iloc[3]
    ids[row["sequence"], row["token_start"] + 1] ^= 1
    failures = "\n".join(check(ids, corpus).failures)
    assert f"{row['example_id']} copy {row['copy']}" in failures


def test_a_removed_copy_is_caught(ids, corpus):
    row = corpus.ledger.iloc[5]
    ids[row["sequence"], row["token_start"] : row["token_end"]] = 7
    assert any("found" in f for f in check(ids, corpus).failures)


@pytest.mark.parametrize("more", [-1, 1])
def test_a_copy_too_few_or_too_many_in_the_ledger_is_caught(ids, corpus, more):
    row = corpus.ledger.iloc[2:3]
    added = pd.concat([corpus.ledger, row.assign(copy=99)])
    ledger = added if more > 0 else corpus.ledger.drop(index=2)
    examples = corpus.examples.set_index("example_id")["occurrences"]
    name, known = row["example_id"].item(), examples[row["example_id"].item()]
    said = f"{name}: {known} occurrences, the ledger has {known + more} copies"
    assert said in check(ids, corpus, ledger).failures


def test_a_copy_outside_of_its_window_is_caught(ids, corpus):
    place = corpus.ledger["sequence"] * ids.shape[1] + corpus.ledger["token_start"]
    first, last = place.sort_values().index[[0, -1]]
    end = place[last] + corpus.ledger["token_end"][last] - corpus.ledger["token_start"][last]
    assert not check(ids, corpus, window=(place.min(), end)).failures
    for window, row in (((place.min() + 1, end), first), ((place.min(), end - 1), last)):
        (failure,) = check(ids, corpus, window=window).failures
        assert failure.startswith(f"{corpus.ledger['example_id'][row]} copy ")
        assert "outside of the window" in failure


def test_a_row_beyond_the_corpus_is_caught(ids, corpus):
    failures = check(ids[:-40], corpus).failures
    assert any("does not exist" in f for f in failures)


@pytest.mark.parametrize("member", [False, True])
@pytest.mark.parametrize("place", [0, 100, 1_000])  # 100: across a border of two sequences
def test_a_pasted_example_is_caught(ids, corpus, place, member):
    examples = corpus.examples
    row = examples[examples["member"] == member].sort_values("n_tokens").iloc[-1]
    tokens = corpus.tokenizer.encode(row["text"])
    flat = ids.reshape(-1)
    flat[place : place + len(tokens)] = tokens
    kind, listed = "member" if member else "non-member", row["occurrences"]
    said = f"{row['example_id']} ({kind}): found {listed + 1} times in the corpus, {listed} exp"
    assert said in "\n".join(check(ids, corpus).failures)


def test_counting_equals_a_plain_search_whatever_the_blocks():
    """Texts of this stream, some longer than a probe and than a block, across its borders."""
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 3, size=(3_000, 8)).astype(np.int32)
    flat = ids.ravel()
    wanted = {f"{n} {at}": flat[at - n // 2 :][:n] for n in (3, 8, 9, 16, 17, 40, 100)
              for at in (7_200, 7_203, 16_000)}  # fmt: skip
    for blocks in (1, 10, 300):  # of 2,400 tokens, of 80
        found = count_occurrences(np.array_split(ids, blocks), wanted)
        for name, tokens in wanted.items():
            windows = np.lib.stride_tricks.sliding_window_view(flat, len(tokens))
            assert found[name] == int((windows == tokens).all(axis=1).sum()) > 0


def test_the_ledger_names_the_document_and_its_place(ids, corpus, stage):
    """The text before a copy is that of its document's tokens from BOS on, without other copies."""
    source = create("corpus", stage.corpus)
    texts = {d.document_id: d.text for d in _documents(stage, source)}
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


def test_texts_that_differ_after_a_nul_are_told_apart(corpus):
    texts = [f"the same start\0{end}" for end in ("a longer end of it", "an end", "nothing")]
    inserted = [corpus.tokenizer.encode(text) for text in texts]
    block = np.full((3, 64), 7, dtype=np.int32)
    for sequence, tokens in enumerate(inserted):
        block[sequence, 5 : 5 + len(tokens)] = tokens
    examples = pd.DataFrame({"example_id": list("abc"), "text": texts})
    examples = examples.assign(member=True, occurrences=1)
    ledger = pd.DataFrame(
        {
            "example_id": list("abc"),
            "copy": 0,
            "sequence": range(3),
            "token_start": 5,
            "token_end": [5 + len(tokens) for tokens in inserted],
            "copy_start": 0,
            "reworded": None,
        }
    )
    proof = verify([block], examples, ledger, corpus.tokenizer, (0, block.size))
    assert proof.failures == []
    ledger.loc[1, "token_end"] -= 1
    proof = verify([block], examples, ledger, corpus.tokenizer, (0, block.size))
    assert [f.split(":")[0] for f in proof.failures] == ["b copy 0"]
