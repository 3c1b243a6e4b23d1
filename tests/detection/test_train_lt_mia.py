"""LT-MIA: how it is trained, what its file says, and where it refuses to be applied."""

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file

from contamination.core import tensors as tensors_module
from contamination.core.artifacts import (
    WrittenFiles,
    open_artifact,
    started_or_resumed_folder,
    write_manifest,
)
from contamination.core.errors import ConfigError, DataError
from contamination.core.models import load_model, load_tokenizer
from contamination.core.statistics.metrics import AUROC, tpr_at_fpr
from contamination.data.config import ExamplesConfig
from contamination.detection.attack_file import MAX_BYTES, DataSheet, read_attack
from contamination.detection.attack_sheet import format_data_sheet
from contamination.detection.attack_training import fit_network
from contamination.detection.config import (
    DetectionConfig,
    DetectionStage,
    ReferenceConfig,
    ScoredModelConfig,
)
from contamination.detection.examples import open_examples
from contamination.detection.methods.lt_mia import CLIP, FEATURES, LtMia, membership_logit
from contamination.detection.models import open_model
from contamination.detection.models.hf_model import InMemoryModel
from contamination.detection.run import run as run_detection
from contamination.detection.scores import open_scores
from contamination.detection.tasks.config import FitConfig, TrainLtMiaStage
from contamination.detection.tasks.train_lt_mia import (
    _check_members,
    benchmarks_without,
    network_score,
    read_cell,
    run,
    student_interval,
)
from tests.detection.methods.test_contract import NODES

BENCHMARKS = ("rivers", "orchards", "harbours")
WORDS = ("heron", "waits", "while", "pears", "ripen", "and", "boats", "return", "under", "sky")
FIT = FitConfig(hidden=4, epochs=2, batch_texts=8)


def labelled_lines(seed):
    """The texts are the same for every seed; who is a member is not."""
    texts, coin = random.Random(0), random.Random(seed)
    lines = []
    for benchmark in BENCHMARKS:
        labels = coin.sample([0, 1] * 5, 10)
        lines += [
            {"id": f"{benchmark}-{n}", "benchmark": benchmark, "label": label,
             "text": f"{n} {benchmark} " + " ".join(texts.choices(WORDS, k=12))}
            for n, label in enumerate(labels)
        ]  # fmt: skip
    return "".join(json.dumps(line) + "\n" for line in lines)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cells")


@pytest.fixture(scope="module")
def cells(folder, toy_folders):
    """Four finished scores folders: other weights and other members each."""
    paths = []
    for seed in range(4):
        model = shutil.copytree(toy_folders["target"], folder / f"model-{seed}")
        tensors = load_file(model / "model.safetensors")
        tensors["model.norm.weight"] += 0.01 * (seed + 1)
        save_file(tensors, model / "model.safetensors", metadata={"format": "pt"})
        (folder / f"texts-{seed}.jsonl").write_text(labelled_lines(seed))
        paths.append(str(run_detection(cell_stage(folder, toy_folders, seed)).path))
    return paths


def cell_stage(
    folder, toy_folders, seed, method="reference", texts=None, model=None, runs=None, **changed
):
    return DetectionStage(
        seed=seed, runs=str(runs or folder / "runs"),
        method={method: {**NODES[method][method], **changed}},
        detection=DetectionConfig(device="cpu"),
        examples=ExamplesConfig(str(texts or folder / f"texts-{seed}.jsonl")),
        model=ScoredModelConfig(str(model or folder / f"model-{seed}")),
        reference=ReferenceConfig(str(toy_folders["reference"])),
    )  # fmt: skip


@pytest.fixture(scope="module")
def training_stage(folder, cells):
    return TrainLtMiaStage(
        scores=cells[:2], held_out=cells[2:], held_out_benchmarks=["harbours"], fit=FIT,
        out=str(folder / "attack.json"), limits=["Nothing else was tried."],
    )  # fmt: skip


@pytest.fixture(scope="module")
def attack(training_stage):
    return run(training_stage)


def drawn_texts(rng, n, shift):
    """Texts of noise, half of them members, whose gain is higher by `shift`."""
    member = np.arange(n) % 2 == 0
    texts = [rng.normal(size=(rng.integers(5, 20), len(FEATURES))) for _ in range(n)]
    for text in np.array(texts, object)[member]:
        text[:, FEATURES.index("gain")] += shift
    return texts, member


