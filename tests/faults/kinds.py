"""A finished folder of each kind, small, and what the commands read of it, in this process."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

Read = Callable[[Path], object]
"""Reads a received folder; a user's error is what a damaged one may cause."""


@dataclass(frozen=True)
class Kind:
    """A whole folder, below a runs folder, and the readers of copies of it."""

    folder: Path
    read: Mapping[str, Read]


def _quietly(work: Callable[..., object], *words: Any) -> None:
    with redirect_stdout(io.StringIO()):
        work(*words)


def _verify(folder: Path) -> None:
    from contamination.injection.__main__ import prove_folder

    _quietly(prove_folder, str(folder), [])


def _which(folder: Path) -> None:
    from contamination.training.config import WhichStepStage
    from contamination.training.which_step import format_step_table

    format_step_table(WhichStepStage(text="a", corpus_folder=str(folder), batch=2))


def _examples(folder: Path) -> None:
    from contamination.data.config import ExamplesConfig
    from contamination.detection.examples import occurrences_by_id, open_examples

    open_examples(ExamplesConfig(str(folder)))
    occurrences_by_id(str(folder))


def _adopt(kind: str) -> Read:
    from contamination.launch.adopt import adopt

    return lambda folder: adopt(kind, str(folder), str(folder.parents[2] / "adopted"))


def _export(folder: Path) -> None:
    from contamination.injection.config import ExportStage
    from contamination.injection.export.run import export_corpus

    runs = str(folder.parents[2] / "exported")
    export_corpus(
        ExportStage(
            runs, str(folder), {"_target_": "contamination.injection.export.text_format.Text"}
        )
    )


def _train_on(folder: Path) -> None:
    from contamination.injection.corpus import open_corpus

    corpus = open_corpus(folder)
    _ = corpus.window_tokens, corpus.sequence_tokens, corpus.held_out, corpus.contamination


def _open_model(folder: Path) -> None:
    from contamination.detection.models.hf_model import HFModel

    model = HFModel.from_path("model.path", str(folder / "hf"))
    _ = model.config, model.tokenizer(), model.tokenizer_digest


def _scores(folder: Path) -> None:
    from contamination.detection.scores import open_scores, read_scores

    _ = [*open_scores(folder).tables()], read_scores(folder)


def corpus(material: Path) -> Kind:
    from contamination.data.config import BenchmarkConfig, ExamplesConfig
    from contamination.detection.tasks.accuracy import corpus_questions
    from contamination.detection.tasks.config import AccuracyStage
    from contamination.injection.corpus import describe_copies, open_corpus

    user = BenchmarkConfig("{question}{answer}", answer_field="answer", drawn_options=3)
    first = open_corpus(material / "corpus").examples["example_id"].iloc[0]
    return Kind(material / "corpus", {
        "verify": _verify, "export": _export, "examples": _examples, "train": _train_on,
        "show": lambda f: describe_copies(f, str(first)), "which-step": _which,
        "accuracy": lambda f: corpus_questions(AccuracyStage(
            examples=ExamplesConfig(str(f)), benchmark={"user": user})),
        "adopt": _adopt("corpus"),
    })  # fmt: skip


def toy_corpus(folder: Path) -> Kind:
    from tests.injection.export.conftest import toy_corpus as make

    return Kind(make(folder).artifact.path, {"export": _export, "adopt": _adopt("corpus")})


def export(corpus_folder: Path, runs: Path, form: str = "text") -> Kind:
    from contamination.injection.config import ExportStage
    from contamination.injection.export.run import export_corpus as make
    from tests.injection.export.conftest import node

    made = make(ExportStage(str(runs), str(corpus_folder), node(form)))
    steps: dict[str, Read] = {} if form == "text" else {"which-step": _which}
    return Kind(made.path, {"verify": _verify, **steps})


