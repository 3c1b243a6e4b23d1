"""`python -m launch push`: what reaches the hub, what does not, and what is said when it can't."""

import hashlib
import os
import subprocess
import sys
from io import BytesIO
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from huggingface_hub import DatasetCard, constants

from contamination.core.artifacts import WrittenFiles, build_or_open, open_artifact, run_folder
from contamination.core.errors import ArtifactError, DataError
from contamination.core.files import hashed_json, verified_json
from contamination.core.hashing import combined_digest, file_digest
from contamination.core.integrity import ALWAYS, find_damages, read_manifest
from contamination.detection.building.datasheet import write_benchmark
from contamination.launch.__main__ import main
from contamination.launch.publishable import TEXT_HASH, find_left_out, publish_file
from contamination.launch.push import parse_words, prepare_upload
from contamination.launch.push import push as upload
from contamination.launch.redaction import Redaction
from tests.launch.hub_server import TOKEN, running_hub

SECRET_TEXT = "Which river did the heron of the quiz cross?"
PATH = f"/home/someone/my {'very ' * 20}long texts/questions.csv"


def build(runs, kind, config, make):
    return build_or_open(run_folder(runs, kind, "mine", {}, {}), config, {"x": "1" * 64}, make).path


@pytest.fixture
def report(tmp_path):
    """A report with a page of examples and paths of a user's machine."""

    def make(folder):
        for name in ("charts", "examples"):
            (folder / name).mkdir()
        (folder / "charts/a.png").write_bytes(b"\x89PNG")
        (folder / "examples/x.html").write_text(SECRET_TEXT)
        (folder / "report.md").write_text("# r\n\nAUROC 0.9.\n\n## Cell\n\nsee /tmp/a-b/x.txt.\n")
        (folder / "report.html").write_text(
            "<td>/home/someone/x.csv</td><a href='https://h.org/home/page'>docs/tmp/it</a>"
            "<script>{'a': 'file:///opt/secret/y.json', \"b\": \"\\/home\\/someone\\/z\","
            "'c': 'no file:\\n/home/someone/b', 'd': '/home/some\\u00fcone/d', "
            "'e': '/home/someone'}</script>"
        )
        pd.DataFrame({"model": ["/srv/me/model", "b"], "auroc": [0.5, 1]}).to_parquet(
            folder / "results.parquet"
        )
        content = ["charts/a.png", "report.md", "results.parquet"]
        return WrittenFiles(content, {"cells": 1}, ["report.html", "examples/x.html"])

    return build(tmp_path / "runs", "report", {"cells": [{"model": PATH}]}, make)


@pytest.fixture
def audit(tmp_path):
    """An audit with a table that quotes questions."""

    def make(folder):
        table = pd.DataFrame({"example_id": ["1"], "text": [SECRET_TEXT], "title": ["A Book"]})
        table.to_parquet(folder / "questions.parquet")
        table.to_csv(folder / "questions.csv", index=False)
        for name in ("audit.md", "report.html"):
            (folder / name).write_text(f"# Audit\n\n**Leaked: yes**.\n\n## Q\n\n{SECRET_TEXT}\n")
        return WrittenFiles(["questions.parquet", "questions.csv", "audit.md", "report.html"])

    config = {"audit": {"_target_": "contamination.audits.benchmark.audit.Benchmark"}}
    return build(tmp_path / "runs", "audit", config, make)


def benchmark(tmp_path, license="cc-by-sa-4.0", **more):
    rows = [
        {"id": f"d{i}", "text": f"{SECRET_TEXT} {i} in /home/heron/nest", "label": i % 2,
         "benchmark": "wiki", "length": 8, "setting": "original", "title": f"Heron {i}",
         "created": "2016-01-01", "changed": None, **more}
        for i in range(4)
    ]  # fmt: skip
    sheet = {"name": "wiki", "about": "Texts.", "sources": [{"file": PATH, "sha256": "2" * 64}]}

    def make(folder):
        return write_benchmark(folder, sheet, {"length8": rows}, license)

    return build(tmp_path / "runs", "benchmark", {"source": {"paths": PATH}}, make)


@pytest.fixture
def hub(monkeypatch):
    """A hub on this machine, and a token for it."""
    with running_hub() as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.endpoint)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.delenv("HTTP_PROXY", raising=False)
        yield server


