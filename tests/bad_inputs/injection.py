"""Bad inputs of `python -m injection`: documents, benchmarks, tokenizers, every field."""

from __future__ import annotations

import gzip
import json
from functools import partial

from tests.bad_inputs.material import jsonl, sentence
from tests.bad_inputs.row import M, Row, bad, values

inject = partial(bad, "injection")

VALUES = {
    "injection.members": "-1 many 1.5 1000000000000",
    "injection.nonmembers": "-1 nan",
    "injection.held_out": "-1",
    "injection.budget_tokens": "1000000000000 0 -5 63 inf",
    "injection.sequence_tokens": "0 7 -64",
    "injection.example_max_tokens": "0 -1",
    "injection.part": "half",
    "injection.base_fraction": "nan inf -0.1 1.1",
    "injection.validation_fraction": "nan 2",
    "injection.boundary": "page",
    "injection.window": "[0,2.0] [0.5] [0.9,0.1] [nan,1.0] [0.5,0.5000001] all",
    "injection.last_tokens": "0 -1 1000000",
    "injection.token_window": "[0,1000000] [5] [9,1] [-1,9] all",
    "injection.copy_distance_tokens": "-1",
    "injection.split_copies": "perhaps",
    "injection.decontamination": "remove",
    "injection.near_duplicates": "merge",
    "injection.membership": "coin",
    "injection.num_proc": "0 -1",
    "injection.shard_characters": "0",
    "injection.pool_seed": "x",
    "injection.membership_seed": "1.5",
    "injection.position_seed": "[]",
    "leak.form": "poem",
    "leak.words_per_line": "0 -1",
    "leak.times": "-1 nan inf",
}  # fmt: skip


GOOD_ROWS = [{"question": sentence(i), "answer": f"Nobody {i}"} for i in range(40)]
USER = jsonl(GOOD_ROWS)
TEXTS = jsonl({"text": sentence(i)} for i in range(40))
FIELDS = "benchmark.user.sources.file.fields"
PAD = {"onl": TEXTS.encode(), "csv": b"a,b\n" * 999, "txt": b"a b\n" * 999}
"""What makes a file large enough for the budget, by the end of its name."""


def rows_file(name: str, content: bytes | str, *words: str, **about) -> Row:
    """A benchmark's file that can't be used."""
    given = f"benchmark.user.sources.file.rows.path={name}"
    return inject(given, *words, files={name: content}, **about)


def documents(name: str, content: bytes | str, *words: str, **about) -> Row:
    """A corpus's file that can't be used."""
    given = f"corpus.paths={name}"
    raw = content.encode() if isinstance(content, str) else content
    padded = raw if name.endswith((".gz", ".zst", ".parquet")) else raw + b"\n" + PAD[name[-3:]]
    return inject(given, *words, files={name: padded}, late=True, **about)


