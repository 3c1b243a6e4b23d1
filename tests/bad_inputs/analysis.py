"""Bad inputs of `python -m analysis` and `python -m analysis wandb`."""

from __future__ import annotations

from functools import partial

from tests.bad_inputs.detection import copied, older
from tests.bad_inputs.row import M, Row, bad, values

analyse = partial(bad, "analysis")
pull = partial(bad, "analysis wandb")
law = partial(bad, "analysis law")

VALUES = {
    "analysis.draws": "1000000000000 0 19 -1 nan",
    "analysis.confidence": "0 1 nan inf",
    "analysis.fpr": "[0.0] [1.5] [nan] [0.1,0.1] x",
    "analysis.tpr": "[1.0] [nan]",
    "analysis.blind_folds": "2 -1",
    "cells": "[foo] [] null 5",
    "wandb.mode": "live",
    "seed": "x",
}
PARTS = ("corpus", "model", "clean", "contaminated")


def cell(*words: str, files=None, slow: bool = False, **parts: str) -> Row:
    """A cell with folders that can't be read."""
    chosen = {**{part: f"{M}/{part}" for part in PARTS}, **parts}
    inner = ", ".join(f"{part}: {path}" for part, path in chosen.items())
    return analyse([f"cells=[{{{inner}}}]"], *words, files=files, slow=slow)


ROWS = [
    *values("analysis", VALUES),
    analyse("cells=foo"),
    analyse("analysis.drws=5", "drws", slow=True),
    analyse(["cells=[{corpus: a, model: b, clean: c, colour: d}]"], "cells", "colour", slow=True),
    analyse(["cells=[{corpus: a, model: b}]"], "cells.clean", slow=True),
    cell("corpus", "nowhere", "does not exist", corpus="nowhere", slow=True),
    cell("model", "nowhere", "does not exist", model="nowhere", slow=True),
    cell("scores", "nowhere", "does not exist", clean="nowhere", slow=True),
    cell("scores", "nowhere", "does not exist", contaminated="nowhere", slow=True),
    cell("not a corpus", corpus=f"{M}/model", slow=True),
    cell("not a scores", clean=f"{M}/corpus", slow=True),
    cell("old", "schema 1", contaminated="old", files={"old": copied("contaminated", older)}),
    analyse("runs=a-file", "There is a file", files={"a-file": ""}),
    analyse("wandb.mode=online", "wandb.mode", "online", "wandb login"),
    analyse("name=" + "n" * 300, "name", "nnn", "too long"),
    # the law
    law("reports=[nowhere] factors=[]", "factors", "one or more"),
    law("reports=[nowhere] factors=[colour]", "factors", "colour", slow=True),
    law("reports=[nowhere] factors=[recency,recency]", "factors", "each once", slow=True),
    law("reports=[nowhere] recency_tokens=0", "recency_tokens", slow=True),
    law("reports=[nowhere] recency_tokens=nan", "recency_tokens", slow=True),
    law("reports=[nowhere] confidence=1", "confidence", slow=True),
    law("reports=[nowhere] confidence=nan", "confidence", slow=True),
    law("reports=[]", "reports", "runs/report"),
    law("reports=[nowhere]", "report", "nowhere", "does not exist"),
    law(f"reports=[{M}/corpus]", "not a report"),
    law("reports=[nowhere] colour=red", "colour", slow=True),
    law("reports=[nowhere] held_out=5", "held_out", slow=True),
    # from Weights & Biases
    pull("local=null", "project", slow=True),
    pull("project=a local=b", "project", slow=True),
    pull("local=nowhere", "nowhere"),
    pull("local=empty", "empty", files={"empty/readme.md": ""}, slow=True),
    pull("local=a-file", "a-file", files={"a-file": ""}),
    pull("local=torn", "torn", files={"torn/offline-run-1/run-1.wandb": b"not a record"}, slow=True),
    pull("local=null project=nobody", "project", "nobody", "wandb login"),
    pull("colour=red", "colour", slow=True),
]  # fmt: skip
