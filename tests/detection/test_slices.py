"""Slices of a detection: parts by several runs, in any order, killed, at once; the same bytes."""

import itertools
import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from contamination.core.artifacts import CONFIG
from contamination.core.errors import ArtifactError, ConfigError
from contamination.core.integrity import MANIFEST
from contamination.data.config import ExamplesConfig
from contamination.detection import pass_collector as collecting
from contamination.detection.config import DetectionConfig, DetectionStage, ScoredModelConfig
from contamination.detection.loaded_model import LoadedModel
from contamination.detection.methods.lowercase import Lowercase
from contamination.detection.pass_collector import Collector
from contamination.detection.pass_store import part_file_name
from contamination.detection.passes import ORIGINAL, Pass
from contamination.detection.run import run, run_slice
from tests.detection.test_pass_parts import METHODS, TEXTS, folder_of

PASSES = {p for method in METHODS.values() for p in method.passes}
REFERENCE = {Pass("reference", "lowercase")}  # of a model whose own statistics no method reads


@pytest.fixture
def collector(toy_models, resources, tmp_path, monkeypatch):
    monkeypatch.setattr(collecting, "PART_TEXTS", 2)
    monkeypatch.setattr(collecting, "PART_CHARACTERS", 300)  # several copies have other parts

    def make(runs="runs"):
        settings = DetectionConfig(device="cpu", long_texts="truncate")
        return Collector(tmp_path / runs, toy_models, TEXTS, settings, resources)

    return make


@pytest.fixture
def made(monkeypatch):
    """Which texts were read, and how, by every call of the model."""
    found, read = [], LoadedModel.run

    def watched(self, wanted, texts, known=None):
        found.append((wanted.key, [text.sha256 for text in texts]))
        return read(self, wanted, texts, known)

    monkeypatch.setattr(LoadedModel, "run", watched)
    return found


def files(runs, *but):
    """The bytes of all files of the passes."""
    found = (path for path in runs.glob("passes/*/*") if path.name not in but)
    return {path.relative_to(runs): path.read_bytes() for path in found}


def test_slices_in_any_order_are_the_run_of_all(collector, made, tmp_path):
    wanted = PASSES | REFERENCE
    collector("whole").collect(wanted)
    read = sorted(made)
    for number in (3, 1, 2):
        made.clear()
        collector("cut").collect_slice(wanted, number, 3)
        assert 0 < len(made) < len(read) / 2
    assert files(tmp_path / "cut") == files(tmp_path / "whole", MANIFEST)
    made.clear()
    collector("cut").collect(wanted)
    assert not made
    manifests = [
        sorted((tmp_path / name).glob(f"passes/*/{MANIFEST}")) for name in ("whole", "cut")
    ]
    one, other = ([json.loads(file.read_text()) for file in found] for found in manifests)
    assert [(m["files"], m["counts"]) for m in one] == [(m["files"], m["counts"]) for m in other]
    assert collector("cut").collect_slice(wanted, 1, 3) == 0  # it is finished


@pytest.mark.parametrize("of", [1, 2, 3, 5, 7])
def test_each_part_is_in_one_slice(collector, made, tmp_path, of):
    counts = [collector().collect_slice([ORIGINAL], number + 1, of) for number in range(of)]
    assert sum(counts) == 5 == len(list(folder_of(tmp_path).glob("stats-*")))
    assert max(counts) - min(counts) <= 1
    assert [sha256 for _, own in made for sha256 in own] == sorted(t.sha256 for t in TEXTS)


def test_a_killed_slice_goes_on_where_it_was(collector, made, monkeypatch, tmp_path):
    collector("whole").collect([ORIGINAL])
    watched, left = LoadedModel.run, itertools.count()

    def killed(self, *given):
        if next(left) == 1:
            raise KeyboardInterrupt
        return watched(self, *given)

    monkeypatch.setattr(LoadedModel, "run", killed)
    with pytest.raises(KeyboardInterrupt):
        collector().collect_slice([ORIGINAL], 2, 2)
    folder = folder_of(tmp_path)
    assert {path.name for path in folder.iterdir()} == {CONFIG, part_file_name(2)}
    stamp = (folder / part_file_name(2)).stat()
    assert collector().collect_slice([ORIGINAL], 2, 2) == 2
    assert (folder / part_file_name(2)).stat() == stamp
    collector().collect([ORIGINAL])
    assert files(tmp_path / "runs", MANIFEST) == files(tmp_path / "whole", MANIFEST)


