"""How a server writes tokens: by their ids, or by their text, which several may share.

vLLM writes ids where it is asked to (`return_tokens_as_token_ids`). In text the tokens that are
parts of a character are all U+FFFD, and some servers write them in a way of their own: such a name
says nothing of which token it is.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cached_property
from threading import Lock
from typing import Any

from detection.model.served.replies import id_name

ID = re.compile(r"token_id:(\d{1,9})")


class Names:
    """The names of a vocabulary's tokens.

    Args:
        tokenizer: the model's.
        by_id: whether the server writes ids.
    """

    def __init__(self, tokenizer: Any, by_id: bool) -> None:
        self.tokenizer, self.by_id, self._lock = tokenizer, by_id, Lock()

    def of(self, token: int) -> str:
        """The token as the server writes it."""
        return id_name(token) if self.by_id else self.text(token)

    def text(self, token: int) -> str:
        """The token's text, with U+FFFD for a part of a character."""
        return str(self.tokenizer.decode([token]))

    def token(self, name: str) -> int | None:
        """The only token that is written so; None: the name does not tell."""
        if self.by_id:
            found = ID.fullmatch(name)
            return None if found is None else int(found[1])
        with self._lock:
            return self._alone.get(name)

    def tells(self, token: int) -> bool:
        """Whether no other token is written so."""
        return self.token(self.of(token)) == token

    def some(self, beside: int) -> int | None:
        """A letter or a word that tells, another token than this."""
        with self._lock:
            told = (token for name, token in self._alone.items() if name.isalpha())
            return next((token for token in told if token != beside), None)

    def reads(self, names: list[str], ids: list[int]) -> bool:
        """Whether these are the tokens: of text, most of them, as white space may be marked."""
        if len(names) < len(ids):
            return False
        if self.by_id:
            return [self.token(name) for name in names[: len(ids)]] == ids
        same = (_bare(n) == _bare(self.of(i)) for n, i in zip(names, ids, strict=False))
        return sum(same) >= len(ids) / 2

    @cached_property
    def _alone(self) -> dict[str, int]:
        """The tokens whose name no other has."""
        ids = sorted(self.tokenizer.get_vocab().values())
        names = self.tokenizer.batch_decode([[token] for token in ids])
        shared = Counter(names)
        return {n: token for n, token in zip(names, ids, strict=True) if shared[n] == 1}


def _bare(name: str) -> str:
    return name.strip(" ▁Ġ\n")