def held_out_auroc(shift):
    rng = np.random.default_rng(0)
    network = fit_network(*drawn_texts(rng, 400, shift), replace(FIT, epochs=10), 0)
    texts, member = drawn_texts(rng, 600, shift)
    scores = np.array([network_score(network, text) for text in texts])
    return AUROC.value(scores[member], scores[~member])


def test_the_network_learns_a_shift_and_nothing_from_noise():
    assert held_out_auroc(1.0) > 0.9
    assert abs(held_out_auroc(0.0) - 0.5) < 0.1


def test_padding_and_the_library_change_no_score():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(1)
    texts, member = drawn_texts(rng, 20, 1.0)
    weights = fit_network(texts, member, FIT, 0).arrays
    alone = membership_logit(weights, texts[0], np.ones(len(texts[0])), np)
    padded = torch.full((1, 40, len(FEATURES)), 7.0, dtype=torch.float64)
    padded[0, : len(texts[0])] = torch.tensor(texts[0])
    mask = torch.zeros(1, 40, dtype=torch.float64)
    mask[0, : len(texts[0])] = 1
    tensors = {name: torch.tensor(array) for name, array in weights.items()}
    assert membership_logit(tensors, padded, mask, torch).item() == pytest.approx(alone, rel=1e-9)


def test_inputs_are_clipped():
    texts, member = drawn_texts(np.random.default_rng(2), 20, 1.0)
    network = fit_network(texts, member, FIT, 0)
    far = np.tile(network.arrays["center"] + 2 * CLIP * network.arrays["scale"], (3, 1))
    assert network_score(network, far) == pytest.approx(network_score(network, far * 1e6), rel=1e-9)


def test_the_interval_covers_a_true_mean():
    rng = np.random.default_rng(0)
    ends = [student_interval(rng.normal(size=4)) for _ in range(3000)]
    assert np.mean([low <= 0 <= high for _, low, high in ends]) == pytest.approx(0.95, abs=0.015)


def test_equal_seeds_give_equal_files(training_stage, attack, folder):
    again = run(replace(training_stage, out=str(folder / "again.json")))
    assert again.checksum == attack.checksum
    other = run(replace(training_stage, out=str(folder / "other.json"), seed=1))
    assert other.network != attack.network
    stored = read_attack("weights", folder / "attack.json", FEATURES)
    assert stored == attack
    assert (folder / "attack.md").read_text() == format_data_sheet(attack) + "\n"


def test_held_out_texts_do_not_change_the_network(training_stage, attack, folder):
    """Other held-out cells, and other labels in held-out benchmarks: the same weights."""
    swapped = replace(training_stage, held_out=training_stage.held_out[::-1], out=str(folder / "s"))
    assert run(swapped).network == attack.network
    chosen = [
        text
        for path in training_stage.scores
        for text in read_cell(path).texts
        if text.benchmark != "harbours"
    ]
    member = np.array([text.member for text in chosen])
    assert fit_network([t.features for t in chosen], member, FIT, 0) == attack.network


def test_the_sheet_says_what_was_trained_on_and_what_was_held_out(attack):
    sheet = attack.sheet
    assert sorted(sheet.benchmarks) == ["orchards", "rivers"]
    assert [cell.seed for cell in (*sheet.cells, *sheet.held_out_cells)] == [0, 1, 2, 3]
    groups = {(r.cells, r.benchmarks, r.n_cells, r.n_benchmarks) for r in sheet.results}
    assert groups == {
        ("trained on", "held out", 2, 1), ("held out", "trained on", 2, 2),
        ("held out", "held out", 2, 1),
    }  # fmt: skip
    for result in sheet.results:
        assert result.low <= result.value <= result.high
    texts = {(r.n_cells * r.n_benchmarks * 5, r.members, r.nonmembers) for r in sheet.results}
    assert texts == {(10, 10, 10), (20, 20, 20)}
    of_lt_mia = [r for r in sheet.results if r.method == "lt_mia"]
    value = {(r.cells, r.benchmarks, r.metric): r.value for r in of_lt_mia}
    for result in sheet.results:
        difference = value[result.cells, result.benchmarks, result.metric] - result.value
        assert result.difference == pytest.approx(difference, abs=1e-9)
        assert result.difference_low <= result.difference <= result.difference_high
    assert all(r.difference == r.difference_low == r.difference_high == 0 for r in of_lt_mia)
    text = format_data_sheet(attack)
    assert "Cells held out, benchmarks held out" in text
    assert "- Nothing else was tried." in text


