"""Passes by two processes, and by a model spread over devices, against the usual run."""

import json
import os
import signal
import subprocess
import sys
import time
import weakref
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from hydra import compose, initialize_config_dir
from torch import distributed
from transformers import AutoModelForCausalLM

from contamination.core.config import CONF, convert_config
from contamination.core.errors import ConfigError, DataError
from contamination.core.models import load_model
from contamination.detection import process_group, workers
from contamination.detection.config import DetectionConfig, DetectionStage
from contamination.detection.forward.infilling import run_branches
from contamination.detection.forward.prefix import CachedPrefixModel
from contamination.detection.loaded_model import LoadedModel
from contamination.detection.models.causal_lm import CausalLM
from contamination.detection.models.hf_model import HFModel
from contamination.detection.passes import NUMBERS, ORIGINAL, Pass
from contamination.detection.run import run
from contamination.detection.workers import run_slices, uses_several_processes
from tests.detection import golden
from tests.detection.conftest import MEMORISED, NOUNS, UNSEEN
from tests.detection.ranks.failing import Failing
from tests.rounding import FORWARD
from tests.training.processes import free_port

INFILLING = Pass(view="infill", future=3)
PASSES = [ORIGINAL, INFILLING, Pass(view="prefix", shots=2)]
FAR = "ZEBRA!"  # some of its tokens are in no other text
PLACES = {
    "disk": "disk",
    "cpu and disk": {
        "model.embed_tokens": "cpu", "model.layers.0": "cpu", "model.layers.1": "disk",
        "model.norm": "cpu", "model.rotary_emb": "cpu", "lm_head": "disk",
    },
}  # fmt: skip


def assert_close(found, expected, rtol=1e-5):
    for one, other in zip(found, expected, strict=True):
        for field in NUMBERS:
            np.testing.assert_allclose(
                getattr(one, field), getattr(other, field), rtol=rtol, atol=FORWARD
            )


@pytest.mark.slow  # a launcher's processes divide the same passes
def test_two_processes_give_the_same_as_one(golden_folder, resources):
    source = HFModel.from_path("model.path", str(golden_folder))
    settings = [DetectionConfig(device="cpu", processes=n) for n in (1, 2)]
    texts = [golden.text_of(e["text"], e["text"]) for e in golden.untied()]
    one, two = (LoadedModel(source, s, resources).run(INFILLING, texts) for s in settings)
    keys = [[(row.text_sha256, row.copy) for row in rows] for rows in (one, two)]
    assert keys[0] == keys[1]
    assert_close([row.stats for row in two], [row.stats for row in one])


@pytest.mark.parametrize(("n", "title"), [(2, "original, 1 of 2 processes"), (1, "original")])
def test_the_first_process_says_of_how_many_its_bar_is_one(monkeypatch, golden_folder, n, title):
    shown = []
    monkeypatch.setattr(
        "contamination.detection.workers._run_in_children",
        lambda parts: shown.extend(part.title for part in parts) or [p.columns[0] for p in parts],
    )
    settings = DetectionConfig(device="cpu", processes=n)
    source = HFModel.from_path("model.path", str(golden_folder))
    run_slices(None, source, settings, [[1, 2], [3, 4]], ["a", "b"], title="original")
    assert shown == [title, None][:n]


@pytest.mark.slow
def test_two_processes_for_one_text(toy_models, resources):
    settings = DetectionConfig(device="cpu", processes=2)
    loaded = LoadedModel(toy_models["target"], settings, resources)
    (row,) = loaded.run(ORIGINAL, [golden.text_of("a", MEMORISED)])
    assert len(row.stats) > 1


@pytest.mark.parametrize("wanted", PASSES, ids=lambda p: p.view)
def test_a_device_map_changes_nothing(toy_models, resources, wanted, monkeypatch):
    """What transformers is asked for; a CPU alone it does not spread the model over."""
    given, load = [], AutoModelForCausalLM.from_pretrained
    monkeypatch.setattr(
        AutoModelForCausalLM, "from_pretrained",
        lambda *a, **how: given.append(how.get("device_map")) or load(*a, **how),
    )  # fmt: skip
    texts = [golden.text_of("a", MEMORISED), golden.text_of("b", UNSEEN)]
    settings = DetectionConfig(), DetectionConfig(device_map="auto")
    usual, mapped = (LoadedModel(toy_models["target"], s, resources) for s in settings)
    rows = [m.run(wanted, texts) for m in (usual, mapped)]
    assert given == [None, "auto"]
    assert_close(*([row.stats for row in each] for each in rows))