def push(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["launch", "push", *map(str, words)])
    return main()


def download(hub, folder):
    """Write what the hub has into a folder, as `hf download` does."""
    for name, content in hub.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def everything(hub):
    return "\n".join(content.decode(errors="replace") for content in hub.files.values())


def test_a_report_arrives_whole_in_one_commit(hub, report, tmp_path, monkeypatch, capsys):
    assert push(monkeypatch, report, "repo=me/mine", "private=true") == 0
    assert hub.repository["type"] == "dataset"
    assert hub.repository["visibility"] == "private"
    assert len(hub.commits) == 1
    assert f"data set: {hub.endpoint}/datasets/me/mine/commit/" in capsys.readouterr().out
    copy = download(hub, tmp_path / "copy" / "report" / report.name)
    manifest = read_manifest(copy)
    assert [*find_damages(copy, manifest, ALWAYS)] == []
    assert open_artifact(copy, "report").counts == {"cells": 1}
    original = read_manifest(report)
    assert manifest["digest_before_upload"] == original["digest"]
    assert manifest["files"]["charts/a.png"] == original["files"]["charts/a.png"]
    assert {*hub.files} == {
        *("README.md", "manifest.json", "config.yaml", "report.md", "report.html"),
        *("charts/a.png", "results.parquet"),
    }


def test_paths_of_the_machine_stay_here(hub, report, tmp_path, monkeypatch):
    before = {name: file_digest(report / name) for name in ("report.html", "config.yaml")}
    assert push(monkeypatch, report, "repo=me/mine") == 0
    page = hub.files["report.html"].decode()
    assert "<td>…/x.csv</td>" in page
    assert "'a': 'file://…/y.json', \"b\": \"…/z\"" in page
    assert "'c': 'no file:\\n…/b', 'd': '…/d', 'e': '…'}" in page
    assert "https://h.org/home/page'>docs/tmp/it" in page
    assert "see …/x.txt." in hub.files["report.md"].decode()
    assert "model: …/questions.csv" in hub.files["config.yaml"].decode()
    copy = download(hub, tmp_path / "copy")
    assert pd.read_parquet(copy / "results.parquet")["model"].tolist() == ["…/model", "b"]
    for word in (
        "someone",
        "some\\u00fcone",
        "long texts",
        "/opt/secret/",
        "/srv/me",
        str(tmp_path),
    ):
        assert word not in everything(hub)
    assert before == {
        name: file_digest(report / name) for name in before
    }  # the folder is as it was


def test_texts_are_uploaded_only_on_request(hub, report, audit, monkeypatch):
    for folder in (report, audit):
        assert push(monkeypatch, folder, "repo=me/mine") == 0
        assert SECRET_TEXT not in everything(hub)
    assert hub.files["questions.csv"] == b"example_id,title\n1,A Book\n"
    assert "**Leaked: yes**" in hub.files["README.md"].decode()
    assert "audit.md" not in hub.files["manifest.json"].decode().partition('"files"')[2]
    for folder in (report, audit):
        assert push(monkeypatch, folder, "repo=me/mine", "texts=true") == 0
    for name in ("examples/x.html", "questions.csv", "audit.md"):
        assert SECRET_TEXT in hub.files[name].decode()


def test_the_answer_of_an_audit_of_another_package_may_quote_texts(hub, tmp_path, monkeypatch):
    def make(folder):
        (folder / "audit.md").write_text(f"# Audit\n\n{SECRET_TEXT}\n")
        pd.DataFrame({"text": ["x"]}).to_parquet(folder / "a.parquet")
        return WrittenFiles(["audit.md", "a.parquet"])

    config = {"audit": {"_target_": "other.package.Audit"}}
    assert push(monkeypatch, build(tmp_path, "audit", config, make), "repo=me/mine") == 0
    assert SECRET_TEXT not in everything(hub)


