"""Checkpoints as files on a disk: what counts, what is refused, what is removed."""

import errno
import hashlib
import json
import logging
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from contamination.core.distributed import World
from contamination.core.errors import ConfigError, DataError
from contamination.core.files import verified_json
from contamination.training import checkpoints
from tests.training.plain import STATE, Loaded, PlainEngine

WORLD = World(0, 1, torch.device("cpu"))
MADE_WITH = {"training": {"learning_rate": 0.1, "clip_norm": 1.0}, "inputs": {"corpus": "a"}}
WEIGHTS = "part/weights.pt"


@pytest.fixture
def place(tmp_path):
    """The checkpoints' folder, in a model folder with an export and a record."""
    export = tmp_path / "exports" / "step-00000001" / "config.json"
    export.parent.mkdir(parents=True)
    export.write_text("export")
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n')
    (tmp_path / "checkpoints").mkdir()
    return tmp_path / "checkpoints"


def save(place, step, keep=9, world=WORLD):
    saved = checkpoints.checkpoint_at_step(place, step, world, MADE_WITH)
    checkpoints.save_checkpoint(PlainEngine(1, []), place, saved, keep, world)
    return saved.path


def names(place):
    return sorted(path.name for path in place.iterdir())


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_marker_holds_what_was_saved_once_all_is_on_the_disk(place, monkeypatch):
    synced, sync = [], checkpoints.sync_to_disk
    monkeypatch.setattr(checkpoints, "sync_to_disk", lambda path: synced.append(path) or sync(path))
    path = save(place, 4)
    assert names(place) == ["step-00000004"]  # of no further file is the newest one read
    given = json.loads((path / STATE).read_text())
    assert given == {"tag": path.name, "client_state": {"step": 4}, "save_latest": False}
    model = place.parent
    beside = {model / "exports/step-00000001/config.json", model / "metrics.jsonl"}
    assert {path / "part", path / WEIGHTS, path / STATE, *beside} == set(synced)
    assert verified_json((path / checkpoints.MARKER).read_text()) == {
        "step": 4, "world": 1, "identity": MADE_WITH,
        "files": {name: sha256(path / name) for name in (WEIGHTS, STATE)},
        "beside": {
            "exports": {
                "exports/step-00000001/config.json":
                    sha256(model / "exports/step-00000001/config.json")
            },
            "lines": {"metrics.jsonl": [12, sha256(model / "metrics.jsonl")]},
        },
    }  # fmt: skip
    saved = checkpoints.find_newest_checkpoint(place, MADE_WITH, WORLD)
    assert (saved.path, saved.step, saved.world) == (path, 4, 1)
    assert saved.identity == MADE_WITH
    assert (
        checkpoints.mark_complete(saved) is None
    )  # what is there already is not among its own files
    assert checkpoints.find_newest_checkpoint(place, MADE_WITH, WORLD) == saved


@pytest.mark.parametrize(("keep", "left"), [(1, [12]), (2, [8, 12]), (4, [4, 8, 12])])
def test_the_last_are_kept_without_what_was_made_of_the_others(place, keep, left):
    for step in (4, 8, 12):
        save(place, step, keep)
        (place / f"universal-{step:08d}").mkdir()
    save(place, 12 + 4, keep + 1)
    kept = [*left, 16]
    assert [path.name for path in checkpoints.completed_folders(place)] == [
        f"step-{n:08d}" for n in kept
    ]
    both = [f"{kind}-{n:08d}" for kind in ("step", "universal") for n in kept]
    assert names(place) == sorted(both[:-1])


def test_a_kill_leaves_what_is_whole(place, monkeypatch):
    def counted_after_a_kill_in(module, name):
        def killed(*_):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(module, name, killed)
            with pytest.raises(KeyboardInterrupt):
                save(place, 9, 2)
        return [path.name for path in checkpoints.completed_folders(place)]

    save(place, 3, 2)
    save(place, 6, 2)
    assert counted_after_a_kill_in(checkpoints, "mark_complete") == [
        "step-00000003",
        "step-00000006",
    ]
    shutil.rmtree(place / "step-00000009")
    assert counted_after_a_kill_in(shutil, "rmtree") == ["step-00000006", "step-00000009"]
    (place / "universal-00000006").mkdir()
    (place / "universal-00000009").mkdir()
    (place / "universal-00000009" / checkpoints.MARKER).touch()
    (place / "damaged-step-00000001").mkdir()
    assert checkpoints.find_newest_checkpoint(place, MADE_WITH, WORLD).step == 9
    assert names(place) == [
        "damaged-step-00000001", "step-00000006", "step-00000009", "universal-00000009"
    ]  # fmt: skip


