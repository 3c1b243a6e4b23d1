"""Task accuracy equals lm-evaluation-harness's, example by example, in an environment of its own.

LM_EVAL_PYTHON names a Python that has lm-eval. Without it one is made once in pytest's cache: it
sees this environment's packages (torch, transformers) and gets lm-eval from the package index.
"""

import json
import os
import subprocess
import sysconfig
import venv
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from contamination.core.config import CONF
from contamination.data.config import BenchmarkConfig, ExamplesConfig
from contamination.detection.config import DetectionConfig, ScoredModelConfig
from contamination.detection.tasks.accuracy import FILE, run
from contamination.detection.tasks.config import AccuracyStage
from contamination.detection.tasks.questions import make_questions
from contamination.injection.config import InjectionConfig, InjectionStage, TokenizerConfig
from contamination.injection.corpus import open_corpus
from contamination.injection.run import run as inject
from tests.detection.golden import GOLDEN

RELEASE = "lm-eval[hf]==0.4.13"
METRICS = {"acc": "sum", "acc_norm": "character", "acc_bytes": "byte"}
BENCHMARKS = ("boolq", "commonsenseqa", "imdb", "lsat", "truthfulqa")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def harness(request):
    """A Python with lm-eval."""
    if given := os.environ.get("LM_EVAL_PYTHON"):
        return given
    folder = Path(request.config.cache.mkdir("lm-eval"))
    python, done = folder / "bin" / "python", folder / RELEASE
    if not done.exists():
        venv.create(folder, with_pip=True, clear=True)
        (site,) = folder.glob("lib/python*/site-packages")
        (site / "ours.pth").write_text(sysconfig.get_path("purelib"))
        install = [python, "-m", "pip", "install", "--quiet", RELEASE]
        made = subprocess.run(install, capture_output=True, text=True, timeout=1200)
        if made.returncode:
            last = (made.stderr.strip().splitlines() or ["pip said nothing"])[-1]
            pytest.skip(f"{RELEASE} can't be installed (or set LM_EVAL_PYTHON): {last}")
        done.touch()
    return str(python)


def benchmark(name):
    node = yaml.safe_load((CONF / "benchmark" / f"{name}.yaml").read_text())[name]
    return BenchmarkConfig(**node)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    stage = InjectionStage(
        runs=str(tmp_path_factory.mktemp("runs")),
        corpus={"name": "embedded",
                "_target_": "contamination.data.readers.embedded.EmbeddedCorpus",
                "subsets": ["common_crawl"]},
        benchmark={name: benchmark(name) for name in BENCHMARKS},
        occurrences={"_target_": "contamination.injection.occurrences.Fixed", "count": 1},
        tokenizer=TokenizerConfig(path=str(GOLDEN / "target")),
        injection=InjectionConfig(
            members=40, nonmembers=40, budget_tokens=120_000, sequence_tokens=400
        ),
    )  # fmt: skip
    return inject(stage).path


def asked_of_the_harness(questions, folder):
    """Each benchmark's questions, and those with letters again by their letters, as JSONL files."""
    tasks = {}
    for q in questions:
        kinds = {"": list(q.options)}
        if q.letter_texts:
            kinds["-letters"] = [option[0] for option in q.options]
        for kind, options in kinds.items():
            row = {"prompt": q.prompt, "options": options, "answer": q.answer}
            tasks.setdefault(q.benchmark + kind, []).append(json.dumps(row) + "\n")
    for name, rows in tasks.items():
        (folder / f"{name}.jsonl").write_text("".join(rows))
    return {name: str(folder / f"{name}.jsonl") for name in tasks}


def test_every_example_is_answered_as_the_harness_answers_it(harness, corpus, tmp_path):
    model = GOLDEN.resolve() / "target"
    artifact = run(AccuracyStage(
        runs=str(tmp_path), examples=ExamplesConfig(str(corpus)),
        model=ScoredModelConfig(str(model)), detection=DetectionConfig(device="cpu"),
    ))  # fmt: skip
    table = pd.read_parquet(artifact.path / FILE)
    questions = make_questions(open_corpus(corpus), {}).questions
    assert list(table["example_id"]) == [q.example_id for q in questions]
    (tmp_path / "tasks.json").write_text(json.dumps(asked_of_the_harness(questions, tmp_path)))
    script = Path(__file__).with_name("harness.py")
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    command = [harness, script, model, tmp_path / "tasks.json", tmp_path / "out.json"]
    subprocess.run(command, check=True, timeout=1200, cwd=tmp_path, env=clean)
    found = json.loads((tmp_path / "out.json").read_text())
    assert {name for name in found if not name.endswith("letters")} == set(BENCHMARKS)
    compared = 0
    for name, rows in table.groupby("benchmark", sort=False):
        for own, theirs in zip(rows.itertuples(), found[name], strict=True):
            np.testing.assert_allclose(own.loglikelihoods, theirs["loglikelihoods"], rtol=1e-4)
            for metric, by in METRICS.items():
                right = getattr(own, f"chosen_{by}") == own.answer
                assert right == theirs[metric], (own.example_id, metric)
                compared += 1
        by_letter = found.get(f"{name}-letters", [])
        with_letters = rows[rows["chosen_letter"].notna()]
        for own, theirs in zip(with_letters.itertuples(), by_letter, strict=True):
            ours = own.letter_loglikelihoods
            np.testing.assert_allclose(ours, theirs["loglikelihoods"], rtol=1e-4)
            assert (own.chosen_letter == own.answer) == theirs["acc"], own.example_id
            compared += 1
    print(f"{len(table)} examples, {compared} answers compared")
    assert compared > 1_200
    assert (table["chosen_sum"] != table["chosen_byte"]).any()
