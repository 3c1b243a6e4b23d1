"""What each command prints and writes, and which word runs which."""

import sys
from types import SimpleNamespace

import pandas as pd
import pyarrow.parquet as pq
import pytest
from hydra import compose, initialize_config_dir

from contamination.core.config import CONF
from contamination.data.examples import make_text
from contamination.detection.attack_sheet import format_data_sheet
from contamination.detection.methods.lt_mia import LtMia
from contamination.detection.summary import summarise_scores
from contamination.detection.tasks.context_drop import ContextDrops
from contamination.detection.tasks.extraction import format_summary
from tests.detection.golden import GOLDEN

INPUTS = ("examples.path=texts.jsonl", f"model.path={GOLDEN / 'target'}")
TASKS = "contamination.detection.tasks"


@pytest.fixture
def commands():
    from contamination.detection import __main__

    return __main__


def composed(name, *words):
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose(name, [*words])


def test_online_prints_the_metrics_of_the_windows_and_writes_them(
    commands, monkeypatch, tmp_path, capsys
):
    windows = [make_text(f"t/{i}", f"Window {i}", i % 2 == 0, "a") for i in range(40)]
    rows = [[f"t/{i}", "loss", "", -float(i % 7), "", True] for i in range(40)]
    columns = ["example_id", "method", "variant", "score", "flag", "ranked"]
    table = pd.DataFrame(rows, columns=columns)
    monkeypatch.setattr(f"{TASKS}.online.run", lambda stage: (table, windows))
    summary = summarise_scores(table, windows, blind=False)
    commands.online(composed("online", *INPUTS))
    assert capsys.readouterr().out == f"{summary}\n"
    folder = tmp_path / "new" / "folder"
    for _ in range(2):  # an existing folder is written to again
        commands.online(composed("online", *INPUTS, f"out={folder}"))
        assert capsys.readouterr().out == f"{summary}\nwrote {folder / 'windows.parquet'}\n"
    expected = table.assign(label=[i % 2 == 0 for i in range(40)])
    assert pq.read_schema(folder / "windows.parquet").names == [*columns, "label"]
    assert pd.read_parquet(folder / "windows.parquet").to_dict("list") == expected.to_dict("list")


def test_codec_prints_the_shares_and_writes_the_drops(commands, monkeypatch, tmp_path, capsys):
    texts = pd.DataFrame(
        {"example_id": [*"abcd"], "benchmark": "a", "label": None, "context": 2,
         "drop": [0.5, 0.25, -1.0, 2.0]}, index=[4, 3, 2, 1]
    )  # fmt: skip
    drops = ContextDrops(texts)
    monkeypatch.setattr(f"{TASKS}.context_drop.run", lambda stage: drops)
    commands.codec(composed("codec", *INPUTS))
    assert capsys.readouterr().out == f"{drops.summary()}\n"
    folder = tmp_path / "new" / "folder"
    for _ in range(2):
        commands.codec(composed("codec", *INPUTS, f"out={folder}"))
        assert capsys.readouterr().out == f"{drops.summary()}\nwrote {folder / 'codec.parquet'}\n"
    saved = pd.read_parquet(folder / "codec.parquet")
    assert saved.to_dict("list") == texts.to_dict("list")
    assert saved.index.tolist() == [0, 1, 2, 3]


def extractions(hits):
    rows = [
        {"example_id": f"{member}{n}", "benchmark": "a", "member": member,
         "occurrences": int(member), "prefix": "25", "tokens": 50, "matched": 0,
         "extracted": n < hits}
        for member in (True, False) for n in range(8)
    ]  # fmt: skip
    return pd.DataFrame(rows).astype({"occurrences": "Int64"})


def test_extraction_prints_both_models_shares_and_where_they_are(commands, monkeypatch, capsys):
    left_out = [{"benchmark": "a", "examples": 3, "reason": "too short"}]
    artifacts = {
        str(GOLDEN / "target"): SimpleNamespace(
            path="runs/one", counts={"left_out": left_out}, table=lambda file: extractions(5)
        ),
        str(GOLDEN / "reference"): SimpleNamespace(
            path="runs/two", counts={"left_out": []}, table=lambda file: extractions(1)
        ),
    }
    monkeypatch.setattr(f"{TASKS}.extraction.run", lambda stage: artifacts[stage.model.path])
    commands.extraction(composed("extraction", *INPUTS))
    expected = format_summary({"model": extractions(5)}, left_out)
    assert capsys.readouterr().out == f"{expected}\nwrote runs/one\n"
    commands.extraction(composed("extraction", *INPUTS, f"reference.path={GOLDEN / 'reference'}"))
    expected = format_summary({"model": extractions(5), "reference": extractions(1)}, left_out)
    assert capsys.readouterr().out == f"{expected}\nwrote runs/one\nwrote runs/two\n"


