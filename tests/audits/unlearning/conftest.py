"""An audit of tiny models: one that learnt texts by heart, one that half unlearnt them, a twin."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from contamination.audits.base import AuditStage
from contamination.detection.config import DetectionConfig
from tests.detection.conftest import MEMORISED, UNSEEN, tiny_llama
from tests.detection.golden import GOLDEN, examples
from tests.detection.model.served.conftest import NODES

WEIGHTS = "model.safetensors"


@pytest.fixture(scope="session")
def rows():
    """Texts with labels: members are what the original learnt."""
    texts = [MEMORISED, UNSEEN, *(one["text"][:160] for one in examples()[:6])]
    return [{"text": text, "label": 1 - place % 2} for place, text in enumerate(texts)]


@pytest.fixture(scope="session")
def folders(tmp_path_factory, tokenizer, rows):
    """Model folders by role; `half` has the mean of the weights before and after."""
    net, found = tiny_llama(), {}
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    members = [tokenizer(row["text"])["input_ids"] for row in rows if row["label"]]
    for role, steps in (("clean", 0), ("original", 12)):
        for ids in (torch.tensor([one]) for _ in range(steps) for one in members):
            net(input_ids=ids, labels=ids).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        found[role] = tmp_path_factory.mktemp(role)
        net.save_pretrained(found[role])
        tokenizer.save_pretrained(found[role])
    found["half"] = tmp_path_factory.mktemp("half")
    shutil.copytree(found["clean"], found["half"], dirs_exist_ok=True)
    both = [load_file(found[role] / WEIGHTS) for role in ("original", "clean")]
    mixed = {name: (both[0][name] + both[1][name]) / 2 for name in both[0]}
    save_file(mixed, found["half"] / WEIGHTS, metadata={"format": "pt"})
    return found


@pytest.fixture
def stage(tmp_path, folders, rows):
    """`stage(texts=…, …)`: fields of the audit, beside those of its YAML."""

    def make(texts=rows, methods=("loss", "min_k"), **given):
        file = tmp_path / "texts.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in texts))
        node = {
            "_target_": "contamination.audits.unlearning.audit.Unlearning",
            "original": str(folders["original"]), "unlearned": {"half": str(folders["half"])},
            "clean": str(folders["clean"]), "texts": str(file), "completions": 2,
        } | given  # fmt: skip
        return AuditStage(
            audit={name: value for name, value in node.items() if value is not None},
            runs=str(tmp_path / "runs"),
            method={name: NODES[name] for name in methods},
            detection=DetectionConfig(device="cpu"),
        )

    return make


@pytest.fixture(scope="session")
def golden():
    return str(GOLDEN / "target")