ROWS = [
    *values("injection", VALUES),
    # names that there aren't
    inject("injection.budget_tokns=5", "budget_tokns", slow=True),
    inject("+injection.copies=5", "injection.copies", "unknown field", slow=True),
    inject("sed=1", "sed", slow=True),
    inject("corpus=embeded", "corpus=embeded", "Did you mean embedded?"),
    inject("benchmark=[bolq]", "benchmark=bolq", "Did you mean boolq?"),
    inject("occurrences=none", "occurrences=none", "Known: fixed", slow=True),
    inject("rewording=shuffle", "rewording=shuffle", slow=True),
    inject("injection.members", "injection.members", "missing EQUAL", slow=True),
    inject("seed=x", "seed", "'x'"),
    inject("seed=1e400", "seed", "inf"),
    # occurrences and rewordings
    inject("occurrences=fixed occurrences.count=-1", slow=True),
    inject("occurrences=fixed occurrences.count=1000000000", "occurrences", "4,000,000,000", slow=True),
    inject("occurrences=fixed occurrences.count=nan"),
    inject("occurrences=fixed occurrences.count=two", "occurrences", "two", slow=True),
    inject("occurrences=ladder occurrences.rungs=[]", slow=True),
    inject("occurrences=ladder occurrences.rungs=[1,-2]", "occurrences.rungs", "-2", slow=True),
    inject("occurrences=ladder occurrences.rungs=2", "occurrences", "'rungs': 2", slow=True),
    inject("occurrences=poisson occurrences.rate=0", slow=True),
    inject("occurrences=poisson occurrences.rate=nan", slow=True),
    inject("occurrences=poisson occurrences.rate=inf"),
    inject("occurrences=poisson occurrences.rate=1e30", "occurrences.rate", "1e+30", slow=True),
    inject("occurrences=share occurrences.share=0", slow=True),
    inject("occurrences=share occurrences.share=nan", slow=True),
    inject("occurrences=share occurrences.share=1.5", slow=True),
    inject("+occurrences.speed=2", "occurrences", "speed", slow=True),
    inject("occurrences._target_=os.getcwd", "occurrences", "os.getcwd", slow=True),
    inject("occurrences._target_=no.such.Class", "occurrences", "no.such.Class"),
    inject("rewording=swap rewording.share=nan", "swap.share", "nan", slow=True),
    inject("rewording=swap rewording.share=-1", "swap.share", "-1", slow=True),
    inject("rewording=swap rewording.share=inf", "swap.share", "inf", slow=True),
    inject("rewording=delete rewording.share=2", "delete.share", "2"),
    inject("rewording=delete rewording.share=nan", "delete.share", "nan", slow=True),
    inject("rewording=masked_lm rewording.path=./nowhere", "rewording", "./nowhere", slow=True),
    inject("rewording=masked_lm rewording.path=nobody/no-such-model", "rewording", "nobody/no-such-model", slow=True),
    inject(f"rewording=masked_lm rewording.path={M}/hf rewording.share=nan", "share", "nan", slow=True),
    inject(f"rewording=masked_lm rewording.path={M}/hf rewording.candidates=0", "candidates", "0", slow=True),
    inject(f"rewording=masked_lm rewording.path={M}/hf rewording.window_tokens=2", "window_tokens", "2", slow=True),
    inject(f"rewording=masked_lm rewording.path={M}/hf rewording.batch_tokens=0", "batch_tokens", "0", slow=True),
    inject(f"rewording=masked_lm rewording.path={M}/hf rewording.device=tpu", "device", "tpu", slow=True),
    inject(f"rewording=masked_lm rewording.path={M}/hf", "masked_lm.path", "hf", slow=True),
    # tokenizers
    inject("tokenizer.path=./nowhere", slow=True),
    inject("tokenizer.path=null tokenizer.vocab_size=10", slow=True),
    inject("tokenizer.path=null tokenizer.vocab_size=1000000000", slow=True),
    inject("tokenizer.path=null tokenizer.train_characters=0"),
    inject("tokenizer.path=null tokenizer.train_characters=-1", slow=True),
    inject("tokenizer.path=tok", "tokenizer.path", "tok", files={"tok/tokenizer.json": "{"}, slow=True),
    inject("tokenizer.path=tok", "tokenizer.path", "tok", files={"tok/tokenizer.json": ""}),
    inject("tokenizer.path=tok", "tokenizer.path", "tok", files={"tok/readme.md": "none"}, slow=True),
    inject("tokenizer.path=tok.json", "tokenizer.path", "tok.json", files={"tok.json": "{}"}, slow=True),
    # the corpus's files
    inject("corpus.paths=nowhere.jsonl", slow=True),
    inject("corpus.paths=null", "corpus.paths", "None", slow=True),
    inject("corpus.paths=[]", slow=True),
    inject("corpus.paths=empty", "corpus.paths", "empty", files={"empty/.hidden": ""}, slow=True),
    inject("corpus.paths=a.pdf", "corpus.paths", "a.pdf", files={"a.pdf": "%PDF"}, slow=True),
    inject("corpus.format=xml", slow=True),
    inject("corpus.text=body", "no 'body'", "text", late=True, slow=True),
    inject("corpus.subset=meta.source", "meta.source", late=True, slow=True),
    inject("corpus.id=key", "no 'key'", late=True, slow=True),
    inject("corpus.on_error=ignore", slow=True),
    inject("corpus.encoding_errors=guess"),
    inject("corpus.encoding=utf8", "encoding", slow=True),
    inject("corpus.weights.a=1", "weights", slow=True),
    inject("+corpus.weights.a=1 corpus.subset=@folder", "weights", "a"),
    inject("+corpus.weights.a=nan corpus.subset=source", "weights", "nan"),
    inject("+corpus.weights.a=-1 corpus.subset=source", "weights", "-1", slow=True),
    inject("corpus.paths=d.jsonl", "injection.budget_tokens", "2048", "0 bytes",
           files={"d.jsonl": ""}),
    documents("d.jsonl", "not JSON\n", "d.jsonl, row 1", "not JSON", slow=True),
    documents("d.jsonl", json.dumps([{"text": "a"}]), "d.jsonl, row 1", "object", slow=True),
    documents("d.jsonl", '{"text": "a"}\n{"text": 5}\n', "d.jsonl, row 2", "text", slow=True),
    documents("d.jsonl", '{"text": "a"}\n{"text": null}\n', "d.jsonl", "text", slow=True),
    documents("d.jsonl", b'{"text": "caf\xe9"}\n', "d.jsonl, row 1", "UTF-8", slow=True),
    documents("d.jsonl", '{"text": "half \\ud800 pair"}\n', "d.jsonl, row 1", "UTF-8"),
    documents("d.jsonl", b"\x00\x00\x00\n", "d.jsonl, row 1", slow=True),
    documents("d.jsonl", TEXTS.encode("utf-16"), "d.jsonl, row 1", "UTF-8", slow=True),
    documents("d.jsonl", "", "injection.budget_tokens", "larger corpus", slow=True),
    documents("d.jsonl.gz", TEXTS, "d.jsonl.gz", "gzip"),
    documents("d.jsonl.gz", gzip.compress(TEXTS.encode())[:-20], "d.jsonl.gz"),
    documents("d.jsonl.zst", TEXTS, "d.jsonl.zst", slow=True),
    documents("d.parquet", "PAR1 nothing", "d.parquet", slow=True),
    documents("d.parquet", "", "d.parquet", slow=True),
    documents("d.csv", "a,b\n1,2\n", "d.csv", "text", slow=True),
    documents("d.csv", 'text\n"open\n', "d.csv", slow=True),
    documents("d.csv", "text,b\nonly\n", "d.csv, row 1"),
    documents("d.txt", b"caf\xe9", "d.txt", "UTF-8", slow=True),
    # a benchmark's files
    inject("benchmark.user.sources.file.rows.path=nowhere.jsonl", "rows.path", "nowhere.jsonl", slow=True),
    inject("benchmark.user.sources.file.rows.path=null", "rows.path", "None"),
    inject("benchmark.user.sources.file.rows.format=xml", "rows.format", "xml", slow=True),
    rows_file("b.jsonl", "", "user", "0 distinct", slow=True),
    rows_file("b.jsonl", jsonl(GOOD_ROWS[:5]), "user", "5 distinct", "injection.members=4"),
    rows_file("b.jsonl", json.dumps(GOOD_ROWS), "b.jsonl, row 1", "object", slow=True),
    rows_file("b.jsonl", "[\n" + USER + "]", "b.jsonl, row 1", slow=True),
    rows_file("b.jsonl", USER.replace("Nobody 3", ""), "b.jsonl, row 4", "answer", slow=True),
    rows_file("b.jsonl", USER.replace("question", "prompt"), "b.jsonl, row 1", "question", slow=True),
    rows_file("b.jsonl", USER.replace("Nobody 3", "\\ud800"), "b.jsonl, row 4", "UTF-8"),
    rows_file("b.jsonl", USER.replace('"Nobody 3"', "null"), "b.jsonl, row 4", "answer", slow=True),
    rows_file("b.jsonl", USER.replace('"Nobody 3"', "NaN"), "b.jsonl, row 4", "answer", slow=True),
    rows_file("b.jsonl", USER.replace('"Nobody 3"', '["a"]'), "b.jsonl, row 4", "answer", slow=True),
    rows_file("b.jsonl", "[" * 100_000, "b.jsonl, row 1", slow=True),
    rows_file("b.jsonl", USER.encode("utf-16"), "b.jsonl, row 1", "UTF-8", slow=True),
    rows_file("b.parquet", b"PAR1" + b"\x00" * 50, "b.parquet"),
    rows_file("b.csv", "question\n" + "".join(f"{sentence(i)}\n" for i in range(40)), "b.csv", "columns", slow=True),
    rows_file("b.txt", "plain text", "rows.path", "b.txt", slow=True),
    rows_file("b.jsonl.gz", b"\x1f\x8b\x08garbage", "b.jsonl.gz"),
    # templates, fields and their names
    inject(["benchmark.user.template='{question'"], "benchmark.user.template", "{question"),
    inject(["benchmark.user.template='{q!z}'"], "benchmark.user.template", "{q!z}"),
    inject(["benchmark.user.template='{question:>999999999999}'"], "benchmark.user.template", "999999999999"),
    inject(["benchmark.user.template='{nothing}'"], "benchmark.user", "nothing"),
    inject(["benchmark.user.template=''"], "benchmark.user.template", "''"),
    inject([f"{FIELDS}.answer='{{answer'"], "answer", "benchmark.user", "{answer", slow=True),
    inject([f"{FIELDS}.answer='{{answer!z}}'"], "answer", "{answer!z}", slow=True),
    inject([f"{FIELDS}.answer='{{answer:>999999999999}}'"], "answer", "999999999999", slow=True),
    inject([f"{FIELDS}.answer='{{answer.__class__}}'"], "answer", "__class__"),
    inject([f"{FIELDS}.answer='{{0}}'"], "answer", "{0}"),
    inject("benchmark.user.distinct=topic", "benchmark.user", "topic", slow=True),
    inject("benchmark.user.shorten=topic", "benchmark.user", "topic", slow=True),
    inject("benchmark.user.on_error=ignore", "benchmark.user.on_error", "ignore", slow=True),
    inject("benchmark.user.chosen_by=luck", "chosen_by", "luck", slow=True),
    inject("+benchmark.user.drawn_options=1", "drawn_options", "1", slow=True),
    inject("+benchmark.user.colour=red", "benchmark.user", "colour", slow=True),
    inject("~benchmark.user.sources.file.fields", "benchmark.user.sources.file.fields", "None"),
    inject("+benchmark.user.occurrences.count=3", "benchmark.user.occurrences", "_target_", slow=True),
    inject("+benchmark.all=${benchmark.user}", "benchmark", "all", slow=True),
    # combinations
    inject("injection.swap_members=true injection.nonmembers=5", "injection.swap_members", slow=True),
    inject("injection.example_max_tokens=1", "user", "injection.example_max_tokens", slow=True),
    inject("injection.sequence_tokens=8", "injection.sequence_tokens", slow=True),
    inject("injection.members=30 injection.nonmembers=30", "injection.members=30", "40"),
    # names and places
    inject("runs=a-file", "a-file", "There is a file", files={"a-file": "not a folder"}),
    inject("runs=a-file/below", "a-file", files={"a-file": "not a folder"}),
    inject(f"corpus.name={'n' * 300}", "corpus.name", "nnn", "too long"),
    inject(f"runs={'r' * 300}", "runs", "rrr", "too long"),
    inject(f"corpus.paths={'p' * 300}", "corpus", "ppp", "too long"),
    inject("runs=runs", "runs", "Read-only", place="read-only"),
    inject("runs=runs", "runs", "No space", place="full", late=True),
    # its tools
    inject("verify nowhere", "nowhere", "does not exist"),
    inject("verify corpus", "corpus", "unfinished", files={"corpus/config.yaml": "a: 1"}, slow=True),
    inject(f"verify {M}/scores", "scores", "not a corpus", slow=True),
    inject("verify file", "file", files={"file": ""}, slow=True),
    inject(f"show {M}/corpus example_id=none", "example_id", "none"),
   
    inject(f"show {M}/model example_id=none", "model", "not a corpus"),
    inject("verify export/e", "unfinished", files={"export/e/config.yaml": "a: 1"}, slow=True),
    *(bad("injection export", given, *words, slow=number > 2) for number, (given, *words) in enumerate([
        ("format=megatorn", "format=megatorn", "Did you mean megatron?"),
        ("format.dtype=uint8", "format.dtype", "uint8", "uint16, int32"),
        ("corpus_folder=nowhere", "nowhere", "does not exist"),
        ("~format", "format"),
        (["corpus_folder="], "corpus_folder", "''"),
        (f"corpus_folder={M}/model", "model", "not a corpus"),
        ("format._target_=os.getcwd", "format._target_", "os.getcwd"),
        ("+format.colour=red", "format", "colour"),
        ("format.tokenizer=x format=text", "tokenizer"),
        (f"runs={'r' * 300}", "rrr", "too long"),
    ])),
]  # fmt: skip
