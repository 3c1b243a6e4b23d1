"""Every file of a finished pipeline and of a folder of each kind, damaged in six ways.

It is refused by name, or made again.

Of a kind with more than `MOST_FILES` files, such as a report with its charts and tables, each way
damages as many, drawn anew. `DAMAGE_SEED=N pytest -m slow tests/faults/test_damage.py` damages
other files and places; the default is 0.
"""

import json
import os
import random
import shutil
from collections import Counter
from itertools import product
from pathlib import Path

import pytest

from contamination.core.errors import UserError
from contamination.core.integrity import ALWAYS, MANIFEST, find_damages, read_manifest
from contamination.launch.check_runs import ARTIFACTS
from tests.faults import kinds
from tests.faults.fork_server import ForkServer
from tests.small import SMALL

pytestmark = pytest.mark.slow
SEED = int(os.environ.get("DAMAGE_SEED", "0"))
MOST_FILES = 30
REREAD = "method=[loss,zlib,min_k,min_k_plus_plus,max_k]"  # another score of the passes' statistics


@pytest.fixture(scope="module")
def warm():
    server = ForkServer()
    yield server
    server.close()


class Pipeline:
    """A finished pipeline, and its copy that is damaged."""

    def __init__(self, warm, folder):
        self.runs, self.whole, self.warm = folder / "runs", folder / "whole", warm
        status, said = self.again()
        assert status == 0, said
        shutil.copytree(self.runs, self.whole)

    def again(self, *more):
        words = [*SMALL, "wandb.mode=disabled", f"runs={self.runs}", *more]
        return self.warm.launch(*words)

    def check(self):
        return self.warm.launch("check", f"runs={self.runs}")

    def restore(self):
        shutil.rmtree(self.runs)
        shutil.copytree(self.whole, self.runs)

    def contents(self, runs=None):
        """Every artefact's name, digest and checksums."""
        runs = runs or self.runs
        found = {}
        for path in runs.glob(f"*/*/{MANIFEST}"):
            manifest = json.loads(path.read_text())
            found[str(path.parent.relative_to(runs))] = manifest["digest"], manifest["files"]
        return found

    def state(self):
        """All artefacts' files, with their sizes and times."""
        files = [p for kind in ARTIFACTS for p in (self.runs / kind).glob("*/**/*") if p.is_file()]
        return {p: (p.stat().st_size, p.stat().st_mtime_ns) for p in files}


@pytest.fixture(scope="module")
def material(tmp_path_factory):
    from tests.bad_inputs.material import make

    folder = tmp_path_factory.mktemp("damaged") / "material"
    make(folder)
    return folder


@pytest.fixture(scope="module")
def finished(warm, tmp_path_factory):
    return Pipeline(warm, tmp_path_factory.mktemp("damage"))


@pytest.fixture
def pipeline(finished):
    finished.restore()
    return finished


def flip(content, draw):
    place = draw.randrange(len(content))
    content[place] ^= 1 << draw.randrange(8)


def zero(content, draw):
    place = draw.randrange(max(1, len(content) - 4096))
    content[place : place + 4096] = bytes(len(content[place : place + 4096]))


def truncate(content, draw):
    del content[draw.randrange(1, len(content)) :]


def empty(content, draw):
    content.clear()


def exchange_parts(content, draw):
    middle = draw.randrange(1, len(content))
    content[:] = content[middle:] + content[:middle]


WAYS = {"a bit flipped": flip, "4 KiB zeroed": zero, "truncated": truncate, "emptied": empty,
        "deleted": None}  # fmt: skip
SIX_WAYS = {**WAYS, "its parts exchanged": exchange_parts}


def damage(file, way, seed):
    if SIX_WAYS[way] is None:
        file.unlink()
        return
    before = file.read_bytes()
    content = bytearray(before)
    draw = random.Random(seed)
    for _ in range(100):  # zeros may have been there, and exchanged parts be the same
        SIX_WAYS[way](content, draw)
        if content != before:
            break
    assert content != before, (file, way)
    file.write_bytes(content)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["corpus", "model", "passes", "scores", "report"])
