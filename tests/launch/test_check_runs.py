"""`python -m launch check`: what is damaged or left over is named, and only that can be removed."""

import os
import shutil
import socket
import subprocess
import sys
import time

import pytest

import contamination.analysis.law.stored_law
import contamination.analysis.report_folder
import contamination.audits.run
import contamination.detection.building.datasheet
import contamination.detection.pass_store
import contamination.detection.scores
import contamination.detection.tasks.accuracy
import contamination.detection.tasks.extraction
import contamination.detection.views.reworded
import contamination.injection.corpus
import contamination.injection.decontamination.run
import contamination.injection.export.run
import contamination.training.masked_lm
import contamination.training.trained_model
import contamination.training.training_prefix
from contamination.core.artifacts import (
    WrittenFiles,
    build_or_open,
    shared_folder,
    started_or_resumed_folder,
)
from contamination.core.errors import ConfigError
from contamination.core.files import hashed_json, temporary_path, verified_json
from contamination.core.integrity import MANIFEST, SCHEMA
from contamination.core.lock import exclusive_build, lease_path
from contamination.launch.__main__ import main
from contamination.launch.check_runs import (
    ARTIFACTS,
    STATES,
    CheckedPath,
    format_paths,
    inspect_runs,
    prune_paths,
)


def make(folder):
    (folder / "data.txt").write_text("x" * 1000)
    return WrittenFiles(["data.txt"])


@pytest.fixture
def runs(tmp_path):
    for name in (
        "corpus/whole-000000000001",
        "scores/damaged-000000000001",
        "model/older-000000000001",
        "model/trained-000000000001",
    ):
        build_or_open(tmp_path / name, {}, {}, make)
    (tmp_path / "scores/damaged-000000000001/data.txt").write_text("x" * 999 + "y")
    older = tmp_path / "model/older-000000000001" / MANIFEST
    manifest = verified_json(older.read_text())
    older.write_text(hashed_json({**manifest, "schema": 99}))
    (tmp_path / "model/trained-000000000001/checkpoints/step-00000003").mkdir(parents=True)
    (tmp_path / "corpus/whole-000000000001/tokens").mkdir()
    with started_or_resumed_folder(tmp_path / "model/half-000000000001", {}):
        (tmp_path / "model/half-000000000001/checkpoints/damaged-step-00000003").mkdir(parents=True)
    (tmp_path / "corpus" / f".table.{socket.gethostname()}.{gone()}.unfinished").write_text("half")
    temporary_path(tmp_path / "corpus" / "table").write_text("half")  # this process lives
    (tmp_path / "corpus/mine").mkdir()
    (tmp_path / "corpus/mine/config.yaml").write_text("of the user")
    (tmp_path / "corpus/mine/.notes.old.2025").write_text("of the user")
    (tmp_path / ".backup.results.2025.unfinished").mkdir()
    (tmp_path / "launches" / "notes").mkdir(parents=True)
    return tmp_path


