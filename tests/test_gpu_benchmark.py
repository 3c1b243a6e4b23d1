"""perf.gpu at tiny shapes on a CPU: its parts, and what it makes of those that fail."""

import json
import math
import subprocess
import sys
import time

import numpy as np
import pytest

import contamination.launch.run  # noqa: F401 (every schema)
from contamination.core.cli import compose_stage
from contamination.detection.models.causal_lm import CausalLM
from contamination.launch.config import LaunchSettings
from contamination.training.config import TrainingStage
from perf import detection, gpu, gpu_parts
from perf.gpu_parts import LARGE, TINY


def rows_of(work, *given):
    rows = []
    work(TINY, rows.append, *given)
    assert json.loads(json.dumps(rows)) == rows
    return rows


def test_the_detection_benchmark_measures_every_column():
    model = CausalLM(detection.random_llama(64, 96))
    rows = np.random.default_rng(0).integers(96, size=(2, 12)).tolist()
    found = detection.measure_seconds(model, rows, 1)
    assert len(found) == len(detection.GOALS)  # the bare forward and all but the goal of the pass
    assert all(value > 0 and math.isfinite(value) for value in found)


def test_detection_has_a_row_for_each_way_with_and_without_the_kernel():
    rows = rows_of(gpu.part_by_name()["7b-128k"].work, 0)
    ways = ["four methods", "pac", "infilling m=1", "infilling m=5"]
    assert [row["what"] for row in rows] == 2 * ways
    assert {row["vocabulary"] for row in rows} == {300}
    assert all(row["texts/s"] * row["× bare"] * row["bare s"] == pytest.approx(2) for row in rows)


@pytest.mark.filterwarnings("ignore")  # DeepSpeed's own
@pytest.mark.parametrize("name", ["train-1b-eager", "train-7b"])
def test_training_says_its_speed_and_losses(name):
    (row,) = rows_of(gpu.part_by_name()[name].work, 0)
    assert row["engine"] == {"train-1b-eager": "zero2", "train-7b": "zero3+offload"}[name]
    assert (row["micro-batch"], row["compiled"]) == (4, False)
    assert row["tokens/s"] > 0
    assert all(float(loss) == pytest.approx(np.log(256), abs=0.1) for loss in row["losses"].split())


@pytest.mark.parametrize("shapes", [LARGE, TINY])
def test_the_study_is_one_that_a_launch_takes(shapes):
    """All that is checked of its words before any work."""
    for schema in (TrainingStage, LaunchSettings):
        compose_stage("pipeline", shapes.study, schema)


@pytest.fixture
def ended(monkeypatch, tmp_path):
    """A part whose processes write a row and end so; the rows, and how many there were."""

    def run(*statuses, left=99.0):
        asked, given = [], iter(statuses)

        def wait(words, said, end):
            asked.append(words[-2])
            print("the last line", file=said, flush=True)
            status = next(given)
            if status in (0, None):
                file = tmp_path.__class__(words[-1].partition("=")[2])
                file.write_text('{"a": 1.5}\n')
            return status

        monkeypatch.setattr(gpu, "_wait_for_child", wait)
        part = gpu.Part("A table", 50.0, print)
        return gpu.run_part("one", part, "tiny", tmp_path / "log", left), len(asked)

    return run


def test_a_part_that_fails_says_so_and_keeps_its_rows(ended):
    assert ended(0) == ([{"a": 1.5}], 1)
    assert ended(gpu.FULL, gpu.FULL, 0) == ([{"a": 1.5}], 3)
    assert ended(None) == ([{"a": 1.5}, {"part": "one", "failed": "not done in 50 s"}], 1)
    late = {"part": "one", "failed": "not done in 30 s"}
    assert ended(None, left=30.0) == ([{"a": 1.5}, late], 1)
    assert ended(-9) == ([{"part": "one", "failed": "status -9: the last line"}], 1)
    full = [gpu.FULL] * gpu.ATTEMPTS
    assert ended(*full) == ([{"part": "one", "failed": "the memory is full"}], gpu.ATTEMPTS)
    assert ended(left=5.0) == ([{"part": "one", "skipped": "5 s were left"}], 0)