def finetuning(material: Path) -> Kind:
    from contamination.core.cli import compose_stage
    from contamination.injection.finetuning.config import FinetuningStage
    from contamination.injection.finetuning.run import run

    words = [f"runs={material}/runs", f"corpus_folder={material}/corpus",
             "finetuning.format=text", "occurrences=fixed", "instructions=[]"]  # fmt: skip
    made = run(compose_stage("finetuning", words, FinetuningStage))
    read = {"verify": _verify, "examples": _examples, "train": _train_on, "which-step": _which}
    return Kind(made.path, read)


def model(material: Path) -> Kind:
    from contamination.analysis.provenance import training_facts
    from contamination.training.trained_model import ancestry_of, open_trained

    def record(folder: Path) -> None:
        trained = open_trained("cells.model", folder)
        _ = training_facts(trained), trained.exposures["step"], trained.evaluations
        ancestry_of("model.path", str(folder / "hf"))

    return Kind(material / "model", {
        "open": _open_model, "record": lambda f: _reading(record, f), "adopt": _adopt("model"),
    })  # fmt: skip


def _reading(read: Read, folder: Path) -> None:
    from contamination.core.integrity import errors_naming_folders

    with errors_naming_folders(folder):
        read(folder)


def masked_lm(material: Path) -> Kind:
    from contamination.core.artifacts import WrittenFiles, build_or_open
    from contamination.training.masked_lm import MaskedLMStage

    def made(place: Path) -> WrittenFiles:
        shutil.copytree(material / "hf", place / "hf")
        return WrittenFiles(sorted(f"hf/{path.name}" for path in (place / "hf").iterdir()))

    stage = MaskedLMStage(str(material / "runs"), str(material / "corpus"))
    folder = material / "runs" / "masked_lm" / f"toy-{'0' * 12}"
    return Kind(build_or_open(folder, stage, {}, made).path, {"open": _open_model})


def passes(material: Path) -> Kind:
    from contamination.core.artifacts import open_artifact
    from contamination.detection.pass_store import StoredPass

    def read(folder: Path) -> None:
        stored = StoredPass(open_artifact(folder, "passes").path)
        _ = [*stored.values()], stored.count_truncated()

    return Kind(next((material / "runs" / "passes").iterdir()), {"score": read})


def rewordings(material: Path) -> Kind:
    from contamination.data.examples import make_text
    from contamination.detection.passes import Pass
    from contamination.detection.views.reworded import read_or_make_versions

    texts = [make_text(str(i), f"text {i}", None, "") for i in range(4)]
    source = SimpleNamespace(digest="0" * 64, slug="toy")

    def make(some: Any) -> list[list[str]]:
        return [[f"{text.text} again"] for text in some]

    def read(runs: Path) -> None:
        read_or_make_versions(runs, Pass("target"), 0, source, texts, make)

    read(material / "runs")
    (folder,) = (material / "runs" / "rewordings").iterdir()
    return Kind(folder, {"score": lambda f: read(f.parents[1])})


def answered(name: str, material: Path) -> Kind:
    """Of the accuracy or the extraction."""
    from importlib import import_module

    from contamination.core.cli import compose_stage

    module = import_module(f"contamination.detection.tasks.{name}")
    summaries = {"accuracy": "accuracy_summary", "extraction": "extraction"}
    format_summary = import_module(
        f"contamination.detection.tasks.{summaries[name]}"
    ).format_summary
    schema = {"accuracy": "AccuracyStage", "extraction": "ExtractionStage"}[name]
    words = [f"runs={material}/runs", f"examples.path={material}/corpus",
             f"model.path={material}/hf", "benchmark=[user]"]  # fmt: skip
    words += ["benchmark.user.answer_field=answer", "++benchmark.user.drawn_options=3"]
    words += ["extraction.tokens=4", "extraction.prefix_tokens=[4]"] * (name == "extraction")
    stage = compose_stage(name, words, getattr(module, schema))

    def read(folder: Path) -> None:
        artifact = module.run(replace(stage, runs=str(folder.parents[1])))
        table = artifact.table(module.FILE)
        if name == "accuracy":
            format_summary(table, artifact)
        else:
            format_summary({"model": table}, artifact.counts["left_out"])

    return Kind(module.run(stage).path, {name: lambda f: _reading(read, f)})


