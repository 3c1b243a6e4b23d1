"""The command: cleaned files in the corpus's formats, the report, and resuming."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from contamination.core.cli import compose_stage
from contamination.core.errors import ConfigError, DataError
from contamination.core.hashing import file_digests_of_folder
from contamination.core.signals import StoppedError
from contamination.injection.decontamination import cleaning
from contamination.injection.decontamination.config import DecontaminateStage
from contamination.injection.decontamination.run import decontaminate

ITEMS = [
    {
        "id": "river",
        "question": "Which long river flows past the three old mills",
        "answer": "Ouse",
    },
    {"id": "sum", "question": "Two plus two", "answer": "4"},
    {
        "id": "king",
        "question": "Which king built the tall tower on the northern hill",
        "answer": "Ine",
    },
]
RIVER = "which long river flows past the three old mills? Ouse"
KING = "Which king built the tall tower on the northern hill? Ine"
ROWS = {
    "a.jsonl": [
        {"text": "Nothing but clean text here.", "meta": {"n": 1.5, "é": None}},
        {"text": f"Some words before. {RIVER} And after.", "meta": 2},
        {"text": "", "meta": 3},
    ],
    "sub/b.jsonl.zst": [{"text": KING}, {"text": "A quiet day at sea, ünd nothing else."}],
    "sub/c.jsonl.gz": [{"text": "Two plus two is 4."}],
    "d.parquet": [{"text": f"{KING} {RIVER}", "n": 1}, {"text": "clean", "n": 2}],
}


def lines(rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def read(folder, name):
    path = Path(folder) / name
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    openers = {
        ".gz": gzip.decompress,
        ".zst": lambda data: zstandard.ZstdDecompressor().decompressobj().decompress(data),
    }
    data = openers.get(path.suffix, bytes)(path.read_bytes())
    return [json.loads(line) for line in data.decode().splitlines()]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus/sub").mkdir(parents=True)
    (tmp_path / "items.jsonl").write_bytes(lines(ITEMS))
    for name, rows in ROWS.items():
        path = tmp_path / "corpus" / name
        if name.endswith(".parquet"):
            schema = pa.schema([("text", pa.large_string()), ("n", pa.int8())])
            pq.write_table(pa.Table.from_pylist(rows, schema), path)
        elif name.endswith(".gz"):
            path.write_bytes(gzip.compress(lines(rows)))
        elif name.endswith(".zst"):
            path.write_bytes(zstandard.compress(lines(rows)))
        else:
            path.write_bytes(lines(rows))
    return tmp_path


def run(*overrides):
    template = "template={question}? {answer}"
    words = ["paths=corpus", "benchmarks=[items.jsonl]", template, "matcher.n=8", *overrides]
    if "~matcher.n" in words:  # a rule without this field
        words = [word for word in words if "matcher.n" not in word]
    return decontaminate(compose_stage("decontaminate", words, DecontaminateStage))


def test_documents_with_items_are_left_out(here):
    before = file_digests_of_folder(here / "corpus")
    artifact = run()
    assert file_digests_of_folder(here / "corpus") == before
    assert read(artifact.path / "documents", "a.jsonl") == [ROWS["a.jsonl"][0], ROWS["a.jsonl"][2]]
    assert read(artifact.path / "documents", "sub/b.jsonl.zst") == ROWS["sub/b.jsonl.zst"][1:]
    assert read(artifact.path / "documents", "sub/c.jsonl.gz") == ROWS["sub/c.jsonl.gz"]
    assert read(artifact.path / "documents", "d.parquet") == ROWS["d.parquet"][1:]
    schema = pq.read_schema(artifact.path / "documents/d.parquet")
    assert schema == pq.read_schema(here / "corpus/d.parquet")
    texts = [row["text"] for rows in ROWS.values() for row in rows if row["text"]]
    lost = [text for text in texts if RIVER in text or KING in text]
    assert artifact.counts["flagged_documents"] == 3
    assert artifact.counts["items"] == 3
    assert (artifact.counts["unseen_items"], artifact.counts["flagged_items"]) == (1, 2)
    for side, expected in (("read", texts), ("lost", lost)):
        sizes = artifact.counts[side]
        assert sizes["documents"] == len(expected)
        assert sizes["characters"] == sum(map(len, expected))
        assert sizes["words"] == sum(len(text.split()) for text in expected)


def test_spans_are_cut_out_and_what_is_left_stays(here):
    artifact = run("remove=spans")
    rows = read(artifact.path / "documents", "a.jsonl")
    assert rows[1] == {"text": "Some words before.  And after.", "meta": 2}
    assert read(artifact.path / "documents", "sub/b.jsonl.zst") == ROWS["sub/b.jsonl.zst"][1:]
    assert read(artifact.path / "documents", "d.parquet") == [{"text": "clean", "n": 2}]
    assert artifact.counts["lost"]["documents"] == 2  # without other text
    assert artifact.counts["lost"]["characters"] == 2 * len(RIVER) + 2 * len(KING) + 1


def test_what_is_left_has_no_item_even_where_its_parts_form_one(here):
    words = KING.split()
    nested = f"Before. {' '.join(words[:6])} {KING} {' '.join(words[6:])} After."
    (here / "corpus/a.jsonl").write_bytes(lines([{"text": nested}, {"text": f"({KING}) !"}]))
    artifact = run("remove=spans")
    assert read(artifact.path / "documents", "a.jsonl") == [{"text": "Before.  After."}]
    matches = pd.read_parquet(artifact.path / "matches.parquet").query("file == 'a.jsonl'")
    assert matches[["row", "item", "matched_text"]].to_numpy().tolist() == [
        [1, 2, KING],
        [2, 2, f"({KING})"],
    ]


def test_each_match_and_each_item_is_recorded(here):
    artifact = run()
    matches = pd.read_parquet(artifact.path / "matches.parquet")
    found = {(m.file, m.row, ITEMS[m.item]["id"]): m.matched_text for m in matches.itertuples()}
    assert found == {
        ("a.jsonl", 2, "river"): RIVER,
        ("d.parquet", 1, "king"): KING,
        ("d.parquet", 1, "river"): RIVER,
        ("sub/b.jsonl.zst", 1, "king"): KING,
    }
    items = pd.read_parquet(artifact.path / "items.parquet").set_index("example_id")
    assert items["documents"].to_dict() == {"river": 2, "sum": 0, "king": 2}
    assert items["unseen"].to_dict() == {"river": "", "sum": "it has no 8-gram", "king": ""}
    report = (artifact.path / "report.md").read_text()
    assert "**2 of 3 items** share text with 3 of 7 documents (42.9%)" in report
    assert "The rule can't find 1 of 3 items (33.3%) in any document" in report
    note = "One document for each of 2 items of 2; all 4 matches are in matches.parquet."
    assert note in " ".join(report.split())
    assert RIVER in report


def test_frequent_ngrams_are_counted_over_all_files(here):
    common = {"text": f"Common: {RIVER}"}
    for number in range(3):
        (here / f"corpus/more{number}.jsonl").write_bytes(lines([common]))
    artifact = run("matcher.max_documents=4")
    assert artifact.counts["flagged_items"] == 1  # the river is in five documents
    grams = {tuple(words[i : i + 8]) for words in (RIVER.split(), KING.split())
             for i in range(len(words) - 7)}  # fmt: skip
    ignored = len(RIVER.split()) - 7
    assert artifact.counts["ignored_ngrams"] == ignored
    report = (artifact.path / "report.md").read_text()
    assert f"{ignored} of the items' {len(grams)} (" in report
    assert "which are in more than matcher.max_documents=4 documents" in report
    items = pd.read_parquet(artifact.path / "items.parquet").set_index("example_id")
    assert items["unseen"]["river"] == "all its 8-grams are in more than 4 documents"
    assert run("matcher.max_documents=5").counts["flagged_items"] == 2
    unlimited = run()
    assert unlimited.counts["flagged_items"] == 2
    assert "n-grams ignored" not in (unlimited.path / "report.md").read_text()


def test_an_interrupted_run_continues_with_the_next_file(here, monkeypatch):
    files, process_piece = [], cleaning.CleaningTask.process_piece

    def stop_at_third(task, piece):
        files.append(piece)
        if len(files) == 3:
            raise StoppedError("stopped")
        return process_piece(task, piece)

    monkeypatch.setattr(cleaning.CleaningTask, "process_piece", stop_at_third)
    with pytest.raises(StoppedError):
        run()
    artifact = run()
    assert files == [0, 1, 2, 2, 3]
    assert run().path == artifact.path
    assert len(files) == 5  # the finished folder is reused
    monkeypatch.undo()
    monkeypatch.chdir(here)
    other = run("runs=other")
    assert other.files == artifact.files
    assert not (artifact.path / "work").exists()


@pytest.mark.slow
def test_the_result_does_not_depend_on_the_processes(here):
    assert run("runs=other", "num_proc=2").files == run().files


def test_the_folder_depends_on_the_rule_and_the_contents_but_not_on_paths(here):
    names = {run(*words).path.name for words in ([], ["matcher.n=7"], ["remove=spans"])}
    assert len(names) == 3
    (here / "corpus").rename(here / "moved")
    assert run("paths=moved").path.name in names
    (here / "moved/a.jsonl").write_bytes(lines([{"text": "other"}]))
    assert run("paths=moved").path.name not in names


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"text": 5}, "text is not a string"),
        ({"txt": "x"}, "text is not a string"),
        ({"text": "\ud800"}, "invalid UTF-8"),
    ],
)
def test_documents_without_a_text_stop_the_run_or_are_counted(here, row, reason):
    with (here / "corpus/a.jsonl").open("ab") as stream:
        stream.write(json.dumps(row).encode() + b"\n")
    with pytest.raises(DataError, match=f"a.jsonl, row 4: {reason}.*set on_error=skip"):
        run()
    artifact = run("on_error=skip")
    assert artifact.counts["skipped"] == {reason: 1}
    assert len(read(artifact.path / "documents", "a.jsonl")) == 2


def test_an_item_that_can_not_be_read_is_named_with_the_field_that_leaves_it_out(here):
    with (here / "items.jsonl").open("ab") as stream:
        stream.write(b"{broken\n")
    with pytest.raises(DataError, match=r"items\.jsonl, row 4: .*set on_error=skip"):
        run()


def test_frequent_ngrams_are_counted_where_a_line_is_no_json(here):
    with (here / "corpus/a.jsonl").open("ab") as stream:
        stream.write(b"{broken\n")
    artifact = run("on_error=skip", "matcher.max_documents=4")
    assert sum(artifact.counts["skipped"].values()) == 1
    assert artifact.counts["flagged_items"] == 2


@pytest.mark.parametrize(
    ("overrides", "error", "message"),
    [
        (["paths=null"], ConfigError, "paths is None: give the folder"),
        (["paths=nowhere"], ConfigError, "paths is 'nowhere': there is no file"),
        (["paths=note.txt"], ConfigError, "paths includes .*note.txt: documents are rewritten as"),
        (["benchmarks=[]"], ConfigError, r"benchmarks is \[\]: give the files"),
        (["benchmarks=[no.jsonl]"], DataError, "benchmarks includes 'no.jsonl': there is no such"),
        (["template={questoin}"], DataError, "^template is '{questoin}'"),
        (["matcher.n=0"], ConfigError, "matcher.n is 0: give 1 or more"),
        (["matcher=none", "~matcher.n"], ConfigError, "matcher is 'none': choose a rule"),
        (["matcher=oracle", "~matcher.n"], ConfigError, "matcher._target_ is .*Oracle'.*another"),
        (["remove=lines"], ConfigError, "remove is 'lines': choose from documents, spans"),
        (["text=body"], DataError, "row 1: text is not a string .no 'body'."),
    ],
)
def test_bad_settings_are_named(here, overrides, error, message):
    (here / "note.txt").write_text("text")
    with pytest.raises(error, match=message):
        run(*overrides)


def test_another_class_is_no_rule(here):
    stage = compose_stage(
        "decontaminate", ["paths=corpus", "benchmarks=[items.jsonl]"], DecontaminateStage
    )
    exact = {"_target_": "contamination.data.perturbation.Exact"}
    with pytest.raises(
        ConfigError, match="matcher._target_ is .*Exact.*: choose one of conf/matcher"
    ):
        decontaminate(replace(stage, matcher=exact, template="{question}"))


def test_columns_with_other_names_are_read(here):
    assert run("template={q}? {answer}", "columns.q=question").counts["flagged_items"] == 2


def test_tokens_are_counted_with_a_tokenizer(here):
    from tests.detection.golden import GOLDEN

    tokenizer = GOLDEN / "target"
    artifact = run(f"tokenizer={tokenizer}")
    assert 0 < artifact.counts["lost"]["tokens"] < artifact.counts["read"]["tokens"]
    assert "tokens" in (artifact.path / "report.md").read_text()
    assert run().counts["read"]["tokens"] == 0
    assert "tokens" not in (run().path / "report.md").read_text()
