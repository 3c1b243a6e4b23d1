"""The golden model, a tiny model with one text learnt by heart, and their passes."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from contamination.core.models import load_model
from contamination.detection.config import DetectionConfig
from contamination.detection.models.causal_lm import CausalLM
from contamination.detection.models.hf_model import HFModel
from contamination.detection.pass_collector import Collector
from contamination.detection.view_resources import Resources, open_prefix
from tests.detection import golden
from tests.detection.masked import save_masked_model

MEMORISED = "The heron waits in the reeds until the river is quiet, and only then does it move."
NOUNS = ("cat", "dog", "hen", "man", "fox", "boy", "cow", "pig")
UNSEEN = "A ladder leans on the orchard wall, but nobody has picked the pears since last week."


@pytest.fixture(scope="session")
def golden_folder():
    return golden.GOLDEN / "target"


@pytest.fixture(scope="session")
def tokenizer(golden_folder):
    return AutoTokenizer.from_pretrained(golden_folder)


@pytest.fixture(scope="session")
def model(golden_folder):
    return load_model("model.path", str(golden_folder))


@pytest.fixture(scope="session")
def decoder(model):
    return CausalLM(model)


def tiny_llama(**changed):
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=1024, hidden_size=32, intermediate_size=64, num_hidden_layers=1,
        num_attention_heads=2, max_position_embeddings=128, bos_token_id=1, eos_token_id=2,
        **changed,
    )  # fmt: skip
    return LlamaForCausalLM(config)


@pytest.fixture(scope="session")
def toy_folders(tmp_path_factory, tokenizer):
    """A tiny model before (`reference`) and after (`target`) it learns MEMORISED by heart."""
    net, folders = tiny_llama(), {}
    for role, steps in (("reference", 0), ("target", 40)):
        ids = torch.tensor([tokenizer(MEMORISED)["input_ids"]])
        optimizer = torch.optim.AdamW(net.parameters(), lr=2e-2)
        for _ in range(steps):
            net(input_ids=ids, labels=ids).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        folders[role] = tmp_path_factory.mktemp(role)
        net.save_pretrained(folders[role])
        tokenizer.save_pretrained(folders[role])
    return folders


@pytest.fixture(scope="session")
def toy_models(toy_folders):
    return {
        role: HFModel.from_path(f"{role}.path", str(path)) for role, path in toy_folders.items()
    }


@pytest.fixture(scope="session")
def masked_folder(tmp_path_factory):
    return save_masked_model(tmp_path_factory.mktemp("masked"))


@pytest.fixture(scope="session")
def prefix_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("prefix") / "nonmembers.txt"
    path.write_text("".join(f"A {noun} sits by the old road.\n" for noun in NOUNS))
    return path


@pytest.fixture(scope="session")
def contrasting_prefix_file(tmp_path_factory):
    """The same texts, and as many that are said to be members."""
    path = tmp_path_factory.mktemp("prefix") / "both.jsonl"
    rows = [{"text": f"A {noun} sits by the old road."} for noun in NOUNS]
    rows += [{"text": f"The {noun} runs over the hill.", "member": True} for noun in NOUNS]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="session")
def resources(masked_folder, contrasting_prefix_file):
    """What views draw on: a tiny masked language model and a few short texts."""
    return Resources(
        masked_lm=HFModel.from_path("masked_lm.path", str(masked_folder)),
        prefix=open_prefix(str(contrasting_prefix_file)),
        device="cpu",
    )


@pytest.fixture
def collect(toy_models, resources, tmp_path):
    """Passes over some texts by the toy models: `collect(methods, texts, batch_tokens=…)`."""

    def run(methods, texts, **settings):
        settings = DetectionConfig(device="cpu", **settings)
        runs = tmp_path / f"runs-{settings.batch_tokens}-{len(list(Path(tmp_path).iterdir()))}"
        collector = Collector(runs, toy_models, texts, settings, resources)
        return collector.collect(p for method in methods for p in method.passes)

    return run