@pytest.mark.parametrize("place", PLACES)
def test_weights_on_the_disk_change_nothing(golden_folder, decoder, tokenizer, tmp_path, place):
    layers = PLACES[place] if isinstance(PLACES[place], dict) else {"": "disk"}
    model = load_model(
        "model.path", str(golden_folder), device_map=layers, offload_folder=str(tmp_path)
    )
    assert any(weight.is_meta for weight in model.parameters())
    offloaded = CausalLM(model)
    assert offloaded.head is not None
    assert offloaded.device == torch.device("cpu")
    sequences = [tokenizer(t)["input_ids"] for t in (MEMORISED, UNSEEN)]
    assert_close(offloaded.score(sequences), decoder.score(sequences))
    arguments = sequences, ["a", "b"], 8192, 3
    for one, other in zip(
        run_branches(offloaded, *arguments), run_branches(decoder, *arguments), strict=True
    ):
        assert_close(one, other)
    behind = [CachedPrefixModel(d, sequences[0], 1) for d in (offloaded, decoder)]
    assert_close(*(d.score(sequences[1:]) for d in behind))


def write_texts(path, texts):
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path


def environment(**more):
    """This one's, less what a training in this very process has set."""
    own = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    return {**{name: value for name, value in os.environ.items() if name not in own}, **more}


def scores_of(folder):
    table = pd.read_parquet(folder / "scores.parquet")
    return table.set_index(["method", "variant", "example_id"])["score"].sort_index()


@pytest.fixture
def half_broken_folder(toy_folders, tokenizer, tmp_path):
    """The model whose logits for tokens of FAR are beyond float32."""
    model = load_model("model.path", str(toy_folders["target"]))
    near = {i for noun in NOUNS for i in tokenizer(f"A {noun} waits here.")["input_ids"]}
    far = sorted(set(tokenizer(f"cat {FAR}")["input_ids"]) - near)
    with torch.no_grad():
        model.model.embed_tokens.weight[:, 0] = 0  # tells FAR's tokens from the others
        model.model.embed_tokens.weight[far, 0] = 1
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight[0] = layer.mlp.down_proj.weight[0] = 0
        mlp = model.model.layers[0].mlp  # the product of the two is beyond float32
        mlp.gate_proj.weight[0, 0] = mlp.up_proj.weight[0, 0] = 1e30
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def far_behind(text):
    """A text with FAR that a pass has after `text`, so that the second of two processes gets it."""
    first = golden.text_of("a", text).sha256
    texts = (golden.text_of("b", f"{noun} {FAR}") for noun in NOUNS)
    return next(t.text for t in texts if t.sha256 > first)


def test_a_launchers_processes_give_the_scores_and_the_errors_of_one(
    half_broken_folder, toy_folders, prefix_file, tmp_path
):
    texts = [f"A {noun} waits here." for noun in NOUNS[:7]]
    good = write_texts(tmp_path / "good.jsonl", texts)
    bad = write_texts(tmp_path / "bad.jsonl", [texts[0], far_behind(texts[0])])
    options = [  # two models, and several passes of one
        "method=[loss,lowercase,infilling,recall,reference]", f"model.path={half_broken_folder}",
        f"reference.path={toy_folders['reference']}", f"prefix.path={prefix_file}",
        "detection.device=cpu",
    ]  # fmt: skip
    ran = subprocess.run(  # both files in one start, which takes seconds
        [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_port",
         str(free_port()), "-m", "detection", *options, f"runs={tmp_path / 'two'}",
         f"examples.path={good},{bad}", "--multirun"],
        env=environment(), capture_output=True, text=True, cwd=CONF.parent, check=False,
    )  # fmt: skip
    assert ran.returncode != 0
    assert ran.stdout.count("7 texts without labels") == 1, ran.stderr
    assert [line for line in ran.stderr.splitlines() if line.startswith("error: ")] == [
        "error: text 1: the model's logits for it are NaN or infinite, so it has no score. Check "
        "the model's weights, or score with detection.dtype=float32."
    ]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        overrides = [*options, f"runs={tmp_path / 'one'}", f"examples.path={good}"]
        one = run(convert_config(compose("detection", overrides), DetectionStage)).path
    found, expected = scores_of(tmp_path / "two" / "scores" / one.name), scores_of(one)
    pd.testing.assert_series_equal(found, expected, rtol=1e-5, atol=FORWARD)


@pytest.mark.slow
def test_a_killed_process_ends_the_others(toy_folders, tmp_path):
    texts = (f"A {noun} sits by the old road {i} times. " * 3 for noun in NOUNS for i in range(500))
    file = write_texts(tmp_path / "texts.jsonl", texts)
    call = [sys.executable, "-m", "detection", f"examples.path={file}", f"runs={tmp_path}",
            f"model.path={toy_folders['target']}", "method=infilling"]  # fmt: skip
    # without torchrun, which would end the others itself
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    leader, other = (
        subprocess.Popen(
            call, env=environment(**place, RANK=str(i), LOCAL_RANK=str(i)),
            cwd=CONF.parent, stderr=subprocess.PIPE, text=True,
        )
        for i in range(2)
    )  # fmt: skip
    while not list(tmp_path.glob("passes/*/config.yaml")):
        assert leader.poll() is None, leader.communicate()[1]
        time.sleep(0.1)
    time.sleep(2)  # the pass takes longer
    other.send_signal(signal.SIGKILL)
    said = leader.communicate(timeout=60)[1]
    other.communicate()
    assert leader.returncode == 2
    assert "error: Another of WORLD_SIZE=2 processes ended before its work was done" in said


