"""A detection from config to table, and its cached parts."""

import hashlib
import importlib
import json
import shutil
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from hydra import compose, initialize_config_dir

from contamination.core.artifacts import WrittenFiles, started_or_resumed_folder, write_manifest
from contamination.core.config import CONF
from contamination.core.errors import ArtifactError, ConfigError, DataError
from contamination.core.hub import hub_offline
from contamination.core.integrity import MANIFEST
from contamination.data.config import ExamplesConfig
from contamination.detection.config import DetectionConfig, DetectionStage, ScoredModelConfig
from contamination.detection.loaded_model import LoadedModel
from contamination.detection.models.hf_model import HFModel
from contamination.detection.pass_collector import Collector
from contamination.detection.passes import Pass
from contamination.detection.run import describe_first_text, run
from contamination.detection.scores import open_scores, read_score_table
from tests.detection.conftest import MEMORISED, UNSEEN
from tests.detection.golden import text_of, texts

METHODS = {
    "loss": {"_target_": "contamination.detection.methods.loss.Loss"},
    "min_k": {"_target_": "contamination.detection.methods.min_k.MinK", "k": [0.1, 0.2]},
}


@pytest.fixture
def file(tmp_path):
    rows = [
        {"text": UNSEEN, "id": "u"},
        {"text": MEMORISED, "id": "m"},
        {"text": UNSEEN, "id": "v"},
    ]
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def stage(tmp_path, file, toy_folders):
    def make(runs="runs", **change):
        fields = {
            "runs": str(tmp_path / runs),
            "examples": ExamplesConfig(str(file)),
            "model": ScoredModelConfig(str(toy_folders["target"])),
            "method": METHODS,
            "detection": DetectionConfig(device="cpu"),
            **change,
        }
        return DetectionStage(**fields)

    return make


def digests(runs):
    return {
        p.relative_to(runs): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in runs.rglob("*.parquet")
    }


def test_the_table_is_tidy_sorted_and_complete(stage):
    table = open_scores(run(stage()).path).table
    columns = ["example_id", "method", "variant", "checkpoint_step", "default", "score"]
    assert table.columns.tolist() == [*columns, "flag", "ranked"]
    assert set(table["flag"]) == {""}
    assert table["ranked"].all()
    assert table["checkpoint_step"].dtype == np.int64
    assert set(table["checkpoint_step"]) == {-1}
    keys = list(table[["method", "variant", "example_id"]].itertuples(index=False, name=None))
    assert keys == sorted(keys)
    assert len(keys) == 3 * 3
    scores = table.set_index(["method", "variant", "example_id"])["score"]
    assert scores["loss", "", "u"] == scores["loss", "", "v"] < scores["loss", "", "m"]


def test_the_same_run_gives_the_same_bytes_under_the_same_name(stage, tmp_path):
    first, second = run(stage("one")), run(stage("two"))
    assert first.path.name == second.path.name
    assert digests(tmp_path / "one") == digests(tmp_path / "two")


def test_a_new_variant_needs_no_model(stage, tmp_path, monkeypatch):
    run(stage())
    monkeypatch.setattr(LoadedModel, "__init__", lambda *_: pytest.fail("the model was loaded"))
    again = run(stage(method={"min_k": {**METHODS["min_k"], "k": 0.5}}))
    assert set(open_scores(again.path).table["variant"]) == {"k=0.5"}
    assert len(list((tmp_path / "runs" / "passes").iterdir())) == 1


def test_one_model_has_one_stored_pass_whatever_its_role(toy_models, tmp_path):
    models = {"target": toy_models["target"], "reference": toy_models["target"]}
    collector = Collector(tmp_path, models, texts()[:1], DetectionConfig("float32", "truncate"))
    assert set(collector.collect([Pass("target"), Pass("reference")])) == {
        Pass("target"),
        Pass("reference"),
    }
    assert len(list((tmp_path / "passes").iterdir())) == 1


def test_a_model_without_a_path_is_named(toy_models, tmp_path):
    collector = Collector(tmp_path, toy_models, texts()[:1], DetectionConfig())
    with pytest.raises(ConfigError, match="no path was given for the model 'judge'"):
        collector.collect([Pass("judge")])


