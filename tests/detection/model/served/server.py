"""A server that answers as the OpenAI-compatible APIs document, and badly where it is told to.

It runs the golden model in a thread of this process. `Server(prompt=False, shows="biased")`.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch

from contamination.core.models import load_model, load_tokenizer
from contamination.detection.models.base import Prompt
from contamination.detection.models.causal_lm import CausalLM
from tests.detection.golden import GOLDEN

NAME = "golden"


@dataclass
class Server:
    """What the server does.

    Attributes:
        folder: the model's.
        prompt: whether it shows log-probabilities of the prompt.
        ids: whether it takes token ids; otherwise text.
        names_ids: whether it writes tokens by their ids.
        shows: of a generated token `raw` or `biased` log-probabilities, `list` (raw, but of the
            likeliest tokens only), or `nothing`.
        bias: whether it takes a logit_bias.
        most: the most log-probabilities a place.
        key: what it wants to be given.
        says_key: whether an error quotes the key.
        fails: what it answers first, one a request: (status, headers), or `cut`.
        slow: seconds before each answer.
        extra: how many tokens too many it counts.
        chat: whether it has no /completions.
        chats: how it chats: `continues` an answer that is begun, `answers` alone, `closes` the
            answer that is begun and begins another, or None: not at all. The folder's tokenizer has
            the template.
        content: whether it shows log-probabilities in the form of chats, as llama.cpp does.
        hides: whether it shows nothing of a token that is a part of a character, as llama.cpp does.
        parameter: whether it knows `prompt_logprobs`.
        lists: the models that it lists, or the status by which it refuses to; None: its own.
        context: the most tokens that it takes.
        says_context: whether /models tells it.
        noise: nats by which answers differ, drawn anew for each.
        changes_after: answers after which it runs another model.
        another: how far that one's logits are off.
        impossible: a token of probability 0.
        judges: what it answers at /chat/completions to a question; None: it has none.
        decimals: of the log-probabilities that it shows.
        greedy: whether it writes the likeliest tokens at temperature 0, and takes seeds.
        echo: what becomes of `echo` where it is not known: the status that refuses it, or
            `ignored`, with as many tokens written as it pleases.
        alters: what it makes of each answer at last, `alters(body, answer)`.
    """

    folder: Any = GOLDEN / "target"
    prompt: bool = True
    ids: bool = True
    names_ids: bool = True
    shows: str = "raw"
    bias: bool = True
    most: int = 20
    key: str | None = None
    says_key: bool = False
    fails: list[Any] = field(default_factory=list)
    slow: float = 0.0
    extra: int = 0
    chat: bool = False
    chats: str | None = None
    content: bool = False
    hides: bool = False
    parameter: bool = False
    lists: list[str] | int | None = None
    context: int = 512
    says_context: bool = True
    noise: float = 0.0
    changes_after: int | None = None
    another: float = 0.0
    impossible: int | None = None
    judges: Any = None
    decimals: int = 17
    greedy: bool = True
    drawn: Any = field(default_factory=itertools.count)
    echo: int | str | None = None
    alters: Callable[[dict[str, Any] | None, Any], Any] | None = None
    seen: list[dict[str, Any]] = field(default_factory=list)
    tokens: int = 0
    at_once: int = 0
    most_at_once: int = 0

    def __enter__(self) -> Server:
        self._lock = threading.Lock()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._lock.acquire()  # a request that nobody waits for any more computes nothing at the end

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}/v1"

    @property
    def tokenizer(self):
        return loaded(self.folder)[1]

    def logprobs(self, ids):
        """Log-probabilities (T, V) after each token, as a server computes them: in float32."""
        with self._lock:
            logits = computed(self.folder, tuple(ids)).clone()
            off = self._off()
            if self.impossible is not None:
                logits[:, self.impossible] = -1e4
            generator = torch.Generator().manual_seed(0)
            logits = logits + off * torch.randn(logits.shape[1], generator=generator)
            return (logits + self.noise * torch.randn(logits.shape)).log_softmax(-1)

    def _off(self):
        """How far the logits are off now."""
        changed = self.changes_after is None or len(self.seen) > self.changes_after
        return self.another if changed else 0.0

    def answer(self, path: str, body: dict[str, Any] | None) -> tuple[int, Any]:
        if path == "/v1/models":
            if isinstance(self.lists, int):
                return self.lists, _error("no list")
            context = {"max_model_len": self.context} if self.says_context else {}
            names = [NAME] if self.lists is None else self.lists
            return 200, {"data": [{"id": name, **context} for name in names]}
        if path == "/v1/chat/completions" and body is not None and self.judges:
            said = self.judges(body["messages"][-1]["content"])
            return 200, {"choices": [{"message": {"role": "assistant", "content": said}}]}
        if path == "/v1/chat/completions" and body is not None and self.chats:
            return self._chatted(body)
        if path != "/v1/completions" or body is None:
            return 404, {"detail": "Not Found"}
        if self.chat:
            return 404, _error("This is a chat model and not supported in v1/completions.")
        if body["model"] != NAME:
            return 404, _error(f"The model `{body['model']}` does not exist.")
        if not self.names_ids and "return_tokens_as_token_ids" in body:
            return 400, _error("Unrecognized request argument: return_tokens_as_token_ids")
        if not self.bias and "logit_bias" in body:
            return 400, _error("logit_bias is not supported")
        if (body.get("logprobs") or 0) > self.most:
            return 400, _error(f"logprobs must be at most {self.most}")
        prompt = body["prompt"]
        if isinstance(prompt, str):
            prompt = self.tokenizer(prompt)["input_ids"]
        elif not self.ids:
            return 400, _error("prompt must be a string")
        if len(prompt) + body["max_tokens"] > self.context:
            return 400, _error(f"This model's maximum context length is {self.context} tokens.")
        self.tokens += len(prompt)
        if body.get("prompt_logprobs") is not None and self.parameter:
            return 200, {"choices": [self._shown_prompt(prompt, body["prompt_logprobs"])]}
        if body.get("echo") and isinstance(self.echo, int):
            return self.echo, _error("Internal error")
        if body.get("echo") and self.echo == "ignored":
            return 200, {"choices": [self._echoed(prompt[-1:] * 60, body)]}
        if body.get("echo"):
            if not self.prompt:
                return 400, _error("echo with logprobs is not supported")
            choice = self._echoed(prompt, body)
        else:
            choice = self._generated(prompt, body)
        return 200, {
            "choices": [{"index": 0, "text": "", **choice}],
            "usage": {"prompt_tokens": len(prompt) + self.extra},
        }

    def _chatted(self, body):
        """An answer to a chat, which the template of the folder's tokenizer puts into words."""
        unknown = {"continue_final_message", "add_generation_prompt"} & body.keys()
        begun = body["messages"][-1]["role"] == "assistant"
        if unknown and self.chats == "answers":
            return 400, _error(f"Unrecognized request arguments: {unknown}")
        goes_on = begun and self.chats == "continues"
        options = {"continue_final_message": goes_on, "add_generation_prompt": not goes_on}
        prompt = self.tokenizer.apply_chat_template(body["messages"], tokenize=False, **options)
        prompt = self.tokenizer(prompt, add_special_tokens=False)["input_ids"]
        asked = {**body, "logprobs": body.get("top_logprobs")}
        choice = self._generated(prompt, asked)
        shown = self._in_content(choice.pop("logprobs"))
        message = {"role": "assistant", "content": choice.pop("text")}
        return 200, {"choices": [{"message": message, "logprobs": shown}],
                     "usage": {"prompt_tokens": len(prompt)}}  # fmt: skip

    def _in_content(self, shown):
        """The same log-probabilities in the form of chats."""
        if shown is None:
            return None
        tops = shown.get("top_logprobs") or [{} for _ in shown["tokens"]]
        rows = zip(shown["tokens"], shown["token_logprobs"], tops, strict=True)
        return {"content": [
            {**self._item(token, own), "top_logprobs": [self._item(*one) for one in top.items()]}
            for token, own, top in rows
        ]}  # fmt: skip

    def _item(self, token, logprob):
        named = token.removeprefix("token_id:")
        if named == token:
            return {"token": token, "logprob": logprob}
        return {"id": int(named), "token": self.tokenizer.decode([int(named)]), "logprob": logprob}

    def _shown_prompt(self, prompt, n):
        rows = zip(self.logprobs(prompt), prompt[1:], strict=False)
        listed = [(row, [token, *row.topk(n).indices.tolist()]) for row, token in rows]
        shown = [{str(i): {"logprob": float(row[i])} for i in ids} for row, ids in listed]
        return {"text": "", "prompt_logprobs": [None, *shown]}

    def name(self, token: int) -> str:
        return f"token_id:{token}" if self.names_ids else self.tokenizer.decode([token])

    def _top(self, row, n, *always):
        best = row.topk(min(n, len(row))).indices.tolist() if n else []
        return {self.name(i): round(float(row[i]), self.decimals) for i in [*always, *best]}

    def _echoed(self, prompt, body):
        rows, n = self.logprobs(prompt), body["logprobs"]
        pairs = list(zip(rows, prompt[1:], strict=False))
        return {"logprobs": {
            "tokens": [self.name(token) for token in prompt],
            "token_logprobs": [None, *(round(float(row[t]), self.decimals) for row, t in pairs)],
            "top_logprobs": [None, *(self._top(row, n, token) for row, token in pairs)],
        }}  # fmt: skip

    def _written(self, prompt, body):
        """Another model draws by another seed, and takes its own likeliest tokens."""
        off, temperature = self._off(), body["temperature"] if self.greedy else 1.0
        seed = body.get("seed", 0) + round(1000 * off) if self.greedy else next(self.drawn)
        ids = self._likeliest(prompt, body["max_tokens"]) if off and not temperature else None
        if ids is None:
            with self._lock:
                model, wanted = (
                    CausalLM(loaded(self.folder)[0]),
                    Prompt(prompt, body["max_tokens"], seed),
                )
                (ids,) = model.generate([wanted], temperature)
        named = {"tokens": [self.name(i) for i in ids], "token_logprobs": [None] * len(ids)}
        text = self.tokenizer.decode(ids)
        return {"text": text, "logprobs": named if body.get("logprobs") else None}

    def _likeliest(self, prompt, count):
        ids = list(prompt)
        for _ in range(count):
            ids.append(int(self.logprobs(ids)[-1].argmax()))
        return ids[len(prompt) :]

    def _generated(self, prompt, body):
        if body["max_tokens"] > 1:
            return self._written(prompt, body)
        row, biased = (raw := self.logprobs(prompt)[-1]), raw.clone()
        for token, bias in body.get("logit_bias", {}).items():
            biased[int(token)] += bias
        biased = biased.log_softmax(-1)
        chosen = int(biased.argmax())
        text = self.tokenizer.decode([chosen])
        if self.shows == "nothing" or body.get("logprobs") is None:
            return {"text": text, "logprobs": None}
        shown = biased if self.shows == "biased" else row
        alone = self.shows == "list"
        if self.hides and "\ufffd" in text:
            return {"text": text, "logprobs": None}
        numbers = {
            "tokens": [self.name(chosen)],
            "token_logprobs": [None if alone else round(float(shown[chosen]), self.decimals)],
            "top_logprobs": [self._top(shown, body["logprobs"], *([] if alone else [chosen]))],
        }
        return {"text": text, "logprobs": self._in_content(numbers) if self.content else numbers}


