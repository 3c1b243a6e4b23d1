import numpy as np
import pandas as pd
import pytest

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


def test_a_missing_ledger_row_is_caught(ids, corpus):
    failures = check(ids, corpus, corpus.ledger.drop(index=2)).failures
    assert any("the ledger has" in f for f in failures)


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


@pytest.mark.parametrize("place", [0, 100, 1_000])  # 100: across a border of two sequences
def test_a_pasted_nonmember_is_caught(ids, corpus, place):
    examples = corpus.examples
    row = examples[~examples["member"].astype(bool)].sort_values("n_tokens").iloc[-1]
    tokens = corpus.tokenizer.encode(row["text"])
    flat = ids.reshape(-1)
    flat[place : place + len(tokens)] = tokens
    failures = "\n".join(check(ids, corpus).failures)
    assert f"{row['example_id']} (non-member): found 1 times" in failures


def test_counting_equals_a_plain_search():
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 3, size=(5_000, 8)).astype(np.int32)
    wanted = {str(n): rng.integers(0, 3, size=n).astype(np.int32) for n in (3, 5, 8, 9)}
    flat = ids.ravel()
    found = count_occurrences(np.array_split(ids, 7), wanted)
    for name, tokens in wanted.items():
        windows = np.lib.stride_tricks.sliding_window_view(flat, len(tokens))
        assert found[name] == int((windows == tokens).all(axis=1).sum())


def test_the_ledger_names_the_document_and_its_place(corpus, stage):
    from core.config import create
    from injection.run import _documents

    source = create("corpus", stage.corpus)
    texts = {d.document_id: d.text for d in _documents(stage, source)}
    ledger: pd.DataFrame = corpus.ledger
    for row in ledger.itertuples():
        text = texts[row.document_id]
        assert 0 <= row.char_offset <= len(text)
        assert (
            row.char_offset in (0, len(text))
            or text[row.char_offset].isspace()
            or (
                row.token_start < 10  # at a sequence's border a word may be cut
            )
        )


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
