"""What comes after the scores works on a served model as on one in files."""

import logging
from dataclasses import replace

import numpy as np
import pytest

from contamination.core.errors import ArtifactError
from contamination.detection.api import evaluate, score
from contamination.detection.config import ScoredModelConfig, ViewStage
from contamination.detection.run import run
from contamination.detection.tasks.config import OnlineConfig, OnlineStage
from contamination.detection.tasks.online import run as score_windows
from contamination.detection.viewer.run import run as write_page
from tests.detection.conftest import MEMORISED, UNSEEN
from tests.detection.model.served.conftest import FOLDER, NODES
from tests.detection.model.served.server import Server
from tests.rounding import FORWARD


def test_a_contaminated_model_is_audited_from_python(toy_folders):
    texts, labels = [MEMORISED, UNSEEN], [1, 0]
    with Server(folder=toy_folders["target"], context=128) as server:
        model = {"url": server.url, "tokenizer": str(toy_folders["target"])}
        scores = score(texts, model, ["loss", "min_k"], labels=labels)
    table = evaluate(scores, texts, labels=labels, blind=False)
    assert (table[table["metric"] == "auroc"]["value"] == 1).all()
    local = score(texts, toy_folders["target"], ["loss", "min_k"], device="cpu")
    assert scores["score"].tolist() == pytest.approx(local["score"].tolist(), abs=FORWARD)


@pytest.mark.parametrize("names_ids", [True, False])
def test_windows_and_pages(stage, tmp_path, names_ids):
    own = stage(None)
    with Server(names_ids=names_ids) as server:
        served = replace(own, model=ScoredModelConfig(url=server.url, tokenizer=str(FOLDER)))
        tables = [
            score_windows(OnlineStage(
                own.runs, 0, own.examples, one.model, own.method, own.detection, OnlineConfig(16)
            ))[0]
            for one in (own, served)
        ]  # fmt: skip
        np.testing.assert_allclose(*(t["score"] for t in tables), rtol=1e-5, atol=FORWARD)
        run(served)
        fields = {name: getattr(served, name) for name in vars(served)}
        page = write_page(ViewStage(**{**fields, "out": str(tmp_path / "view.html")}))
    shown = page.read_text()
    assert ('"z":' in shown, '"rank":' in shown) == (False, names_ids)


def test_a_page_leaves_out_what_no_server_gives(stage, tmp_path, caplog):
    """As its own default methods are."""
    caplog.set_level(logging.INFO)
    with Server() as server:
        served = stage(server.url, ("loss",))
        fields = {name: getattr(served, name) for name in vars(served)}
        words = rf"run `.* model.url=\S+ model.tokenizer={FOLDER} method=loss "
        with pytest.raises(ArtifactError, match=words):
            write_page(ViewStage(**{**fields, "out": str(tmp_path / "view.html")}))
        run(served)
        fields["method"] = {name: NODES[name] for name in ("loss", "min_k_plus_plus", "infilling")}
        page = write_page(ViewStage(**{**fields, "out": str(tmp_path / "view.html")})).read_text()
    assert "infilling, min_k_plus_plus: not stored" in page
    assert "min_k_plus_plus is left out: it needs mean, std of the target model" in caplog.text
