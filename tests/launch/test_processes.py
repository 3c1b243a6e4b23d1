"""Stages by processes of their own, by the command line: equal results, crashes, stops, leases."""

from __future__ import annotations

import re
import signal
import socket
import sys
import time
from contextlib import suppress

import pandas as pd
import psutil
import pytest
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

from contamination.core import process_records, signals
from contamination.core.config import CONF
from contamination.core.errors import ConfigError, StoppedError
from contamination.core.lock import LEASE_SECONDS, LOCKS_FOLDER, exclusive_build
from contamination.detection.scores import open_scores
from contamination.launch.config import ClusterConfig
from contamination.launch.processes import Processes
from contamination.launch.run import run
from contamination.launch.run_records import read_costs
from contamination.launch.status import status
from contamination.launch.text_checks import CheckedTexts, PlannedInsertions, TextChecks
from tests.launch.started import QUICK, TWO, Started, copied
from tests.rounding import TRAINING
from tests.small import contents
from tests.small import launch as pipeline
from tests.training.processes import free_port, losses

LONG = ["injection.budget_tokens=400_000", "training.checkpoint_every_steps=20"]
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script_method:DeprecationWarning")


@pytest.fixture
def start(tmp_path):
    """Starts a launch with the quick settings; what still runs after the test is killed."""
    started = []

    def begin(runs, *words, **environment):
        log = tmp_path / f"{len(started)}.log"
        started.append(Started(log, *QUICK, f"runs={runs}", *words, **environment))
        return started[-1]

    yield begin
    for one in started:
        one.kill()


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """The runs folder of a launch by one process, which is this one: a start takes seconds."""
    runs = tmp_path_factory.mktemp("one")
    pipeline(runs, *QUICK)
    return runs


@pytest.fixture(scope="module")
def long(one, tmp_path_factory):
    """The runs folder of a longer launch by two processes, left alone."""
    runs = copied(one, tmp_path_factory.mktemp("long") / "runs")
    Started(runs / "log", *QUICK, f"runs={runs}", *LONG, TWO).ended()
    return runs


def study(runs):
    """The folder of the contaminated model."""
    (folder,) = runs.glob("model/*-study-*")
    return folder


def steps_done(runs):
    """Lines of the contaminated training's record."""
    found = list(runs.glob("model/*-study-*/metrics.jsonl"))
    return found[0].read_bytes().count(b"\n") if found else 0


def scores(runs):
    """All scores, in a fixed order."""
    tables = [open_scores(folder).table for folder in sorted(runs.glob("scores/*-*"))]
    table = pd.concat(tables).sort_values(["method", "variant", "example_id"], kind="stable")
    return table["score"].to_numpy()


def made_for_study(runs):
    """Checksums of what the contaminated model and its scores consist of."""
    return {name: files for name, files in contents(runs).items() if "-study-" in name}


def assert_as_one(runs, one):
    """The losses and scores of several processes are those of one."""
    assert losses(study(runs)) == pytest.approx(losses(study(one)), abs=TRAINING)
    assert scores(runs) == pytest.approx(scores(one), abs=TRAINING)


def devices(runs, stage):
    """How many each record says that a run of the stage held."""
    found = {}
    for cell in runs.glob("launches/*/cells/*"):
        for cost in read_costs(cell):
            if cost.stage == stage:
                found.setdefault(cost.run, []).append(cost.devices)
    return found


@pytest.mark.slow
def test_two_processes_make_what_one_makes(one, tmp_path, start):
    runs = copied(one, tmp_path / "runs")
    said = start(runs, TWO).ended()
    assert_as_one(runs, one)
    for stage in ("train-study", "detect-contaminated"):
        assert said.count(f"{stage}: {sys.executable} -m torch.distributed.run --standalone") == 1
    assert said.count("· step ") <= 1  # one of them shows a bar, if it takes long
    assert "Traceback" not in said
    (launch,) = runs.glob("launches/*")
    (code,) = launch.glob("code-*")
    assert (code / "REVISION").read_text().strip()
    assert (code / "changes.diff").exists()
    assert (launch / "config.yaml").exists()
    (cell,) = launch.glob("cells/*")
    assert devices(runs, "train") == {"study": [2]}
    stages = {p.parent.name for p in cell.glob("stages/*/config.yaml")}
    assert stages == {"train-study", "detect-contaminated"}
    assert "1 done" in status(runs)


