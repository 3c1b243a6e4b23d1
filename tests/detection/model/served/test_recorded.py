"""What real servers answered about the golden model, replayed: their forms stay understood.

The servers are recorded by tests/servers/record.py: llama.cpp (xllamacpp 2026.10), vLLM 0.32,
transformers 5.23 and litellm 1.106.
"""

import json
import shutil

import numpy as np
import pytest

from contamination.detection.config import DetectionConfig, ScoredModelConfig
from contamination.detection.models import open_model
from contamination.detection.models.base import Prompt
from tests.detection.model.served.conftest import FOLDER
from tests.detection.model.served.recorded import CHAT, PLACE, TEXTS, WRITTEN
from tests.detection.model.served.server import Server

NATS = 1e-5
"""How far a server's float32 may be from this process's."""
FOUND = {
    "llamacpp": ("token ids", "forced token, raw"),
    "litellm-llamacpp": ("token ids", "forced token, raw"),
    "llamacpp-chat": ("chats, and continues an answer that is begun", "forced token, raw"),
    "transformers": ("text", "sampling only"),
    "transformers-chat": ("chats, and only answers", "sampling only"),
    "vllm": ("token ids", "prompt log-probabilities"),
    "litellm-vllm": ("token ids", "prompt_logprobs"),
}
"""Recording → what the server takes, and the way to its log-probabilities."""


class Recorded(Server):
    """Answers as the real server did; a request that it was not sent is an error."""

    def read(self, file):
        exchanges = json.loads((PLACE / f"{file}.json").read_text())
        self.answers = {_key(one["path"], one["body"]): one for one in exchanges}
        self.model = next(one["body"]["model"] for one in exchanges if one["body"])
        return self

    def answer(self, path, body):
        found = self.answers.get(_key(path.removeprefix("/v1/"), body))
        return (found["status"], found["answer"]) if found else (418, f"not recorded: {body}")


def _key(path, body):
    return json.dumps([path, body], sort_keys=True)


@pytest.mark.parametrize("file", FOUND)
def test_a_real_servers_answers_are_understood(file, decoder, tmp_path):
    folder = shutil.copytree(FOLDER, tmp_path / "golden")
    chat = file.endswith("chat")
    if chat:
        shutil.copy(CHAT, folder / "chat_template.jinja")
    with Recorded().read(file) as server:
        node = ScoredModelConfig(
            url=server.url, tokenizer=str(folder), name=server.model, requests=2
        )
        model = open_model("model", node, str(tmp_path / "runs"))
        tokenizer, loaded = model.tokenizer(), model.load(DetectionConfig())
        texts = [tokenizer(text)["input_ids"] for text in TEXTS]
        assert (str(model.probe.dialect), model.probe.strategy) == FOUND[file]
        if "logprob" in model.provides:
            shown = loaded.score(texts[:1] if chat else texts)
            exact = [_in_chat(tokenizer, decoder, texts[0])] if chat else decoder.score(texts)
            for one, local in zip(shown, exact, strict=False):
                length = len(one.logprob)
                np.testing.assert_allclose(one.logprob, local.logprob[-length:], atol=NATS)
        prompts = [Prompt(ids[:8], WRITTEN) for ids in texts]
        written = loaded.generate(prompts, 0)
        if not chat:
            assert written == decoder.generate(prompts, 0)


def _in_chat(tokenizer, decoder, ids):
    """The model's own numbers of the text as an answer; llama.cpp puts BOS before the template."""
    from contamination.detection.models.served.chat import REQUEST

    asked = [{"role": "user", "content": REQUEST}]
    before = tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True)
    return decoder.score([[*tokenizer(before)["input_ids"], *ids[1:]]])[0]
