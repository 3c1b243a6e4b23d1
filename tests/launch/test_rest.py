"""What is left of a sweep, from what the finished cells' runs took."""

import json
from dataclasses import asdict

import pytest

from contamination.core import process_records
from contamination.core.process_records import Progress
from contamination.launch.cells import Launch, Outcome
from contamination.launch.config import ClusterConfig
from contamination.launch.run_records import Cost
from contamination.launch.stage_runner import Stages, TimeLeft, estimate_time_left
from contamination.launch.status import status

FIRST = {"train base": 100, "train study": 10, "detect clean": 20, "detect contaminated": 30}


@pytest.fixture
def launch(tmp_path):
    made = Launch.of_command(str(tmp_path / "runs"), "study", ["seed=9,8,7,6"])
    made.register([[f"seed={seed}"] for seed in (9, 8, 7, 6)])
    return made


def took(launch, number, runs, *, is_done=True):
    cell = launch.cells_in_sweep_order()[number]
    costs = [Cost(*name.split(), seconds, 1, "cpu", "m") for name, seconds in runs.items()]
    lines = [json.dumps(asdict(cost)) + "\n" for cost in costs]
    (cell.folder / "costs.jsonl").write_text("".join(lines))
    if is_done:
        cell.write_outcome(Outcome("done", paths={}))
    return cell


def test_nothing_is_said_before_a_cell_is_done(launch):
    cell = took(launch, 0, FIRST, is_done=False)
    assert estimate_time_left(launch, cell, "train study") is None
    took(launch, 1, FIRST)
    assert estimate_time_left(launch, cell, "train other") is None


def test_what_the_first_cell_made_for_all_is_not_counted_again(launch):
    took(launch, 0, FIRST)
    second = took(launch, 1, {}, is_done=False)
    assert estimate_time_left(launch, second, "train study") == TimeLeft(10, 30 + 2 * 40)


def test_what_the_cell_at_work_makes_itself_those_to_come_make_too(launch):
    took(launch, 0, FIRST)
    second = took(launch, 1, {"train base": 90}, is_done=False)
    assert estimate_time_left(launch, second, "train study") == TimeLeft(10, 30 + 2 * (90 + 40))


def test_later_cells_say_more_than_the_first(launch):
    took(launch, 0, FIRST)
    took(launch, 1, {"train study": 14, "detect clean": 4, "detect contaminated": 50})
    third = took(launch, 2, {"train study": 16}, is_done=False)
    assert estimate_time_left(launch, third, "detect clean") == TimeLeft(
        12, 50 + (14 + 16) / 2 + (4 + 12) / 2 + 50
    )


def test_a_cell_that_is_done_already_takes_no_time(launch):
    for number in (0, 2, 3):
        took(launch, number, FIRST)
    second = took(launch, 1, {}, is_done=False)
    assert estimate_time_left(launch, second, "detect contaminated") == TimeLeft(30, 0)


@pytest.mark.parametrize("in_turn", [True, False])
def test_a_run_tells_its_bars_and_status_shows_it(launch, tmp_path, monkeypatch, in_turn):
    took(launch, 0, FIRST)
    cell = launch.cells_in_sweep_order()[1]
    monkeypatch.setattr("contamination.core.progress.time.time", lambda: 1000.0)
    stages = Stages(ClusterConfig(), cell.folder, in_turn=in_turn)
    assert stages._describe_time_left("train study") == ("sweep 1010 110" if in_turn else "")
    with cell.record_run():
        process_records.record_progress(Progress("train", 1, 2, "step", 3.0, 700.0))
        assert status(tmp_path / "runs").splitlines()[0].endswith("; ~10 min left")