@pytest.fixture
def dry(tmp_path, monkeypatch, capsys):
    """What a dry run says; it has no processes and leaves no folder."""
    unchecked = CheckedTexts(PlannedInsertions("not checked"), [])  # it takes seconds
    monkeypatch.setattr(TextChecks, "check", lambda checks, plan: unchecked)

    def described(*words):
        words = [*QUICK, f"runs={tmp_path}/runs", "launch.dry_run=true", *words]
        with initialize_config_dir(str(CONF), version_base="1.3"):
            config = compose("pipeline", words, return_hydra_config=True)
        monkeypatch.setattr(HydraConfig.instance(), "cfg", OmegaConf.masked_copy(config, "hydra"))
        run(OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"]))
        assert not (tmp_path / "runs").exists()
        return capsys.readouterr().out

    return described


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([TWO], ["--standalone", "--nproc-per-node=2"]),
        (
            ["cluster=torchrun", "cluster.nodes=2", "cluster.node_rank=1", "cluster.address=head"],
            ["--nnodes=2", "--node-rank=1", "--master-addr=head", "--master-port=29500"],
        ),
        (
            ["cluster=torchrun", "cluster.rendezvous=c10d", "cluster.port=4000"],
            ["--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:4000", "--rdzv-id="],
        ),
    ],
)
def test_a_dry_run_prints_torchruns_commands(dry, words, said):
    commands = [line for line in dry(*words).splitlines() if "torch.distributed.run" in line]
    stages = [
        re.search(r"-m contamination\.(\w+) --config-path \S+/stages/(\S+)", c).groups()
        for c in commands
    ]
    assert stages == [
        ("training", "train-base"), ("training", "train-study"),
        ("detection", "detect-clean"), ("detection", "detect-contaminated"),
    ]  # fmt: skip
    for command in commands:
        assert {*said} <= {re.sub("(rdzv-id=).*", r"\1", word) for word in command.split()}


def test_a_dry_run_prints_deepspeeds_commands(dry, tmp_path):
    hostfile = tmp_path / "hosts"
    hostfile.write_text("# two machines\nworker-1 slots=1\n\nworker-2 slots=1 # the other\n")
    said = dry("cluster=deepspeed", f"cluster.hostfile={hostfile}", "cluster.address=worker-1",
               "cluster.options=[--launcher,openmpi]")  # fmt: skip
    commands = [line for line in said.splitlines() if "deepspeed.launcher.runner" in line]
    assert len(commands) == 4
    for command in commands:
        assert f"--hostfile {hostfile} --master_addr worker-1 --master_port 29500" in command
        assert "--launcher openmpi --module " in command


BAD = [
    (["cluster=torchrun", "cluster.nodes=2", "cluster.node_rank=2"], "cluster.node_rank is 2"),
    (["cluster=local", "cluster.nodes=2"], "cluster.nodes is 2"),
    (["cluster.kind=kubernetes"], "cluster.kind is 'kubernetes'"),
    (["cluster.hostfile=hosts"], "cluster.hostfile is 'hosts'"),
    (["cluster.processes=3"], "training.batch_sequences is 16"),
]


@pytest.mark.parametrize(("words", "said"), BAD)
def test_bad_input_names_the_field(dry, words, said):
    with pytest.raises(ConfigError) as raised:
        dry(*words)
    assert str(raised.value).startswith(said)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "text",
    [None, "worker-1", "worker-1 slots=many", "worker-1 slots=0", "worker-1 gpus=2", ""],
)
def test_a_bad_hostfile_is_named(dry, tmp_path, text):
    hostfile = tmp_path / "hosts"
    if text is not None:
        hostfile.write_text(text)
    with pytest.raises(ConfigError, match="cluster.hostfile is ") as raised:
        dry("cluster=deepspeed", f"cluster.hostfile={hostfile}", "cluster.address=worker-1")
    assert "\n" not in str(raised.value)


@pytest.mark.slow
@pytest.mark.parametrize("rendezvous", ["static", "c10d"])
def test_two_nodes_make_what_one_process_makes(one, tmp_path, start, rendezvous):
    runs = copied(one, tmp_path / "runs")
    words = ["cluster=torchrun", "cluster.nodes=2", f"cluster.rendezvous={rendezvous}",
             f"cluster.port={free_port()}"]  # fmt: skip
    ranks = [[], []] if rendezvous == "c10d" else [[f"cluster.node_rank={n}"] for n in (0, 1)]
    for node in [start(runs, *words, *rank) for rank in ranks]:
        node.ended()
    assert_as_one(runs, one)
    assert devices(runs, "train") == {"study": [1, 1]}  # each node records its own
    assert len(list(runs.glob("scores/*"))) == 2