def test_a_benchmark_without_texts_keeps_their_hashes(hub, tmp_path, monkeypatch):
    folder = benchmark(tmp_path)
    assert push(monkeypatch, folder, "repo=me/wiki") == 0
    copy = download(hub, tmp_path / "copy")
    rows = pd.read_json(copy / "data/length8.jsonl", lines=True)
    assert rows["id"].tolist() == ["d0", "d1", "d2", "d3"]
    assert not {"text", "title"} & {*rows}
    assert rows[TEXT_HASH].str.len().eq(64).all()
    assert SECRET_TEXT not in everything(hub)
    card = DatasetCard(hub.files["README.md"].decode())
    assert card.data.license == "cc-by-sa-4.0"
    assert card.data.configs[0]["data_files"] == "data/length8.jsonl"
    assert {"contamination-detection", "benchmark"} <= {*card.data.tags}
    assert "hf download me/wiki --repo-type dataset" in card.text
    assert "someone" not in everything(hub)


def test_the_texts_of_a_benchmark_are_not_changed(hub, tmp_path, monkeypatch):
    folder = benchmark(tmp_path)
    assert push(monkeypatch, folder, "repo=me/wiki", "texts=true") == 0
    assert hub.files["data/length8.jsonl"] == (folder / "data/length8.jsonl").read_bytes()


def test_a_path_beside_the_texts_of_a_benchmark_is_shortened(hub, tmp_path, monkeypatch):
    folder = benchmark(tmp_path, file=PATH)
    assert push(monkeypatch, folder, "repo=me/wiki", "texts=true") == 0
    rows = pd.read_json(download(hub, tmp_path / "copy") / "data/length8.jsonl", lines=True)
    assert {*rows["file"]} == {"…/questions.csv"}
    assert rows["text"].str.endswith("in /home/heron/nest").all()


def test_a_benchmark_needs_a_licence(hub, tmp_path, monkeypatch, capsys):
    folder = benchmark(tmp_path, license="other")
    assert push(monkeypatch, folder, "repo=me/wiki") == 2
    assert "license is '': a benchmark is uploaded only with a licence" in capsys.readouterr().err
    assert hub.requests == []
    assert push(monkeypatch, folder, "repo=me/wiki", "license=cc0-1.0") == 0
    assert DatasetCard(hub.files["README.md"].decode()).data.license == "cc0-1.0"


def test_a_dry_run_sends_nothing_and_shows_all(report, monkeypatch, capsys):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    assert push(monkeypatch, report, "repo=me/mine", "dry_run=true", "private=true") == 0
    out = capsys.readouterr().out
    assert out.startswith("data set: me/mine (private); dry run, nothing was sent\n")
    for words in (
        "absolute paths shortened",
        "left out: examples/x.html (it quotes texts",
        "AUROC",
    ):
        assert words in out
    assert read_manifest(report)["digest"] in out


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["repo=me/x"], "FOLDER is '': give one folder"),
        (["FOLDER"], "repo is '': give the owner and the name"),
        (["FOLDER", "repo=x"], "repo is 'x': give the owner and the name"),
        (["FOLDER", "repo=me/x", "privat=true"], "privat: unknown field. Did you mean private"),
        (["FOLDER", "repo=me/x", "dry_run=yes"], "dry_run is 'yes': give true or false"),
        (["nowhere", "repo=me/x"], "FOLDER is 'nowhere': there is no such folder"),
        ([".", "repo=me/x"], "has no manifest.json"),
    ],
)
def test_what_is_given_wrongly_is_named(report, monkeypatch, capsys, words, error):
    given = [report if word == "FOLDER" else word for word in words]
    assert push(monkeypatch, *given) == 2
    assert error in capsys.readouterr().err


def test_only_results_and_benchmarks_are_uploaded(tmp_path, monkeypatch, capsys):
    def make(folder):
        (folder / "hf").mkdir()
        (folder / "hf" / "weights").touch()
        return WrittenFiles(["hf/weights"])

    assert push(monkeypatch, build(tmp_path, "model", {}, make), "repo=me/x", "dry_run=true") == 2
    assert "contains a model of schema" in capsys.readouterr().err


def test_a_damaged_folder_is_not_uploaded(hub, report, monkeypatch, capsys):
    (report / "report.md").write_text("# r\n\nAUROC 1.0.\n\n## Cell\n\nsee /tmp/a-b/x.txt.\n")
    assert push(monkeypatch, report, "repo=me/x") == 2
    assert "is damaged: report.md has the SHA-256" in capsys.readouterr().err
    assert hub.requests == []


