"""Texts that others begin with are not read again, and have the statistics that they have alone."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from contamination.core.models import load_model
from contamination.data.texts import Texts, families_by_sha256, longest_extension_indices
from contamination.detection import pass_collector as collecting
from contamination.detection.config import DetectionConfig
from contamination.detection.forward.reader import Reader, Tokens
from contamination.detection.models.causal_lm import CausalLM
from contamination.detection.models.hf_model import TransformersModel
from contamination.detection.pass_collector import Collector
from contamination.detection.passes import FLOATS, ORIGINAL, Pass
from contamination.detection.views import view_of
from tests.detection.conftest import MEMORISED, UNSEEN
from tests.detection.golden import text_of

LONG = [f"{MEMORISED} {UNSEEN}", f"{UNSEEN} {MEMORISED}", f"Now, {MEMORISED} {MEMORISED}"]
CUTS = [
    text_of(f"{i}-{n}", " ".join(t.split()[:n])) for i, t in enumerate(LONG) for n in (17, 23, 30)
]
ALONE = text_of("alone", "Nothing else begins like this.")
INFILL = Pass(view="infill", future=3)


@pytest.fixture
def collector(toy_models, tmp_path):
    def make(runs, texts):
        return Collector(tmp_path / runs, toy_models, texts, DetectionConfig(device="cpu"))

    return make


@pytest.fixture
def read(monkeypatch):
    """The token sequences that the model reads."""
    found, stats = [], CausalLM.score

    def watched(self, sequences, compute_hidden_states=None):
        found.extend(map(tuple, sequences))
        return stats(self, sequences, compute_hidden_states)

    monkeypatch.setattr(CausalLM, "score", watched)
    return found


def test_the_longest_is_found_as_by_comparing_all():
    rng = np.random.default_rng(0)
    rows = [rng.integers(0, 2, rng.integers(1, 7)).tolist() for _ in range(60)]
    ends = longest_extension_indices(rows)
    for own, place in zip(rows, ends, strict=True):
        assert rows[place][: len(own)] == own
        assert len({tuple(r) for r in rows if r[: len(rows[place])] == rows[place]}) == 1
    assert longest_extension_indices([]) == []
    assert longest_extension_indices(["b", "a", "c"]) == [0, 1, 2]


@pytest.mark.parametrize("wanted", [ORIGINAL, INFILL, Pass(view="lowercase")])
def test_a_beginning_has_its_own_statistics(collector, monkeypatch, wanted):
    texts, found = [*CUTS, ALONE], []
    for part_texts in (100, 2):
        monkeypatch.setattr(collecting, "PART_TEXTS", part_texts)
        found.append(collector(f"by {part_texts}", texts).collect([wanted])[wanted])
    for text in texts:
        (alone,) = collector("alone", [text]).collect([wanted]).values()
        for together in found:
            own, expected = together[text.sha256], alone[text.sha256]
            assert len(own) == len(expected)
            for a, b in zip(own, expected, strict=True):
                for name in FLOATS:
                    np.testing.assert_allclose(vars(a)[name], vars(b)[name], rtol=1e-5, atol=1e-5)
                np.testing.assert_array_equal(a.top_id, b.top_id)


@pytest.mark.parametrize("part_texts", [100, 2, 1])
def test_only_the_longest_are_read_however_they_fall_into_parts(
    collector, monkeypatch, read, part_texts
):
    monkeypatch.setattr(collecting, "PART_TEXTS", part_texts)
    texts = [*CUTS, ALONE]
    before = collector("few", [*CUTS[2::3], ALONE]).collect([ORIGINAL])[ORIGINAL]
    needed, read[:] = sorted(read), []
    found = collector("all", texts).collect([ORIGINAL])[ORIGINAL]
    assert sorted(read) == needed
    assert len(found) == len(texts) > len(before)


def test_what_a_kill_left_is_kept_and_the_rest_is_right(collector, monkeypatch, tmp_path):
    monkeypatch.setattr(collecting, "PART_TEXTS", 2)
    whole = dict(collector("runs", CUTS).collect([ORIGINAL])[ORIGINAL])
    (folder,) = (tmp_path / "runs" / "passes").iterdir()
    (folder / "manifest.json").unlink()
    (folder / "stats-00001.parquet").unlink()
    again = collector("runs", CUTS).collect([ORIGINAL])[ORIGINAL]
    for sha256, (stats,) in whole.items():
        np.testing.assert_allclose(again[sha256][0].logprob, stats.logprob, rtol=1e-5, atol=1e-5)


def test_a_family_is_of_texts_that_begin_alike():
    found = families_by_sha256([Texts.of(CUTS[:4]), Texts.of([*CUTS[4:], ALONE])])
    assert found.keys() == {t.sha256 for t in CUTS}
    for family in found.values():
        ends = sorted((t.text for t in family), key=len)
        assert all(ends[-1].startswith(text) for text in ends)


def test_families_with_one_beginning_are_told_apart_by_what_follows():
    begin = "x" * 64
    texts = [text_of(end, begin + end) for end in ("a", "b", "ab", "bb", "c")]
    short_texts = [text_of(f"short {length}", "x" * length) for length in (63, 2)]
    families = families_by_sha256([Texts.of(texts[:3]), Texts.of([*texts[3:], *short_texts])])
    family_ids = {key: [text.example_id for text in family] for key, family in families.items()}
    a, b, ab, bb = (text.sha256 for text in texts[:4])
    of_a, of_b = ["a", "ab"], ["b", "bb"]
    assert family_ids == {a: of_a, ab: of_a, b: of_b, bb: of_b}


@pytest.mark.parametrize(
    ("rope", "ignores_later_tokens"),
    [({"rope_type": "longrope"}, False), ({"type": "dynamic"}, False), (None, True)],
)
def test_a_model_whose_positions_depend_on_the_length_shares_nothing(rope, ignores_later_tokens):
    model = SimpleNamespace(config=SimpleNamespace(rope_scaling=rope))
    assert TransformersModel.ignores_later_tokens.fget(model) is ignores_later_tokens


@pytest.mark.parametrize("wanted", [ORIGINAL, INFILL], ids=lambda wanted: wanted.view)
def test_in_float64_both_ways_are_equal(toy_models, toy_folders, monkeypatch, read, wanted):
    """What is left in float32 is rounding: the same code in float64 agrees to 1e-9 nats."""
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)  # logits stay as they are
    reader, view = Reader(toy_models["target"], DetectionConfig(device="cpu")), view_of(wanted)
    reader.model = CausalLM(load_model("model", str(toy_folders["target"]), "float64"))
    tokens = [Tokens(t, 0, reader.tokenizer(t.text)["input_ids"], False) for t in [*CUTS, ALONE]]
    together = reader.perform(view.describe_work(reader, wanted, tokens), "together")
    assert len(read) < len(tokens)
    for one, found in zip(tokens, together, strict=True):
        (expected,) = reader.perform(view.describe_work(reader, wanted, [one]), "alone")
        for a, b in zip(found, expected, strict=True):
            assert a.logprob.dtype == np.float64
            for name in FLOATS:
                np.testing.assert_allclose(vars(a)[name], vars(b)[name], rtol=0, atol=1e-9)
            np.testing.assert_array_equal(a.top_id, b.top_id)