@pytest.mark.slow
def test_deepspeeds_launcher_makes_what_one_process_makes(one, tmp_path, start):
    runs, hostfile = copied(one, tmp_path / "runs"), tmp_path / "hosts"
    hostfile.write_text("127.0.0.1 slots=1\n127.0.0.2 slots=1\n")
    words = ["cluster=deepspeed", f"cluster.hostfile={hostfile}", "cluster.address=127.0.0.1",
             f"cluster.port={free_port()}"]  # fmt: skip
    nodes = [start(runs, *words, f"cluster.options=[--no_ssh,--node_rank,{n}]") for n in (0, 1)]
    for node in nodes:
        node.ended()
    assert_as_one(runs, one)
    assert devices(runs, "train") == {"study": [1, 1]}


@pytest.mark.slow
def test_deepspeeds_launcher_is_gone_round_by_sigterm(one, tmp_path, start):
    runs, hostfile = copied(one, tmp_path / "runs"), tmp_path / "hosts"
    hostfile.write_text("127.0.0.1 slots=2\n")
    words = ["cluster=deepspeed", f"cluster.hostfile={hostfile}", "cluster.address=127.0.0.1",
             f"cluster.port={free_port()}", "cluster.options=[--no_ssh,--node_rank,0]"]  # fmt: skip
    launch = start(runs, *LONG, *words)
    launch.until(lambda: steps_done(runs) >= 20)
    launch.process.send_signal(signal.SIGTERM)
    assert "stopped: SIGTERM was received at step" in launch.ended(status=143, within=60)
    assert not [p for p in psutil.process_iter() if str(runs) in " ".join(argv(p))]


def test_a_stop_is_reported_as_the_process_recorded_it(tmp_path, monkeypatch):
    message = f"SIGTERM{signals.RECEIVED} at step 21 of 98. The state is saved in runs/model."
    monkeypatch.setattr(process_records, "_folder", tmp_path)
    assert not process_records.record_failure(StoppedError(message))
    processes = Processes(ClusterConfig(), "train", tmp_path, tmp_path)
    assert str(processes._error_of_exit(143, stopped=True)) == message


def argv(process):
    """Its command line; nothing of one that has ended."""
    with suppress(psutil.Error):
        return process.cmdline()
    return []


@pytest.mark.slow
def test_a_killed_process_is_started_again_and_ends_the_same(long, tmp_path, start):
    runs = copied(long, tmp_path / "runs")
    launch = start(runs, *LONG, TWO)
    launch.until(lambda: steps_done(runs) >= 50)
    launch.rank(1).kill()
    said = launch.ended()
    assert "A process of train died without an error message" in said
    assert said.count("train-study: ") == 2
    assert re.search(r"resuming after step (40|60)\n", said)
    assert losses(study(runs)) == losses(study(long))
    assert made_for_study(runs) == made_for_study(long)


@pytest.mark.slow
def test_without_retries_a_killed_process_ends_the_launch(long, tmp_path, start):
    runs = copied(long, tmp_path / "runs")
    launch = start(runs, *LONG, TWO, "cluster.retries=0")
    launch.until(lambda: steps_done(runs) >= 10)
    launch.rank(1).kill()
    said = launch.ended(status=1)
    assert said.count("error: A process of train died without an error message") == 1
    assert said.count("train-study: ") == 1
    assert "1 failed" in status(runs)
    assert "died without an error message" in status(runs)


@pytest.mark.slow
@pytest.mark.parametrize("killed", ["launch", "torchrun"])
def test_a_killed_launcher_leaves_no_process(long, tmp_path, start, killed):
    runs = copied(long, tmp_path / "runs")
    launch = start(runs, *LONG, TWO, "cluster.retries=0")
    launch.until(lambda: steps_done(runs) >= 10)
    torchrun, *workers = psutil.Process(launch.process.pid).children(recursive=True)
    assert "torch.distributed.run" in torchrun.cmdline()
    (launch.process if killed == "launch" else torchrun).kill()
    _, alive = psutil.wait_procs(workers, timeout=15)
    assert len(workers) >= 2
    assert not alive


def raised(said):
    """What each traceback ends with, in their order, but for torchrun's own."""
    plain = re.sub(r"^\[rank\d\]: ", "", said, flags=re.MULTILINE)
    traces = plain.split("Traceback (most recent call last):")[1:]
    ends = [re.search(r"^[\w.]+(Error|Exception): .*", t, re.MULTILINE).group() for t in traces]
    return [end for end in ends if not end.startswith("torch.distributed.elastic")]


