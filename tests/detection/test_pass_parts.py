"""A pass in parts: the same scores for any size, kept over a kill, never scored where damaged."""

import json
import shutil

import numpy as np
import pytest

from contamination.core.errors import ArtifactError
from contamination.core.integrity import MANIFEST
from contamination.detection import pass_collector as collecting
from contamination.detection import pass_store
from contamination.detection.config import DetectionConfig
from contamination.detection.loaded_model import LoadedModel
from contamination.detection.methods.infilling import Infilling
from contamination.detection.methods.loss import Loss
from contamination.detection.methods.lowercase import Lowercase
from contamination.detection.methods.min_k import MinK
from contamination.detection.methods.pac import Pac
from contamination.detection.methods.recall import Recall
from contamination.detection.pass_collector import Collector, divide_texts
from contamination.detection.pass_store import StoredPass, is_intact, part_file_name, write_rows
from contamination.detection.passes import NUMBERS, ORIGINAL, Pass
from tests.detection.conftest import MEMORISED, UNSEEN
from tests.detection.golden import text_of
from tests.rounding import FORWARD
from tests.scoring import make_table

METHODS = {
    ("loss", ""): Loss(), ("min_k", "k=0.2"): MinK(), ("lowercase", ""): Lowercase(),
    ("pac", ""): Pac(n=2), ("infilling", "m=2"): Infilling(m=2), ("recall", ""): Recall(shots=2),
}  # fmt: skip
TEXTS = [
    text_of(f"x{i}", " ".join([*UNSEEN.split()[: 5 + i], f"number {i}", MEMORISED])[:90])
    for i in range(9)
]


@pytest.fixture
def collector(toy_models, resources, tmp_path):
    def make(runs="runs", **settings):
        settings = DetectionConfig(device="cpu", long_texts="truncate", **settings)
        return Collector(tmp_path / runs, toy_models, TEXTS, settings, resources)

    return make


def folder_of(tmp_path, runs="runs"):
    (found,) = (tmp_path / runs / "passes").glob("target*-original-*")
    return found


def statistics(copies):
    return [[getattr(one, f) for f in NUMBERS] for own in copies.values() for one in own]


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_parts_of_any_size_give_the_same_scores(collector, monkeypatch, tmp_path, processes):
    methods = METHODS if processes == 1 else {("lowercase", ""): Lowercase()}
    passes = {p for method in methods.values() for p in method.passes}
    whole = make_table(methods, TEXTS, collector("whole").collect(passes), -1)
    assert len(list(folder_of(tmp_path, "whole").glob("stats-*"))) == 1
    monkeypatch.setattr(collecting, "PART_TEXTS", 4)
    monkeypatch.setattr(pass_store, "GROUP_TOKENS", 20)
    cut = make_table(methods, TEXTS, collector("cut", processes=processes).collect(passes), -1)
    assert len(list(folder_of(tmp_path, "cut").glob("stats-*"))) == 3
    columns = [c for c in whole if c != "score"]
    assert whole[columns].equals(cut[columns])
    np.testing.assert_allclose(cut["score"], whole["score"], rtol=1e-4, atol=FORWARD)


def test_groups_of_any_size_are_read_to_the_bit(collector, monkeypatch, tmp_path):
    rows = collector()._loaded_model("target").run(Pass(view="swap", n=3, share=0.3), TEXTS, None)
    rows = sorted(rows, key=lambda row: row.text_sha256)
    for number, tokens in enumerate((1, 50, 10**9)):
        monkeypatch.setattr(pass_store, "GROUP_TOKENS", tokens)
        (tmp_path / str(number)).mkdir()
        write_rows(tmp_path / str(number) / part_file_name(0), rows)
        found = StoredPass(tmp_path / str(number))
        assert list(found) == sorted(t.sha256 for t in TEXTS)
        for text in TEXTS[::-1]:  # in another order than it was written
            own = [row.stats for row in rows if row.text_sha256 == text.sha256]
            for one, other in zip(own, found[text.sha256], strict=True):
                assert all(np.array_equal(getattr(one, f), getattr(other, f)) for f in NUMBERS)


