"""Rewordings of texts."""

import copy
import json
import math
import subprocess
import sys
from collections import Counter
from types import MappingProxyType, SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
import yaml
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import (
    AutoModelForMaskedLM,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertModel,
    LlamaConfig,
    LlamaForCausalLM,
    ModernBertConfig,
    ModernBertForMaskedLM,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForMaskedLM,
)

from contamination.core.config import CONF, identity_data, instantiate_node
from contamination.core.errors import ConfigError
from contamination.core.seeds import derive_seed
from contamination.data.perturbation.masked_lm import (
    MaskedLM,
    max_input_tokens,
    open_masked_model,
    special_tokens_around,
)
from contamination.data.perturbation.masking import (
    CLOSE_LOGITS,
    WORD,
    Blank,
    Vocabulary,
    Window,
    _gumbel_noise,
    choose_blanks,
    draw_token,
    fill_blanks,
    iter_windows,
    mask_blanks,
)
from contamination.data.perturbation.word_edits import Delete, Exact, Lowercase, Swap

TEXTS = [
    "The heron waits in the reeds until the river is quiet, and only then does it move.",
    "Question: why did the ladder (the old one) lean on the wall?\nAnswer: nobody knows why.",
    "Rivers don't wait; the heron, the reeds and the wall do.",
    "A ladder leans on the orchard wall, but nobody has picked the pears since last week.",
]
LONG = " ".join(TEXTS * 6)
KEYS = [("example", i) for i in range(len(TEXTS))]
SPECIAL = ["<pad>", "<s>", "</s>", "<unk>", "<mask>"]
DRAWN = [Swap(), Delete(share=0.3)]


def words_of(text):
    return text.split()


# --- without a model ---------------------------------------------------------------------------


def test_exact_and_lowercase():
    assert Exact().reword(TEXTS, KEYS, 0) == TEXTS
    assert Lowercase().reword(TEXTS, KEYS, 0) == [text.lower() for text in TEXTS]


@pytest.mark.parametrize("rewording", DRAWN)
def test_a_version_follows_from_the_seed_and_the_key_alone(rewording):
    versions = rewording.reword(TEXTS, KEYS, 7)
    backwards = rewording.reword(TEXTS[::-1], KEYS[::-1], 7)[::-1]
    alone = [rewording.reword([t], [k], 7)[0] for t, k in zip(TEXTS, KEYS, strict=True)]
    assert versions == backwards == alone
    assert rewording.reword(TEXTS, KEYS, 8) != versions
    assert len(set(rewording.reword(TEXTS[:1] * 20, range(20), 7))) > 15


def test_the_draws_are_those_of_the_seed_the_kind_and_the_key():
    text, key = "one  two three\nfour five six", ("example", 3)
    swapped, gaps = text.split(), ["  ", " ", "\n", " ", " ", ""]
    rng = np.random.default_rng(derive_seed(7, "swap", key))
    for _ in range(2):  # 0.4 of 6
        first, second = rng.choice(6, size=2, replace=False)
        swapped[first], swapped[second] = swapped[second], swapped[first]
    expected = "".join(f"{word}{gap}" for word, gap in zip(swapped, gaps, strict=True))
    assert Swap(0.4).reword([text], [key], 7) == [expected]
    rng = np.random.default_rng(derive_seed(7, "delete", key))
    kept = sorted(rng.choice(6, size=4, replace=False))
    (version,) = Delete(0.4).reword([text], [key], 7)
    assert version.split() == [text.split()[i] for i in kept]


def test_blanks_are_drawn_words_without_their_punctuation():
    text, rng = "(one), two! don't four-", np.random.default_rng(5)
    words = [match.span() for match in WORD.finditer(text)]
    assert [text[start:end] for start, end in words] == ["one", "two", "don't", "four"]
    spans = [words[i] for i in sorted(rng.choice(4, size=2, replace=False))]
    assert choose_blanks(text, 0.5, 5) == [
        Blank(start, end, text[start:end], derive_seed(5, start)) for start, end in spans
    ]
    assert choose_blanks("?!", 0.5, 5) == []
    blanks = [Blank(1, 4, "one", 0), Blank(7, 10, "two", 0)]
    assert fill_blanks(text, blanks, ["x", "yy"]) == "(x), yy! don't four-"


