"""The finished folder that is most similar to a new one is logged with its differences."""

import logging
import os
from dataclasses import dataclass, field

import pytest

from contamination.core import config_diff
from contamination.core.artifacts import WrittenFiles, build_or_open, run_folder
from contamination.core.config import runtime_field
from contamination.core.files import hashed_json, verified_json
from contamination.core.integrity import MANIFEST, SCHEMA


@dataclass(frozen=True)
class Settings:
    members: int = 32
    rates: dict[str, float] = field(default_factory=lambda: {"a": 0.5, "b": 0.5})
    words: str = "x"
    workers: int = runtime_field(1)


@pytest.fixture
def made(tmp_path, caplog):
    """Makes the folder of some settings; what was logged."""
    caplog.set_level(logging.INFO, config_diff.__name__)

    def run(settings, slug="s", kind="corpus", make=lambda _: WrittenFiles([]), **inputs):
        caplog.clear()
        folder = run_folder(tmp_path, kind, slug, settings, inputs)
        build_or_open(folder, settings, inputs, make)
        return folder, "\n".join(caplog.messages)

    return run


def test_the_nearest_folder_and_what_differs_are_said_once(made):
    old, said = made(Settings(16), text="a" * 64)
    assert said == ""
    made(Settings(16, {"c": 1.0}, "y"), text="a" * 64)  # differs in five
    _, said = made(Settings(32, workers=3), text="a" * 64)
    assert said == (
        f"corpus: no finished folder has exactly these settings; the nearest is corpus/{old.name}: "
        "members 16, not 32"
    )
    assert made(Settings(32, workers=3), text="a" * 64)[1] == ""  # it is made already
    _, said = made(Settings(16), text="b" * 64)
    assert said.endswith(f"corpus/{old.name}: inputs.text aaaaaaaaaaaa…, not bbbbbbbbbbbb…")
    _, said = made(Settings(16), "renamed", text="a" * 64)
    assert said.endswith(f"corpus/{old.name}: only its name differs")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (Settings(1, {"a": 1.0}, "y"), ""),  # members, rates.a, rates.b and words
        (Settings(1, {"a": 1.0, "b": 0.5}, "y"), "members 32, not 1; rates.a 0.5, not 1.0; words"),
    ],
    ids=("four", "three"),
)
def test_four_fields_that_differ_are_not_near(made, settings, said):
    made(Settings())
    found = made(settings)[1]
    assert said in found if said else not found


def test_other_inputs_under_another_name_are_not_near(made):
    made(Settings())
    assert made(Settings(), "another", text="t")[1] == ""
    assert made(Settings(1), "another")[1] != ""


def test_nothing_is_logged_where_the_caller_says_so(made, tmp_path, caplog):
    made(Settings())
    caplog.clear()
    folder = run_folder(tmp_path, "corpus", "s", Settings(1), {})
    build_or_open(folder, Settings(1), {}, lambda _: WrittenFiles([]), log_nearest=False)
    assert caplog.messages == []


def test_a_difference_is_a_field_and_both_values_in_short():
    was = {"a": {"x": 1, "y": [1]}, "b": None, "same": {}, "long": "w" * 58, "longer": "w" * 59}
    now = {"a": {"x": 1, "y": [2]}, "b": {"c": 1}, "same": {}, "long": None, "digest": "0" * 64}
    assert [str(each) for each in config_diff.iter_differences(was, now)] == [
        "a.y [1], not [2]", "b None, not {'c': 1}", "digest None, not 000000000000…",
        f"long '{'w' * 58}', not None", f"longer '{'w' * 59}…, not None",
    ]  # fmt: skip


def test_a_neighbour_that_can_not_be_read_or_compared_is_passed_over(made):
    def fails(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made(Settings(1), make=fails)  # unfinished
    for members, change in [(2, {"schema": SCHEMA - 1}), (3, {"identity": None}), (4, None)]:
        place = made(Settings(members))[0] / MANIFEST
        whole = verified_json(place.read_text())
        place.write_text("{" if change is None else hashed_json({**whole, **change}))
    assert made(Settings(5))[1] == ""
    assert "members 5, not 6" in made(Settings(6))[1]
    assert made(Settings(1))[1] == ""  # begun before: it is gone on with


def test_the_newest_are_read_and_of_equals_the_newest_is_named(made, monkeypatch):
    for members, age in [(0, 3), (1, 0), (2, 1), (3, 2)]:
        place = made(Settings(members))[0] / MANIFEST
        os.utime(place, (10**9 - age,) * 2)
    monkeypatch.setattr(config_diff, "MAX_FOLDERS", 2)
    read, own = [], config_diff.read_manifest
    monkeypatch.setattr(config_diff, "read_manifest", lambda path: read.append(path) or own(path))
    assert "members 1, not 9" in made(Settings(9))[1]
    assert len(read) == 2