def test_an_unknown_view_is_named(toy_models, tmp_path):
    collector = Collector(tmp_path, toy_models, texts()[:1], DetectionConfig())
    with pytest.raises(ConfigError, match="no view 'orignal'. Did you mean original"):
        collector.collect([Pass(view="orignal")])


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"name": "other", "seed": 3}, True),
        ({"detection": DetectionConfig(device="cpu", batch_tokens=1)}, True),
        ({"detection": DetectionConfig(device="cpu", long_texts="truncate")}, False),
        ({"method": {"loss": METHODS["loss"]}}, False),
    ],
)
def test_what_the_folders_name_depends_on(stage, change, same):
    assert (run(stage()).path == run(stage(**change)).path) is same


def test_another_model_is_another_folder(stage, toy_folders):
    other = ScoredModelConfig(str(toy_folders["reference"]))
    assert run(stage()).path != run(stage(model=other)).path


def test_killed_before_its_manifest_it_is_made_again(stage, tmp_path):
    artifact = run(stage())
    before = digests(tmp_path / "runs")
    for folder in (artifact.path, *(tmp_path / "runs" / "passes").iterdir()):
        (folder / MANIFEST).unlink()
        for file in folder.glob("*.parquet"):
            file.write_bytes(b"torn")
    assert run(stage()).digest == artifact.digest
    assert digests(tmp_path / "runs") == before


def test_out_gets_the_table_in_the_files_order(stage, tmp_path):
    run(stage(out=str(tmp_path / "out")))
    table = pd.read_csv(tmp_path / "out" / "scores.csv", keep_default_na=False)
    assert table["example_id"].tolist() == ["u", "m", "v"] * 3
    stored = pd.read_parquet(tmp_path / "out" / "scores.parquet")
    known = ["benchmark", "label", "sha256", "p_value"]  # none of these texts has a label
    pd.testing.assert_frame_equal(table.drop(columns=["rank", *known]), stored.drop(columns=known))
    assert stored["label"].isna().all()
    assert stored["p_value"].isna().all()
    assert table.groupby("method")["rank"].min().eq(1).all()


def test_a_long_text_is_an_error_or_truncated_and_counted(stage, tmp_path, file):
    file.write_text(json.dumps({"text": UNSEEN * 20, "id": "long"}) + "\n")
    with pytest.raises(DataError, match="text long has .* context of 128.*long_texts=truncate"):
        run(stage())
    run(stage(detection=DetectionConfig(device="cpu", long_texts="truncate")))
    (manifest,) = (tmp_path / "runs" / "passes").glob(f"*/{MANIFEST}")
    assert json.loads(manifest.read_text())["counts"]["truncated"] == 1
    (stats,) = manifest.parent.glob("*.parquet")
    assert len(pd.read_parquet(stats)["logprob"][0]) == 127


@pytest.mark.parametrize(
    ("length", "end"),
    [
        (5, "'"),
        (1000, "'"),
        (1001, "' and 1 more characters"),
        (2500, "' and 1500 more characters"),
    ],
)
def test_the_first_text_is_shown_up_to_a_thousand_characters(toy_models, length, end):
    shown = describe_first_text([text_of("x", "b" * length)], toy_models["target"])
    assert shown.startswith("first text, x, as the model reads it: ")
    assert shown.endswith("b" * min(length, 1000) + end)
    assert "b" * 1001 not in shown


def test_an_empty_text_is_named(stage, file):
    file.write_text('{"text": "", "id": "nothing"}\n')
    with pytest.raises(DataError, match="text nothing is '': that has 1 token.*Leave the text out"):
        run(stage())


def test_a_model_that_is_not_there(stage, tmp_path):
    with pytest.raises(ConfigError, match="model.path is .*no such folder"):
        run(stage(model=ScoredModelConfig(str(tmp_path / "none"))))
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="neither manifest.json nor config.json"):
        run(stage(model=ScoredModelConfig(str(tmp_path / "empty"))))
    with hub_offline(), pytest.raises(ConfigError, match="^reference.path is 'nobody/nothing': no"):
        HFModel.from_path("reference.path", "nobody/nothing")
    with pytest.raises(ArtifactError, match="does not exist"):
        open_scores(tmp_path / "none")