@pytest.mark.parametrize(
    ("variable", "secret", "kind"),
    [
        ("HF_TOKEN", TOKEN, "the token of the Hugging Face hub"),
        ("MY_SERVER_KEY", "8-signs.", "environment variable MY_SERVER_KEY"),
        ("KEYS", "hf_" + "Z9y8" * 8, "a token of the Hugging Face hub"),
        ("KEYS", "sk-" + "abcdefghij" * 3, "an API key"),
    ],
)
@pytest.mark.parametrize("file", ["report.md", "table.csv", "table.parquet"])
def test_a_secret_stops_the_upload(
    tmp_path, hub, monkeypatch, capsys, variable, secret, kind, file
):
    monkeypatch.setenv(variable, secret)

    def make(folder):
        table = pd.DataFrame({"note": [f"the key is {secret}"]})
        (folder / "report.md").write_text(f"{secret}\n" if file == "report.md" else "# r\n")
        table.to_csv(folder / "table.csv") if file == "table.csv" else None
        table.to_parquet(folder / "table.parquet") if file == "table.parquet" else None
        return WrittenFiles(sorted({"report.md", file}))

    assert push(monkeypatch, build(tmp_path / "runs", "report", {}, make), "repo=me/x") == 2
    err = capsys.readouterr().err
    assert f"{file} contains " in err
    assert kind in err
    assert secret not in err
    assert hub.requests == []


def test_without_a_token_or_a_hub_the_remedy_is_named(hub, report, monkeypatch, capsys):
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", "/nowhere")
    assert push(monkeypatch, report, "repo=me/x") == 2
    assert "there is no token for the hub" in capsys.readouterr().err
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert push(monkeypatch, report, "repo=me/x") == 2
    err = capsys.readouterr().err
    assert "repo is 'me/x': the hub can't be reached" in err
    assert "dry_run=true" in err
    assert hub.requests == []


@pytest.mark.parametrize(
    ("request_", "status", "said"),
    [
        (
            "POST /api/repos/create",
            403,
            "the hub refused (403: no write access no licence). Give a token",
        ),
        (
            "POST /api/repos/create",
            500,
            "the hub failed (500: no write access no licence). Try again",
        ),
        ("commit/main", 400, "the hub refused (400: no write access no licence)"),
        ("validate-yaml", 400, "the hub refused: Invalid metadata in README.md. - no licence"),
    ],
)
def test_what_the_hub_refuses_is_said(hub, report, monkeypatch, capsys, request_, status, said):
    answer = {"error": "no write access", "errors": [{"message": "no licence"}], "warnings": []}
    hub.failures = {request_: (status, answer), "GET ": (404, answer)}
    assert push(monkeypatch, report, "repo=me/x") == 2
    err = capsys.readouterr().err
    assert f"repo is 'me/x': {said}" in err
    assert len(err.splitlines()) == 1
    assert hub.files == {}


def test_a_wrong_token_is_not_repeated(hub, report, monkeypatch, capsys):
    other = "hf_" + "q" * 30
    monkeypatch.setenv("HF_TOKEN", other)
    assert push(monkeypatch, report, "repo=me/x") == 2
    err = capsys.readouterr().err
    assert "the hub refused (401: Invalid credentials Bearer ***" in err
    assert other not in err


def test_a_public_data_set_gets_nothing_private(hub, report, monkeypatch, capsys):
    assert push(monkeypatch, report, "repo=me/x") == 0
    commits = [*hub.commits]
    assert push(monkeypatch, report, "repo=me/x", "private=true") == 2
    assert "exists and is public" in capsys.readouterr().err
    assert hub.commits == commits


def test_no_connection_is_a_users_error(hub, report, monkeypatch, capsys):
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert push(monkeypatch, report, "repo=me/x") == 2
    assert "the connection to the hub failed" in capsys.readouterr().err