def test_swap_moves_words_between_their_places():
    for text, version in zip(TEXTS, Swap().reword(TEXTS, KEYS, 0), strict=True):
        assert Counter(words_of(version)) == Counter(words_of(text))
        assert [c for c in version if c.isspace()] == [c for c in text if c.isspace()]
        assert version != text


@pytest.mark.parametrize(("share", "n", "swaps"), [(0.05, 10, 1), (0.1, 10, 1), (0.29, 100, 29)])
def test_swap_counts(share, n, swaps):
    numbers = [str(i) for i in range(n)]
    for version in Swap(share).reword([" ".join(numbers)] * 20, range(20), 0):
        order = list(map(int, version.split()))
        # a permutation of c cycles takes n - c swaps; more swaps keep the parity
        least = n - cycles(order)
        assert least <= swaps
        assert (swaps - least) % 2 == 0


def cycles(order):
    seen, count = set(), 0
    for start in order:
        count += start not in seen
        while start not in seen:
            seen.add(start)
            start = order[start]
    return count


@pytest.mark.parametrize(("share", "n", "left"), [(0.1, 30, 27), (0.01, 5, 4), (1.0, 6, 1)])
def test_delete_keeps_the_rest_in_order(share, n, left):
    text = " ".join(map(str, range(n)))
    for version in Delete(share).reword([text] * 20, range(20), 0):
        kept = list(map(int, version.split(" ")))
        assert kept == sorted(kept)
        assert len(kept) == left


def test_delete_keeps_lines_apart():
    text = "  a b\nc d\n"
    versions = Delete(share=0.5).reword([text] * 60, range(60), 0)
    expected = {"  a b\n", "  c d\n", "  a\nc\n", "  a\nd\n", "  b\nc\n", "  b\nd\n"}
    assert set(versions) == expected


@pytest.mark.parametrize("rewording", DRAWN)
def test_texts_without_two_words_are_their_own_version(rewording):
    texts = ["", " \n", "word", " word\n"]
    assert rewording.reword(texts, range(4), 0) == texts


@pytest.mark.parametrize("make", [Swap, Delete, lambda share: MaskedLM("id", share=share)])
@pytest.mark.parametrize("share", [0, -0.1, 1.1, float("nan")])
def test_impossible_shares_are_refused(make, share):
    with pytest.raises(ConfigError, match=r"share is .*: give a fraction"):
        make(share)


@pytest.mark.parametrize("rewording", DRAWN)
def test_texts_and_keys_must_pair(rewording):
    with pytest.raises(ValueError, match="zip"):
        rewording.reword(TEXTS, KEYS[:2], 0)


def test_every_config_file_makes_a_rewording():
    made = {}
    for path in sorted((CONF / "rewording").glob("*.yaml")):
        made[path.stem] = instantiate_node("rewording", yaml.safe_load(path.read_text()))
    masked_lm = made.pop("masked_lm")
    assert made == {"none": Exact(), "swap": Swap(), "delete": Delete(), "lowercase": Lowercase()}
    assert masked_lm == MaskedLM(masked_lm.path)
    with pytest.raises(ConfigError, match=r"rewording: swap.share is 2"):
        instantiate_node(
            "rewording", {"_target_": "contamination.data.perturbation.word_edits.Swap", "share": 2}
        )


