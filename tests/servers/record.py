"""Record what real servers answer, for tests that need none: `python -m tests.servers.record`.

The golden model is served by each server that tests/servers/make.sh has made, probed, and asked
about two texts. The answers stand in tests/detection/model/served/recorded/, where
test_recorded.py replays them.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from contamination.core.models import load_tokenizer
from contamination.detection.config import DetectionConfig, ScoredModelConfig
from contamination.detection.models import open_model
from contamination.detection.models.base import Prompt
from contamination.detection.models.served.client import Client
from tests.detection.golden import GOLDEN
from tests.detection.model.served.recorded import CHAT, PLACE, TEXTS, WRITTEN
from tests.servers.others import LLAMACPP, litellm, llamacpp, transformers_serve
from tests.servers.vllm import NAME, serving
from tests.servers.wide import widen

FOLDER = "tests/golden/target"  # the name by which `transformers serve` finds it here


def main(place: Path) -> None:
    """Record all."""
    golden, chatting = place / "golden.gguf", place / "chatting"
    shutil.copytree(GOLDEN / "target", chatting)
    shutil.copy(CHAT, chatting / "chat_template.jinja")
    for folder, gguf in ((GOLDEN / "target", golden), (chatting, place / "chatting.gguf")):
        script = Path(__file__).with_name("to_gguf.py")
        subprocess.run([LLAMACPP, script, folder, gguf], check=True)
    widen(str(GOLDEN / "target"), str(place / "wide"))
    with llamacpp(golden, place / "log") as url:
        record("llamacpp", url)
        model = {"model": f"text-completion-openai/{NAME}", "api_base": url}
        with litellm({"llama": model}, place / "litellm.log") as proxy:
            record("litellm-llamacpp", proxy)
    with llamacpp(place / "chatting.gguf", place / "log") as url:
        record("llamacpp-chat", url, tokenizer=str(chatting), chat=True)
    with transformers_serve(place / "log") as url:
        record("transformers", url, name=FOLDER)
        record("transformers-chat", url, name=str(chatting), tokenizer=str(chatting), chat=True)
    with serving(place / "wide", place / "log", context=512) as url:
        record("vllm", url)
        model = {"model": f"text-completion-openai/{NAME}", "api_base": url,
                 "additional_drop_params": ["echo"]}  # fmt: skip
        with litellm({"vllm": model}, place / "litellm.log") as proxy:
            record("litellm-vllm", proxy)


def record(file: str, url: str, *, chat: bool = False, **given: Any) -> None:
    """Probe the server, ask it, and write its answers."""
    given = {"tokenizer": FOLDER, **given}
    node = ScoredModelConfig(url=url, requests=2, **given)
    tokenizer = load_tokenizer("model.tokenizer", given["tokenizer"])
    with TemporaryDirectory() as runs, recording(chat) as exchanges:
        model = open_model("model", node, runs)
        loaded = model.load(DetectionConfig())
        if "logprob" in model.provides:
            texts = TEXTS[:1] if chat else TEXTS  # a part of a character is no text
            loaded.score([tokenizer(text)["input_ids"] for text in texts])
        loaded.generate([Prompt(tokenizer(text)["input_ids"][:8], WRITTEN) for text in TEXTS], 0)
    words = json.dumps(exchanges, ensure_ascii=False, separators=(",", ":"))
    words = words.replace(given.get("name", NAME), NAME)
    words = re.sub(r'"root":"[^"]*"', '"root":"golden"', words)  # a path of this machine
    (PLACE / f"{file}.json").write_text(words.replace('},{"path"', '},\n{"path"') + "\n")
    print(f"{file}: {model.probe.strategy}, {len(exchanges)} answers", flush=True)


@contextmanager
def recording(chat: bool) -> Iterator[list[dict[str, Any]]]:
    """What servers answer meanwhile; with `chat` at an address without /completions."""
    exchanges: list[dict[str, Any]] = []
    received = Client._receive_in_session

    def kept(self: Client, method: str, path: str, body: Any) -> Any:
        where = f"no/{path}" if chat and path == "completions" else path
        answer = received(self, method, where, body)
        try:
            content = answer.json()
        except ValueError:
            content = answer.text
        exchange = {"path": path, "body": body, "status": answer.status_code, "answer": content}
        if exchange["body"] not in [one["body"] for one in exchanges if one["path"] == path]:
            exchanges.append(exchange)
        return answer

    with ExitStack() as stack:
        stack.enter_context(patch.object(Client, "_receive_in_session", kept))
        yield exchanges


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        main(Path(sys.argv[1]) if sys.argv[1:] else Path(folder))