def test_an_earlier_runs_rows_are_kept_where_all_is_the_same(tmp_path):
    file, facts = tmp_path / "gpu.json", {"device": "D", "revision": "r"}
    assert gpu.rows_of_earlier_run(file, facts) == {}
    file.write_text(json.dumps({"about": facts, "parts": {"one": [{"a": 1}]}}))
    assert gpu.rows_of_earlier_run(file, facts) == {"one": [{"a": 1}]}
    assert gpu.rows_of_earlier_run(file, {**facts, "revision": "s"}) == {}
    file.write_text('{"about": ')
    assert gpu.rows_of_earlier_run(file, facts) == {}


@pytest.fixture
def begun(monkeypatch, tmp_path):
    """`main` of these words with parts that are not run: each gives the rows; what was asked."""
    asked = []

    def main(*words, rows=({"a": 1},)):
        monkeypatch.setattr(sys, "argv", ["gpu", f"out={tmp_path}", "revision=r", *words])
        monkeypatch.setattr(
            gpu, "run_part", lambda name, _, shapes, *__: asked.append(shapes) or rows
        )
        status = gpu.main()
        return status, json.loads((tmp_path / "gpu.json").read_text()), asked

    return main


def test_shapes_are_tiny_without_a_gpu_and_said_so(begun, monkeypatch, capsys):
    monkeypatch.setattr(gpu_parts.torch.cuda, "is_available", lambda: False)
    status, found, asked = begun("golden")
    assert (status, found["about"]["shapes"], asked) == (0, "tiny", ["tiny"])
    assert "shapes=tiny, which tries the code" in capsys.readouterr().out
    assert begun("golden", "shapes=large")[2] == ["tiny", "large"]


def test_one_part_again_keeps_the_others_rows_of_the_same_shapes(begun):
    begun("golden", "shapes=tiny")
    assert {*begun("135m", "shapes=tiny")[1]["parts"]} == {"golden", "135m"}
    skipped = [{"part": "golden", "skipped": "5 s were left"}]
    assert begun("golden", "shapes=tiny", rows=skipped)[1]["parts"]["golden"] == [{"a": 1}]
    assert {*begun("135m", "shapes=large")[1]["parts"]} == {"135m"}
    assert begun("135m", "shapes=large", rows=[{"part": "135m", "failed": "why"}])[0] == 1


def test_failing_gpu_tests_fail_the_part(monkeypatch):
    ended = subprocess.CompletedProcess([], 1, "1 failed, 3 passed", "")
    monkeypatch.setattr(gpu_parts.subprocess, "run", lambda *_, **__: ended)
    assert [*map(sorted, rows_of(gpu_parts.tests, 0))] == [["pytest -m gpu"], ["failed", "part"]]


def test_an_unknown_part_is_no_traceback(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["gpu", "nosuch"])
    assert gpu.main() == 2
    assert "and parts of: tests, golden" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["gpu", "shape=tiny", "golden"])
    assert gpu.main() == 2


def test_a_process_is_ended_with_all_that_it_started():
    """Both inherit the pipe, which is at its end only when both are gone."""
    sleep = "import time; time.sleep(60)"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {sleep!r}])"
    reader = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    assert (
        gpu._wait_for_child([sys.executable, "-c", code], reader.stdin, time.monotonic() + 1)
        is None
    )
    reader.stdin.close()
    assert reader.wait(30) == 0


def test_rows_become_a_table_a_title():
    rows = [{"x": 12345.0, "y": 1}, {"part": "one", "failed": "status 1: why"}]
    found = {"one": ("T", rows), "two": ("T", [{"x": 0.5}]), "three": ("U", [])}
    text = gpu.render_markdown({"device": "D", "GiB": 80}, found)
    assert text == (
        "device D, GiB 80\n\n## T\n\n| x | y |\n| --- | --- |\n| 12,345 | 1 |\n| 0.5 |  |\n\n"
        "- one failed: status 1: why\n\n## U\n\n"
    )