def test_the_command_uploads_to_the_hub_of_the_environment(report):
    with running_hub() as hub:
        variables = {"HF_ENDPOINT": hub.endpoint, "HF_TOKEN": TOKEN, "HF_HUB_DISABLE_XET": "1"}
        code = "from contamination.launch.cli import main; import sys; sys.exit(main())"
        environment = {**os.environ, **variables, "HF_HUB_OFFLINE": "0"}
        call = [sys.executable, "-W", "error::UserWarning", "-c", code, "push", str(report)]
        done = subprocess.run(
            [*call, "repo=me/mine"], env=environment, capture_output=True, text=True,
            cwd=Path(__file__).resolve().parents[2], timeout=120,
        )  # fmt: skip
        assert (done.returncode, done.stdout.partition("\n")[0]) == (
            0, f"data set: {hub.endpoint}/datasets/me/mine/commit/{'1' * 40}",
        ), done.stderr  # fmt: skip
        assert "results.parquet" in hub.files


UPLOADED = """data set: me/mine (private); dry run, nothing was sent
from: {folder} (SHA-256 {short}…)
  file             bytes  changed for the upload
  charts/a.png     4      -
  config.yaml      34     absolute paths shortened
  report.html      173    absolute paths shortened
  report.md        41     absolute paths shortened
  results.parquet  {table}  absolute paths shortened
  README.md        {card}  written for the upload
  manifest.json    {manifest}  of the files as uploaded
left out: examples/x.html (it quotes texts; texts=true uploads it)

"""
CARD = """---
license: mit
pretty_name: {name}
tags:
- contamination-testbed
- report
---

# {name}

Report of an experiment with known contamination: how well methods tell members (texts that the \
model was trained on) from non-members. Start with report.md.

AUROC 0.9.

## Use it

```
hf download me/mine --repo-type dataset --local-dir runs/report/{name}
python -c 'import contamination as c; print(c.open_report("runs/report/{name}").pooled)'
```

`contamination check` compares the download with its manifest.json.

## What it is

|  |  |
| --- | --- |
| kind | report |
| name | {name} |
| SHA-256 of the content | {digest} |
| made by | contamination-testbed {version} ({revision}) |
| input x | {input} |
| cells | 1 |

The configuration is in config.yaml, and the SHA-256 of each file in manifest.json.

## Changed for the upload

| file | what |
| --- | --- |
| config.yaml | absolute paths shortened |
| report.html | absolute paths shortened |
| report.md | absolute paths shortened |
| results.parquet | absolute paths shortened |
| examples/x.html | left out: it quotes texts; texts=true uploads it |"""


def test_what_is_uploaded_and_the_card_are_written_out(report):
    original = read_manifest(report)
    output = upload(str(report), "me/mine", dry_run=True, private=True, license="mit")
    assert "license" not in upload(str(report), "me/mine", dry_run=True)
    prepared = prepare_upload(report, "me/mine", texts=False, license="mit")
    assert (prepared.folder, prepared.digest) == (report, original["digest"])
    assert prepared.left_out == {"examples/x.html": "it quotes texts; texts=true uploads it"}
    size = {file.name: file.size for file in prepared.files}
    listing = UPLOADED.format(
        folder=report, short=original["digest"][:12], table=f"{size['results.parquet']:<5,}",
        card=f"{size['README.md']:<5,}", manifest=f"{size['manifest.json']:<5,}",
    )  # fmt: skip
    card = CARD.format(name=report.name, input="1" * 64, **original)
    assert output == listing + card
    assert prepared.card == card + "\n"


def test_the_manifest_is_of_the_files_as_they_are_uploaded(report, tmp_path):
    original = read_manifest(report)
    prepared = prepare_upload(report, "me/mine", texts=False, license="")
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "manifest.json").write_bytes(prepared.files[-1].content)
    manifest = read_manifest(copy)
    contents = {file.name: file for file in prepared.files[:-2]}
    assert [file.name for file in prepared.files[-2:]] == ["README.md", "manifest.json"]
    for field, names in (
        ("files", ["charts/a.png", "report.md", "results.parquet"]),
        ("records", ["config.yaml", "report.html"]),
    ):
        assert manifest[field] == {name: contents[name].sha256 for name in names}
    assert manifest["bytes"] == {name: file.size for name, file in contents.items()}
    assert manifest["digest"] == combined_digest(manifest["files"]) != original["digest"]
    assert manifest["digest_before_upload"] == original["digest"]
    for name in ("kind", "schema", "version", "revision", "inputs", "counts"):
        assert manifest[name] == original[name]
    assert manifest["identity"] == {"cells": [{"model": "…/questions.csv"}]}


