"""A command that is killed at any moment, and started again, ends as one that was left alone.

FAULT_KILLS=1000 is how many kills there are in all, and FAULT_SEED=0 what draws them
(`make faults`).
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import pytest

from contamination.data.readers.embedded import EmbeddedCorpus
from tests.bad_inputs.material import jsonl, make
from tests.bad_inputs.row import GOOD, M
from tests.detection.model.served.server import NAME, Server
from tests.faults.fork_server import ForkServer
from tests.faults.kills import Command, Run, Seconds, Tally, chain, plan, stage_of, table
from tests.launch.started import ENVIRONMENT, QUICK, TWO, copied
from tests.small import SMALL, contents
from tests.training.processes import TINY

KILLS = int(os.environ.get("FAULT_KILLS", "28"))
SEED = int(os.environ.get("FAULT_SEED", "0"))
CHAINS = 2
TEXTS, DOCUMENTS = 2_000, 6_000  # work of a second or more
SERVED = "detection, served"
LAUNCHED = ("pipeline", "training by 1", "training by 2")
STAGES = ("injection", "injection finetuning", "injection export", "injection decontaminate",
          "detection", SERVED, "detection accuracy", "detection extraction", "detection build",
          "audits", "analysis")  # fmt: skip
pytestmark = pytest.mark.slow


def left_alone(command, runs, warm=None):
    """Runs a command that nobody kills; its seconds, and those of its work."""
    command.prepare(runs)
    began, work_began = time.monotonic(), None
    run = Run(command.words(runs), runs.with_suffix(".log"), warm)
    try:
        while run.process.poll() is None and time.monotonic() < began + 600:
            if work_began is None and stage_of(runs, run.began) != "start":
                work_began = time.monotonic()
            time.sleep(0.02)
        assert run.process.poll() == 0, run.said()[-4000:]
    finally:
        run.end()
    ended = time.monotonic()
    return ended - began, ended - (work_began or began)


@pytest.fixture(scope="module")
def warm():
    """What has the environment of a command that is started, and so rounds as it does."""
    server = ForkServer(ENVIRONMENT)
    yield server
    server.close()


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The runs folder of one small cell."""
    runs = tmp_path_factory.mktemp("small") / "whole"
    left_alone(Command("pipeline", pipeline), runs)
    return runs


@pytest.fixture(scope="module")
def material(tmp_path_factory):
    """Models, a corpus and texts, which the stages read."""
    folder = tmp_path_factory.mktemp("killed") / "material"
    make(folder)
    texts = [*islice(pieces(), DOCUMENTS)]
    rows = [{"text": text, "label": i % 2} for i, text in enumerate(texts[:TEXTS])]
    (folder / "many.jsonl").write_text(jsonl(rows))
    (folder / "few.jsonl").write_text(jsonl(rows[:100]))
    dated = ({"text": text, "created": f"{2010 + i % 10}-01-01T00:00:00Z"}
             for i, text in enumerate(texts))  # fmt: skip
    (folder / "documents.jsonl").write_text(jsonl(dated))
    (folder / "items.jsonl").write_text(jsonl({"text": text} for text in texts[::50]))
    return folder


def pieces():
    """Sixty words in a row of the embedded corpus, again and again."""
    for document in EmbeddedCorpus().documents():
        words = document.text.split()
        for start in range(0, len(words) - 60, 60):
            yield " ".join(words[start : start + 60])


@pytest.fixture
def server():
    """The golden model behind a server."""
    with Server() as server:
        yield server


def pipeline(runs):
    return ["launch", *SMALL, "wandb.mode=disabled", f"runs={runs}"]


def launched(name, small):
    """The whole pipeline; training by one process, and by two."""
    (corpus,) = small.glob("corpus/*-study-*")
    by_one = ["training", f"corpus_folder={corpus}", *TINY, "deepspeed=zero2",
              "training.evaluate_every_steps=5", "training.export_steps=[7]"]  # fmt: skip
    by_two = ["launch", *QUICK, "launch.stage=train", "cluster.retries=0", TWO]
    return {
        "pipeline": Command(name, pipeline),
        "training by 1": Command(name, lambda runs: [*by_one, f"runs={runs}"]),
        "training by 2": Command(name, lambda runs: [*by_two, f"runs={runs}"],
                                 lambda runs: copied(small, runs)),
    }[name]  # fmt: skip


