"""`python -m launch push`: what reaches the hub, what does not, and what is said when it can't."""

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from huggingface_hub import DatasetCard, constants

from contamination.core.artifacts import WrittenFiles, build_or_open, open_artifact, run_folder
from contamination.core.hashing import file_digest
from contamination.core.integrity import ALWAYS, find_damages, read_manifest
from contamination.detection.building.datasheet import write_benchmark
from contamination.launch.__main__ import main
from contamination.launch.publishable import TEXT_HASH
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
