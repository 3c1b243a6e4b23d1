"""Tricky texts, scored by the toy models; what the page shows of them."""

import json
from html.parser import HTMLParser

import pytest

from contamination.data.config import ExamplesConfig
from contamination.detection.config import (
    DetectionConfig,
    DetectionStage,
    ReferenceConfig,
    ScoredModelConfig,
    ViewConfig,
    ViewStage,
)
from contamination.detection.run import run as score
from contamination.detection.viewer.run import run
from tests.detection.conftest import MEMORISED, UNSEEN

TEXTS = {
    "m1": (MEMORISED, 1, "tea"),
    "m2": ("Zoë 🦩 waits:\r\n\n\tif x < 3 &amp; y:  # two  spaces \n", 1, "sea"),
    "n1": (UNSEEN, 0, "tea"),
    "</script >": ("</script ><!--<script > \u202eright to left\u202c שלום 𝔘 \u2028 end", 0, "sea"),
    "u1": ("Nobody said whether this one was read.", None, "sea"),
}
METHODS = {
    name: {"_target_": f"contamination.detection.methods.{target}"}
    for name, target in {"loss": "loss.Loss", "infilling": "infilling.Infilling"}.items()
}


@pytest.fixture(scope="session")
def stage(toy_folders, tmp_path_factory):
    """The view of TEXTS by the model that has learnt m1, against the one before."""
    folder = tmp_path_factory.mktemp("view")
    rows = [
        {"id": name, "text": text, "label": label, "benchmark": benchmark}
        for name, (text, label, benchmark) in TEXTS.items()
    ]
    (folder / "texts.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return ViewStage(
        runs=str(folder / "runs"),
        examples=ExamplesConfig(str(folder / "texts.jsonl")),
        model=ScoredModelConfig(str(toy_folders["target"])),
        reference=ReferenceConfig(str(toy_folders["reference"])),
        method=METHODS,
        detection=DetectionConfig(device="cpu"),
        view=ViewConfig(ids=list(TEXTS)),
        out=str(folder / "view.html"),
    )


def scored(stage, methods, model):
    """Store the passes of the methods over the stage's examples."""
    return score(
        DetectionStage(
            runs=stage.runs,
            examples=stage.examples,
            model=ScoredModelConfig(model),
            method={name: METHODS[name] for name in methods},
            detection=stage.detection,
        )
    )


@pytest.fixture(scope="session")
def written(stage):
    """The page's file, after the passes are stored."""
    scored(stage, METHODS, stage.model.path)
    scored(stage, ["loss"], stage.reference.path)
    return run(stage)


def data_of(path):
    """The page's data, as an HTML parser finds it."""
    found = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attributes):
            self.inside = dict(attributes).get("id") == "data"

        def handle_data(self, data):
            found.extend([data] if getattr(self, "inside", False) else [])

        def handle_endtag(self, tag):
            self.inside = False

    Reader().feed(path.read_text())
    return json.loads("".join(found))