def gone():
    """The number of a process that has ended."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def states(runs):
    return {
        str(f.path.relative_to(runs)): f.state for f in inspect_runs(runs) if f.state != "whole"
    }


def test_each_thing_is_what_it_is(runs):
    found = states(runs)
    (left,) = (name for name in found if "table" in name)
    assert found == {
        "scores/damaged-000000000001": "damaged", "corpus/mine": "foreign",
        "model/half-000000000001": "unfinished", "model/older-000000000001": "older",
        "model/half-000000000001/checkpoints/damaged-step-00000003": "orphaned",
        "model/trained-000000000001/checkpoints": "orphaned",
        "corpus/whole-000000000001/tokens": "orphaned",
        left: "orphaned",
    }  # fmt: skip
    text = format_paths(runs, inspect_runs(runs))
    assert text.startswith(f"{runs}: 2 whole (")
    assert "data.txt has the SHA-256" in text
    assert "of schema 99" in text


def test_the_status_and_the_table_are_the_commands(runs, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["launch", "check", f"runs={runs}"])
    assert main() == 2
    assert "damaged" in capsys.readouterr().out
    shutil.move(runs / "scores" / "damaged-000000000001", runs / "aside")
    assert main() == 0
    assert "unfinished" in capsys.readouterr().out
    shutil.move(runs / "aside", runs / "scores" / "damaged-000000000001")
    monkeypatch.setattr(sys, "argv", ["launch", "check", f"runs={runs}", "--prune", "--yes"])
    assert main() == 0
    assert states(runs) == {"model/older-000000000001": "older", "corpus/mine": "foreign"}
    monkeypatch.setattr(sys, "argv", ["launch", "check", "--prun"])
    assert main() == 2
    monkeypatch.setattr(sys, "argv", ["launch", "check", "runs="])
    assert main() == 2
    assert "error: runs is '': give a folder." in capsys.readouterr().err


def test_only_what_is_agreed_is_removed(runs):
    before = states(runs)
    asked = []

    def no(question):
        asked.append(question)
        return False

    prune_paths(inspect_runs(runs), no)
    assert states(runs) == before
    assert [q.split(",")[0].rpartition(" (")[0] for q in asked] == ["Remove 5", "Remove 1"]
    prune_paths(inspect_runs(runs), lambda question: "left over" in question)
    kept = {"model/older-000000000001": "older", "corpus/mine": "foreign"}
    assert states(runs) == {**kept, "scores/damaged-000000000001": "damaged"}
    prune_paths(inspect_runs(runs), lambda question: True)
    assert states(runs) == {"model/older-000000000001": "older", "corpus/mine": "foreign"}
    assert sorted(p.name for p in runs.glob("*/*-000000000001")) == [
        "older-000000000001",
        "trained-000000000001",
        "whole-000000000001",
    ]


def test_of_a_linked_folder_only_the_link_is_removed(runs, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("shared") / "damaged-000000000001"
    shutil.move(runs / "scores/damaged-000000000001", elsewhere)
    (runs / "scores/damaged-000000000001").symlink_to(elsewhere)
    before = sorted(elsewhere.iterdir())
    prune_paths(inspect_runs(runs), lambda question: "damaged" in question)
    assert not (runs / "scores/damaged-000000000001").is_symlink()
    assert sorted(elsewhere.iterdir()) == before


def test_what_a_process_makes_is_not_removed(runs, capsys):
    folder = runs / "model" / "half-000000000001"
    found = inspect_runs(runs)
    with exclusive_build(folder):
        assert states(runs)["model/half-000000000001"] == "running"
        prune_paths(found, lambda question: True)  # found before it began
        assert (folder / "config.yaml").is_file()
        assert f"kept {folder}" in capsys.readouterr().out
    assert states(runs)["model/half-000000000001"] == "unfinished"


def test_what_a_process_makes_a_part_of_is_not_removed(runs, capsys):
    folder = runs / "passes" / "half-000000000001"
    with shared_folder(folder, {}, "slice-1-of-2") as unfinished:
        assert unfinished
        assert states(runs)["passes/half-000000000001"] == "running"
    found = inspect_runs(runs)
    with shared_folder(folder, {}, "slice-2-of-2"):
        prune_paths(found, lambda question: True)
        assert (folder / "config.yaml").is_file()
        assert f"kept {folder}" in capsys.readouterr().out
    assert states(runs)["passes/half-000000000001"] == "unfinished"


def test_the_lease_of_the_dead_is_left_over(runs):
    lease = lease_path(runs / "corpus" / "other-1")
    code = "import os,sys; from contamination.core.lock import exclusive_build\n"
    code += "from pathlib import Path\nwith exclusive_build(Path(sys.argv[1])): os._exit(0)"
    place = str(runs / "corpus" / "other-1")
    subprocess.run([sys.executable, "-c", code, place], check=True)
    assert states(runs)[str(lease.relative_to(runs))] == "orphaned"
    prune_paths(inspect_runs(runs), lambda question: "left over" in question)
    assert not lease.exists()


def test_what_another_machine_left_goes_and_what_is_odd_stays(runs, capsys):
    half = runs / "model/half-000000000001"
    lease = lease_path(half)
    lease.parent.mkdir(exist_ok=True)
    lease.write_text("filelock/2\npid=7\nhost=far\nmode=lease\ntoken=ab\nduration=45.0\n")
    os.utime(lease, (0, 0))
    (half / MANIFEST).mkdir()
    (lease.parent / "odd.lease").mkdir()
    prune_paths(inspect_runs(runs), lambda question: "left over" in question)
    assert not half.exists()
    assert not lease.exists()
    assert (lease.parent / "odd.lease").is_dir()


def test_a_temporary_file_that_goes_meanwhile_is_not_left_over(runs):
    before = states(runs)
    (runs / "corpus/.table.far.7.unfinished").symlink_to("gone")  # as one that is renamed then
    assert states(runs) == before


def test_every_stage_is_looked_at():
    owners = (
        contamination.injection.corpus,
        contamination.injection.decontamination.run,
        contamination.injection.export.run,
        contamination.training.trained_model,
        contamination.training.training_prefix,
        contamination.training.masked_lm,
        contamination.detection.pass_store,
        contamination.detection.views.reworded,
        contamination.detection.scores,
        contamination.detection.tasks.accuracy,
        contamination.detection.tasks.extraction,
        contamination.detection.building.datasheet,
        contamination.audits.run,
        contamination.analysis.report_folder,
        contamination.analysis.law.stored_law,
    )
    kinds = {owner.KIND for owner in owners} | {contamination.injection.corpus.FINETUNING_KIND}
    assert kinds == {*ARTIFACTS}


def test_a_folder_that_is_not_there_is_said(tmp_path):
    with pytest.raises(ConfigError, match="there is no such folder"):
        inspect_runs(tmp_path / "nowhere")


def test_a_check_writes_nothing(runs):
    def looks():
        return {p: (p.stat().st_mtime_ns, p.stat().st_ino) for p in [runs, *runs.rglob("*")]}

    before = looks()
    inspect_runs(runs)
    assert looks() == before


def test_the_table_of_a_runs_folder_is_written_out(tmp_path):
    paths = [
        CheckedPath(tmp_path / "a", "damaged", 999, "b.txt is missing"),
        CheckedPath(tmp_path / "b", "unfinished", 1000, ""),
        CheckedPath(tmp_path / "c", "orphaned", 1_500_000, "x"),
        CheckedPath(tmp_path / "d", "whole", 2_000_000_000),
        CheckedPath(tmp_path / "e", "whole", 500_000_000),
    ]
    assert format_paths(tmp_path, paths).splitlines() == [
        f"{tmp_path}: 2 whole (2.5 GB), 1 orphaned (1.5 MB), 1 unfinished (1 kB), "
        "1 damaged (999 B)",
        f"  damaged        999 B  {tmp_path}/a: b.txt is missing",
        f"  unfinished      1 kB  {tmp_path}/b",
        f"  orphaned      1.5 MB  {tmp_path}/c: x",
    ]
    assert format_paths(tmp_path, []) == f"{tmp_path}: no artefact"
    for size, text in ((1_234_567 * 10**9, "1,234.6 TB"), (10**12, "1.0 TB")):
        whole = [CheckedPath(tmp_path, "whole", size)]
        assert format_paths(tmp_path, whole) == f"{tmp_path}: 1 whole ({text})"


def test_each_remark_says_what_is_wrong(runs):
    (runs / "corpus/whole-000000000001/tokens/part").write_text("x" * 7)
    faulty = {
        str(path.path.relative_to(runs)): path
        for path in inspect_runs(runs)
        if path.state != "whole"
    }
    remarks = {name: path.remark for name, path in faulty.items() if "table" not in name}
    damage = remarks.pop("scores/damaged-000000000001")
    assert damage.startswith("data.txt has the SHA-256 ")
    assert remarks == {
        "corpus/mine": "no stage began it, and it is kept",
        "model/half-000000000001": "the command that began it resumes it",
        "model/older-000000000001": f"of schema 99; this version's is {SCHEMA}",
        "model/half-000000000001/checkpoints/damaged-step-00000003": "nothing resumes from it",
        "model/trained-000000000001/checkpoints": "nothing resumes from it",
        "corpus/whole-000000000001/tokens": "nothing resumes from it",
    }
    assert faulty["corpus/whole-000000000001/tokens"].bytes == 7
    (temporary,) = (path for name, path in faulty.items() if "table" in name)
    assert (temporary.remark, temporary.bytes) == ("of a process that is gone", 4)
    order = [path.state for path in inspect_runs(runs)]
    assert order == sorted(order, key=STATES.index)
    names = [str(path.path) for path in inspect_runs(runs) if path.state == "orphaned"]
    assert names == sorted(names)


def checked_path(runs, path):
    (checked,) = (checked for checked in inspect_runs(runs) if checked.path == path)
    return checked


def test_a_manifest_that_no_stage_wrote_is_another_ones(runs):
    for name, state in (("scores/mine", "foreign"), ("scores/mine-000000000001", "damaged")):
        (runs / name).mkdir()
        (runs / name / MANIFEST).write_text("{}")
        checked = checked_path(runs, runs / name)
        assert checked.state == state
        remark = "no stage made it" if state == "foreign" else f"{MANIFEST} is not what was written"
        assert checked.remark.startswith(f"{remark} (" if state == "damaged" else remark)
    (runs / "scores/empty").mkdir()
    assert states(runs)["scores/empty"] == "unfinished"
    (runs / "scores/odd-000000000002").mkdir()
    (runs / "scores/odd-000000000002/notes").touch()
    assert states(runs)["scores/odd-000000000002"] == "foreign"


def test_what_is_removed_and_what_is_kept_is_said(runs, capsys, monkeypatch):
    (runs / "scores/damaged-000000000001/data.txt").write_bytes(b"y" * 1000)
    sizes = {path.path: path.bytes for path in inspect_runs(runs)}
    questions = []
    prune_paths(inspect_runs(runs), lambda question: questions.append(question) or False)
    damaged = sizes[runs / "scores/damaged-000000000001"]
    assert questions[1] == (
        f"Remove 1 ({damaged / 1000:.3g} kB), damaged; their commands make them again?"
    )
    assert questions[0].startswith("Remove 5 (")
    assert questions[0].endswith("), left over?")
    assert capsys.readouterr().out == ""
    folder = runs / "scores/damaged-000000000001"

    def refuse(path):
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", refuse)
        prune_paths(inspect_runs(runs), lambda question: "damaged;" in question)
    assert capsys.readouterr().out == f"kept {folder}: Permission denied\n"
    (folder / MANIFEST).touch()
    prune_paths(inspect_runs(runs), lambda question: "damaged;" in question)
    assert capsys.readouterr().out == f"removed {folder}\n"
    with exclusive_build(runs / "model/half-000000000001"):
        checked = checked_path(runs, runs / "model/half-000000000001")
        assert checked.state == "running"
        assert checked.remark == f"process {os.getpid()} on {socket.gethostname()} makes it"


def test_a_lease_and_a_temporary_file_are_left_over_by_their_process(runs):
    states_before = {*states(runs)}
    lease = lease_path(runs / "corpus" / "other-1")
    lease.parent.mkdir(exist_ok=True)
    lease.write_text("filelock/2\npid=7\nhost=far\nmode=lease\ntoken=ab\nduration=45.0\n")
    (lease.parent / "notes.txt").write_text("x")
    os.utime(lease, (0, 0))
    far = runs / "launches" / "notes" / ".table.far.7.unfinished"
    far.write_text("half")
    held = runs / "model/half-000000000001/.table.far.7.unfinished"  # its own command removes it
    held.write_text("half")
    os.utime(held, (0, 0))
    assert {*states(runs)} - states_before == {str(lease.relative_to(runs))}
    checked = checked_path(runs, lease)
    assert (checked.state, checked.remark) == ("orphaned", "the lease of a process that is gone")
    assert checked.bytes == lease.stat().st_size
    for age, is_left in ((3500, False), (3700, True)):
        then = time.time() - age
        os.utime(far, (then, then))
        assert (str(far.relative_to(runs)) in states(runs)) is is_left


def check(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["launch", "check", *words])
    return main()


@pytest.mark.parametrize(
    ("answer", "is_removed"),
    [("y", True), (" YES ", True), ("yes", True), ("", False), ("n", False), (EOFError, False)],
)
def test_the_user_is_asked_before_anything_is_removed(
    tmp_path, monkeypatch, capsys, answer, is_removed
):
    folder, questions = tmp_path / "scores/half-000000000001", []
    with started_or_resumed_folder(folder, {}):
        pass

    def ask(question):
        questions.append(question)
        if answer is EOFError:
            raise EOFError
        return answer

    monkeypatch.setattr("builtins.input", ask)
    assert check(monkeypatch, f"runs={tmp_path}", "--prune") == 0
    (question,) = questions
    assert question.startswith("Remove 1 (")
    assert question.endswith(" B), left over? [y/N] ")
    assert folder.exists() is not is_removed
    assert (f"removed {folder}\n" in capsys.readouterr().out) is is_removed


def test_the_runs_folder_of_a_check_is_runs_by_default(runs, monkeypatch, capsys):
    monkeypatch.chdir(runs)
    assert check(monkeypatch) == 2
    assert "error: runs is 'runs': there is no such folder. Give runs=DIR." in (
        capsys.readouterr().err
    )
    assert check(monkeypatch, ".", "--prune", "--yes") == 0
    output = capsys.readouterr().out
    assert output.startswith(".: 2 whole (")
    assert "), left over? yes\n" in output
    assert check(monkeypatch, "a", "b") == 2
    assert "launch check" in capsys.readouterr().err