def test_a_training_artefact_gives_its_weights_and_step(stage, tmp_path, toy_folders):
    folder = tmp_path / "runs" / "model" / "toy-0"
    shutil.copytree(toy_folders["target"], folder / "hf")
    files = [str(path.relative_to(folder)) for path in folder.glob("hf/*")]
    with started_or_resumed_folder(folder, {}):
        write_manifest(folder, {}, WrittenFiles(files, {"steps": 40}))
    table = open_scores(run(stage(model=ScoredModelConfig(str(folder)))).path).table
    assert set(table["checkpoint_step"]) == {40}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dtype": "int8"}, "detection.dtype is 'int8'"),
        ({"long_texts": "drop"}, "detection.long_texts is 'drop'"),
        ({"device": "tpu"}, "detection.device is 'tpu'"),
        ({"batch_tokens": 0}, "detection.batch_tokens is 0"),
        ({"device_map": "even"}, "detection.device_map is 'even'.*balanced_low_0"),
        ({"device_map": "auto", "processes": 2}, "device_map is 'auto'.*detection.processes=2"),
        ({"device_map": "auto", "device": "cpu"}, "device_map is 'auto'.*device is 'cpu'"),
    ],
)
def test_a_value_out_of_range_names_its_field(change, words):
    with pytest.raises(ConfigError, match=words):
        DetectionConfig(**change)


def test_no_method_is_an_error():
    with pytest.raises(ConfigError, match="method is .*choose methods"):
        DetectionStage()


def test_method_all_is_every_file():
    with initialize_config_dir(str(CONF), version_base="1.3"):
        chosen = compose("detection", ["method=all"]).method
    assert chosen.keys() == {path.stem for path in (CONF / "method").glob("*.yaml")}


def test_the_package_is_imported_without_torch():
    code = "import sys, contamination.detection.run; sys.exit('torch' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", code], cwd=CONF.parent, check=False).returncode == 0
    )


def test_the_table_says_which_variant_is_the_methods_own(stage):
    ks = {"min_k": {**METHODS["min_k"], "k": [0.1, 0.2, 0.3]}, "loss": METHODS["loss"]}
    table = open_scores(run(stage(method=ks)).path).table
    own = table[table["default"]].drop_duplicates(["method", "variant"])
    assert list(zip(own["method"], own["variant"], strict=True)) == [
        ("loss", ""), ("min_k", "k=0.2"),
    ]  # fmt: skip


def test_a_table_of_an_earlier_version_is_refused(stage):
    path = run(stage()).path / "scores.parquet"
    pd.read_parquet(path).drop(columns="default").to_parquet(path)
    with pytest.raises(ArtifactError, match="has no column default: .* Score again"):
        read_score_table(path)


def test_a_changed_method_of_ones_own_is_scored_again(stage, tmp_path, monkeypatch):
    file, node = tmp_path / "own_method.py", {"_target_": "own_method.Own"}
    monkeypatch.syspath_prepend(tmp_path)
    folders, values = [], []
    for factor in ("1.0", "-2.5", "1.0"):
        file.write_text(
            "from contamination.detection.methods.loss import Loss\n"
            f"class Own(Loss):\n    def score(self, seen): return {factor} * super().score(seen)"
        )
        monkeypatch.delitem(sys.modules, "own_method", raising=False)
        importlib.invalidate_caches()
        made = run(stage(method={"own": node, "loss": METHODS["loss"]}))
        scores = open_scores(made.path).table.pivot(
            index="example_id", columns="method", values="score"
        )
        folders.append(made.path)
        values.append((scores["own"] / scores["loss"]).round(6).unique().tolist())
    assert values == [[1.0], [-2.5], [1.0]]
    assert folders[0] == folders[2] != folders[1]
    file.write_text("import no_such_module")
    monkeypatch.delitem(sys.modules, "own_method")
    with pytest.raises(ConfigError, match=r"no such class \(No module named 'no_such_module'\)"):
        run(stage(method={"own": node}))