def test_the_results_are_those_of_the_scores(attack, training_stage):
    """The mean over cells of the AUROC, computed again from the texts."""
    values = []
    for path in training_stage.held_out:
        texts = [text for text in read_cell(path).texts if text.benchmark == "harbours"]
        member = np.array([text.member for text in texts])
        scores = np.array([network_score(attack.network, text.features) for text in texts])
        wins = scores[member][:, None] - scores[~member]
        values.append(np.mean((wins > 0) + (wins == 0) / 2))
    (result,) = (
        r for r in attack.sheet.results
        if (r.cells, r.benchmarks, r.method) == ("held out", "held out", "lt_mia")
        and r.metric == AUROC.name
    )  # fmt: skip
    assert result.value == pytest.approx(np.mean(values))


def apply(folder, toy_folders, seed=2, **given):
    return cell_stage(
        folder, toy_folders, seed, "lt_mia", weights=str(folder / "attack.json"), **given
    )


def test_what_it_was_trained_on_is_refused(attack, folder, toy_folders, tmp_path):
    with pytest.raises(ConfigError, match="but the model is its training cell model-0. The"):
        run_detection(apply(folder, toy_folders, seed=0))
    with pytest.raises(ConfigError, match="trained on the benchmark orchards, rivers. The score"):
        run_detection(apply(folder, toy_folders))
    lines = [json.loads(line) for line in labelled_lines(2).splitlines()]
    renamed = [{**line, "benchmark": "Renamed"} for line in lines]
    file = tmp_path / "renamed.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in renamed))
    with pytest.raises(ConfigError, match="trained on 20 of these 30 texts"):
        run_detection(apply(folder, toy_folders, texts=file))
    held_out = [line for line in lines if line["benchmark"] == "harbours"]
    file.write_text("".join(json.dumps(line) + "\n" for line in held_out))
    assert len(open_scores(run_detection(apply(folder, toy_folders, texts=file)).path).table) == 10


def test_a_copy_of_a_training_cell_is_recognised_by_its_weights(
    attack, folder, toy_folders, tmp_path
):
    """Saved again with other names, in two files, with a changed config; or as the reference."""
    copy = shutil.copytree(folder / "model-0", tmp_path / "copy")
    tensors = load_file(copy / "model.safetensors")
    (copy / "model.safetensors").unlink()
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "note": "mine"}))
    names = sorted(tensors)
    for part, some in (("a", names[:3]), ("b", names[3:])):
        save_file({name: tensors[name] for name in some}, copy / f"{part}.safetensors")
    (handle,) = (open_model("model", ScoredModelConfig(str(copy)), "runs"),)
    assert attack.sheet.cells[0].is_of(handle)
    assert not attack.sheet.cells[1].is_of(handle)
    with pytest.raises(ConfigError, match="but the model is its training cell model-0. The"):
        run_detection(apply(folder, toy_folders, model=copy))
    stage = apply(folder, toy_folders)
    stage = replace(stage, reference=ReferenceConfig(str(folder / "model-1")))
    with pytest.raises(ConfigError, match="but the reference is its training cell model-1. The"):
        run_detection(stage)


def test_a_loaded_copy_of_a_training_cell_is_recognised(attack, folder):
    path = str(folder / "model-0")
    model, tokenizer = load_model("model", path), load_tokenizer("model", path)
    handle = InMemoryModel.from_loaded(model, tokenizer, "model", scores_are_stored=False)
    assert attack.sheet.cells[0].is_of(handle)
    with torch.no_grad():
        model.lm_head.weight[0, 0] += 1
    assert not attack.sheet.cells[0].is_of(handle)


