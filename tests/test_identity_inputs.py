"""Each byte of an input that can change a number changes its digest, and so the folder's name."""

import ast
import json
import random
import shutil
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import contamination.core
from contamination.core.errors import UserError
from contamination.core.hashing import folder_digest
from contamination.core.models import model_digest, tokenizer_digest
from contamination.data.config import ExamplesConfig
from contamination.data.examples import examples_digest, texts_digest
from contamination.data.readers.files import FilesCorpus
from contamination.data.texts import Text
from contamination.detection.examples import open_examples
from contamination.detection.view_resources import open_prefix
from tests.detection.golden import GOLDEN
from tests.properties import orders
from tests.structure import LAYERS

DIGEST = "a path; the digest of what is there is an input"
READING = "how texts are read from a file; the digest of the texts is an input"
RUNNING = "how it is run; tests of its stage compare the results"
PLACE = "where folders are, not what is in them"
SHOWN = "reported beside the results, or mirrored elsewhere"
ANSWERS = "how a server is asked; its fingerprint and its tokenizer are inputs"
DERIVED = "the seeds that are derived from it are fields"

NO_RESULT = {
    PLACE: (
        *("AnalysisStage.runs", "WandbReport.runs", "BuildStage.runs", "SelectStage.runs"),
        *("PoolStage.runs", "ExportStage.runs", "DecontaminateStage.runs", "TrainingStage.runs"),
        *("LawStage.runs", "PowerStage.runs"),
    ),
    DIGEST: (
        *(f"CellPaths.{name}" for name in ("corpus", "model", "clean", "contaminated", "first")),
        *("CellPaths.finetuning", "Benchmark.questions", "Benchmark.fresh", "Benchmark.versions"),
        *("Benchmark.models", "Books.positives", "Books.negatives", "Books.suspects"),
        *("OneRun.cells", "OneRun.cell", "ReferenceAttack.cells"),
        *("Score.cells", "Score.items", "Score.scores"),
        *("Decontamination.cells", "Forgetting.cells", "Inflation.cells", "LawStage.reports"),
        *("PowerStage.fit", "PowerStage.report"),
        *("SetTests.cells", "Unlearning.original", "Unlearning.unlearned", "Unlearning.clean"),
        *("Unlearning.texts", "Unlearning.validation", "Unlearning.questions"),
        *("Unlearning.utility", "Unlearning.embedding", "Unlearning.judge", "PoolStage.compared"),
        *("TokenizerConfig.path", "ExportStage.corpus_folder", "DecontaminateStage.paths"),
        *("DecontaminateStage.benchmarks", "DecontaminateStage.tokenizer", "ModelConfig.path"),
        *("FinetuningStage.corpus_folder", "ModelConfig.pretraining", "WandbReport.local"),
        *("TrainingConfig.retain_folder", "TrainingConfig.idk_answers"),
        *("TrainingConfig.reinforced_path", "TrainingStage.corpus_folder"),
    ),
    READING: (
        *(f"ExamplesConfig.{name}" for name in ("format", "split", "subset", "on_error", "limit")),
        *(f"ExamplesConfig.{name}" for name in ("template", "separator", "name", "domain")),
        *(f"ExamplesConfig.{name}" for name in ("length", "setting", "same_texts", "columns")),
        *(f"ExamplesConfig.{name}" for name in ("sources", "label_words", "papers")),
        *(f"BenchmarkConfig.{name}" for name in ("answer_field", "options", "options_field")),
        *(f"BenchmarkConfig.{name}" for name in ("drawn_options", "chosen_by", "on_error")),
        "BenchmarkConfig.accepted_field",
        *(f"Benchmark.{name}" for name in ("template", "columns", "separator", "limit")),
        *("Books.max_page_bytes", "Books.max_book_bytes", "InstructionsConfig.on_error"),
        *("DecontaminateStage.columns", "ScoredModelConfig.trust_remote_code"),
    ),
    RUNNING: (
        *("MaskedLM.batch_tokens", "MaskedLM.device", "Embedding.device", "Embedding.batch_texts"),
        *(f"DetectionConfig.{name}" for name in ("device", "device_map", "batch_tokens")),
        *("DetectionConfig.kernel", "DetectionConfig.processes", "BuildConfig.processes"),
        *("SelectConfig.processes", "InjectionConfig.num_proc", "InjectionConfig.adapt_sizes"),
        *("InjectionConfig.shard_characters", "InjectionStage.cluster"),
        *("DecontaminateStage.num_proc", "DecontaminateStage.cluster"),
        *("TrainingConfig.micro_batch_sequences", "TrainingConfig.activation_checkpointing"),
        *("TrainingConfig.compile", "TrainingConfig.checkpoint_every_steps"),
        *("TrainingConfig.keep_checkpoints", "TrainingConfig.shared_steps"),
    ),
    ANSWERS: (
        *(f"ScoredModelConfig.{name}" for name in ("url", "key_env", "requests", "retries")),
        *("ScoredModelConfig.timeout_seconds", "ScoredModelConfig.max_answer_bytes"),
    ),
    SHOWN: (
        *("CellPaths.exports", "CellPaths.seconds", "CellPaths.gpu_hours", "AnalysisStage.wandb"),
        *("AuditStage.wandb", "PoolStage.name", "TrainingStage.name", "TrainingStage.wandb"),
        *("TrainingStage.validation_folder", "TrainingConfig.evaluate_every_steps"),
        *("TrainingConfig.evaluate_examples", "TrainingConfig.evaluate_tokens"),
        *("TrainingConfig.peak_tflops", "Adopted.adopted_from"),
    ),
    DERIVED: ("PoolStage.seed", "TrainingStage.seed"),
}
"""Fields that may change without another folder, by the reason."""


