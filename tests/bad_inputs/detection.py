"""Bad inputs of `python -m detection` and its tools."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import zstandard

from contamination.core.files import HASH_KEY
from tests.bad_inputs.material import GOLDEN, book, jsonl, sentence, texts
from tests.bad_inputs.row import M, Row, bad, values

detect = partial(bad, "detection")
codec = partial(bad, "detection codec")
online = partial(bad, "detection online")
accuracy = partial(bad, "detection accuracy")
extraction = partial(bad, "detection extraction")
audit = partial(bad, "audits")
thresholds = partial(bad, "detection thresholds")
view = partial(bad, "detection view")

VALUES = {
    "detection.dtype": "int8",
    "detection.long_texts": "skip",
    "detection.min_scored_tokens": "0 -1 x",
    "detection.device": "tpu cuda:99",
    "detection.device_map": "all",
    "detection.batch_tokens": "0 -5 nan",
    "detection.processes": "0 -1",
    "model.requests": "0 -1",
    "model.tolerance": "0 nan",
    "seed": "x 1.5 nan",
}
METHODS = {
    "method.min_k.k": "[] 0 -1 2 nan inf x [0.1,nan]",
    "method.max_k.k": "nan",
    "method.min_k_plus_plus.k": "nan",
    "method.gap_k.window": "0 -1 1.5",
    "method.gap_k.k": "nan",
    "method.infilling.m": "-1 x",
    "method.infilling.k": "nan",
    "method.neighbor.n": "0 -1 1.5",
    "method.neighbor.share": "nan 2 -1",
    "method.neighbor.augmentation": "none",
    "method.pac.n": "0",
    "method.pac.share": "nan -1",
    "method.pac.top": "nan 2",
    "method.pac.bottom": "0",
    "method.pac.augmentation": "[] none [swap,none]",
    "method.polarized_distance.top": "nan",
    "method.polarized_distance.bottom": "-1",
    "method.recall.shots": "0 1.5 -1",
    "method.con_recall.shots": "0",
    "method.con_recall.gamma": "-1 2 nan",
    "method.dc_pdd.characters": "0",
    "method.dc_pdd.limit": "0 nan",
    "method.surp.k": "nan",
    "method.surp.entropy": "nan -1 inf",
    "method.mean_only.k": "nan",
    "method.std_only.k": "0",
}  # fmt: skip


def scored(content: bytes | str, *words: str, command=detect, **about) -> Row:
    """A file of texts that can't be scored."""
    return command("examples.path=t.jsonl", *words, files={"t.jsonl": content}, **about)


def target(spoil, *words: str, **about) -> Row:
    """A model's folder that can't score."""

    def made(folder: Path) -> None:
        shutil.copytree(GOLDEN / "target", folder)
        spoil(folder)

    words = words or ("model.path", "model")
    return detect("model.path=model", *words, files={"model": made}, **about)


def served(arguments: str, *words: str, **about) -> Row:
    """A server that can't be asked."""
    return detect(f"model.path=null model.tokenizer={M}/hf {arguments}", *words, **about)


def tokens(change):
    """Change the tokenizer's vocabulary."""

    def spoil(folder: Path) -> None:
        path = folder / "tokenizer.json"
        found = json.loads(path.read_text())
        change(found)
        path.write_text(json.dumps(found))

    return spoil


def beyond(found) -> None:
    """One word's id is beyond the model's vocabulary."""
    vocabulary = found["model"]["vocab"]
    vocabulary["."] = 5_000_000


def without_a_merge(found) -> None:
    """The tokenizer has one pair of tokens less that it joins."""
    found["model"]["merges"].pop()


def copied(name: str, spoil):
    """A folder of the material, spoilt."""

    def made(folder: Path) -> None:
        shutil.copytree(folder.parent / M / name, folder)
        spoil(folder)

    return made


def written(name: str, content: bytes | str):
    """Replace a file of a folder."""
    data = content.encode() if isinstance(content, str) else content
    return lambda folder: (folder / name).write_bytes(data)


def older(folder: Path) -> None:
    """An artefact of an earlier schema, whose manifest had no hash of itself."""
    path = folder / "manifest.json"
    found = {**json.loads(path.read_text()), "schema": 1}
    path.write_text(json.dumps({name: it for name, it in found.items() if name != HASH_KEY}))


