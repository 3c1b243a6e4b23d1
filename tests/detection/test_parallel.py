"""Passes by two processes, and by a model spread over devices, against the usual run."""

import numpy as np
import pytest
import torch

from core.models import load_model
from detection.config import DetectionConfig
from detection.decoder import Decoder, load_decoder
from detection.infill_copies import run_branches
from detection.loaded import LoadedModel
from detection.passes import ORIGINAL, Pass
from detection.runner import FIELDS, run_batch
from detection.scored_model import open_model
from detection.views.prefix import DecoderAfter

from . import golden
from .conftest import MEMORISED, UNSEEN

PASSES = [ORIGINAL, Pass(view="infill", future=3), Pass(view="prefix", shots=2)]
PLACES = {
    "disk": "disk",
    "cpu and disk": {
        "model.embed_tokens": "cpu", "model.layers.0": "cpu", "model.layers.1": "disk",
        "model.norm": "cpu", "model.rotary_emb": "cpu", "lm_head": "disk",
    },
}  # fmt: skip


def assert_close(found, expected, rtol=1e-5):
    for one, other in zip(found, expected, strict=True):
        for field in FIELDS:
            np.testing.assert_allclose(
                getattr(one, field), getattr(other, field), rtol=rtol, atol=rtol
            )


@pytest.mark.parametrize("wanted", PASSES, ids=lambda p: p.view)
def test_two_processes_give_the_same_as_one(golden_folder, material, wanted):
    source = open_model("model.path", str(golden_folder))
    settings = [DetectionConfig(device="cpu", processes=n) for n in (1, 2)]
    one, two = (LoadedModel(source, s, material).run(wanted, golden.texts()) for s in settings)
    keys = [[(row.text_sha256, row.copy) for row in rows] for rows in (one, two)]
    assert keys[0] == keys[1]
    assert_close([row.stats for row in two], [row.stats for row in one])


def test_two_processes_for_one_text(toy_models, material):
    settings = DetectionConfig(device="cpu", processes=2)
    loaded = LoadedModel(toy_models["target"], settings, material)
    (row,) = loaded.run(ORIGINAL, [golden.text_of("a", MEMORISED)])
    assert len(row.stats) > 1


@pytest.mark.parametrize("wanted", PASSES, ids=lambda p: p.view)
def test_a_device_map_changes_nothing(toy_models, material, wanted):
    texts = [golden.text_of("a", MEMORISED), golden.text_of("b", UNSEEN)]
    settings = DetectionConfig(), DetectionConfig(device_map="auto")
    usual, spread = (LoadedModel(toy_models["target"], s, material) for s in settings)
    rows = [m.run(wanted, texts) for m in (usual, spread)]
    assert_close(*([row.stats for row in each] for each in rows))


@pytest.mark.parametrize("place", PLACES)
def test_weights_on_the_disk_change_nothing(golden_folder, decoder, tokenizer, tmp_path, place):
    layers = PLACES[place] if isinstance(PLACES[place], dict) else {"": "disk"}
    model = load_model(
        "model.path", str(golden_folder), device_map=layers, offload_folder=str(tmp_path)
    )
    assert any(weight.is_meta for weight in model.parameters())
    offloaded = Decoder(model)
    assert offloaded.plain
    assert offloaded.device == torch.device("cpu")
    sequences = [tokenizer(t)["input_ids"] for t in (MEMORISED, UNSEEN)]
    assert_close(run_batch(offloaded, sequences), run_batch(decoder, sequences))
    arguments = sequences, ["a", "b"], 8192, 3
    for one, other in zip(
        run_branches(offloaded, *arguments), run_branches(decoder, *arguments), strict=True
    ):
        assert_close(one, other)
    behind = [DecoderAfter(d, sequences[0], 1) for d in (offloaded, decoder)]
    assert_close(*(run_batch(d, sequences[1:]) for d in behind))


def test_a_device_map_is_given_to_the_loader(toy_models, monkeypatch, model):
    given = {}
    monkeypatch.setattr(
        "detection.decoder.load_model", lambda *_, **options: given.update(options) or model
    )
    load_decoder(toy_models["target"], DetectionConfig(device_map="balanced"))
    assert given == {"device_map": "balanced", "trust_remote_code": False}