@cache
def loaded(folder):
    return load_model("model.path", str(folder)), load_tokenizer("model.path", str(folder))


@cache
def computed(folder, ids):
    with torch.inference_mode():
        return loaded(folder)[0](torch.tensor([ids])).logits[0]


def _error(words: str) -> dict[str, Any]:
    return {"error": {"message": words}}


def _handler(server: Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            self._do(None)

        def do_POST(self) -> None:
            self._do(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _do(self, body: dict[str, Any] | None) -> None:
            if body is not None:
                server.seen.append(body)
            server.at_once += 1
            server.most_at_once = max(server.most_at_once, server.at_once)
            time.sleep(server.slow)
            given = self.headers.get("Authorization", "").removeprefix("Bearer ")
            fault = server.fails.pop(0) if server.fails and body is not None else None
            headers: dict[str, str] = {}
            if server.key is not None and given != server.key:
                quoted = f": {given}" if server.says_key else ""
                status, found = 401, _error(f"Incorrect API key provided{quoted}.")
            elif fault and fault != "cut":
                (status, headers), found = fault, _error("Try again later.")
            else:
                status, found = server.answer(self.path, body)
                if server.alters and status == 200:
                    found = server.alters(body, found)
            server.at_once -= 1
            text = json.dumps(found).encode()
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(text))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text[: len(text) // 2] if fault == "cut" else text)
            self.close_connection = fault == "cut"

        def log_message(self, *_: object) -> None:
            pass

    return Handler
