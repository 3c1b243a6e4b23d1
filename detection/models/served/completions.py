"""The OpenAI-compatible protocol: `/models` and `/completions`; see `chat` for chats."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from contamination.core.errors import ConfigError, ServerError, near_names
from contamination.detection.models.base import Prompt
from contamination.detection.models.served.client import Client, RefusedError
from contamination.detection.models.served.responses import (
    Choice,
    Completion,
    ModelList,
    ServerModel,
    TokenNames,
    TokenPosition,
    UnlistedModel,
)

log = logging.getLogger(__name__)

MAX_LISTED = 10
"""The maximum number of models that an error or a warning lists."""


class UnshownError(ServerError):
    """The answer lacks the requested numbers: the server may not know `echo`, or only chats."""


@dataclass(frozen=True)
class Dialect:
    """The requests that a server accepts, and how it writes tokens.

    Attributes:
        ids: whether prompts are token ids; otherwise they are text.
        names_ids: whether tokens are written as their ids.
        chat: whether there is only /chat/completions.
        continues: whether a chat continues the beginning of an answer.
    """

    ids: bool = True
    names_ids: bool = True
    chat: bool = False
    continues: bool = False

    def __str__(self) -> str:
        if self.chat:
            does = "continues an answer that is begun" if self.continues else "only answers"
            return f"chats, and {does}"
        return "token ids" if self.ids else "text"

    def to_record(self) -> dict[str, bool]:
        """Returns the content for a file; the fields of chats are left out for completions."""
        shared = {"ids": self.ids, "names_ids": self.names_ids}
        return {**shared, "chat": True, "continues": self.continues} if self.chat else shared


class CompletionsModel:
    """A model at a server with `/completions`.

    Args:
        client: the client of the server.
        name: the model's name at the server.
        tokenizer: the model's tokenizer, for servers that accept text.
        dialect: the requests that the server accepts.
        probing: whether the server may lack the requested abilities.
    """

    def __init__(
        self, client: Client, name: str, tokenizer: Any, dialect: Dialect, probing: bool = False
    ) -> None:
        self.client, self.name, self.tokenizer = client, name, tokenizer
        self.dialect, self.token_names = dialect, TokenNames(tokenizer, dialect.names_ids)
        self.probing = probing

    def for_probing(self) -> CompletionsModel:
        """Returns the same model for requests that the server may not support."""
        return type(self)(self.client, self.name, self.tokenizer, self.dialect, probing=True)

    def prompt_logprobs(self, ids: Sequence[int], top: int) -> list[TokenPosition]:
        """Returns the log-probabilities of the text's tokens after the first, by `echo`.

        Raises:
            RefusedError: the server refuses the request.
            UnshownError: the server shows none, or those of other tokens.
        """
        positions = self._request_choice(ids, echo=True, max_tokens=0, logprobs=top).positions()
        if not self.token_names.matches([position.token for position in positions], list(ids)):
            tokens = [position.token for position in positions[:3]]
            problem = (
                f"it shows {len(positions)} positions, {tokens} …, instead of its {len(ids)} tokens"
            )
            raise UnshownError(self.message_about_text(ids, f"{problem}. {self._tokenizer_remedy}"))
        return positions[1 : len(ids)]

    def prompt_logprobs_parameter(self, ids: Sequence[int], top: int) -> list[TokenPosition]:
        """Returns the same as `prompt_logprobs`, by vLLM's parameter of this name (tokens by ids).

        Raises:
            RefusedError: the server does not know the parameter.
            UnshownError: the server ignores it.
        """
        choice = self._request_choice(ids, max_tokens=1, temperature=0, prompt_logprobs=top)
        positions = choice.prompt_positions(ids)
        if len(positions) < len(ids) or any(position.logprob is None for position in positions[1:]):
            problem = f"its prompt_logprobs have {len(positions)} positions for {len(ids)} tokens"
            problem = f"{problem}, or are not of these tokens. {self._tokenizer_remedy}"
            raise UnshownError(self.message_about_text(ids, problem))
        return positions[1:]

    def next_token(
        self, ids: Sequence[int], must_show: bool = False, may_hide: bool = False, **options: Any
    ) -> TokenPosition:
        """Returns the greedy token after these, and its log-probabilities.

        Args:
            ids: the tokens so far.
            must_show: whether an answer without log-probabilities is an error, because the server
                showed them when it was probed.
            may_hide: whether the server may hide a token that is a part of a character; see
                `TokenPosition.is_hidden`.
            options: further fields of the request.

        Raises:
            ServerError: the answer lacks log-probabilities or ids that the probe's answers had.
        """
        choice = self._request_choice(ids, max_tokens=1, temperature=0, **options)
        position = next(iter(choice.positions()), TokenPosition(choice.written, None, {}))
        if position.is_hidden and may_hide:
            return position
        names = [position.token, *position.logprobs]
        if must_show and not position.logprobs:
            raise self._changed_error(ids, "shows no log-probability of the next token")
        if (
            must_show
            and self.token_names.by_id
            and None in map(self.token_names.unique_token, names)
        ):
            raise self._changed_error(ids, f"names tokens {names[:3]} and not by their ids")
        return position

    def _changed_error(self, ids: Sequence[int], behaviour: str) -> ServerError:
        problem = (
            f"it {behaviour}, unlike when it was probed. Check that its settings are the same."
        )
        return ServerError(self.message_about_text(ids, problem))

    def greedy_text(self, ids: Sequence[int], tokens: int) -> str:
        """Returns the text of up to `tokens` greedily decoded tokens after these."""
        choice = self._request_choice(ids, max_tokens=tokens, temperature=0)
        return self._written_text(choice, ids, tokens)

    def generate(self, prompt: Prompt, temperature: float) -> list[int]:
        """Returns the generated tokens after the prompt, without the end-of-text token.

        If the server names no ids, or hides some tokens, its text is tokenized instead.
        """
        answer = self._request_completion(
            prompt.ids,
            max_tokens=prompt.tokens,
            temperature=temperature,
            seed=prompt.seed % 2**31,  # every server accepts these
            top_p=1,
            **({"logprobs": 1} if self.dialect.names_ids else {}),
        )
        choice = answer.choices[0]
        positions = choice.positions()
        tokens = [self.token_names.unique_token(position.token) for position in positions]
        ids: list[int] = [token for token in tokens if token is not None]
        hides_tokens = len(tokens) < max(1, answer.completion_token_count or 0)
        if not self.dialect.names_ids or hides_tokens:
            text = self._written_text(choice, prompt.ids, prompt.tokens)
            ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        elif len(ids) < len(tokens):
            raise ServerError(
                self.message_about_text(prompt.ids, f"it returns no ids. {self._tokenizer_remedy}")
            )
        ids = ids[: prompt.tokens]
        eos = self.tokenizer.eos_token_id
        return ids[: ids.index(eos)] if eos in ids else ids

    def _written_text(self, choice: Choice, ids: Sequence[int], tokens: int) -> str:
        """Returns the generated text, unless it is too long for `tokens` tokens.

        Raises:
            ServerError: the answer has no text, or more characters than `tokens` tokens can have.
        """
        max_characters = tokens * self.token_names.max_characters
        if not choice.has_text:
            problem = (
                "its answer has no text. Check that the server returns one, or leave the text out"
            )
        elif len(choice.written) > max_characters:
            problem = (
                f"it returns {len(choice.written):,} characters although max_tokens is {tokens}, "
                f"and so many tokens have at most {max_characters:,}. Give a server that respects "
                "max_tokens"
            )
        else:
            return choice.written
        raise ServerError(self.message_about_text(ids, f"{problem}."))

    def can_send(self, ids: Sequence[int]) -> bool:
        """Returns whether these tokens can be sent, as ids or as a text of exactly these tokens."""
        return self.dialect.ids or round_trips(self.tokenizer, ids)

    def unsendable_message(
        self,
        ids: Sequence[int],
        prefix: Sequence[int],
        n_texts: int,
        n_all_texts: int,
        n_prefixes: int,
    ) -> str:
        """Returns an error message about prefixes that can't be sent as text.

        Args:
            ids: the first text with such a prefix.
            prefix: its first such prefix.
            n_texts: the number of texts with such prefixes.
            n_all_texts: the number of all texts.
            n_prefixes: the number of such prefixes.
        """
        retokenized = len(self.tokenizer(self._decode_text(prefix))["input_ids"])
        return self.message_about_text(
            ids,
            f"the first {len(prefix)} tokens can't be sent. The server accepts only text, and the "
            f"text of these tokens, which ends with {self._decode_text(prefix)[-20:]!r}, has other "
            f"tokens ({retokenized}). There are {n_prefixes} such beginnings in {n_texts} of the "
            f"{n_all_texts} texts. Leave these texts out, or give a server that accepts token "
            "ids, or one that shows the log-probabilities of whole texts.",
        )

    def message_about_text(self, ids: Sequence[int], problem: str) -> str:
        """Returns an error message about one text."""
        start, server = self._decode_text(ids)[:60], self.client.server.url
        return self.client.without_key(
            f"{self.client.field}.url is {server!r}: of the text {start!r} {problem}"
        )

    def tokenizer_mismatch_message(self, ids: Sequence[int]) -> str:
        """Returns an error message about a text that the server tokenizes differently."""
        problem = "it continues the text differently from the tokenizer's ids"
        return self.message_about_text(ids, f"{problem}. {self._tokenizer_remedy}")

    def _request_choice(self, ids: Sequence[int], **options: Any) -> Choice:
        return self._request_completion(ids, **options).choices[0]

    def _request_completion(self, ids: Sequence[int], **options: Any) -> Completion:
        """Returns the answer to these tokens, after comparing the server's count with theirs."""
        body = {"model": self.name, "prompt": self._prompt_to_send(ids), **options}
        answer = self._post("completions", body, Completion, ids)
        self._check_count(answer, ids, len(ids))
        return answer

    def _post(
        self, path: str, body: dict[str, Any], reply_class: type[Completion], ids: Sequence[int]
    ) -> Completion:
        if self.dialect.names_ids:
            body["return_tokens_as_token_ids"] = True
        try:
            answer = self.client.post(path, body, reply_class, self.probing)
        except RefusedError as error:
            raise self._explain_refusal(error, ids) from None
        if (failure := answer.failure) is not None:
            problem = (
                f"it answers with the status 200, but {failure}: the answer is not the model's"
            )
            remedy = "Turn off filters of answers, see the server's log, or leave the text out."
            raise ServerError(self.message_about_text(ids, f"{problem}. {remedy}"))
        return answer

    def _check_count(self, answer: Completion, ids: Sequence[int], expected: int) -> None:
        count = answer.prompt_token_count
        if count not in (None, expected):
            problem = (
                f"it counts {count} tokens, the tokenizer {expected}. {self._tokenizer_remedy}"
            )
            raise ServerError(self.message_about_text(ids, problem))

    def _prompt_to_send(self, ids: Sequence[int]) -> list[int] | str:
        """Returns the ids, or the text without the special tokens that the server adds."""
        if not self.can_send(ids):
            raise ServerError(self.unsendable_message(ids, ids, 1, 1, 1))
        return list(ids) if self.dialect.ids else self._decode_text(ids)

    def _decode_text(self, ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(ids, skip_special_tokens=True))

    @property
    def _tokenizer_remedy(self) -> str:
        return (
            f"Give the model's own tokenizer ({self.client.field}.tokenizer), and a server that "
            "adds the same special tokens."
        )

    def _explain_refusal(self, error: RefusedError, ids: Sequence[int]) -> ServerError:
        message = error.server_message.lower()
        if error.http_status == 400 and ("context" in message or "too long" in message):
            return RefusedError(
                f"{error} A text of {len(ids)} tokens is too long for it: shorten it, or start the "
                "server with a longer context.", error.http_status, error.server_message,
            )  # fmt: skip
        return error