def test_parts_hold_so_many_characters_over_all_copies(monkeypatch):
    monkeypatch.setattr(collecting, "PART_CHARACTERS", 200)
    for wanted, copies in ((ORIGINAL, 1), (Pass(view="swap", n=2), 2),
                           (Pass(view="infill", future=1), 2)):  # fmt: skip
        found = list(divide_texts(TEXTS, wanted))
        assert [t for own in found for t in own] == TEXTS
        for own in found:
            assert len(own) == 1 or copies * sum(len(t.text) for t in own) <= 200
    assert len(found) > len(list(divide_texts(TEXTS, ORIGINAL)))


def test_a_killed_pass_keeps_its_finished_parts(collector, monkeypatch, tmp_path):
    monkeypatch.setattr(collecting, "PART_TEXTS", 4)
    run, asked = LoadedModel.run, []

    def killed(self, wanted, texts, known=None):
        asked.append([t.sha256 for t in texts])
        if len(asked) == 3:
            raise KeyboardInterrupt
        return run(self, wanted, texts, known)

    monkeypatch.setattr(LoadedModel, "run", killed)
    with pytest.raises(KeyboardInterrupt):
        collector().collect([ORIGINAL])
    folder = folder_of(tmp_path)
    assert [p.name for p in sorted(folder.glob("*stats-*"))] == [
        part_file_name(0),
        part_file_name(1),
    ]
    stamps = [(folder / part_file_name(n)).stat().st_mtime_ns for n in (0, 1)]
    found = collector().collect([ORIGINAL])[ORIGINAL]
    assert asked[3:] == asked[2:3]
    assert [(folder / part_file_name(n)).stat().st_mtime_ns for n in (0, 1)] == stamps
    assert set(found) == {t.sha256 for t in TEXTS}
    counts = json.loads((folder / MANIFEST).read_text())["counts"]
    tokens = sum(len(own[0]) for own in found.values())
    assert (counts["texts"], counts["rows"], counts["scored_tokens"]) == (9, 9, tokens)


def test_no_flipped_bit_of_a_left_over_part_is_scored(collector, tmp_path):
    expected = statistics(collector().collect([ORIGINAL])[ORIGINAL])
    file = folder_of(tmp_path) / part_file_name(0)
    content, keys = file.read_bytes(), sorted(t.sha256 for t in TEXTS)
    assert is_intact(file, keys)
    assert not is_intact(file, keys[1:])
    assert not is_intact(file, keys[::-1])
    taken = 0
    for place in range(0, len(content), 29):
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 8
        file.write_bytes(damaged)
        if is_intact(file, keys):  # a bit that says nothing, such as of the writer's name
            taken += 1
            found = statistics(StoredPass(file.parent))
            for one, other in zip(found, expected, strict=True):
                assert all(map(np.array_equal, one, other)), place
    assert taken < len(content) / 29 / 3
    file.write_bytes(content[:-100])
    assert not is_intact(file, keys)


def test_a_damaged_left_over_part_is_made_again(collector, tmp_path):
    expected = statistics(collector().collect([ORIGINAL])[ORIGINAL])
    file = folder_of(tmp_path) / part_file_name(0)
    whole = file.read_bytes()
    (file.parent / MANIFEST).unlink()
    damaged = bytearray(whole)
    damaged[len(whole) // 3] ^= 1
    file.write_bytes(damaged)
    shutil.copy(file, file.with_name(part_file_name(7)))  # of another size of parts
    found = collector().collect([ORIGINAL])[ORIGINAL]
    assert file.read_bytes() == whole
    assert not file.with_name(part_file_name(7)).exists()
    for one, other in zip(statistics(found), expected, strict=True):
        assert all(map(np.array_equal, one, other))


def test_a_part_that_is_damaged_while_it_is_read_is_named(collector, tmp_path):
    found = collector().collect([ORIGINAL])[ORIGINAL]
    file = folder_of(tmp_path) / part_file_name(0)
    content = bytearray(file.read_bytes())
    content[len(content) // 3] ^= 1
    file.write_bytes(content)
    with pytest.raises(ArtifactError, match=f"{part_file_name(0)} is damaged .*Delete the folder"):
        statistics(found)