def test_probe_prints_what_the_server_can_do(commands, monkeypatch, capsys):
    monkeypatch.setattr(f"{TASKS}.probe.run", lambda stage: f"asked {stage.model.url}")
    commands.probe(composed("probe", "model.url=http://localhost:1/v1"))
    assert capsys.readouterr().out == "asked http://localhost:1/v1\n"


def test_a_dry_run_prints_the_plan_and_scores_nothing(commands, monkeypatch, capsys):
    monkeypatch.setattr(f"{TASKS}.probe.format_request_plan", lambda stage: stage.examples.path)
    commands.main(composed("detection", *INPUTS, "dry_run=true"))
    assert capsys.readouterr().out == "texts.jsonl\n"


def test_a_slice_is_scored_without_a_summary(commands, monkeypatch, capsys):
    scored = []
    monkeypatch.setattr("contamination.detection.run.run_slice", scored.append)
    commands.main(composed("detection", *INPUTS, "slice=1/2"))
    assert [stage.examples.path for stage in scored] == ["texts.jsonl"]
    assert capsys.readouterr().out == ""


def test_thresholds_read_the_examples_of_their_own_field(commands, monkeypatch):
    stages = []
    monkeypatch.setattr(f"{TASKS}.calibration.calibrate_or_apply", stages.append)
    commands.thresholds(composed("thresholds", "scores=runs/scores", "examples_file=own.jsonl"))
    assert [(stage.scores, stage.examples) for stage in stages] == [("runs/scores", "own.jsonl")]


def test_view_prints_where_the_page_is(commands, monkeypatch, capsys):
    monkeypatch.setattr("contamination.detection.viewer.run.run", lambda stage: "page.html")
    commands.view(composed("view", *INPUTS))
    assert capsys.readouterr().out == "wrote page.html\n"


@pytest.mark.parametrize(
    ("command", "runner", "words"),
    [
        ("build", "building.run.run", ["source=jsonl", "source.paths=x",
         "build.members_before=2016-01-01", "build.nonmembers_from=2019-01-01"]),
        ("select", "building.overlap_selection.select_nonmembers",
         ["examples.path=x", "corpus_folder=y"]),
    ],
)  # fmt: skip
def test_a_built_benchmark_is_printed_as_its_datasheet(
    commands, monkeypatch, tmp_path, capsys, command, runner, words
):
    (tmp_path / "datasheet.md").write_text("# Its name\n\nAbout.\n")
    artifact = SimpleNamespace(path=tmp_path)
    monkeypatch.setattr(f"contamination.detection.{runner}", lambda stage: artifact)
    getattr(commands, command)(composed(command, *words))
    assert capsys.readouterr().out == f"# Its name\n\nAbout.\n\nwrote {tmp_path}\n"


def test_a_trained_attack_is_printed_as_its_data_sheet(commands, monkeypatch, capsys):
    attack = LtMia().attack
    monkeypatch.setattr(f"{TASKS}.train_lt_mia.run", lambda stage: attack)
    words = ["scores=[a]", "held_out=[b,c]", "held_out_benchmarks=[d]", "out=own.json"]
    commands.train_lt_mia(composed("train_lt_mia", *words))
    assert capsys.readouterr().out == f"{format_data_sheet(attack)}\nwrote own.json\n"


@pytest.fixture
def run_words(commands, monkeypatch):
    """Runs a command line; returns the configuration's name, the function and the words."""
    monkeypatch.setattr(commands, "run_tool", lambda function: function())
    monkeypatch.setattr(
        commands, "run_hydra_command", lambda name, stage: (name, stage.__name__, sys.argv[1:])
    )

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["detection", *words])
        return commands.run_named_stage()

    return run


@pytest.mark.parametrize(
    "name",
    ["accuracy", "build", "codec", "extraction", "online", "probe", "select", "train-lt-mia",
     "thresholds", "view"],
)  # fmt: skip
def test_the_first_word_names_the_command(run_words, name):
    function = name.replace("-", "_")
    assert run_words(name, "a=b", name) == (function, function, ["a=b", name])


def test_without_a_command_the_words_score_texts(run_words):
    words = ["examples=wikimia", "examples.path=x"]
    assert run_words(*words) == ("detection", "main", words)
    assert run_words() == ("detection", "main", [])
    assert run_words("a=b", "view") == ("detection", "main", ["a=b", "view"])


def test_the_examples_of_thresholds_are_a_file_and_no_configuration(run_words):
    examples = ["examples=a=examples=.jsonl", "+examples=b", "examples.path=c"]
    *_, words = run_words("thresholds", *examples)
    assert words == ["examples_file=a=examples=.jsonl", "examples_file=b", "examples.path=c"]


def test_under_a_launcher_one_process_runs_the_command(commands, run_words, monkeypatch):
    monkeypatch.setattr(commands, "is_launched", lambda: True)
    monkeypatch.setattr(
        "contamination.detection.process_group.run_by_rank_0", lambda stage: ("shared", stage())
    )
    assert run_words("codec") == ("shared", ("codec", "codec", []))