def round_trips(tokenizer: Any, ids: Sequence[int]) -> bool:
    """Returns whether the decoded text of these tokens has the same tokens."""
    text = tokenizer.decode(ids, skip_special_tokens=True)
    return bool(tokenizer(text)["input_ids"] == list(ids))


def find_model(client: Client, model_name: str | None) -> ServerModel:
    """Returns the server's entry for the model `model_name`, or for its only model.

    Some servers list no models, or others than they run. A model that is named but not listed is
    returned as an `UnlistedModel`, with a warning.

    Raises:
        ConfigError: no name is given and the server does not have exactly one model, or the key
            is refused.
    """
    where = f"{client.field}.url is {client.server.url!r}"
    try:
        listed = {model.id: model for model in client.get("models", ModelList).data}
        list_note = near_names(str(model_name), listed, MAX_LISTED) if listed else "It lists none."
    except RefusedError as error:
        if error.http_status in (401, 403):
            raise ConfigError(str(error)) from None
        listed, list_note = {}, f"{client.url}/models gives no list of models ({error})."
        if model_name is None:
            raise ConfigError(client.without_key(
                f"{where}: {list_note} Give the address before /completions, such as "
                f"http://localhost:8000/v1, and {client.field}.name if it lists no models."
            )) from None  # fmt: skip
    if model_name is None and len(listed) == 1:
        return next(iter(listed.values()))
    if model_name is None:
        problem = (
            f"the server has several. {list_note}" if listed else "the server lists no models."
        )
        remedy = f"{problem} Give the name of the model."
        raise ConfigError(client.without_key(f"{client.field}.name is None: {remedy}"))
    if model_name in listed:
        return listed[model_name]
    list_note = client.without_key(list_note)
    log.warning(
        "%s: it does not list the model %r, which is requested anyway. %s",
        where,
        model_name,
        list_note,
    )
    return UnlistedModel(id=model_name, list_note=list_note)