def test_a_damaged_file_is_refused_by_name_or_made_again(pipeline, kind, way):
    files = sorted(p for p in (pipeline.whole / kind).glob("*/**/*") if p.is_file())
    refused = remade = 0
    if len(files) > MOST_FILES:
        files = sorted(random.Random(f"{SEED} {way} {kind}").sample(files, MOST_FILES))
    for number, original in enumerate(files):
        name = original.relative_to(pipeline.whole)
        file = pipeline.runs / name
        folder, inside = pipeline.runs.joinpath(*name.parts[:2]), Path(*name.parts[2:])
        seed = f"{SEED} {way} {number}"
        damage(file, way, seed)
        at = f"{name} {way} (seed {seed!r})"
        unfinished = way == "deleted" and file.name == MANIFEST
        status, said = pipeline.check()
        bad = [line for line in said.splitlines()[1:] if line.strip()]
        assert (status, len(bad)) == (0 if unfinished else 2, 1), (at, said)
        state = "unfinished" if unfinished else "damaged"
        assert f"{state} " in bad[0], (at, said)
        assert str(folder) in bad[0], (at, said)
        assert unfinished or str(inside) in bad[0], (at, said)
        before = pipeline.state()
        status, said = pipeline.again(*[REREAD] * (kind == "passes" and not unfinished))
        assert "Traceback" not in said, (at, said)
        if unfinished:
            assert status == 0, (at, said)
            if kind == "passes":  # nothing needs it now
                status, said = pipeline.again(REREAD)
                assert status == 0, (at, said)
            pristine, now = pipeline.contents(pipeline.whole), pipeline.contents()
            assert {n: now[n] for n in pristine} == pristine, at
            remade += 1
            pipeline.restore()
            continue
        errors = [line for line in said.splitlines() if line.startswith("error: ")]
        assert (status, len(errors)) == (2, 1), (at, said)
        assert f"{folder} is damaged: {inside}" in errors[0], (at, said)
        assert f"rm -r {folder}" in errors[0], (at, said)
        assert before.items() <= pipeline.state().items(), at
        refused += 1
        pipeline.restore()
    print(f"{kind}, {way}, seed {SEED}: {len(files)} files, {refused} refused, {remade} made again")
    assert refused + remade == len(files)


@pytest.mark.parametrize("way", WAYS)
def test_the_records_of_a_launch_change_no_result(pipeline, way):
    files = [p for p in pipeline.whole.glob("launches/*/**/*") if p.is_file()]
    files = [p for p in files if not any(part.startswith("code-") for part in p.parts)]
    files = sorted([*files, pipeline.whole / "report" / "latest.json"])
    for number, original in enumerate(files):
        file = pipeline.runs / original.relative_to(pipeline.whole)
        seed = f"{SEED} {way} {number}"
        at = f"{file.relative_to(pipeline.runs)} {way} (seed {seed!r})"
        damage(file, way, seed)
        status, said = pipeline.warm.launch("status", f"runs={pipeline.runs}")
        assert "Traceback" not in said, (at, said)
        status, said = pipeline.again()
        assert status == 0, (at, said)
        assert "Traceback" not in said, (at, said)
        assert pipeline.contents() == pipeline.contents(pipeline.whole), at
        pipeline.restore()
    print(f"launches, {way}, seed {SEED}: {len(files)} files, no other result")


def test_a_copy_of_the_code_that_is_damaged_is_made_again(pipeline):
    files = [p for p in pipeline.whole.glob("launches/*/code-*/**/*") if p.is_file()]
    for number, original in enumerate(random.Random(SEED).sample(sorted(files), 5)):
        file = pipeline.runs / original.relative_to(pipeline.whole)
        damage(file, "a bit flipped", f"{SEED} {number}")
        status, said = pipeline.again()
        assert status == 0, said
        assert file.read_bytes() == original.read_bytes(), file


@pytest.mark.parametrize("name", kinds.MAKERS)
def test_a_damaged_folder_of_any_kind_is_refused_by_name(name, material, tmp_path):
    kind = kinds.MAKERS[name](material)
    files = sorted(p.relative_to(kind.folder) for p in kind.folder.rglob("*") if p.is_file())
    outcomes, errors = Counter(), []
    for way, file in product(SIX_WAYS, files):
        if way not in ("deleted", "emptied") and len((kind.folder / file).read_bytes()) < 2:
            continue
        folder = tmp_path / way / file.name / "runs" / kind.folder.parent.name / kind.folder.name
        shutil.copytree(kind.folder, folder)
        damage(folder / file, way, f"{SEED} {name} {way} {file}")
        at = f"{file} {way}"
        damages = describe_damages(folder)
        if damages is not None:  # this kind has a manifest, which lists its files
            assert file.name == MANIFEST or str(file) in damages, (at, damages)
        unfinished = way == "deleted" and file.name == MANIFEST
        for reader, read in kind.read.items():
            try:
                read(folder)
            except UserError as error:
                outcomes["refused"] += 1
                errors.append((at, reader, str(error)))
            else:  # an unfinished folder may be made again; a launch's records are no result
                outcomes["read"] += 1
                assert unfinished or name == "launches", (at, reader)
        shutil.rmtree(tmp_path / way)
    print(f"{name}, seed {SEED}: {len(files)} files, {dict(outcomes)}")
    assert not [error for error in errors if "\n" in error[-1]]
    assert outcomes["refused"] or name == "launches"


def describe_damages(folder):
    """What is wrong with a folder that has a manifest, as `contamination check` finds it."""
    if not (folder / MANIFEST).exists():
        return None
    try:
        return "; ".join(find_damages(folder, read_manifest(folder), ALWAYS))
    except UserError as error:
        return str(error)
