"""`python -m injection [overrides]`, and its tools: finetuning, export, verify, show."""

from __future__ import annotations

import sys

from core.command import command, said
from core.compose import composed
from core.config import convert
from core.wholeness import reading
from injection.config import InjectionStage
from injection.corpus import open_corpus
from injection.export.run import ExportStage, export, is_export, reprove
from injection.finetuning.config import FinetuningStage
from injection.finetuning.folder import FinetuningSet
from injection.finetuning.run import reverify as prove_again
from injection.finetuning.run import run as make
from injection.run import reverify, run
from injection.show import show

FORMAT = "format._target_="
USAGE = """usage: python -m injection [overrides]
       python -m injection finetuning [overrides]
       python -m injection export corpus_folder=runs/corpus/<folder> format=<format>
       python -m injection verify runs/corpus/<folder> [cluster=datatrove …]
       python -m injection verify runs/export/<folder> [format._target_=<your class>]
       python -m injection show runs/corpus/<folder> example_id=<id>"""


def verify_command(folder: str, words: list[str]) -> int:
    """Prove a corpus or an export and say how it went; the exit status is 0 where all holds.

    An export by a class of the user's own is proved where `words` name it: format._target_=….
    """
    formats = [word.removeprefix(FORMAT) for word in words if word.startswith(FORMAT)]
    others = [word for word in words if not word.startswith(FORMAT)]
    stage = composed("injection", others, InjectionStage)
    with reading(folder):
        if is_export(folder):
            proof = reprove(folder, formats)
        elif isinstance(open_corpus(folder), FinetuningSet):
            proof = prove_again(folder)
        else:
            proof = reverify(folder, stage.cluster, stage.injection.num_proc)
    print(proof)
    return 1 if proof.failures else 0


def main() -> int:
    """Run the stage, or one of its tools."""
    match sys.argv[1:]:
        case ["export", *_]:
            del sys.argv[1]
            return command("export", lambda config: export(convert(config, ExportStage)))
        case ["finetuning", *_]:
            del sys.argv[1]
            return command("finetuning", lambda config: make(convert(config, FinetuningStage)))
        case ["verify", folder, *words]:
            return said(lambda: verify_command(folder, words))
        case ["show", folder, example] if example.startswith("example_id="):
            return said(lambda: print(show(folder, example.removeprefix("example_id="))))
        case ["verify" | "show", *_]:
            print(USAGE, file=sys.stderr)
            return 2
    return command("injection", lambda config: run(convert(config, InjectionStage)))


if __name__ == "__main__":
    sys.exit(main())
