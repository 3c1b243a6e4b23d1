"""Folders from elsewhere, edited so that the hashes in them agree, are data, whatever they say.

`RECEIVED_SEED=N pytest -m slow -s tests/faults/test_received.py` edits them in other ways; the
default is 0. `RECEIVED_CASES=N` changes the number of edits of each kind of folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path

import pytest
import yaml

import contamination.core.cli
import contamination.injection.__main__
from contamination.core.errors import UserError
from contamination.core.files import hashed_json
from contamination.core.hashing import combined_digest, digests_by_name
from tests.faults import kinds

SEED = int(os.environ.get("RECEIVED_SEED", "0"))
CASES = int(os.environ.get("RECEIVED_CASES", "200"))
SECONDS = 20
"""After which a reader counts as hanging."""
MANIFEST, CONFIG = "manifest.json", "config.yaml"
BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefghi", "bcdefghij", strict=True)
)
YAMLS = (
    BOMB, "", "[]", "3", "\0", "a: b: c", "? [a]\n: b", "---\na: 1\n---\nb: 2", "[" * 5000,
    "a: !!python/object/apply:os.mkdir [{canary}]", "a: !mine 1", "a: !!binary x", "a: !!int x",
    "a: 2001-99-99", "a: " + "1:" * 40_000 + "1", "<<: [1]", "a: &x {{b: *x}}", "a: " + "9" * 5000,
)  # fmt: skip
ELSEWHERE = "../../../outside/new.txt"


def weird(canary: str) -> list[object]:
    """Values that no stage writes in most places."""
    deep: list[object] = []
    for _ in range(60):
        deep = [deep]
    called = {"_target_": "os.mkdir", "_args_": [canary]}
    return [
        *(None, True, -1, 0, 1.5, 10**12, 10**30, "", "x", "\x1b[2J\n", "ü" * 10_000, [], {}, [[]]),
        *(deep, called, {"x": [called]}, "os.mkdir", "${oc.env:HOME}", "${", ELSEWHERE, canary),
        *("/etc/passwd", {"": 1}, "{x.__class__}", "{x:>999999999}", [0] * 1000),
    ]


class Received:
    """A copy of a folder, to be edited, beside a folder that nothing may touch."""

    def __init__(self, whole: Path, case: Path, draw: random.Random) -> None:
        self.folder = case / "runs" / whole.parent.name / whole.name
        shutil.copytree(whole, self.folder)
        self.outside, self.draw = case / "outside", draw
        self.outside.mkdir()
        (self.outside / "old.txt").write_text("old")
        self.canary = str(self.outside / "called")

    def value(self) -> object:
        return self.draw.choice(weird(self.canary))

    def manifest(self) -> dict:
        return json.loads((self.folder / MANIFEST).read_text())

    def seal(self, manifest: dict) -> None:
        manifest.pop("own_sha256", None)
        (self.folder / MANIFEST).write_text(hashed_json(manifest))

    def agree(self) -> None:
        """Give the manifest the hashes and the sizes of the files as they are now."""
        manifest = self.manifest()
        names = [name for name in manifest["bytes"] if (self.folder / name).is_file()]
        now = digests_by_name({name: self.folder / name for name in names}, use_cache=False)
        for part in ("files", "records"):
            manifest[part] = {n: now.get(n, digest) for n, digest in manifest[part].items()}
        sizes = {name: (self.folder / name).stat().st_size for name in names}
        manifest["bytes"] |= sizes
        manifest["digest"] = combined_digest(manifest["files"])
        self.seal(manifest)

    def replace(self, name: str, content: bytes) -> None:
        (self.folder / name).write_bytes(content)
        if (self.folder / MANIFEST).exists():
            self.agree()

    def write_config(self, text: str) -> None:
        if not (self.folder / MANIFEST).exists():  # of a launch, whose first line is a hash
            text = f"# of what follows: {hashlib.sha256(text.encode()).hexdigest()}\n{text}"
        self.replace(CONFIG, text.encode())

    def sealed_files(self) -> list[Path]:
        found = [MANIFEST] if (self.folder / MANIFEST).exists() else []
        return [self.folder / name for name in found] or sorted(self.folder.rglob("*.json"))


Edit = Callable[[Received], str]
"""Edits a folder and says how."""


def edit_tree(value: object, received: Received) -> object:
    """The value with one place in it removed, replaced or added."""
    draw = received.draw
    if not isinstance(value, dict | list) or not value or draw.random() < 0.1:
        return received.value()
    key = draw.choice([*value] if isinstance(value, dict) else range(len(value)))
    way = draw.random()
    if way < 0.15:
        del value[key]
    elif way < 0.25 and isinstance(value, dict):
        value[draw.choice([ELSEWHERE, "_target_", "x", "_args_"])] = received.value()
    else:
        value[key] = edit_tree(value[key], received)
    return value


def garbled(received: Received) -> str:
    files = [f for f in (received.folder / CONFIG, *received.sealed_files()) if f.exists()]
    file = received.draw.choice(files)
    content = bytearray(file.read_bytes())
    for _ in range(received.draw.choice([1, 3, 30])):
        content[received.draw.randrange(len(content))] = received.draw.randrange(256)
    file.write_bytes(content)
    return f"{file.name} garbled"


def edited_json(received: Received) -> str:
    file = received.draw.choice(received.sealed_files())
    values = json.loads(file.read_text())
    values.pop("own_sha256", None)
    values = edit_tree(values, received)
    file.write_text(hashed_json(values) if isinstance(values, dict) else json.dumps(values))
    return f"{file.name} edited"


def where_there_is(name: str) -> Callable[[Edit], Edit]:
    """Make an edit of this file; of a folder without it a JSON file is edited."""

    def choose(edit: Edit) -> Edit:
        @wraps(edit)
        def edited(received: Received) -> str:
            return (edit if (received.folder / name).exists() else edited_json)(received)

        return edited

    return choose


@where_there_is(CONFIG)
def edited_config(received: Received) -> str:
    values = yaml.safe_load((received.folder / CONFIG).read_text())
    for _ in range(received.draw.choice([1, 1, 3])):
        values = edit_tree(values, received)
    received.write_config(yaml.safe_dump(values, sort_keys=False))
    return "config edited"


@where_there_is(CONFIG)
def other_yaml(received: Received) -> str:
    text = received.draw.choice(YAMLS).replace("{canary}", received.canary)
    received.write_config(text)
    return f"config is {text[:20]!r}"


@where_there_is(MANIFEST)
def other_name(received: Received) -> str:
    manifest, draw = received.manifest(), received.draw
    old = draw.choice([*manifest["bytes"]])
    new = draw.choice([ELSEWHERE, "/etc/passwd", "..", "a/../b", "./x", "", "a\nb", "a\\b", "../x"])
    keep = draw.random() < 0.5
    for part in ("files", "records", "bytes"):
        own = manifest[part]
        if old in own:
            own[new] = own[old] if keep else own.pop(old)
    received.seal(manifest)
    return f"{old} is called {new!r}"


@where_there_is(MANIFEST)
def other_content(received: Received) -> str:
    manifest, draw = received.manifest(), received.draw
    name = draw.choice([*manifest["bytes"]])
    content = bytearray((received.folder / name).read_bytes())
    way = draw.choice(["random", "cut", "empty", "flipped", "another"])
    if way == "random":
        content = bytearray(draw.randbytes(300))
    elif way == "cut":
        del content[draw.randrange(len(content) + 1) :]
    elif way == "empty":
        content.clear()
    elif way == "another":
        content = bytearray((received.folder / draw.choice([*manifest["bytes"]])).read_bytes())
    elif content:
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    received.replace(name, content)
    return f"{name} {way}"


def other_kind_of_file(received: Received) -> str:
    names = [f.relative_to(received.folder) for f in received.folder.rglob("*") if f.is_file()]
    name = received.draw.choice(sorted(map(str, names)))
    file = received.folder / name
    way = received.draw.choice(["link", "pipe", "folder"])
    if way == "link":
        shutil.copy(file, received.outside / "linked")
        file.unlink()
        file.symlink_to(received.outside / "linked")
    else:
        file.unlink()
        os.mkfifo(file) if way == "pipe" else file.mkdir()
        if name not in (MANIFEST, CONFIG) and (received.folder / MANIFEST).exists():
            manifest = received.manifest()
            if name in manifest["bytes"]:
                manifest["bytes"][name] = file.stat().st_size
                received.seal(manifest)
    return f"{name} is a {way}"


EDITS = (
    *(edited_json,) * 6, *(edited_config,) * 6, *(other_yaml,) * 2, *(other_name,) * 2, garbled,
    other_content, other_content, other_kind_of_file,
)  # fmt: skip


class Hang(BaseException):
    """A reader took too long."""


@contextmanager
def limited():
    def late(*_):
        raise Hang

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def tree(folder: Path) -> dict[str, object]:
    return {str(p): p.lstat().st_mtime_ns for p in folder.rglob("*") if p.is_file()}


@pytest.fixture(autouse=True)
def composed_once(monkeypatch):
    stage = contamination.core.cli.compose_stage(
        "injection", [], contamination.injection.__main__.InjectionStage
    )
    monkeypatch.setattr(contamination.injection.__main__, "compose_stage", lambda *_: stage)


def edit_and_read(kind: kinds.Kind, name: str, cases: int, place: Path) -> None:
    """Edit copies in many ways: each reader reads or refuses them, and nothing else happens."""
    whole = Received(kind.folder, place / "whole", random.Random(0)).folder
    for read in kind.read.values():
        read(whole)
    outcomes: Counter[str] = Counter()
    wrong = []
    for number in range(cases):
        draw = random.Random(f"{SEED} {name} {number}")
        case = place / str(number)
        received = Received(kind.folder, case, draw)
        what = draw.choice(EDITS)(received)
        before = tree(received.outside)
        refused = False
        for reader, read in kind.read.items():
            at = f"{name} {number}, {what}, {reader}"
            try:
                with limited():
                    read(received.folder)
            except UserError as error:
                refused = True
                if "\n" in str(error):
                    wrong.append(f"{at}: several lines: {error}")
            except (Exception, Hang) as error:
                wrong.append(f"{at}: {error!r}"[:1000])
        if tree(received.outside) != before or {p.name for p in case.iterdir()} - {
            *("runs", "outside", "adopted", "exported")
        }:
            wrong.append(f"{name} {number}, {what}: something outside was changed")
        outcomes["refused" if refused else "read"] += 1
        with suppress(OSError):
            shutil.rmtree(case)
    print(f"{name}, seed {SEED}: {cases} edits, {dict(outcomes)}, {len(wrong)} wrong")
    assert not wrong, "\n".join(wrong)


@pytest.fixture(scope="module")
def material(tmp_path_factory):
    from tests.bad_inputs.material import make

    folder = tmp_path_factory.mktemp("received") / "material"
    make(folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", kinds.MAKERS)
def test_an_edited_folder_is_read_or_refused_and_nothing_else(material, tmp_path, name):
    kind = kinds.MAKERS[name](material)
    before = tree(material)
    edit_and_read(kind, name, CASES, tmp_path)
    assert tree(material) == before


def test_some_edits_of_small_folders(tmp_path):
    toy = kinds.toy_corpus(tmp_path / "made")
    exported = kinds.export(toy.folder, tmp_path / "made")
    found = {"corpus": toy, "export": exported, "scores": kinds.toy_scores(tmp_path / "made")}
    for name, kind in found.items():
        edit_and_read(kind, name, 3, tmp_path / name)