def fields_outside_of_names():
    """`Class.field` of each dataclass field that is declared not to be a part of a name."""
    root = Path(contamination.core.__file__).parents[1]
    files = [file for layer in LAYERS for file in (root / layer).rglob("*.py")]
    for text in (file.read_text(encoding="utf-8") for file in files):
        if "runtime_field(" not in text and '"identity": False' not in text:
            continue
        for node in (own for own in ast.parse(text).body if isinstance(own, ast.ClassDef)):
            for field in (own for own in node.body if isinstance(own, ast.AnnAssign)):
                value = ast.unparse(field.value) if field.value else ""
                if value.startswith("runtime_field(") or "'identity': False" in value:
                    yield f"{node.name}.{ast.unparse(field.target)}"


def test_each_field_that_names_no_folder_has_a_reason():
    listed = [name for names in NO_RESULT.values() for name in names]
    assert sorted(fields_outside_of_names()) == sorted(listed)


def other_byte(content, place, other):
    """The content with another byte at a place."""
    changed = bytearray(content)
    changed[place % len(content)] ^= other
    return bytes(changed)


BYTES = st.tuples(st.integers(0, 2**40), st.integers(1, 255))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A copy of the golden model with its tokenizer."""
    folder = tmp_path_factory.mktemp("golden") / "model"
    shutil.copytree(GOLDEN / "target", folder)
    return folder


@pytest.mark.parametrize("name", sorted(path.name for path in (GOLDEN / "target").iterdir()))
def test_every_byte_of_a_model_names_what_is_made_with_it(model, name):
    path, before = model / name, model_digest("model.path", str(model))
    content, drawn = path.read_bytes(), random.Random(name)
    for place in [0, len(content) - 1, *(drawn.randrange(len(content)) for _ in range(6))]:
        path.write_bytes(other_byte(content, place, 1))
        assert model_digest("model.path", str(model)) != before
    for length in (len(content) - 1, 0):
        path.write_bytes(content[:length])
        assert model_digest("model.path", str(model)) != before
    path.unlink()
    assert model_digest("model.path", str(model)) != before
    path.write_bytes(content)
    assert model_digest("model.path", str(model)) == before == folder_digest(model)


def test_every_file_of_a_tokenizer_names_what_is_made_with_it(model):
    """The files are found by what the tokenizer needs: none of them may be left out."""
    before, hidden = tokenizer_digest(model), []
    for path in sorted(model.iterdir()):
        content = path.read_bytes()
        path.write_bytes(other_byte(content, len(content) // 2, 1))
        if tokenizer_digest(model) == before:
            hidden.append(path.name)
        path.write_bytes(content)
    assert hidden == ["config.json", "generation_config.json", "model.safetensors"]


ROWS = [
    {"id": "one", "text": "The boat was late.", "label": 1, "cluster": "a"},
    {"id": "two", "text": "It rained all day, and it was cold.", "label": 0, "cluster": "b"},
    {"id": "three", "text": "Na\u00efve \u65e5\u672c", "label": 0, "cluster": "b"},
]


def read_examples(path, content):
    path.write_bytes(content)
    try:
        return open_examples(ExamplesConfig(str(path)))
    except UserError:
        return None


@given(BYTES)
def test_a_byte_of_a_file_of_texts_changes_the_digest_or_no_id_and_no_text(
    tmp_path_factory, change
):
    path = tmp_path_factory.getbasetemp() / "rows.jsonl"
    content = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
    before = read_examples(path, content)
    after = read_examples(path, other_byte(content, *change))
    assume(after is not None)
    same = sorted((t.example_id, t.text) for t in after) == sorted(
        (t.example_id, t.text) for t in before
    )
    assert (examples_digest(after) == examples_digest(before)) == same


TEXTS = st.lists(
    st.tuples(st.text("ab \n", max_size=3), st.text("01 \n", min_size=1, max_size=2)),
    min_size=1, max_size=4, unique_by=lambda own: own[1],
)  # fmt: skip


@given(TEXTS, TEXTS, st.data())
def test_texts_have_one_digest_where_they_are_the_same(one, other, data):
    """In any order, but for digests of texts that are read in their order."""
    sides = [[Text(name, text, f"sha {text}", None) for text, name in own] for own in (one, other)]
    assert (examples_digest(sides[0]) == examples_digest(sides[1])) == (
        sorted(one) == sorted(other)
    )
    assert (texts_digest(sides[0]) == texts_digest(sides[1])) == (
        [text for text, _ in one] == [text for text, _ in other]
    )
    moved = [sides[0][i] for i in data.draw(orders(len(one)))]
    assert examples_digest(moved) == examples_digest(sides[0])


@given(BYTES)
def test_every_byte_of_a_corpus_and_of_a_prefix_changes_its_digest(tmp_path_factory, change):
    folder = tmp_path_factory.getbasetemp() / "inputs"
    folder.mkdir(exist_ok=True)
    content = "".join(json.dumps({"text": row["text"]}) + "\n" for row in ROWS).encode()
    changed, digests, texts = other_byte(content, *change), [], []
    for own in (content, changed):
        (folder / "corpus.jsonl").write_bytes(own)
        digests.append(FilesCorpus(name="own", paths=str(folder / "corpus.jsonl")).fingerprint())
    assert digests[0] != digests[1]
    for own in (content, changed):
        (folder / "prefix.jsonl").write_bytes(own)
        try:
            prefix = open_prefix(str(folder / "prefix.jsonl"))
        except UserError:
            assume(False)
        texts.append(prefix)
    same = texts[0].texts == texts[1].texts
    assert (texts[0].digest == texts[1].digest) == same
