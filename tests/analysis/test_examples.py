"""What the pages of examples take from stored scores: plain values, no class, code or server."""

import os
import re
import sys

import pytest
import yaml
from huggingface_hub import constants

from contamination.analysis import example_pages
from contamination.analysis.config import CellPaths
from contamination.analysis.example_pages import _page_config, write_example_pages
from contamination.core.artifacts import WrittenFiles, open_artifact, write_manifest
from contamination.core.errors import ArtifactError, ConfigError
from tests.faults.kinds import toy_scores

OWN = {"view": {"examples": 1}, "out": "view.html"}
LOSS = {"_target_": "contamination.detection.methods.loss.Loss"}


@pytest.fixture
def scores(tmp_path):
    """Scores whose config says more, as if they had come from elsewhere."""
    folder = toy_scores(tmp_path).folder

    def edited(**more):
        config = {**open_artifact(folder, "scores").config(), **more}
        (folder / "config.yaml").write_text(yaml.safe_dump(config))
        write_manifest(folder, {"target": "0" * 64}, WrittenFiles(["scores.parquet"]))
        return open_artifact(folder, "scores")

    return edited


def test_only_the_projects_own_methods_are_taken(scores, tmp_path, monkeypatch):
    (tmp_path / "page_payload.py").write_text("raise SystemExit('it ran')")
    monkeypatch.syspath_prepend(tmp_path)
    method = {"loss": LOSS, "mine": {"_target_": "page_payload.Mine"}}
    made = scores(method=method)
    assert [*_page_config(made, made, OWN).method] == ["loss"]
    assert "page_payload" not in sys.modules
    made = scores(method={"mine": {"_target_": "page_payload.Mine"}})
    with pytest.raises(ConfigError, match="choose methods"):
        _page_config(made, made, OWN)


def test_no_models_code_is_trusted_and_no_file_but_the_page_is_written(scores):
    made = scores(model={"path": "x", "trust_remote_code": True}, out="/etc/x", dry_run=True)
    stage = _page_config(made, made, OWN)
    assert not stage.model.trust_remote_code
    assert not stage.reference.trust_remote_code
    assert (stage.out, stage.dry_run) == ("view.html", False)


def test_no_server_is_asked_with_a_key_that_the_scores_name(scores):
    made = scores(model={"path": None, "url": "http://example.org", "key_env": "HOME"})
    with pytest.raises(ArtifactError, match="scored behind a server"):
        _page_config(made, made, OWN)


@pytest.mark.parametrize("path", ["-", "pipe", "/dev/zero"])
def test_a_page_reads_no_stream(scores, tmp_path, path):
    os.mkfifo(tmp_path / "pipe")
    path = str(tmp_path / "pipe") if path == "pipe" else path
    made = scores()
    made = scores(examples={**made.config()["examples"], "path": path})
    with pytest.raises(ArtifactError, match="a report reads files and folders only"):
        _page_config(made, made, OWN)


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ("texts.jsonl", "hf download owner/name"),
        ("owner/texts", "hf download --repo-type dataset owner/texts"),
    ],
)
def test_the_hub_is_not_asked_for_what_the_scores_name(
    scores, tmp_path, monkeypatch, caplog, texts, words
):
    """It would be asked with the user's token."""

    def no_request(*_, **__):
        raise AssertionError("a request was sent")

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("socket.getaddrinfo", no_request)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.jsonl").write_text('{"text": "a b c"}\n')
    examples = {**scores().config()["examples"], "path": texts}
    made = str(scores(model={"path": "owner/name"}, examples=examples).path)
    assert write_example_pages(tmp_path, [CellPaths(*[made] * 4)], 1) == []
    assert words in caplog.text


def test_a_config_of_many_values_is_refused(scores):
    made = scores(
        method={
            "min_k": {"_target_": "contamination.detection.methods.min_k.MinK", "k": [0.2] * 10**4}
        }
    )
    with pytest.raises(ArtifactError, match=r"has 10,\d+ values, and a page reads at most 10,000"):
        _page_config(made, made, OWN)


def test_a_config_of_the_most_values_is_read_and_one_more_is_refused(scores, monkeypatch):
    artifact = scores()
    monkeypatch.setattr(example_pages, "MOST_VALUES", 1)
    with pytest.raises(ArtifactError, match="a page reads at most 1[.]") as error:
        _page_config(artifact, artifact, OWN)
    count = int(re.search(r"has (\d+) values", str(error.value))[1])
    monkeypatch.setattr(example_pages, "MOST_VALUES", count)
    assert _page_config(artifact, artifact, OWN).method
    monkeypatch.setattr(example_pages, "MOST_VALUES", count - 1)
    with pytest.raises(ArtifactError, match=f"at most {count - 1}"):
        _page_config(artifact, artifact, OWN)


def test_no_variable_of_the_environment_is_read(scores):
    made = scores(name="${oc.env:HOME}")
    assert _page_config(made, made, OWN).name == "${oc.env:HOME}"