def test_the_fields_of_a_push_and_their_defaults(tmp_path):
    assert parse_words([str(tmp_path)]) == {
        "folder": str(tmp_path), "repo": "", "private": False, "dry_run": False, "texts": False,
        "license": "",
    }  # fmt: skip
    words = ["repo=a/b", "private=true", "dry_run=true", "texts=true", "license=mit", "folder"]
    assert parse_words(words) == {
        "folder": "folder", "repo": "a/b", "private": True, "dry_run": True, "texts": True,
        "license": "mit",
    }  # fmt: skip
    folder = tmp_path / "a=b"
    folder.mkdir()
    assert parse_words([str(folder), "repo=a/b"])["folder"] == str(folder)


@pytest.mark.parametrize(
    ("config", "is_shown"),
    [
        ({"audit": {"_target_": "contamination.audits.books.audit.Books"}}, True),
        ({"audit": {}}, True),
        ({}, True),
        ({"audit": {"_target_": "other.package.Audit"}}, False),
    ],
)
def test_a_card_begins_with_the_answer_of_an_own_audit(tmp_path, config, is_shown):
    def make(folder):
        (folder / "audit.md").write_text("# Audit\n\n**Leaked: ü**.\nMore.\n| a |\n## Q\nx\n")
        return WrittenFiles(["audit.md"])

    folder = build(tmp_path, "audit", config, make)
    card = prepare_upload(folder, "me/mine", texts=False, license="").card
    about = "Audit of a language model. Start with audit.md, if it is here, or the tables."
    answer = "**Leaked: ü**.\nMore.\n\n" if is_shown else ""
    assert f"{about}\n\n{answer}## Use" in card
    assert f"cat runs/audit/{folder.name}/*.csv\n```" in card


def test_only_a_finished_folder_of_todays_schema_is_uploaded(tmp_path, report):
    unfinished = tmp_path / "unfinished"
    unfinished.mkdir()
    kinds = "of one of these kinds: report, scores, audit, benchmark."
    with pytest.raises(ArtifactError, match=f"no stage wrote it. Give a finished folder .*{kinds}"):
        prepare_upload(unfinished, "me/x", texts=False, license="")
    manifest = verified_json((report / "manifest.json").read_text())
    (report / "manifest.json").write_text(hashed_json({**manifest, "schema": 99}))
    with pytest.raises(ArtifactError, match=f"contains a report of schema 99: give .*{kinds}"):
        prepare_upload(report, "me/x", texts=False, license="")


NO_KNOWN_VALUES = Redaction([], {})


@pytest.mark.parametrize(
    ("text", "published"),
    [
        ("/home/heron", "…"),
        ("/Users/heron/", "…"),
        ("/root/heron", "…/heron"),
        ("/home/heron/x", "…/x"),
        ("/mnt/a/b.c, (/tmp/x) and /scratch/y", "…/b.c, (…/x) and …/y"),
        ("file:///data/a/b", "file://…/b"),
        ("\\/home\\/some\\/z", "…/z"),
        ("%2Ftmp%2Fabc &#x2f;tmp&#47;d \\u002ftmp\\u002Fe", "…/abc …/d …/e"),
        ("/dev/null /proc/1/maps /tmp", "/dev/null /proc/1/maps /tmp"),
        ("https://h.org/home/page a/tmp/b ../tmp/c", "https://h.org/home/page a/tmp/b ../tmp/c"),
    ],
)
def test_a_path_of_a_machine_is_shortened_to_its_name(text, published):
    assert NO_KNOWN_VALUES.hide_paths(text) == published


def test_known_paths_are_shortened_wherever_they_stand():
    redaction = Redaction(["/own place/of/x.csv", "/own place/of"], {})
    text = "a/own place/of/x.csv and /own place/of."
    assert redaction.hide_paths(text) == "a…/x.csv and …/of."
    nested = {"/home/a/b": ["/tmp/c", 3, None, {"x": "/own place/of", "y": True}]}
    assert redaction.hide_paths_in(nested) == {"…/b": ["…/c", 3, None, {"x": "…/of", "y": True}]}