SERVE = """
import sys
from torch import distributed
from contamination.detection import process_group
distributed.init_process_group("gloo", init_method=sys.argv[1], rank=1, world_size=2)
status = process_group._work_for_rank_0()
distributed.destroy_process_group()
sys.exit(status)
"""


LEAD = """
import sys
import pytest
from torch import distributed
from contamination.core.errors import DataError
from contamination.detection import process_group
from tests.detection.ranks.failing import Failing
distributed.init_process_group("gloo", init_method=sys.argv[1], rank=0, world_size=2)
idle, *works = map(Failing, (None, DataError("some words"), KeyError("some words")))
leader = process_group.ProcessGroup(2)
with pytest.raises(DataError, match="^some words$"):
    leader.run([idle, works[0]])
with pytest.raises(RuntimeError, match=r"(?s)process 1 failed:.*in run\\n.*some words") as raised:
    leader.run([idle, works[1]])
assert "KeyError" in str(raised.value)
leader.dismiss(3)
distributed.destroy_process_group()
"""


def test_another_process_error_is_raised_in_the_leader(tmp_path):
    """Over gloo, as between machines; in new processes, since this one may have a group already."""
    store = f"file://{tmp_path / 'store'}"
    path = os.pathsep.join([str(CONF.parent), os.environ.get("PYTHONPATH", "")])
    variables = environment(LOCAL_RANK="0", WORLD_SIZE="2", PYTHONPATH=path)
    leader, child = (
        subprocess.Popen([sys.executable, "-c", script, store], cwd=CONF.parent, env=variables)
        for script in (LEAD, SERVE)
    )
    try:
        assert leader.wait(120) == 0
        assert child.wait(60) == 3
    finally:
        for process in (leader, child):
            process.kill()
            process.wait()


@dataclass(frozen=True)
class Named:
    """A piece of work that gives its name and the process's number."""

    name: str

    def run(self, number):
        return [self.name, number]


@pytest.fixture
def group_of_one(tmp_path, monkeypatch):
    """This process alone; a training in this very process may have made the group already."""
    monkeypatch.setenv("LOCAL_RANK", "0")
    is_new = not distributed.is_initialized()
    if is_new:
        store = f"file://{tmp_path / 'store'}"
        distributed.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    yield process_group.ProcessGroup(1)
    if is_new:
        distributed.destroy_process_group()


def test_the_leader_has_its_own_results_and_raises_its_own_error(group_of_one):
    assert group_of_one.run([Named("a")]) == [["a", 0]]
    assert group_of_one.waiting
    with pytest.raises(DataError, match="^some words$"):
        group_of_one.run([Failing(DataError("some words"))])


@pytest.fixture
def no_collection(monkeypatch):
    """Seconds, once many tests have run."""
    monkeypatch.setattr(workers.gc, "collect", lambda: None)


def test_a_model_is_kept_and_freed_before_the_next(no_collection):
    loaded = []

    class Source(str):
        def load(self, settings):
            assert not any(one() for one in loaded)
            if self == "none":
                raise DataError("no model")
            model = torch.nn.Linear(1, 1)
            loaded.append(weakref.ref(model))
            return model

    last_model, whole, half = (
        workers._LoadedModelCache(),
        DetectionConfig(),
        DetectionConfig(dtype="bfloat16"),
    )
    for source, settings in (("a", whole), ("a", whole), ("b", whole), ("b", half)):
        assert last_model.load(Source(source), settings) is loaded[-1]()
    assert len(loaded) == 3
    with pytest.raises(DataError, match="no model"):
        last_model.load(Source("none"), half)
    assert last_model.load(Source("b"), half) is loaded[-1]()
    assert len(loaded) == 4


@pytest.mark.parametrize(
    ("gpus", "device", "used"),
    [(3, "auto", "cuda:2"), (3, "cuda", "cuda:2"), (3, "cuda:1", "cuda:1"), (3, "cpu", "cpu"),
     (0, "auto", "auto")],
)  # fmt: skip
def test_a_share_is_scored_on_a_gpu_of_its_own(monkeypatch, no_collection, gpus, device, used):
    """Where the settings leave open on which."""
    source = SimpleNamespace(load=lambda settings: settings)
    monkeypatch.setattr(workers, "_last_model", workers._LoadedModelCache())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)

    def task(model, sequences, names, *, progress):
        return [model, sequences, names, progress]

    settings = DetectionConfig(device=device)
    found = workers.Slice(task, source, settings, [["a"], ["b"]], "words").run(5)
    assert found == [replace(settings, device=used), ["a"], ["b"], "words"]
    assert workers.Slice(task, source, settings, [[]], None).run(0) == []


def test_a_device_map_beside_a_launchers_processes_is_refused(monkeypatch):
    monkeypatch.setattr(process_group, "_current_group", process_group.ProcessGroup(2))
    assert uses_several_processes(DetectionConfig())
    with pytest.raises(ConfigError, match="device_map is 'auto'.*WORLD_SIZE=2"):
        uses_several_processes(DetectionConfig(device_map="auto"))