def one_stage(name, material, server):
    """A stage that reads the material."""
    many_texts, few_texts = (f"examples.path={M}/{size}.jsonl" for size in ("many", "few"))
    model, benchmark = (
        [f"model.path={M}/hf"],
        ["benchmark=[user]", "benchmark.user.answer_field=answer"],
    )
    answers = [f"examples.path={M}/corpus", *model, *benchmark, "++benchmark.user.drawn_options=3"]
    served = ["model.path=null", f"model.url={server.url}", f"model.name={NAME}",
              f"model.tokenizer={M}/hf"]  # fmt: skip
    arguments = {
        "injection": ["benchmark=[boolq,truthfulqa]", "corpus.subsets=[common_crawl,book]",
                      "injection.members=16", "injection.nonmembers=16",
                      "injection.budget_tokens=100_000", "injection.num_proc=2"],
        "injection finetuning": [f"corpus_folder={M}/corpus", "finetuning.format=text",
                                 "occurrences=fixed", "instructions=[]"],
        "injection export": GOOD["injection export"],
        "injection decontaminate": [f"paths={M}/documents.jsonl", f"benchmarks=[{M}/items.jsonl]",
                                    "num_proc=2"],
        "detection": [many_texts, *model, "method=[loss,min_k,min_k_plus_plus,zlib]",
                      "detection.long_texts=truncate"],
        SERVED: [few_texts, *served, "method=[loss,min_k,zlib]", "detection.long_texts=truncate"],
        "detection accuracy": answers,
        "detection extraction": [*answers, "extraction.tokens=16", "extraction.prefix_tokens=[4]"],
        "detection build": ["source=jsonl", f"source.paths={M}/documents.jsonl",
                            "build.members_before=2013-01-01", "build.nonmembers_from=2017-01-01",
                            "build.lengths=[8,16]", "build.number=200", "build.processes=2"],
        "audits": GOOD["audits"],
        "analysis": [*GOOD["analysis"], "analysis.draws=2000"],
    }  # fmt: skip
    words = ("detection" if name == SERVED else name).split()
    words += [word.replace(M, str(material)) for word in arguments[name]]
    return Command(name, lambda runs: [*words, f"runs={runs}"])


@pytest.mark.parametrize("name", [*LAUNCHED, *STAGES])
def test_a_killed_command_ends_as_one_left_alone(request, tmp_path, name, warm, capsys):
    fixtures = ["small"] if name in LAUNCHED else ["material", "server"]
    make_command = launched if name in LAUNCHED else one_stage
    command = make_command(name, *map(request.getfixturevalue, fixtures))
    tally = Tally()
    whole, warm_runs = tmp_path / "whole", tmp_path / "warm"
    seconds = Seconds(left_alone(command, whole)[0], left_alone(command, warm_runs, warm)[1])
    assert contents(whole) == contents(warm_runs) != {}
    kills = plan(-(-KILLS // len([*LAUNCHED, *STAGES])), f"{SEED} {name}")
    places = [tmp_path / f"chain-{n}" for n in range(CHAINS)]
    draws = iter(kills)
    with ThreadPoolExecutor(CHAINS) as pool, capsys.disabled():  # half an hour without a word?
        print(f"\nseed {SEED}, {len(kills)} kills of {name}: {seconds.whole:.1f} s, "
              f"of a warm process {seconds.work:.1f} s of work")  # fmt: skip
        for place in places:
            place.mkdir()
        common = warm, contents(whole), seconds, draws, tally
        list(pool.map(lambda place: chain(command, place, *common), places))
        print(table(tally))
    assert not tally.interventions, tally.interventions[0]
    assert not tally.others
    assert not [k for k in tally.kills if k.orphans or not k.obeyed]
    assert len(tally.kills) == len(kills)