def audit(material: Path) -> Kind:
    from contamination.audits.base import AuditStage
    from contamination.audits.run import read_findings, run
    from contamination.core.cli import compose_stage

    roles = [f"audit.{n}={material}/{n}.jsonl" for n in ("positives", "negatives", "suspects")]
    words = [f"runs={material}/runs", "audit=books", *roles, "audit.length=8", "audit.snippets=4",
             "method=[loss]", f"model.path={material}/hf"]  # fmt: skip
    stage = compose_stage("audit", words, AuditStage)

    def read(folder: Path) -> None:
        read_findings(run(replace(stage, runs=str(folder.parents[1]))))

    return Kind(run(stage).path, {"audit": read})


def scores(material: Path) -> Kind:
    from contamination.analysis.cells import open_cell
    from contamination.analysis.config import CellPaths
    from contamination.analysis.example_pages import _page_config
    from contamination.analysis.methods import glossary_entries
    from contamination.analysis.provenance import open_record
    from contamination.core.integrity import errors_naming_folders
    from contamination.detection.scores import open_scores

    def analyse(folder: Path) -> None:
        paths = CellPaths(*(str(material / name) for name in ("corpus", "model", "clean")),
                          contaminated=str(folder))  # fmt: skip
        open_cell(paths)
        glossary_entries(["loss"], open_record(paths).methods)
        scored = open_scores(folder).artifact
        with errors_naming_folders(folder):
            _page_config(scored, scored, {"view": {"examples": 1}, "out": "x.html"})

    return Kind(material / "contaminated", {"scores": _scores, "analyse": analyse})


def toy_scores(runs: Path) -> Kind:
    from contamination.core.artifacts import WrittenFiles, build_or_open
    from contamination.data.config import ExamplesConfig
    from contamination.detection.config import DetectionStage, ScoredModelConfig
    from contamination.detection.scores import COLUMNS, FILE, to_arrow, write_score_tables

    row = {"example_id": ["a", "b"], "method": "loss", "variant": "", "checkpoint_step": 3,
           "default": True, "score": [0.5, 1.5], "flag": "", "ranked": True}  # fmt: skip

    def made(folder: Path) -> WrittenFiles:
        write_score_tables(folder / FILE, [to_arrow(pd.DataFrame(row)[COLUMNS.names])])
        return WrittenFiles([FILE], {"rows": 2})

    stage = DetectionStage(
        examples=ExamplesConfig("x.jsonl"), model=ScoredModelConfig("x"),
        method={"loss": {"_target_": "contamination.detection.methods.loss.Loss"}},
    )  # fmt: skip
    folder = runs / "scores" / f"toy-{'0' * 12}"
    return Kind(build_or_open(folder, stage, {"target": "0" * 64}, made).path, {"scores": _scores})


def benchmark(material: Path) -> Kind:
    from contamination.core.artifacts import WrittenFiles, build_or_open

    def made(folder: Path) -> WrittenFiles:
        (folder / "data").mkdir()
        shutil.copyfile(material / "texts.jsonl", folder / "data" / "toy_length8.jsonl")
        (folder / "datasheet.md").write_text("# Toy\n")
        return WrittenFiles(["data/toy_length8.jsonl", "datasheet.md"])

    def read(folder: Path) -> None:
        from contamination.data.config import ExamplesConfig, SourceConfig
        from contamination.detection.examples import open_examples

        sources = [SourceConfig(split="train", files="*length8*")]
        open_examples(ExamplesConfig(str(folder), name="jsonl", sources=sources))
        for file in sorted(folder.glob("data/*")):
            open_examples(ExamplesConfig(str(file)))

    folder = material / "runs" / "benchmark" / f"toy-{'0' * 12}"
    return Kind(build_or_open(folder, {"name": "toy"}, {}, made).path, {"score": read})