def test_weights_of_another_size_are_not_read(attack, folder, monkeypatch):
    handle = open_model("model", ScoredModelConfig(str(folder / "model-0")), "runs")
    monkeypatch.setattr(tensors_module, "_read_blocks", lambda *_: pytest.fail("it was read"))
    larger = replace(attack.sheet.cells[1], weight_bytes=1)
    assert not larger.is_of(handle)
    unknown = replace(attack.sheet.cells[1], weights="", weight_bytes=0)
    assert not unknown.is_of(handle)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text + " ", str.upper, lambda text: text.replace(" ", "\r\n"),
        lambda text: text + "?", lambda text: text.replace(" ", ", "),
    ],
)  # fmt: skip
def test_a_text_is_recognised_in_another_writing(attack, folder, change):
    lines = [json.loads(line) for line in labelled_lines(0).splitlines()]
    assert all(attack.sheet.has_trained_on(change(line["text"])) for line in lines[:20])
    assert not any(attack.sheet.has_trained_on(change(line["text"])) for line in lines[20:])
    assert not attack.sheet.has_trained_on("...")


def test_a_benchmark_is_recognised_in_another_writing(folder):
    sheet = LtMia().attack.sheet
    path = folder / "renamed.jsonl"
    for name in ("nq-open", "NQ_Open", "NQ Open", "nqopen"):
        path.write_text(json.dumps({"id": 1, "text": "New.", "benchmark": name}) + "\n")
        texts = open_examples(ExamplesConfig(str(path)))
        assert sheet.describe_overlap(texts, {}) == f"it was trained on the benchmark {name}"


def test_benchmarks_with_too_few_texts_are_left_out_of_a_metric(attack):
    """Five non-members have no TPR at an FPR of 5%."""
    assert {r.metric for r in attack.sheet.results} == {AUROC.name}
    rows = pd.DataFrame({
        "benchmark": ["big"] * 400 + ["small"] * 66, "cell": "c", "member": [True, False] * 233,
    })  # fmt: skip
    assert benchmarks_without(rows, tpr_at_fpr(0.05)) == ["small"]
    assert benchmarks_without(rows, AUROC) == []
    result = replace(attack.sheet.results[0], left_out=["small"])
    sheet = replace(attack.sheet, results=[result])
    assert "AUROC is without small: too few texts." in format_data_sheet(
        replace(attack, sheet=sheet)
    )


def test_it_may_be_allowed_and_is_marked(attack, folder, toy_folders):
    scored = run_detection(apply(folder, toy_folders, seed=0, allow_trained=True))
    table = open_scores(scored.path).table
    flags = table.set_index("example_id")["flag"]
    assert set(table["variant"]) == {f"weights={folder / 'attack.json'},allow_trained=True"}
    assert not table["default"].any()
    trained = "the attack was trained on this text"
    assert {name.partition("-")[0] for name in flags[flags == trained].index} == {
        "rivers", "orchards"
    }  # fmt: skip
    assert set(flags[flags.index.str.startswith("harbours")]) == {""}


def test_method_all_leaves_it_out_and_says_why(attack, folder, toy_folders, caplog):
    nodes = {name: NODES[name][name] for name in NODES}
    nodes["lt_mia"] = {**nodes["lt_mia"], "weights": str(folder / "attack.json")}
    nodes["dc_pdd"] = {**nodes["dc_pdd"], "corpus": None}
    stage = replace(apply(folder, toy_folders), method=nodes)
    with caplog.at_level("INFO"):
        table = open_scores(run_detection(stage).path).table
    assert "lt_mia" not in set(table["method"])
    assert "leaves out lt_mia: it needs data that it was not trained on, but" in caplog.text


def damage(record, field):
    if field == "number":
        record["network"]["attention"][0] += 1e-6
    elif field == "name":
        record["sheet"]["benchmarks"] = {"another": ""}
    elif field == "shape":
        record["network"]["output"].pop()
    elif field == "infinite":
        record["network"]["scale"][0] = float("inf")
    elif field == "unknown":
        record["_target_"] = "os.system"
    else:
        record["kind"] = "thresholds"


@pytest.mark.parametrize(
    ("field", "problem"),
    [
        ("number", "its checksum differs from its content"),
        ("name", "its checksum differs from its content"),
        ("shape", "its checksum differs from its content"),
        ("infinite", "Out of range float values|its checksum differs"),
        ("unknown", "_target_ is unknown"),
        ("kind", "it is not a file of train-lt-mia"),
    ],
)
def test_a_damaged_file_is_refused(attack, folder, tmp_path, field, problem):
    record = json.loads((folder / "attack.json").read_text())
    damage(record, field)
    file = tmp_path / "damaged.json"
    file.write_text(json.dumps(record))
    with pytest.raises(ConfigError, match=f"weights is '.*damaged.json', .* used: {problem}"):
        read_attack("weights", file, FEATURES)


