"""Runs the commands one after another, those that leave no artefacts beside the others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pandas as pd

from tests.snapshot.commands import COMMANDS, REFERENCE, Command
from tests.snapshot.material import write_material

MANIFEST = "manifest.json"
SERVER = """
import importlib, pathlib, sys
home, model = map(pathlib.Path, sys.argv[1:])
files = [f for f in sorted(home.glob("tests/**/server.py")) if "class Server:" in f.read_text()]
module = importlib.import_module(".".join(files[0].relative_to(home).with_suffix("").parts))
with module.Server(folder=model, context=256) as server:
    print(server.url, flush=True)
    sys.stdin.read()
"""
"""Answers with a model until its standard input is closed; wherever the tests' server stands."""
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "WANDB_SILENT": "true",
    "PYTHONHASHSEED": "0",
    "COLUMNS": "100",
}


@dataclass(frozen=True)
class Result:
    """What a command did.

    Attributes:
        words: after `python -m`, with the folders that they name.
        status: the exit status.
        seconds: of the clock.
        cpu_seconds: of this command and its processes.
        artefacts: their folders in the runs folder, in the order in which they were finished.
    """

    words: Sequence[str]
    status: int
    seconds: float
    cpu_seconds: float
    artefacts: Sequence[str] = field(default_factory=tuple)


class Recorder:
    """Runs the commands of a checkout in a folder; a finished command is not run again."""

    def __init__(self, out: Path, checkout: Path, commands: Sequence[Command] = COMMANDS) -> None:
        self.out, self.checkout, self.commands = out.resolve(), checkout.resolve(), commands
        self.runs = self.out / "runs"
        self.results: dict[str, Result] = {}
        self.changed = threading.Condition()
        for command in commands:
            file = self.folder(command.name) / "result.json"
            if file.exists() and (result := Result(**json.loads(file.read_text()))).status == 0:
                self.results[command.name] = result

    def folder(self, name: str) -> Path:
        """What is kept of a command: its output, its status and the files that it wrote."""
        return self.out / "commands" / name

    def run(self) -> list[str]:
        """Run what has not been run; the names of the commands that failed or could not run."""
        beside = [command for command in self.commands if not command.makes]
        helper = threading.Thread(target=self._run_all, args=(beside,), daemon=True)
        helper.start()
        self._run_all([command for command in self.commands if command.makes])
        helper.join()
        return [
            command.name
            for command in self.commands
            if self.results.get(command.name, Result((), 1, 0, 0)).status
        ]

    def _run_all(self, commands: Sequence[Command]) -> None:
        for command in commands:
            if command.name in self.results:
                continue
            needed = command.needs
            if command.last:
                needed = {other.name for other in self.commands if other.makes}
            with self.changed:
                self.changed.wait_for(lambda needed=needed: needed <= self.results.keys())
            try:
                result = self._run(command)
            except LookupError as error:
                print(f"{command.name}: {error}", file=sys.stderr, flush=True)
                result = Result(command.words, 1, 0, 0)
            with self.changed:
                self.results[command.name] = result
                self.changed.notify_all()

    def _run(self, command: Command) -> Result:
        folder = self.folder(command.name)
        files = folder / "files"
        files.mkdir(parents=True, exist_ok=True)
        with self._server(command) as url:
            words = [self._fill(word, files, url) for word in command.words]
            if command.fields:
                words.append(f"runs={self.runs}")
            began = time.monotonic()
            with (folder / "stdout").open("w") as out, (folder / "stderr").open("w") as err:
                process = subprocess.Popen(
                    [sys.executable, "-m", *words],
                    stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                    cwd=self.out, env=self._environment(),
                )  # fmt: skip
                _, status, usage = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
        seconds, cpu_seconds = time.monotonic() - began, usage.ru_utime + usage.ru_stime
        artefacts = self._unclaimed() if command.makes else []
        result = Result(
            words, process.returncode, round(seconds, 1), round(cpu_seconds, 1), artefacts
        )
        (folder / "result.json").write_text(json.dumps(asdict(result), indent=1))
        ended = "" if result.status == 0 else f", exit status {result.status}: see {folder}/stderr"
        print(f"{command.name}: {seconds:.0f} s, {cpu_seconds:.0f} CPU s{ended}", flush=True)
        return result

    def _environment(self) -> dict[str, str]:
        return {**os.environ, **ENVIRONMENT, "PYTHONPATH": str(self.checkout)}

    def _unclaimed(self) -> list[str]:
        """The finished artefacts that no earlier command made, the first one finished first."""
        claimed = {name for result in self.results.values() for name in result.artefacts}
        manifests = sorted(self.runs.glob(f"*/*/{MANIFEST}"), key=lambda f: f.stat().st_mtime_ns)
        names = [str(file.parent.relative_to(self.runs)) for file in manifests]
        return [name for name in names if name not in claimed]

    def _fill(self, word: str, files: Path, url: str) -> str:
        """The word with the folders that its placeholders name."""
        if "<material>" in word:
            self._material()
        if "<example>" in word:
            corpus = self._artefact("cell", "corpus", "study")
            examples = pd.read_parquet(corpus / "examples.parquet")
            members = examples[examples["member"].astype(bool)]
            word = word.replace("<example>", members["example_id"].iloc[0])
        for name, place in (("runs", self.runs), ("files", files), ("server", url),
                            ("material", self.out / "material")):  # fmt: skip
            word = word.replace(f"<{name}>", str(place))
        return REFERENCE.sub(
            lambda match: str(self._artefact(match["command"], match["kind"], match["part"] or "")),
            word,
        )

    def _artefact(self, command: str, kind: str, part: str) -> Path:
        """The last artefact of a kind that a command made, whose name has a part."""
        if kind == "files":
            return self.folder(command) / "files"
        artefacts = self.results[command].artefacts
        names = [name for name in artefacts if name.startswith(f"{kind}/") and part in name]
        if not names:
            raise LookupError(
                f"{command} made no {kind} named *{part}*, but {', '.join(artefacts) or 'nothing'}."
            )
        return self.runs / names[-1]

    def _material(self) -> None:
        folder = self.out / "material"
        done = folder / "done"
        with self.changed:
            if not done.exists():
                corpus = self._artefact("quickstart", "corpus", "study")
                write_material(folder, corpus, self._artefact("quickstart", "model", "study"))
                done.touch()

    @contextmanager
    def _server(self, command: Command) -> Iterator[str]:
        """A server that answers with a model, where the command wants one; its address."""
        if command.served is None:
            yield ""
            return
        model = Path(self._fill(command.served, Path(), "")) / "hf"
        process = subprocess.Popen(
            [sys.executable, "-c", SERVER, str(self.checkout), str(model)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            cwd=self.checkout, env=self._environment(),
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            url = process.stdout.readline().strip()
            if not url:
                raise LookupError("the tests' server did not start.")
            yield url
        finally:
            process.stdin.close()
            process.wait(60)