def report(material: Path) -> Kind:
    from contamination.analysis.config import AnalysisStage, CellPaths
    from contamination.analysis.report_folder import STATISTICS, open_report
    from contamination.core.artifacts import WrittenFiles, build_or_open

    cell = CellPaths(*(str(material / name) for name in ("corpus", "model", "clean", "scores")))
    rng = np.random.default_rng(0)

    def made(folder: Path) -> WrittenFiles:
        for name in STATISTICS:
            pd.DataFrame({"method": ["loss"] * 4, "value": rng.random(4)}).to_parquet(
                folder / f"{name}.parquet"
            )
        return WrittenFiles([f"{name}.parquet" for name in STATISTICS])

    def read(folder: Path) -> None:
        opened = open_report(folder)
        _ = opened.config, [getattr(opened, name) for name in STATISTICS]

    folder = material / "runs" / "report" / f"toy-{'0' * 12}"
    stage = AnalysisStage("toy", 0, cells=[cell])
    return Kind(build_or_open(folder, stage, {}, made).path, {"open": read})


def launches(material: Path) -> Kind:
    """The folder of a launch, of one cell that is done."""
    from hydra import compose, initialize_config_dir

    import contamination.launch.plan  # noqa: F401 - registers the schemas
    from contamination.core.config import CONF
    from contamination.launch.cells import Launch, Outcome
    from contamination.launch.saved_config import save_config
    from contamination.launch.status import status

    made = Launch.of_command(str(material / "runs"), "toy", ["seed=0"])
    made.register([["seed=0"]])
    cell = made.cell(["seed=0"])
    names = ("corpus", "model", "clean", "contaminated")
    paths = {name: str(material / name) for name in names}
    cell.write_outcome(Outcome("done", paths=paths, content={"corpus": "0"}))
    cell.write_jobs({"inject": "7", "detect 1/2": "8"})
    words = ["experiment=quickstart", "name=toy", "wandb.mode=disabled"]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("pipeline", words)
    save_config(made.folder, config, made.folder / "conf")
    save_config(cell.folder, config, made.folder / "conf")

    def report(folder: Path) -> None:
        import contamination.analysis.run
        from contamination.analysis.cells import open_cell
        from contamination.launch.__main__ import _report_on_folder

        whole, contamination.analysis.run.run = (
            contamination.analysis.run.run,
            lambda s: [open_cell(c) for c in s.cells],
        )
        try:
            _quietly(_report_on_folder, folder)
        finally:
            contamination.analysis.run.run = whole

    return Kind(made.folder, {"status": lambda f: _reading(status, f), "report": report})


def served(material: Path) -> Kind:
    """The folder of a served model's answers, which has a sealed file and no manifest."""
    from contamination.core.files import hashed_json, write_text_atomically
    from contamination.core.integrity import errors_naming_folders
    from contamination.detection.models.served.capabilities import PROBE_FILE, _read_probe
    from contamination.detection.models.served.fingerprint import Fingerprint

    folder = material / "runs" / "served" / f"toy-{'0' * 12}"
    folder.mkdir(parents=True)
    named = {"name": "toy", "tokenizer": "0" * 64, "way": "echo", "error": 0.0}
    said = Fingerprint({0: [-1.0]}).to_record()
    write_text_atomically(
        folder / PROBE_FILE, hashed_json({"model": named, "said": said, "digest": "0" * 64})
    )

    def read(place: Path) -> None:
        with errors_naming_folders(place):
            known = _read_probe(place / PROBE_FILE)
            if known["model"]["name"] == "toy":
                Fingerprint.from_record(known["said"])

    return Kind(folder, {"probe": read})


MAKERS: Mapping[str, Callable[[Path], Kind]] = {
    "corpus": corpus,
    "finetuning": finetuning,
    "export": lambda m: export(m / "corpus", m / "runs", "megatron"),
    "export of text": lambda m: export(m / "corpus", m / "runs", "text"),
    "model": model,
    "masked_lm": masked_lm,
    "passes": passes,
    "rewordings": rewordings,
    "accuracy": lambda m: answered("accuracy", m),
    "extraction": lambda m: answered("extraction", m),
    "audit": audit,
    "scores": scores,
    "benchmark": benchmark,
    "report": report,
    "served": served,
    "launches": launches,
}
"""By the name of its folder below `runs`, of the material of `tests.bad_inputs.material`."""