@pytest.mark.slow
def test_a_users_error_in_all_processes_is_said_once_and_not_tried_again(one, tmp_path, start):
    runs = copied(one, tmp_path / "runs")
    said = start(runs, TWO, "training.learning_rate=1e30").ended(2)
    assert said.count("Lower training.learning_rate") == 1
    assert re.search(r"^error: Training step \d+ has loss", said, re.MULTILINE)
    assert raised(said) == []
    assert said.count("torch.distributed.run --standalone") == 1


BOOM = """
import os, sys
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder

class Finder(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "contamination.training.loop":
            return None
        spec = PathFinder.find_spec(name, path)
        load = spec.loader.exec_module
        spec.loader.exec_module = lambda module: (load(module), spoil(module))
        return spec

def spoil(module):
    step, calls = module.optimizer_step, []
    def optimizer_step(*arguments, **options):
        calls.append(1)
        if len(calls) == 3:
            raise RuntimeError("boom")
        return step(*arguments, **options)
    module.optimizer_step = optimizer_step

if os.environ.get("RANK") == "1":
    sys.meta_path.insert(0, Finder())
"""


@pytest.mark.slow
def test_the_first_traceback_is_that_of_the_process_that_failed(one, tmp_path, start):
    runs, site = copied(one, tmp_path / "runs"), tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(BOOM)
    said = start(runs, TWO, "cluster.retries=1", PYTHONPATH=str(site)).ended(status=1)
    assert said.count("train-study: ") == 2  # once more, and no more
    assert said.index("RuntimeError: boom") < said.index("torch.distributed.elastic")
    assert raised(said)[0] == "RuntimeError: boom"
    assert {*raised(said)} == {"RuntimeError: boom"}
    assert "[rank0]: " not in said
    assert f"rank 1 on {socket.gethostname()} failed first:" in said
    assert "1 failed" in status(runs)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_the_same_command_goes_on_to_the_same_end(long, tmp_path, start, number):
    runs = copied(long, tmp_path / "runs")
    launch = start(runs, *LONG, TWO)
    launch.until(lambda: steps_done(runs) >= 30)
    launch.process.send_signal(number)
    said = launch.ended(status=128 + number, within=60)
    assert said.count(f"stopped: {number.name} was received at step") == 1
    assert "Traceback" not in said
    assert re.search(rf": stopped: {number.name} was received at step", status(runs))
    said = start(runs, *LONG, TWO).ended()
    assert "resuming after step" in said
    assert losses(study(runs)) == losses(study(long))
    assert made_for_study(runs) == made_for_study(long)


@pytest.mark.slow
def test_two_equal_sweeps_at_once_make_everything_once(one, tmp_path, start):
    alone, both = tmp_path / "alone", tmp_path / "both"
    start(alone, "seed=0,1", "-m").ended()
    sweeps = [start(both, "seed=0,1", "-m") for _ in range(2)]
    said = [sweep.ended() for sweep in sweeps]
    assert contents(both) == contents(alone)
    assert "".join(said).count("ledger rows proved") == 3  # the base corpus is shared
    reports = [re.search(r"^report: (\S+)", text, re.MULTILINE).group(1) for text in said]
    assert reports[0] == reports[1]


@pytest.mark.slow
def test_a_killed_builders_folder_is_taken_over_at_once(one, tmp_path, start):
    runs = copied(one, tmp_path / "runs")
    first = start(runs)
    first.until(lambda: steps_done(runs) >= 2)
    first.process.send_signal(signal.SIGSTOP)  # so that it does not end before the other waits
    second = start(runs)
    second.until(lambda: f"waiting for process {first.process.pid} on " in second.said)
    first.process.kill()
    first.process.wait()  # a zombie would count as alive
    (metrics,), killed = runs.glob("model/*-study-*/metrics.jsonl"), time.time()
    second.until(lambda: metrics.stat().st_mtime > killed)
    assert time.time() - killed < 60
    second.ended()
    assert made_for_study(runs) == made_for_study(one)


@pytest.mark.slow
def test_another_machines_dead_builder_is_replaced_when_its_lease_ends(tmp_path):
    folder = tmp_path / "model" / "one"
    place = tmp_path / LOCKS_FOLDER / "model-one.lease"
    with exclusive_build(folder):
        ours = place.read_text()
    place.write_text(re.sub("host=.*", "host=elsewhere", ours))
    began = time.monotonic()
    with exclusive_build(folder) as check:
        check()
        assert LEASE_SECONDS - 1 < time.monotonic() - began < 60
        assert "host=elsewhere" not in place.read_text()
    assert not place.exists()
