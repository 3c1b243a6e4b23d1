"""A launch's records that are damaged say nothing, rather than something else."""

import pytest
import yaml

from contamination.core import process_records
from contamination.core.errors import ArtifactError, ConfigError
from contamination.launch import snapshot
from contamination.launch.cells import CellFolder, Launch, Outcome
from contamination.launch.saved_config import _seal_line, is_saved, load_config, save_config
from contamination.launch.status import status


def flips(file):
    """The file with one bit flipped, in each of its bytes by turns; then as it was."""
    whole = file.read_bytes()
    for place in range(len(whole)):
        held = bytearray(whole)
        held[place] ^= 1 << place % 8
        file.write_bytes(held)
        yield
    for held in (b"", whole[: len(whole) // 2], bytes(len(whole))):
        file.write_bytes(held)
        yield
    file.write_bytes(whole)


def test_a_damaged_outcome_is_none(tmp_path):
    launch = Launch.of_command(str(tmp_path), "study", ["seed=0"])
    launch.register([["seed=0"]])
    (cell,) = launch.cells()
    cell.write_outcome(Outcome("done", paths={"corpus": "runs/corpus/one"}))
    for _ in flips(cell.folder / "outcome.json"):
        assert cell.read_outcome() is None
        assert launch.done_cell_paths() == []
        assert "waiting" in status(tmp_path)
    assert cell.read_outcome() == Outcome("done", paths={"corpus": "runs/corpus/one"})


def test_an_outcome_is_one_paragraph(tmp_path):
    cell = CellFolder(tmp_path)
    cell.write_outcome(Outcome("failed", error="bad\n\nsweep: 3 of 3 cells done.\n"))
    assert cell.read_outcome() == Outcome("failed", error="bad sweep: 3 of 3 cells done.")


@pytest.mark.parametrize("name", ["1-of-2", "self"])
def test_a_link_in_place_of_a_slice_is_none(tmp_path, name):
    cell = CellFolder(tmp_path)
    (tmp_path / "slices").mkdir()
    (tmp_path / "slices" / name).symlink_to("..")
    cell.write_jobs({f"detect {name.replace('-of-', '/')}": "7"})
    assert cell.slice_folders() == []
    assert cell.read_total_cost() == {}


def test_damaged_overrides_are_none(tmp_path):
    cell = CellFolder(tmp_path)
    cell.register(["seed=0"])
    for _ in flips(tmp_path / "overrides.json"):
        assert cell.read_overrides() == []
    assert cell.read_overrides() == ["seed=0"]


def test_a_damaged_list_of_cells_is_refused(tmp_path):
    launch = Launch.of_command(str(tmp_path), "study", ["seed=0"])
    launch.register([["seed=0"]])
    launch.register([["seed=1"]])
    for _ in flips(launch.folder / "cells.json"):
        with pytest.raises(ArtifactError, match="cells.json is damaged"):
            launch.cells()
    assert [cell.read_overrides() for cell in launch.cells()] == [["seed=1"]]


def test_a_damaged_configuration_is_refused(tmp_path):
    save_config(tmp_path, {"seed": 1, "name": "a: 'b'"}, tmp_path)
    for _ in flips(tmp_path / "config.yaml"):
        with pytest.raises(ArtifactError, match="config.yaml is damaged"):
            load_config(tmp_path)
        assert not is_saved(tmp_path, {"seed": 1, "name": "a: 'b'"})
    assert load_config(tmp_path)["seed"] == 1
    (tmp_path / "config.yaml").unlink()
    with pytest.raises(ArtifactError, match=r"config.yaml is missing\. Give the launch's command"):
        load_config(tmp_path)
    assert not is_saved(tmp_path, {"seed": 1, "name": "a: 'b'"})


def test_a_damaged_record_of_a_process_is_none(tmp_path):
    process_records.set_records_folder(tmp_path)
    try:
        process_records.record_progress(process_records.Progress("train", 1, 2, "step", 3.0))
        process_records.record_failure(ValueError("x"))
    finally:
        process_records.set_records_folder(None)
    for _ in flips(tmp_path / process_records.PROGRESS_FILE):
        assert process_records.read_progress(tmp_path) is None
    for _ in flips(tmp_path / process_records.FAILURES_FOLDER / "rank-0.json"):
        assert process_records.read_failures(tmp_path) == []
    assert (
        process_records.read_progress(tmp_path).n
        == len(process_records.read_failures(tmp_path))
        == 1
    )


def test_a_damaged_copy_of_the_code_is_made_again(tmp_path):
    code = snapshot.take_snapshot(tmp_path)
    file = code / "core" / "seeds.py"
    whole = file.read_bytes()
    file.write_bytes(whole.replace(b"sha256", b"sha512"))
    assert snapshot.take_snapshot(tmp_path) == code
    assert file.read_bytes() == whole


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([1] * 20_000, "more than 20,000 values"),
        (["a" * 90_000] * 12, "more than 1,048,576 bytes"),
    ],
)
def test_a_saved_configuration_is_read_within_limits(tmp_path, value, words):
    text = yaml.safe_dump({"value": value})
    (tmp_path / "config.yaml").write_text(f"{_seal_line(text)}\n{text}")
    with pytest.raises(ArtifactError, match=words):
        load_config(tmp_path)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (
            {"a": {"b": [1] * 20_000}},
            r"^a\.b has 20,001 of 20,0\d\d values and names, but at most 20,000 ",
        ),
        (
            {"a": {"b": "x" * 100_001}},
            r"^a\.b is 'xx.* of 100,001 characters, but at most 100,000 can be",
        ),
        (
            {"a": ["x" * 99_999] * 11},
            "^The configuration has 1,100,.* bytes, but at most 1,048,576 can be",
        ),
    ],
    ids=["values", "text", "bytes"],
)
def test_a_configuration_that_could_not_be_read_again_is_not_written(config, words, tmp_path):
    with pytest.raises(ConfigError, match=words):
        save_config(tmp_path / "cell", config, tmp_path)
    assert not (tmp_path / "cell").exists()


def test_a_configuration_up_to_the_limits_is_read_again(tmp_path):
    config = {"a": [1] * 19_970, "b": "x" * 100_000}
    save_config(tmp_path, config, tmp_path)
    assert is_saved(tmp_path, config)