def test_importing_needs_no_torch():
    code = (
        "import sys, contamination.data.perturbation; "
        "print({'torch', 'transformers'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


# --- the parts of the masked model -------------------------------------------------------------


def test_a_word_is_one_mask_however_many_tokens_it_has():
    text = "un even, wall"
    holes = [Blank(3, 7, "even", 0), Blank(9, 13, "wall", 0)]
    offsets = [(0, 2), (2, 5), (5, 7), (7, 8), (9, 11), (11, 13)]  # ' ev' has its space
    assert text[3:7] == "even"
    assert mask_blanks([1, 2, 3, 4, 5, 6], offsets, holes, 99) == ([1, 99, 4, 99], [1, 3])


def test_noise_is_gumbels_of_splitmix64():
    def noise(token, seed):
        z = (seed + (token + 1) * 0x9E3779B97F4A7C15) % 2**64
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        z ^= z >> 31
        return -math.log(-math.log(((z >> 11) + 0.5) / 2**53))

    ids = np.array([0, 1, 5, 50_000])
    for seed in (0, 7, 2**63 - 1):
        expected = [noise(token, seed) for token in ids.tolist()]
        assert _gumbel_noise(ids, seed) == pytest.approx(expected)
    logits = np.array([3.0, 2.5, 2.0, 1.0])
    for seed in range(20):
        best = max(range(3), key=lambda i: logits[i] + noise(int(ids[i]), seed))
        assert draw_token(logits, ids, 3, seed)[0] == ids[best]
        assert draw_token(logits[:2], ids[:2], 9, seed)[0] in ids[:2]


def test_a_short_text_is_one_window_and_a_long_one_has_a_quarter_on_each_side():
    assert list(iter_windows([5, 6, 7], [1], 4, 5, ([1], [2]))) == [
        Window([1, 5, 6, 7, 2], [(4, 2)])
    ]
    assert list(iter_windows([5, 6, 7], [], 0, 5, ([1], [2]))) == []
    assert list(iter_windows(range(10), [0, 5, 9], 0, 10, ([90], [91]))) == [
        Window([90, *range(6), 91], [(0, 1)]), Window([90, *range(2, 10), 91], [(1, 4)]),
        Window([90, *range(6, 10), 91], [(2, 4)]),
    ]  # fmt: skip


class Pieces:
    """A tokenizer of SentencePiece's kind, whose normalizer puts a mark before each text."""

    all_special_ids, added_tokens_decoder = (0,), MappingProxyType({5: "more"})
    backend_tokenizer = SimpleNamespace(
        normalizer=normalizers.Sequence(
            [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁"), normalizers.NFC()]
        )
    )
    tokens = ("▁<s>", "▁Heron", "▁heron", "wall", "▁,", "▁more", "▁late")

    def get_vocab(self):
        return {token: number for number, token in enumerate(self.tokens)}

    def batch_decode(self, rows):
        return [self.tokens[i].replace("▁", " ") for (i,) in rows]


def test_whole_words_are_those_that_begin_with_the_mark():
    words = Vocabulary(Pieces(), 6)  # the model has no entry for the last token
    assert words.words == ["", "Heron", "heron", "", "", ""]
    assert words.same == {"heron": [1, 2]}
    assert not words.folds_case
    assert words.fold_word("HERON") == "heron"
    assert words.word_in_original_case(2, "WALL") == "heron"
    with pytest.raises(ConfigError) as error:
        words.check_has_words("some/model")
    assert str(error.value) == (
        "masked_lm.path is 'some/model': its tokenizer has 1 tokens that are whole words, but a "
        "replacement needs at least 2. Choose another masked model."
    )
    Vocabulary(Pieces(), 7).check_has_words("some/model")


def test_windows_fill_each_blank_once_in_its_context():
    ids, places = list(range(1000, 1333)), list(range(0, 333, 3))
    seen = list(iter_windows(ids, places, 50, 42, ([1], [2])))
    numbers = [number for window in seen for number, _ in window.blanks]
    assert numbers == list(range(50, 50 + len(places)))
    for window in seen:
        assert len(window.ids) <= 42
        assert (window.ids[0], window.ids[-1]) == (1, 2)
        for number, place in window.blanks:
            token = places[number - 50]
            assert window.ids[place] == ids[token]
            assert min(place - 1, token) >= min(10, token)  # a quarter of a window on the left
            right, all_right = len(window.ids) - 2 - place, len(ids) - 1 - token
            assert right >= min(10, all_right)


def test_words_are_drawn_as_often_as_the_model_says():
    logits, ids = np.log([0.5, 0.3, 0.15, 0.05]), np.array([7, 100, 3, 50_000])
    drawn = Counter(draw_token(logits, ids, 3, seed)[0] for seed in range(4000))
    assert set(drawn) == {7, 100, 3}
    for token, p in ((7, 0.5), (100, 0.3), (3, 0.15)):
        assert drawn[token] / 4000 == pytest.approx(p / 0.95, abs=0.03)


def test_a_sure_draw_is_proof_against_rounding():
    rng = np.random.default_rng(0)
    unsure = 0
    for seed in range(2000):
        logits = -np.sort(-rng.normal(scale=0.05, size=12))
        token, sure = draw_token(logits, np.arange(12), 8, seed)
        unsure += not sure
        shifted = logits + rng.uniform(-CLOSE_LOGITS / 2.1, CLOSE_LOGITS / 2.1, size=12)
        order = np.argsort(-shifted)
        if sure:
            assert draw_token(shifted[order], order, 8, seed)[0] == token
    assert 0 < unsure < 100


# --- with a model ------------------------------------------------------------------------------


def wordpiece():
    tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer, trainers.WordPieceTrainer(
        vocab_size=200, special_tokens=SPECIAL, show_progress=False
    )


def byte_level():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer, trainers.BpeTrainer(
        vocab_size=400, special_tokens=SPECIAL, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip


def unigram():
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer, trainers.UnigramTrainer(
        vocab_size=120, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False
    )


SIZE = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "initializer_range": 0.3,  # each token then tells on the others, as in a trained model
}  # fmt: skip
MODELS = {
    "bert": (wordpiece, BertConfig, BertForMaskedLM, {"max_position_embeddings": 64}),
    "roberta": (byte_level, RobertaConfig, RobertaForMaskedLM, {"max_position_embeddings": 65}),
    "modernbert": (
        byte_level, ModernBertConfig, ModernBertForMaskedLM,
        {"max_position_embeddings": 64, "cls_token_id": 1, "sep_token_id": 2},
    ),
    "unigram": (unigram, RobertaConfig, RobertaForMaskedLM, {"max_position_embeddings": 65}),
}  # fmt: skip


def save(folder, kind):
    """A random model with a few more entries than its tokenizer, which learnt TEXTS."""
    make, config, factory, options = MODELS[kind]
    tokenizer, trainer = make()
    tokenizer.train_from_iterator([*TEXTS * 5], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    names = ("pad", "bos", "eos", "unk", "mask")
    special = {f"{name}_token": token for name, token in zip(names, SPECIAL, strict=True)}
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)
    fast.save_pretrained(folder)
    torch.manual_seed(1)
    factory(config(vocab_size=len(fast) + 5, **SIZE, **options)).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module", params=MODELS)
def folder(request, tmp_path_factory):
    return save(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return save(tmp_path_factory.mktemp("bert"), "bert")


def replaced(text, version):
    """Pairs of a word and what stands in its place, for one-word replacements."""
    before, after = words_of(text), words_of(version)
    assert len(before) == len(after)
    return [(a, b) for a, b in zip(before, after, strict=True) if a != b]


def test_a_share_of_the_words_is_replaced_by_other_words(folder):
    versions = MaskedLM(folder, share=0.4).reword(TEXTS, KEYS, 0)
    for text, version in zip(TEXTS, versions, strict=True):
        pairs = replaced(text, version)
        assert len(pairs) == int(0.4 * len(WORD.findall(text)))
        for old, new in pairs:
            (was,), (is_now,) = WORD.findall(old), WORD.findall(new)
            assert is_now.casefold() != was.casefold()
            assert WORD.sub("", old) == WORD.sub("", new)  # the punctuation stays
        assert not any(token in version for token in [*SPECIAL, "#", "Ġ", "▁", "\ufffd"])


def test_a_version_is_the_same_in_any_order_and_batch(folder):
    texts, keys = [*TEXTS, LONG], [*KEYS, "long"]
    versions = MaskedLM(folder).reword(texts, keys, 3)
    assert MaskedLM(folder).reword(texts[::-1], keys[::-1], 3)[::-1] == versions
    assert MaskedLM(folder, batch_tokens=1).reword(texts, keys, 3) == versions
    assert MaskedLM(folder).reword(texts[-1:], keys[-1:], 3) == versions[-1:]
    assert MaskedLM(folder).reword(texts, keys, 4) != versions
    assert len(set(MaskedLM(folder).reword(TEXTS[:1] * 10, range(10), 3))) == 10


def test_rounding_that_differs_with_the_batch_changes_no_version(bert, monkeypatch):
    from contamination.data.perturbation.mask_filling import MaskFiller

    exact = MaskFiller._blank_logits

    def rounded(self, batch):
        logits = exact(self, batch)
        generator = torch.Generator().manual_seed(len(batch))
        return logits + 0.4 * (torch.rand(logits.shape, generator=generator) - 0.5)

    monkeypatch.setattr("contamination.data.perturbation.masking.CLOSE_LOGITS", 0.5)
    monkeypatch.setattr(MaskFiller, "_blank_logits", rounded)
    texts = [TEXTS[0]] * 16
    versions = MaskedLM(bert).reword(texts, range(16), 0)
    assert MaskedLM(bert, batch_tokens=1).reword(texts, range(16), 0) == versions


def test_a_batch_that_does_not_fit_is_halved(bert, monkeypatch):
    from contamination.data.perturbation import mask_filling

    bars, draw = [], mask_filling.MaskFiller._draw_answers
    limit, sizes = [2], []

    def limited(self, batch, blanks):
        sizes.append(len(batch))
        if len(batch) > limit[0]:
            raise torch.cuda.OutOfMemoryError("full")
        return draw(self, batch, blanks)

    def bar(**options):
        bars.append(options)
        return MagicMock()

    expected = MaskedLM(bert).reword(TEXTS, KEYS, 3)
    monkeypatch.setattr(mask_filling, "progress_bar", bar)
    monkeypatch.setattr(mask_filling.MaskFiller, "_draw_answers", limited)
    assert MaskedLM(bert).reword(TEXTS, KEYS, 3) == expected
    assert sizes[:3] == [4, 2, 2]
    assert bars == [{"total": 4, "desc": "rewording", "unit": "window"}]
    limit[0] = 0
    message = (
        r"^a window of \d+ tokens does not fit into the device's memory\. Set a smaller "
        r"masked_lm\.window_tokens, or masked_lm\.device=cpu\.$"
    )
    with pytest.raises(ConfigError, match=message):
        MaskedLM(bert).reword(TEXTS, KEYS, 3)


def test_batches_begin_with_the_longest_windows():
    from contamination.data.perturbation.mask_filling import MaskFiller

    windows = [Window([0] * length, []) for length in (3, 5, 1, 4, 2)]
    batches = MaskFiller._iter_batches_longest_first(None, windows, 10)
    assert [[len(window.ids) for window in batch] for batch in batches] == [[5, 4], [3, 2, 1]]
    batches = MaskFiller._iter_batches_longest_first(None, windows, 2)
    assert [[len(window.ids) for window in batch] for batch in batches] == [
        [5], [4], [3], [2], [1]
    ]  # fmt: skip


def test_the_special_tokens_and_the_length_are_the_models(bert):
    tokenizer, model = open_masked_model(bert, "cpu")
    assert special_tokens_around(tokenizer) == ([1], [2])
    assert max_input_tokens(tokenizer, model) == 64
    assert not model.training
    tokenizer.model_max_length = 9
    assert max_input_tokens(tokenizer, model) == 9


def test_long_texts_are_reworded_to_their_end(folder):
    (version,) = MaskedLM(folder, share=1.0).reword([LONG], [0], 0)
    assert len(replaced(LONG, version)) == len(WORD.findall(LONG))


def test_one_candidate_is_the_models_best_other_word(folder):
    """Against a plain forward over the text with one mask, without windows and hooks."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForMaskedLM.from_pretrained(folder).eval()
    usable = Vocabulary(tokenizer, model.config.vocab_size)
    rewording = MaskedLM(folder, share=0.01, candidates=1)
    for text, version in zip(TEXTS, rewording.reword(TEXTS, KEYS, 0), strict=True):
        at, new = next(
            (m.span(), n.group())
            for m, n in zip(WORD.finditer(text), WORD.finditer(version), strict=True)
            if m.group() != n.group()
        )
        encoded = tokenizer(text, return_offsets_mapping=True)
        spans = encoded["offset_mapping"]
        inside = [i for i, (a, b) in enumerate(spans) if a < at[1] and b > at[0]]
        ids = encoded["input_ids"]
        ids[inside[0] : inside[-1] + 1] = [tokenizer.mask_token_id]
        with torch.inference_mode():
            logits = model(torch.tensor([ids])).logits[0, inside[0]]
        best = next(
            i for i in logits.argsort(descending=True).tolist()
            if usable.words[i] and usable.words[i].casefold() != text[slice(*at)].casefold()
        )  # fmt: skip
        assert new.casefold() == usable.words[best].casefold()


def test_spellings_that_the_model_takes_for_one_word_are_one(bert):
    tokenizer = AutoTokenizer.from_pretrained(bert)
    usable = Vocabulary(tokenizer, len(tokenizer))
    assert usable.same[usable.fold_word("Héron")] == [tokenizer.get_vocab()["heron"]]


def test_capitals_stay_where_the_model_knows_none(bert):
    texts = ["Heron wall RIVER Don't waits A"]
    (version,) = MaskedLM(bert, share=1.0).reword(texts, [0], 0)
    first, second, third, fourth, fifth, sixth = version.split()
    assert second.islower()
    assert fifth.islower()
    assert third.isupper()
    for word in (first, fourth, sixth):
        assert word[0] == word[0].upper()


def test_texts_that_look_special_or_have_no_words(bert):
    texts = ["", " \n ", "?! —", "<mask> river </s> <pad>", "été Été ÉTÉ", "漢字 \U0001f600 heron"]
    versions = MaskedLM(bert, share=1.0).reword(texts, range(6), 0)
    assert versions[:3] == texts[:3]
    assert [len(v.split()) for v in versions[3:]] == [4, 3, 3]
    assert versions[3][0] == "<"
    assert MaskedLM(bert).reword([], [], 0) == []


def test_what_only_says_how_to_run_is_no_part_of_the_identity(bert):
    assert identity_data(MaskedLM(bert, batch_tokens=1, device="cpu")) == identity_data(
        MaskedLM(bert)
    )
    assert identity_data(MaskedLM(bert, candidates=5)) != identity_data(MaskedLM(bert))


@pytest.mark.parametrize(
    ("field", "value"),
    [("candidates", 0), ("window_tokens", 3), ("batch_tokens", 0), ("device", "gpu")],
)
def test_impossible_settings_are_refused(field, value):
    with pytest.raises(ConfigError, match=rf"masked_lm\.{field} is {value!r}: give"):
        MaskedLM("id", **{field: value})


def test_a_missing_folder_is_refused_before_any_work(tmp_path):
    with pytest.raises(ConfigError, match=r"masked_lm\.path is .*no such folder"):
        MaskedLM(str(tmp_path / "absent"))


def test_models_that_do_not_serve_are_named(bert, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(bert)
    config = BertConfig(vocab_size=len(tokenizer), max_position_embeddings=64, **SIZE)
    llama = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **SIZE))
    small = BertForMaskedLM(BertConfig(vocab_size=20, max_position_embeddings=64, **SIZE))
    broken = BertForMaskedLM(config)
    torch.nn.init.constant_(broken.bert.embeddings.LayerNorm.weight, float("nan"))
    deep = BertForMaskedLM(config)
    deep.bert.encoder.layer.append(copy.deepcopy(deep.bert.encoder.layer[0]))
    for model, match in [
        (deep, "unexpected bert.encoder.layer"),
        (llama, "can't be loaded as a AutoModelForMaskedLM"),
        (BertModel(config), "lack cls.predictions"),
        (small, "more than its model"),
        (broken, "NaN or infinite"),
    ]:
        folder = tmp_path / match[:8]
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        with pytest.raises(ConfigError, match=match):
            MaskedLM(str(folder)).reword(TEXTS, KEYS, 0)


def test_a_tokenizer_without_a_mask_is_named(bert, tmp_path):
    BertForMaskedLM.from_pretrained(bert).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(bert).save_pretrained(tmp_path)
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    settings.pop("mask_token")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    with pytest.raises(ConfigError) as error:
        MaskedLM(str(tmp_path)).reword(TEXTS, KEYS, 0)
    assert str(error.value) == (
        f"masked_lm.path is {str(tmp_path)!r}: its tokenizer has no mask token. Choose a masked "
        "language model with a fast tokenizer, such as bert-base-uncased."
    )