def test_paths_and_secrets_are_those_of_the_configuration_and_the_environment(
    tmp_path, monkeypatch
):
    variables = {
        "HERON_SERVER": "12345678", "HERON_PASSWORD": "password", "HERON_KEY": "7-signs",
        "HERON_ROOM": "87654321", "HERON_POOL": "7-wings", "my_token": "a token.",
        "HF_TOKEN": "hf_of_the_hub",
    }  # fmt: skip
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    config = {
        "a": [{"key_env": "HERON_SERVER"}, ["/far/away", "a/b/c/d", 3], "HERON_POOL"],
        "b": {"c": "/far/away/questions.csv"}, "d": "/far", "e": None,
    }  # fmt: skip

    def make(folder):
        (folder / "report.md").write_text("# r\n")
        return WrittenFiles(["report.md"])

    redaction = Redaction.of(build(tmp_path, "report", config, make))
    assert redaction.known_paths == ["/far/away/questions.csv", "/far/away"]
    kinds_of_values = {value: redaction.secrets.get(value) for value in variables.values()}
    of = "the value of the environment variable"
    assert kinds_of_values == {
        "12345678": f"{of} HERON_SERVER", "password": f"{of} HERON_PASSWORD", "7-signs": None,
        "87654321": None, "7-wings": None, "a token.": f"{of} my_token",
        "hf_of_the_hub": "the token of the Hugging Face hub",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("secret", "kind"),
    [
        ("hf_" + "a" * 20, "a token of the Hugging Face hub"),
        ("sk-" + "a-_0" * 5, "an API key"),
        ("ghp_" + "a" * 30, "a token of GitHub"),
        ("AKIA" + "A0" * 8, "a key of AWS"),
        ("-----BEGIN RSA PRIVATE KEY-----", "a private key"),
        ("the own one", "what I know"),
    ],
)
@pytest.mark.parametrize("name", ["a.md", "a.csv", "a.jsonl", "a.parquet"])
def test_each_kind_of_secret_is_named_and_not_repeated(tmp_path, secret, kind, name):
    table = pd.DataFrame({"id": ["x", "y"], "note": ["", f"an {secret}"]})
    {
        "a.md": lambda file: file.write_text(secret),
        "a.csv": lambda file: table.to_csv(file, index=False),
        "a.jsonl": lambda file: table.to_json(file, orient="records", lines=True),
        "a.parquet": table.to_parquet,
    }[name](tmp_path / name)
    with pytest.raises(DataError) as raised:
        publish_file(tmp_path, "report", name, True, Redaction([], {"the own one": "what I know"}))
    message = (
        f"{name} contains {kind}, so nothing was uploaded; the value is not repeated here. Run its "
        "stage again without it, and replace a key that others have seen."
    )
    assert str(raised.value) == message
    (tmp_path / "b.md").write_text("hf_short sk-short xAKIA AKIAAAAA")
    published = publish_file(tmp_path, "report", "b.md", True, NO_KNOWN_VALUES)
    assert published.content == tmp_path / "b.md"


ROWS = "id,text,file,number\n1,ä in /home/a/b,/home/a/b,2\n2,,,3\n"
LINES = (
    '{"id": "ü", "text": "ä in /home/a/b", "file": "/home/a/b", "label": 1, "created": null}\n'
    '{"id": "/tmp/z", "label": 0, "length": 8.5}\n'
)
CHANGED = "absolute paths shortened"


@pytest.mark.parametrize(
    ("kind", "texts", "content", "remark"),
    [
        ("audit", False, "id,file,number\n1,…/b,2\n2,,3\n", f"texts removed, {CHANGED}"),
        ("audit", True, ROWS.replace(",/home/a/b,", ",…/b,"), CHANGED),
        ("benchmark", False, "id\n1\n2\n", "texts removed"),
    ],
)
def test_a_published_csv_file_is_written_out(tmp_path, kind, texts, content, remark):
    (tmp_path / "a.csv").write_text(ROWS)
    published = publish_file(tmp_path, kind, "a.csv", texts, NO_KNOWN_VALUES)
    assert (published.name, published.remark) == ("a.csv", remark)
    assert published.content.decode() == content
    assert published.size == len(content.encode())
    assert published.sha256 == hashlib.sha256(content.encode()).hexdigest()