def link_to(target: str):
    """Make a symbolic link."""
    return lambda path: path.symlink_to(target)


def without(name: str):
    """Remove a file."""
    return lambda folder: (folder / name).unlink()


ROWS = [
    *values("detection", VALUES),
    *(replace(row, given=(f"method={row.given[0].split('.')[1]}", *row.given))
      for row in values("detection", METHODS)),
    detect("method=[min_kk]", "min_kk", "Did you mean min_k"),
    detect("method=[]", "method", slow=True),
    detect("+method.mine._target_=os.getcwd", "method.mine", "os.getcwd", slow=True),
    detect("+method.mine._target_=no.such.Method", "method.mine", "no.such.Method"),
    detect("+method.mine.k=1", "method.mine", "_target_", slow=True),
    detect("+method.loss.speed=1", "method.loss", "speed", slow=True),
    detect("method=[reference]", "reference.path"),
    detect("method=[neighbor]", "masked_lm.path", slow=True),
    detect("method=[recall]", "prefix.path", slow=True),
    detect("detection.spead=1", "spead"),
    detect("detection.device_map=auto detection.processes=2", "detection.device_map", slow=True),
    detect("detection.device_map=auto detection.device=cpu", "detection.device_map", slow=True),
    # texts
    detect("examples.path=nowhere.jsonl", "examples.path", "nowhere.jsonl", slow=True),
    detect("~examples.path", "examples.path", slow=True),
    detect(["examples.path="], "examples.path", slow=True),
    scored("", "examples.path", "no example", slow=True),
    scored("\n\n", "examples.path", "no example", slow=True),
    scored("plain text", "t.jsonl, row 1", "JSON", slow=True),
    scored(json.dumps([{"text": "a"}]), "t.jsonl, row 1", "object"),
    scored('{"txt": "a"}', "t.jsonl, row 1", "text", slow=True),
    scored('{"text": 5}', "t.jsonl, row 1", "text", slow=True),
    scored('{"text": "half \\ud800"}', "t.jsonl, row 1", "UTF-8"),
    scored(b'{"text": "caf\xe9"}', "t.jsonl, row 1", "UTF-8"),
    scored("[" * 100_000, "t.jsonl, row 1", slow=True),
    scored(texts().encode("utf-16"), "t.jsonl, row ", "UTF-8", slow=True),
    scored(b"\x00\x01\x02", "t.jsonl, row 1", slow=True),
    scored('{"text": "a", "label": "maybe"}', "t.jsonl, row 1", "label", "maybe", slow=True),
    scored('{"text": "a", "label": 2}', "t.jsonl, row 1", "label", "2", slow=True),
    scored('{"text": "a", "label": ' + "9" * 5000 + "}", "t.jsonl, row 1", "too large"),
    scored('{"text": "a", "id": 1}\n{"text": "b", "id": "1"}', "examples.path", "'1'", "twice", slow=True),
    scored('{"text": "a", "id": "\\ud800"}', "t.jsonl, row 1", "UTF-8"),
    scored('{"text": "a", "benchmark": "\\ud800"}', "t.jsonl, row 1", "UTF-8"),
    scored('{"text": "a", "benchmark": "all"}', "examples.path", "'all'", slow=True),
    scored(jsonl([{"text": sentence(1) * 500}]), "text 0", "detection.long_texts", slow=True),
    detect(f"examples.path={M}/scores", "scores", "not a corpus", slow=True),
    detect(f"examples.path={M}/hf", "examples.path", "hf", slow=True),
    detect(f"examples.path={M}/user.jsonl", "user.jsonl, row 1", "text", slow=True),
    detect("examples.path=t.csv", "t.csv, row 1", files={"t.csv": "txt,label\na,1\n"}),
    detect("examples.path=t.csv", "examples.on_error", files={"t.csv": "text,label\na b c,?\n"}),
    detect("examples.path=t.csv", "t.csv", "'label'", "twice", files={"t.csv": "text,label,label\na,1,0\n"}, slow=True),
    detect("examples.path=t.txt", "examples.path", "plain text", files={"t.txt": "a\nb\n"}, slow=True),
    detect("examples.path=t.jsonl.zst", "t.jsonl.zst", "cut off", files={"t.jsonl.zst": zstandard.compress(texts().encode())[:-9]}, slow=True),
    detect("examples.path=-", "examples.path", "no example"),
    detect("examples.path=t.parquet", "t.parquet", files={"t.parquet": b"PAR1\x00"}),
    detect("examples.path=" + "e" * 300, "eee", "too long"),
    # models
    detect("model.path=./nowhere", "model.path", "./nowhere", "no such folder"),
    detect("model.path=nobody/no-such-model", "model.path", "nobody/no-such-model", slow=True),
    detect("model.path=model", "model.path", "model", files={"model/readme.md": ""}, slow=True),
    detect("model.path=m.gguf", "model.path", "m.gguf", files={"m.gguf": b"GGUFxxxxxxxxxxxxxxxxx"}),
    detect(f"model.path={M}/corpus", "corpus", "not a model"),
    detect("model.path=" + "m" * 300, "mmm", "too long"),
    # servers
    served("model.url=localhost", "model.url", "localhost", "http://"),
    served("model.url=http://me:secret@localhost/v1", "model.url", "key_env"),
    served("model.url=http://127.0.0.1:9/v1", "model.url", "127.0.0.1:9", "can't be reached"),
    served("model.url=http://127.0.0.1:9/v1 model.key_env=NO_SUCH_KEY", "model.key_env", "not set"),
    served("model.url=http://127.0.0.1:9/v1 model.tokenizer=null", "model.tokenizer", "None", slow=True),
    detect("model.url=http://127.0.0.1:9/v1", "model.path", "give only one", slow=True),
    detect("model.path=null", "model.path", "None", "url", slow=True),
    bad("detection probe", f"model.path={M}/hf", "model.path", "model.url"),
    target(without("config.json")),
    target(without("tokenizer.json")),
    target(without("model.safetensors")),
    target(written("model.safetensors", b"<html></html>")),
    target(written("model.safetensors", b"")),
    target(written("tokenizer.json", b"{}"), slow=True),
    target(written("tokenizer.json", b"\xff\xfe"), slow=True),
    target(written("tokenizer_config.json", b"{"), slow=True),
    target(tokens(beyond), "model.path", "5000000", "vocabulary"),
    detect("method=[reference] reference.path=./nowhere", slow=True),
    detect("method=[reference] reference.path=base", "reference.path", "base", slow=True),
    detect("method=[wbc]", "method.wbc", "reference.path", slow=True),
    detect("method=[ez_mia] reference.path=other", "method.ez_mia", "other'", "tokenizer", files={"other": copied("hf", tokens(without_a_merge))}),
    detect("method=[wbc] reference.path=other", "method.wbc", "other'", "tokenizer", files={"other": copied("hf", tokens(without_a_merge))}, slow=True),
    detect("method=[info_rmia] reference.path=other", "method.info_rmia", "other'", "tokenizer", files={"other": copied("hf", tokens(without_a_merge))}, slow=True),
    detect("method=[dc_pdd]", "method.dc_pdd.corpus", "null", "plain text"),
    detect("method=[dc_pdd] method.dc_pdd.corpus=nowhere", "corpus", "'nowhere'"),
    detect("method=[dc_pdd] method.dc_pdd.corpus=c.txt", "c.txt", "no text", files={"c.txt": ""}, late=True),
    detect("method=[dc_pdd] method.dc_pdd.corpus=c.txt", "c.txt", "can't be read", files={"c.txt": b"caf\xe9\n" * 9}, late=True, slow=True),
    detect("method=[con_recall] prefix.path=p.txt", "method.con_recall", "members", files={"p.txt": "".join(sentence(n) + "\n" for n in range(900, 909))}),
    detect("method=[neighbor] masked_lm.path=./nowhere", slow=True),
    detect(f"method=[neighbor] masked_lm.path={M}/hf", "masked_lm.path", "hf", late=True, slow=True),
    detect("method=[recall] prefix.path=nowhere.txt", slow=True),
    detect("method=[recall] prefix.path=p.txt", "prefix.path", files={"p.txt": ""}, late=True, slow=True),
    detect("method=[recall] prefix.path=p.txt", "prefix.path", files={"p.txt": b"caf\xe9\n" * 9}, slow=True),
    detect("method=[recall] prefix.path=p.jsonl", "prefix.path", files={"p.jsonl": "{}\n" * 9}, slow=True),
    detect("method=[recall] prefix.path=p.txt method.recall.shots=100", "prefix.path", "100", files={"p.txt": "a\nb\n"}, late=True),
    detect("method=[recall] prefix.path=p.txt", "prefix.path", files={"p.txt": sentence(0) + "\n" + "a b c\n" * 9}, late=True, slow=True),
    # places
    detect("out=a-file", "out", "a-file", files={"a-file": ""}),
    detect("out=a-file/below", "out", "a-file", files={"a-file": ""}),
    detect(f"out={'o' * 300}", "out", "ooo"),
    detect("runs=a-file", "a-file", "There is a file", files={"a-file": ""}),
    detect("out=out", "out", place="read-only"),
    detect("out=/proc/x", "/proc/x", "out"),
    detect("runs=/proc", "/proc", "no folder can be created"),
    detect("examples.path=pipe", "no process writes", "pipe", files={"pipe": os.mkfifo}, slow=True),
    detect("-m seed=range(0,0)", "seed is range(0,0)", "nothing to run"),
    detect("runs=runs", "No space", place="full", late=True),
    # codec
    codec("codec.shots=0"),
    codec("codec.skip_tokens=-1", slow=True),
    codec("codec.shots=x", slow=True),
    codec("detection.long_texts=windowed", "detection.long_texts", "windowed"),
    codec("detection.scope=output", "detection.scope", "output", slow=True),
    scored('{"text": "a"}', "only the text", "several", command=codec),
    codec("out=a-file", "out", "a-file", files={"a-file": ""}, slow=True),
    codec("examples.path=nowhere", "examples.path", "nowhere", slow=True),
    # online
    online("detection.scope=output", "detection.scope", "output", "windows"),
    online("online.window_tokens=0"),
    online("online.window_tokens=-1"),
    online("online.window_tokens=x"),
    online("online.window_tokens=100000", "online.window_tokens", "100000", late=True),
    online("method=[zlib,pac]", "method", "pac"),
    scored('{"text": "a"}\n{"text": "b"}', "examples.path", "0 members", command=online),
    online("out=a-file", "out", "a-file", files={"a-file": ""}),
    online("examples.path=nowhere", "examples.path", "nowhere"),
    # view
    view("view.examples=0"),
    view("view.ids=[]"),
    view("view.ids=[nobody]", "view.ids", "nobody"),
    view("out=nowhere/view.html", "out", "nowhere"),
    view("examples.path=nowhere", "examples.path", "nowhere"),
    view("runs=nothing", "model.path", "python -m detection"),
    # accuracy
    view("detection.scope=input", "detection.scope", "input", slow=True),
    accuracy("detection.scope=input", "detection.scope", "input", slow=True),
    extraction("detection.scope=input", "detection.scope", "input", slow=True),
    audit("detection.scope=input", "detection.scope", "input", "audit", slow=True),
    accuracy("examples.path=nowhere", "examples.path", "nowhere", slow=True),
    accuracy(f"examples.path={M}/texts.jsonl", "examples.path", "texts.jsonl"),
    accuracy(f"examples.path={M}/scores", "scores", "not a corpus", slow=True),
    accuracy("model.path=./nowhere", "model.path", "./nowhere", slow=True),
    accuracy("benchmark=[boolq]", "user", slow=True),
    accuracy("benchmark.user.answer_field=null", "user", "answer_field", slow=True),
    accuracy("benchmark.user.answer_field=topic benchmark.user.options=[Yes,No]", "user", "topic", slow=True),
    accuracy("benchmark.user.options=[]", "user", "options"),
    accuracy("benchmark.user.options=[Yes,No]", "user", "right answer", slow=True),
    accuracy("+benchmark.user.drawn_options=1", "drawn_options", "1", slow=True),
    accuracy("benchmark.user.chosen_by=luck", "chosen_by", "luck", slow=True),
    accuracy("+benchmark.user.drawn_options=3 reference.path=./nowhere", "reference.path", "./nowhere", slow=True),
    # extraction
    extraction("extraction.tokens=0", "extraction.tokens", "0"),
    extraction("extraction.prefix_tokens=[]", "extraction.prefix_tokens", "[]"),
    extraction("extraction.target=letters", "extraction.target", "letters", "answer"),
    extraction("extraction.tokens=9000", "examples.path", "extraction.tokens", slow=True),
    extraction(f"examples.path={M}/texts.jsonl extraction.target=answer", "examples.path", "texts.jsonl"),
    # audit
    audit("audit=bok", "audit", "bok", "books"),
    audit("suspects=null", "audit.suspects", "None"),
    audit("positives=./nowhere", "audit.positives", "./nowhere", slow=True),
    audit("unit=letters", "audit.unit", "letters", slow=True),
    audit("length=1", "audit.length", "1", slow=True),
    audit("length=9000", "audit.positives", "Book 0", "60 words", "9,000"),
    audit("snippets=0", "audit.snippets", "0", slow=True),
    audit("null_model=luck", "audit.null_model", "luck", slow=True),
    audit("method=[]", "method", slow=True),
    audit("model.path=./nowhere", "model.path", "./nowhere", slow=True),
    audit("suspects=s", "audit.suspects", "a.txt", "no text", files={"s/a.txt": " \n"}),
    audit("suspects=s", "audit.suspects", "'s'", ".epub", files={"s/a.pdf": "x"}, slow=True),
    audit("suspects=a.epub", "audit.suspects", "a.epub", "EPUB", files={"a.epub": "x"}, slow=True),
    audit("suspects=a.jsonl", "audit.suspects", "line 1", "text", files={"a.jsonl": "[]"}, slow=True),
    audit(f"suspects={M}/positives.jsonl", "audit.suspects", "two books are called 'Book 0'"),
    audit("suspects=a.jsonl", "audit.suspects", "'Other' and 'Book 3'", files={"a.jsonl": json.dumps({**book(3), "title": "Other"})}),
    audit("negatives=a.jsonl", "audit.negatives", "it has 1 books", files={"a.jsonl": json.dumps(book(40))}),
    # thresholds
    thresholds("rule=best", slow=True),
    thresholds("share=0", slow=True),
    thresholds("share=1", slow=True),
    thresholds("share=nan", slow=True),
    thresholds("rule=fpr fpr=1"),
    thresholds("rule=fpr fpr=nan", slow=True),
    thresholds("rule=fpr fpr=-0.1", slow=True),
    thresholds("seed=x"),
    thresholds("override=[luck]", "override", "luck", slow=True),
    thresholds(["scores="], "scores", "''", slow=True),
    thresholds("scores=nowhere", "scores", "nowhere", slow=True),
    thresholds(f"scores={M}/corpus", "scores", "corpus", slow=True),
    thresholds("scores=old", "old", "schema 1", files={"old": copied("scores", older)}),
    thresholds(f"apply={M}/scores", "apply", "examples", slow=True),
    thresholds("examples=null apply=nowhere.json", "apply", "nowhere.json", slow=True),
    thresholds("examples=null apply=t.json", "apply", "t.json", files={"t.json": "{}"}, slow=True),
    thresholds("examples=null apply=t.json", "apply", "t.json", files={"t.json": ""}, slow=True),
    thresholds("examples=null apply=t.json", "apply", "t.json", files={"t.json": b"\xff\xfe\x00"}, slow=True),
    thresholds("examples=null apply=t.json", "apply", "t.json", files={"t.json": '{"thresholds": [1]}'}, slow=True),
    thresholds("examples=null", "apply", slow=True),
    thresholds("examples=nowhere.jsonl", "examples", "nowhere.jsonl"),
    thresholds("examples=t.jsonl", "t.jsonl, row 9", files={"t.jsonl": texts(9)[:-3]}, slow=True),
    thresholds("examples=t.jsonl", "examples", "t.jsonl", files={"t.jsonl": jsonl([{"text": "other"}])}, slow=True),
    thresholds("examples=t.jsonl", "lacks members", files={"t.jsonl": texts().replace('"label": 1', '"label": 0')}),
    thresholds("out=a-file/below.json", "out", "a-file", files={"a-file": ""}),
    thresholds("out=nowhere/t.json", "out", "nowhere", slow=True),
    thresholds("out=.", "out", "it is a folder"),
    thresholds("out=t.json", "out", "t.json", place="read-only"),
    thresholds("out=full", "No space left", "out is 'full'", files={"full": link_to("/dev/full")}),
    thresholds("out=/proc/x", "/proc/x", "no file can be written in /proc"),
    thresholds("out=pipe", "no process reads", "'pipe'", files={"pipe": os.mkfifo}, slow=True),
    thresholds("examples=null apply=pipe", "no process writes", "pipe", files={"pipe": os.mkfifo}, slow=True),
]  # fmt: skip
