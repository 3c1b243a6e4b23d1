"""The store of a server's answers, on a disk that is full or damaged, and beside other runs."""

import resource

import pytest

from contamination.core.errors import ArtifactError, DataError
from contamination.core.output_paths import disk_errors_as_data_errors
from contamination.detection.models.served.answer_store import AnswerStore, question_key

KEYS = [question_key([n]) for n in range(12)]
VALUE = {"logprob": [-1.25] * 20}


def filled(folder):
    """What a run has stored and checked."""
    answers = AnswerStore(folder)
    fill(answers)
    answers.mark_checked()
    return answers


def fill(answers):
    for key in KEYS:
        answers[key] = VALUE


def test_a_full_disk_takes_no_part_of_an_answer(tmp_path):
    """What it took before is there, and what comes after it has room again."""
    answers, limits = AnswerStore(tmp_path), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with (
            pytest.raises(DataError, match="File too large. .* run the same"),
            disk_errors_as_data_errors(tmp_path),
        ):
            fill(answers)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    taken = len(answers)
    assert 0 < taken < 12
    answers[KEYS[-1]] = VALUE
    answers.mark_checked()
    again = AnswerStore(tmp_path)
    assert len(again) == taken + 1
    assert all(again[key] == VALUE for key in [*KEYS[:taken], KEYS[-1]])


@pytest.mark.parametrize("at", range(0, 2000, 237))
@pytest.mark.parametrize("damage", [b"7", b"\n", bytes(40)], ids=["digit", "end", "zeros"])
def test_a_damaged_answer_is_none(tmp_path, caplog, at, damage):
    filled(tmp_path)
    (file,) = tmp_path.glob("*.jsonl")
    content = file.read_bytes()
    changed = content[:at] + damage + content[at + len(damage) :]
    file.write_bytes(changed)
    again = AnswerStore(tmp_path)
    found = [key for key in KEYS if key in again]
    assert all(again[key] == VALUE for key in found)
    assert len(KEYS) - 2 <= len(found) <= len(KEYS) - (changed != content)
    assert ("damaged" in caplog.text) == (changed != content)


def test_answers_that_another_run_drops_are_an_error(tmp_path):
    first = AnswerStore(tmp_path)
    first[KEYS[0]] = VALUE
    second = AnswerStore(tmp_path)
    second.resolve_unchecked([KEYS[0]], kept=True)
    assert second[KEYS[0]] == VALUE
    first.drop_unchecked()
    with pytest.raises(ArtifactError, match="no longer has an answer .* Run the same command"):
        second[KEYS[0]]
    assert KEYS[0] not in AnswerStore(tmp_path)


def test_a_confirmation_is_final(tmp_path):
    """Even where a later check drops all other answers of the file."""
    fill(AnswerStore(tmp_path))
    later_run = AnswerStore(tmp_path)
    later_run.resolve_unchecked(KEYS[:4], kept=True)
    later_run.resolve_unchecked(KEYS[4:], kept=False)
    again = AnswerStore(tmp_path)
    assert [key for key in KEYS if key in again] == KEYS[:4]


def test_a_folder_that_is_deleted_meanwhile_is_an_error(tmp_path):
    answers = filled(tmp_path)
    next(tmp_path.glob("*.jsonl")).unlink()
    with pytest.raises(ArtifactError, match="The file was deleted"):
        answers[KEYS[0]]