@pytest.mark.parametrize("content", ["", "{", "[1, 2]", "null", "[" * 10_000, "\ud800"])
def test_a_file_of_something_else_is_refused(tmp_path, content):
    file = tmp_path / "weights.json"
    file.write_bytes(content.encode("utf-8", "surrogatepass"))
    with pytest.raises(ConfigError, match="which can't be used"):
        read_attack("weights", file, FEATURES)
    with pytest.raises(ConfigError, match="method.lt_mia.weights is .*No such file"):
        _ = LtMia(weights=str(tmp_path / "nowhere")).attack


def test_a_file_above_8_mib_is_refused_unread(attack, folder, tmp_path):
    """The same content is read up to the limit; spaces are no part of it."""
    content, file = (folder / "attack.json").read_bytes(), tmp_path / "large.json"
    file.write_bytes(content + b" " * (MAX_BYTES - len(content)))
    read_attack("weights", file, FEATURES)
    with file.open("ab") as stream:
        stream.write(b" ")
    with pytest.raises(ConfigError, match="weights is '.*large.json', .* used: .*8"):
        read_attack("weights", file, FEATURES)


@pytest.mark.parametrize(
    ("part", "value", "problem"),
    [
        ("output", [0.0], r"network.output has the shape \(1,\), not \(8,\)"),
        ("first", [[0.0], [0.0, 1.0]], "network.first is no array"),
        ("attention", [float("inf")] * 4, "network.attention has a number that is not finite"),
        ("output", [1e7] * 8, r"network.output has a number beyond ±1,000,000"),
        ("scale", [0.0] * len(FEATURES), "network.scale has a number that is not above 0"),
        ("first_bias", [], "network.first_bias has 0 numbers, not 1 to 1024"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(attack, part, value, problem):
    with pytest.raises(ValueError, match=problem):
        replace(attack.network, **{part: value}).check()


def test_a_file_of_other_inputs_is_refused(attack, folder):
    with pytest.raises(ConfigError, match="reads other numbers than this version computes"):
        read_attack("weights", folder / "attack.json", FEATURES[1:])


def test_a_split_that_leaves_nothing_is_refused(training_stage, cells, folder, toy_folders):
    with pytest.raises(ConfigError, match="the model model-1 is given twice"):
        run(replace(training_stage, held_out=cells[1:3]))
    with pytest.raises(ConfigError, match="held_out_benchmarks is .*harbour.*Similar|harbours"):
        run(replace(training_stage, held_out_benchmarks=["harbour"]))
    with pytest.raises(ConfigError, match="no benchmark is left to train on"):
        run(replace(training_stage, held_out_benchmarks=[*BENCHMARKS]))
    with pytest.raises(ConfigError, match="held_out is .*give at least two"):
        replace(training_stage, held_out=cells[2:3])


def test_the_same_members_are_one_draw(training_stage, folder, toy_folders, tmp_path):
    twins = [
        run_detection(
            cell_stage(
                folder, toy_folders, seed, texts=folder / "texts-2.jsonl",
                model=folder / f"model-{seed}", runs=tmp_path,
            )
        ).path
        for seed in (2, 3)
    ]  # fmt: skip
    with pytest.raises(DataError, match="held_out: all cells have the same members"):
        run(replace(training_stage, held_out=[*map(str, twins)]))


def test_a_cell_without_a_fit_reference_is_refused(folder, toy_folders):
    alone = cell_stage(folder, toy_folders, 2, "loss")
    scored = run_detection(replace(alone, reference=ReferenceConfig()))
    with pytest.raises(ConfigError, match="has no reference. Score the cell with reference.path"):
        read_cell(str(scored.path))
    twin = run_detection(cell_stage(folder, toy_folders, 2, model=toy_folders["reference"]))
    with pytest.raises(ConfigError, match="is of the model that is its own reference"):
        read_cell(str(twin.path))


def test_changed_texts_are_noticed(folder, toy_folders, tmp_path):
    file = tmp_path / "texts.jsonl"
    file.write_text(labelled_lines(2))
    stage = cell_stage(folder, toy_folders, 2, texts=file, runs=tmp_path / "runs")
    scored = str(run_detection(stage).path)
    assert len(read_cell(scored).texts) == 30
    file.write_text(labelled_lines(2).replace("heron", "egret"))
    with pytest.raises(DataError, match="its examples changed since it was scored"):
        read_cell(scored)
    unlabelled = [json.loads(line) for line in labelled_lines(2).splitlines()]
    file.write_text("".join(json.dumps({**line, "label": 1}) + "\n" for line in unlabelled))
    with pytest.raises(DataError, match="its texts are not members and non-members"):
        read_cell(scored)


def test_a_corpus_of_other_members_is_noticed(tmp_path):
    """Corpora of two seeds have the same texts, so scores may name the wrong one."""
    folders = {}
    for kind, name, inputs in (
        ("corpus", "own", {}), ("corpus", "other", {}), ("model", "m", {"corpus": "own"})
    ):  # fmt: skip
        folders[name] = folder = tmp_path / kind / name
        with started_or_resumed_folder(folder, {}):
            (folder / "content").write_text(name)
            digests = {k: open_artifact(folders[v], "corpus").digest for k, v in inputs.items()}
            write_manifest(folder, digests, WrittenFiles(["content"]))
    target = ScoredModelConfig(str(folders["m"]))
    _check_members("x", ExamplesConfig(str(folders["own"])), target)
    _check_members("x", ExamplesConfig(str(tmp_path / "labelled.jsonl")), target)
    bare = ScoredModelConfig(str(folders["m"] / "hf"))
    _check_members("x", ExamplesConfig(str(tmp_path / "labelled.jsonl")), bare)
    with pytest.raises(DataError, match="no model folder of a run.*the one with manifest.json"):
        _check_members("x", ExamplesConfig(str(folders["own"])), bare)
    with pytest.raises(DataError, match="the model was not trained on the corpus .*other"):
        _check_members("x", ExamplesConfig(str(folders["other"])), target)


def test_a_stored_configuration_runs_no_code_of_a_model(folder, cells, monkeypatch):
    """`trust_remote_code` of whoever scored the cell is not taken over."""
    opened = []
    from contamination.detection.tasks import train_lt_mia

    original = train_lt_mia.open_model
    monkeypatch.setattr(
        train_lt_mia, "open_model",
        lambda name, node, runs: (opened.append(node), original(name, node, runs))[1],
    )  # fmt: skip
    config = train_lt_mia._stored_node({"path": "x", "trust_remote_code": True}, ScoredModelConfig)
    read_cell(cells[0])
    assert not config.trust_remote_code
    assert not any(node.trust_remote_code for node in opened)


def test_the_shipped_file_is_whole_and_small():
    attack = LtMia().attack
    assert isinstance(attack.sheet, DataSheet)
    assert len(attack.sheet.held_out_cells) >= 2
    assert not {*attack.sheet.benchmarks} & {*attack.sheet.held_out_benchmarks}
    assert not {c.model for c in attack.sheet.cells} & {
        c.model for c in attack.sheet.held_out_cells
    }
    assert LtMia().weights_path.stat().st_size < 120_000


def test_the_documentation_has_the_data_sheet_of_the_shipped_file():
    page = (Path(__file__).parents[2] / "docs" / "lt-mia.md").read_text(encoding="utf-8")
    assert format_data_sheet(LtMia().attack) in page


@pytest.mark.parametrize(
    ("references", "shared"), [(["a", "a", "a"], "1 model"), (["a", "b", "a"], "2 models")]
)
def test_the_sheet_counts_the_models_before_the_members(references, shared):
    attack = LtMia().attack
    cells = [replace(attack.sheet.held_out_cells[0], reference=name) for name in references]
    text = format_data_sheet(replace(attack, sheet=replace(attack.sheet, held_out_cells=cells)))
    assert f"The 3 held-out cells share {shared} before the members and the pools" in text


def test_texts_are_recognised_by_their_hash(attack, folder):
    texts = open_examples(ExamplesConfig(str(folder / "texts-0.jsonl")))
    known = [text.benchmark for text in texts if attack.sheet.has_trained_on(text.text)]
    assert known == ["rivers"] * 10 + ["orchards"] * 10
    assert not attack.sheet.has_trained_on("a text of no cell")