def flip(path):
    """A bit of the file, which keeps its size and its time."""
    content, times = bytearray(path.read_bytes()), path.stat()
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


CHANGED, MISSING = "is not what was written", "is missing"
DAMAGE = {
    "a bit": (WEIGHTS, flip, f"{WEIGHTS} {CHANGED}"),
    "a file that is gone": (WEIGHTS, os.unlink, f"{WEIGHTS} {MISSING}"),
    "a file that was put there": ("more.pt", lambda path: path.touch(), f"more.pt {CHANGED}"),
    "a marker's bit": (checkpoints.MARKER, flip, f"{checkpoints.MARKER}: "),
    "an empty marker": (checkpoints.MARKER, lambda path: os.truncate(path, 0), "JSONDecodeError"),
    "an export": ("../../exports/step-00000001/config.json", flip, f"config.json {CHANGED}"),
    "no export": ("../../exports/step-00000001/config.json", os.unlink, f"config.json {MISSING}"),
    "a record": ("../../metrics.jsonl", flip, f"metrics.jsonl {CHANGED}"),
    "a shorter record": ("../../metrics.jsonl", lambda path: os.truncate(path, 5), CHANGED),
    "no record": ("../../metrics.jsonl", os.unlink, f"metrics.jsonl {MISSING}"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_one_is_set_aside_for_the_one_before(place, caplog, kind):
    file, damage, wrong = DAMAGE[kind]
    beside = place.parent / "exports" / "step-00000001" / "config.json"
    beside.rename(place.parent / "later")
    (place.parent / "metrics.jsonl").rename(place.parent / "lines")
    save(place, 4)
    (place.parent / "later").rename(beside)
    (place.parent / "lines").rename(place.parent / "metrics.jsonl")
    path = save(place, 8)
    (place / f"damaged-{path.name}" / "of an earlier one").mkdir(parents=True)
    damage(path / file)
    content = sha256(path / checkpoints.MARKER)
    assert checkpoints.find_newest_checkpoint(place, MADE_WITH, WORLD).step == 4
    aside = place / f"damaged-{path.name}"
    assert names(place) == [aside.name, "step-00000004"]
    assert sha256(aside / checkpoints.MARKER) == content
    (record,) = caplog.records
    said = f"The checkpoint {path} is damaged ("
    assert record.getMessage().startswith(said)
    assert wrong in record.getMessage()
    assert record.getMessage().endswith(
        f"): it is kept as {aside.name}, and training resumes from the one before, or else from "
        "the start."
    )


@pytest.mark.parametrize("content", ["{", "[]", '{"step": 6}', '{"step": 6, "beside": 1}'])
def test_a_marker_of_something_else_is_damaged(place, content):
    given = json.loads(content) if content.endswith("}") else None
    text = content if given is None else checkpoints.hashed_json(given)
    (save(place, 6) / checkpoints.MARKER).write_text(text)
    assert checkpoints.find_newest_checkpoint(place, MADE_WITH, WORLD) is None


def test_what_a_disk_has_spoilt_is_read_anew(place, monkeypatch):
    """It keeps its size and its times, by which the hash of a large file is remembered."""
    seen, digests = [], checkpoints.digests_by_name
    monkeypatch.setattr(
        checkpoints,
        "digests_by_name",
        lambda files, **how: seen.append(how) or digests(files, **how),
    )
    save(place, 4)
    checkpoints.find_newest_checkpoint(place, MADE_WITH, WORLD)
    assert [how for how in seen if how] == [{"use_cache": False}] * 2  # not of the exports


@pytest.mark.parametrize(
    ("now", "field", "is_now", "was"),
    [
        ({"training": {"learning_rate": 0.2, "clip_norm": 2.0}, "inputs": {"corpus": "a"}},
         "training.clip_norm", 2.0, 1.0),
        ({"training": {"learning_rate": 0.2, "clip_norm": 1.0}, "inputs": {"corpus": "a"}},
         "training.learning_rate", 0.2, 0.1),
        ({"training": MADE_WITH["training"], "inputs": {}}, "inputs.corpus", None, "a"),
        ({**MADE_WITH, "seed": 3}, "seed", 3, None),
    ],
)  # fmt: skip
def test_one_of_another_configuration_is_refused_by_its_first_field(place, now, field, is_now, was):
    path = save(place, 4)
    with pytest.raises(ConfigError) as error:
        checkpoints.find_newest_checkpoint(place, now, WORLD)
    assert str(error.value) == (
        f"{field} is {is_now!r}, but the checkpoint {path} was made with {was!r}. Set it back, "
        f"or delete the folder {place} to start again."
    )


def test_without_one_there_is_nothing_to_load(place):
    assert checkpoints.find_newest_checkpoint(place, MADE_WITH, WORLD) is None
    assert checkpoints.find_newest_checkpoint(place / "none", MADE_WITH, WORLD) is None
    assert checkpoints.resume_from(None, None) == 0


def test_loaded_groups_keep_their_decay_and_their_own_counters(place, caplog):
    caplog.set_level(logging.INFO)
    engine = Loaded()
    saved = checkpoints.checkpoint_at_step(place, 4, WORLD, {})
    assert checkpoints.resume_from(engine, saved) == 4
    assert engine.given == (str(place), saved.path.name)
    assert [group["weight_decay"] for group in engine.optimizer.param_groups] == [0.5, 0.0]
    assert [group["lr"] for group in engine.optimizer.param_groups] == [0.125, 0.125]
    counters = [state["step"] for state in engine.optimizer.state.values()]
    assert [float(counter) for counter in counters] == [7.0, 7.0]
    assert counters[0] is not counters[1]
    assert caplog.messages == ["resuming after step 4"]


@pytest.fixture
def converter(tmp_path, monkeypatch):
    """What is run in place of Python and DeepSpeed's converter; the calls' options."""
    calls = []

    def call(given, **how):
        assert given[:3] == [sys.executable, "-m", "deepspeed.checkpoint.ds_to_universal"]
        calls.append(given[3:])
        options = dict(zip(given[4::2], given[5::2], strict=True))
        source, made = options["--input_folder"], options["--output_folder"]
        script = 'cp -r "$0" "$1"; echo first >&2; echo last >&2; exit $2'
        return run(["sh", "-c", script, source, made, str(call.status)], **how)

    run, call.status, call.calls = subprocess.run, 0, calls
    monkeypatch.setattr(subprocess, "run", call)
    return call


def test_a_universal_form_is_made_once(place, converter, caplog):
    caplog.set_level(logging.INFO)
    saved = checkpoints._read_marker(save(place, 4))
    for _ in range(2):
        made = checkpoints.convert_to_universal(saved, WORLD)
        assert made == replace(saved, path=place / "universal-00000004")
    (options,) = converter.calls
    assert options[0] == "--inject_missing_state"
    assert dict(zip(options[1::2], options[2::2], strict=True)) == {
        "--input_folder": str(saved.path), "--output_folder": str(made.path),
        "--num_extract_workers": "1", "--num_merge_workers": "1",
    }  # fmt: skip
    assert caplog.messages == ["converting the checkpoint of 1 processes for 1"]
    assert checkpoints._read_marker(made.path).files == saved.files
    (made.path / WEIGHTS).unlink()
    (made.path / "old").touch()
    checkpoints.convert_to_universal(saved, WORLD)
    assert checkpoints._read_marker(made.path).files == saved.files
    assert len(converter.calls) == 2


def test_a_converters_last_words_are_said(place, converter):
    saved, converter.status = checkpoints._read_marker(save(place, 4)), 1
    with pytest.raises(DataError) as error:
        checkpoints.convert_to_universal(saved, WORLD)
    assert str(error.value) == (
        f"The checkpoint {saved.path} can't be converted for another number of processes (last). "
        "Resume with the number of processes that wrote it."
    )


def test_a_converter_without_words_has_no_message(place, monkeypatch):
    done = SimpleNamespace(returncode=1, stderr=" \n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    with pytest.raises(DataError, match=r"\(no message\)"):
        checkpoints.convert_to_universal(checkpoints._read_marker(save(place, 4)), WORLD)


FULL = checkpoints.FULL_DISK_BYTES
DISKS = {
    "full": (FULL - 1, "inline_container: too little was written", errno.ENOSPC),
    "not full": (FULL, "inline_container: too little was written", None),
    "another error": (0, "shapes differ", None),
}


@pytest.mark.parametrize("kind", DISKS)
def test_torchs_error_on_a_full_disk_is_the_disks(place, monkeypatch, kind):
    free, words, number = DISKS[kind]
    engine = SimpleNamespace(save_checkpoint=lambda *_, **__: raised(words))
    monkeypatch.setattr(
        shutil, "disk_usage", lambda path: SimpleNamespace(free=free if path == place else FULL)
    )
    with pytest.raises(OSError if number else RuntimeError) as error:
        checkpoints.save_checkpoint(
            engine, place, checkpoints.checkpoint_at_step(place, 4, WORLD, {}), 1, WORLD
        )
    if number:
        said = (errno.ENOSPC, os.strerror(errno.ENOSPC), str(place))
        assert (error.value.errno, error.value.strerror, error.value.filename) == said
    else:
        assert str(error.value) == words


def raised(words):
    raise RuntimeError(words)