def test_a_part_that_is_there_by_then_stays(collector, monkeypatch, tmp_path):
    collector("other").collect_slice([ORIGINAL], 1, 1)
    other, read = folder_of(tmp_path, "other"), LoadedModel.run

    def overtaken(self, wanted, texts, known=None):
        for n in (0, 1):  # the one that is being made, and the next one
            if not (folder_of(tmp_path) / part_file_name(n)).exists():
                (other / part_file_name(n)).rename(folder_of(tmp_path) / part_file_name(n))
        seen.append([(folder_of(tmp_path) / part_file_name(n)).stat().st_ino for n in (0, 1)])
        return read(self, wanted, texts, known)

    seen = []
    monkeypatch.setattr(LoadedModel, "run", overtaken)
    collector().collect_slice([ORIGINAL], 1, 1)
    assert len(seen) == 4
    assert seen[0] == [(folder_of(tmp_path) / part_file_name(n)).stat().st_ino for n in (0, 1)]
    assert not list(folder_of(tmp_path).glob(".*"))


def test_the_same_slice_twice_at_once_is_made_once(collector, made):
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(collector().collect_slice, [ORIGINAL], 1, 2) for _ in range(2)]
    assert sorted(each.result() for each in both) == [0, 2]
    assert len(made) == 2


def test_a_damaged_part_is_left_to_the_run_of_all(collector, tmp_path):
    collector("whole").collect({Pass(view="lowercase"), ORIGINAL})
    collector().collect_slice([ORIGINAL], 1, 1)
    file = folder_of(tmp_path) / part_file_name(0)
    file.write_bytes(file.read_bytes()[:-9])
    for _ in range(2):
        with pytest.raises(ArtifactError, match=r"stats-00000.* without slice"):
            collector().collect_slice(Lowercase().passes, 1, 1)
    collector().collect(Lowercase().passes)
    assert files(tmp_path / "runs", MANIFEST) == files(tmp_path / "whole", MANIFEST)


def test_a_slice_makes_no_scores_and_says_so(collector, toy_folders, tmp_path, caplog):
    file = tmp_path / "texts.jsonl"
    file.write_text("".join(json.dumps({"text": text.text}) + "\n" for text in TEXTS))

    def stage(runs, number=None):
        method = {"loss": {"_target_": "contamination.detection.methods.loss.Loss"}}
        return DetectionStage(
            runs=str(tmp_path / runs), examples=ExamplesConfig(str(file)), method=method,
            model=ScoredModelConfig(str(toy_folders["target"])), slice=number,
            detection=DetectionConfig(device="cpu"),
        )  # fmt: skip

    caplog.set_level("INFO")
    for number, said in (("2/2", "wrote 3 parts"), ("2/2", "nothing to do"), ("1/9", "nothing to")):
        caplog.clear()
        run_slice(stage("cut", number))
        assert f"slice {number}: {said}" in caplog.text
        assert "the same command without slice" in caplog.text
    assert not (tmp_path / "cut" / "scores").exists()
    caplog.clear()
    scores = run(stage("cut"))
    assert "3 of 5 parts are already stored" in caplog.text
    assert scores.files == run(stage("whole")).files


@pytest.mark.parametrize("words", ["0/2", "3/2", "2", "a/b", "1/0", "-1/2", ""])
def test_a_slice_that_there_is_not_is_named(words):
    with pytest.raises(ConfigError, match=f"^slice is '{words}': give a slice such as 2/8"):
        run_slice(DetectionStage(method={"loss": {}}, slice=words))