def test_published_json_lines_are_written_out(tmp_path):
    (tmp_path / "a.jsonl").write_text(LINES)
    digest = hashlib.sha256("ä in /home/a/b".encode()).hexdigest()
    without_texts = publish_file(tmp_path, "benchmark", "a.jsonl", False, NO_KNOWN_VALUES)
    assert without_texts.content.decode() == (
        f'{{"id": "ü", "label": 1, "created": null, "text_sha256": "{digest}"}}\n'
        '{"id": "…/z", "label": 0, "length": 8.5}\n'
    )
    assert without_texts.remark == f"texts removed, {CHANGED}"
    with_texts = publish_file(tmp_path, "benchmark", "a.jsonl", True, NO_KNOWN_VALUES)
    published_lines = LINES.replace('"/home/a/b"', '"…/b"').replace("/tmp/z", "…/z")
    assert (with_texts.content.decode(), with_texts.remark) == (published_lines, CHANGED)


def test_a_published_parquet_file_keeps_its_columns_and_types(tmp_path):
    columns = {
        "a": pa.array(["/tmp/x", None], pa.large_string()), "text": pa.array(["/tmp/y", "z"]),
        "n": pa.array([1, 2], pa.int8()), "b": pa.array(["u", "/tmp/v w"]),
    }  # fmt: skip
    table = pa.table(columns).replace_schema_metadata({"made in": "/tmp/q"})
    pq.write_table(table, tmp_path / "a.parquet")
    without_texts = publish_file(tmp_path, "report", "a.parquet", False, NO_KNOWN_VALUES)
    assert (without_texts.name, without_texts.remark) == ("a.parquet", f"{CHANGED}, texts removed")
    file = pq.ParquetFile(BytesIO(without_texts.content))
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"
    assert file.schema_arrow.metadata is None
    published_table = file.read()
    assert published_table.to_pydict() == {"a": ["…/x", None], "n": [1, 2], "b": ["u", "…/v w"]}
    assert published_table.schema.types == [pa.large_string(), pa.int8(), pa.string()]
    with_texts = publish_file(tmp_path, "report", "a.parquet", True, NO_KNOWN_VALUES)
    assert pq.read_table(BytesIO(with_texts.content))["text"].to_pylist() == ["/tmp/y", "z"]
    assert with_texts.remark == CHANGED


def test_a_file_in_which_nothing_is_to_be_hidden_is_uploaded_itself(tmp_path):
    (tmp_path / "a.md").write_text("ä\n")
    (tmp_path / "a.csv").write_text("id,n\n1,2\n")
    (tmp_path / "a.jsonl").write_text('{"id":1}\n')
    pd.DataFrame({"n": [1], "name": ["x"]}).to_parquet(tmp_path / "a.parquet")
    (tmp_path / "a.pdf").write_bytes(b"/home/a/b")
    for file in tmp_path.iterdir():
        published = publish_file(tmp_path, "report", file.name, False, NO_KNOWN_VALUES)
        assert (published.name, published.content, published.remark) == (file.name, file, "")
        assert (published.size, published.sha256) == (file.stat().st_size, file_digest(file))
    (tmp_path / "b.md").write_text("ä /home/a/b\n")
    published = publish_file(tmp_path, "report", "b.md", False, NO_KNOWN_VALUES)
    assert (published.content.decode(), published.remark) == ("ä …/b\n", CHANGED)


def test_which_files_are_left_out_and_why(tmp_path):
    names = ["examples/a.html", "examples.md", "a.bin", "audit.md", "report.html", "t.parquet"]
    pd.DataFrame({"n": [1]}).to_parquet(tmp_path / "t.parquet")
    unknown = {"a.bin": "its type of file can't be checked for paths and texts"}
    quoting = "it quotes texts; texts=true uploads it"
    pages = {"examples/a.html": quoting}
    assert find_left_out(tmp_path, "report", names, False) == unknown | pages
    assert find_left_out(tmp_path, "report", names, True) == unknown
    assert find_left_out(tmp_path, "audit", names, False) == unknown | pages
    pd.DataFrame({"n": [1], "prompt": ["x"]}).to_parquet(tmp_path / "t.parquet")
    of_audit = unknown | pages | {"audit.md": quoting, "report.html": quoting}
    assert find_left_out(tmp_path, "audit", names, False) == of_audit
    assert find_left_out(tmp_path, "report", names, False) == unknown | pages
    assert find_left_out(tmp_path, "audit", names[4:], False) == {"report.html": quoting}
