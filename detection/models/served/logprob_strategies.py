"""The ways to a token's log-probability: one class a way, the best first in `WAYS`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import ClassVar

from contamination.core.errors import ServerError
from contamination.detection.models.served.answer_store import rounded
from contamination.detection.models.served.logprob_tracking import (
    LEVEL,
    MOST,
    RESOLUTION,
    SPREAD,
    Columns,
    Shown,
    Way,
    bisected,
    bisection_queries,
    by_another,
    closed_form,
    lifting,
    resolution,
    unbiased,
)
from contamination.detection.models.served.responses import Names, Place
from contamination.detection.passes import LEAST

SHARED = 4.0
"""Requests that a token takes whose name others have, by `Biased`: 3 to 5."""
FIRST_LIST, LONGER_LIST = 64, 16
"""Tokens of the first list in which a hidden token is looked for, and the growth of the next."""
AGREES = 1e-2
"""Nats: two ways to one log-probability are nearer than this, or one of them does not work."""


class Prompt(Way):
    """The server shows the log-probabilities of a text: a request a text."""

    name = "prompt log-probabilities"
    unit = "text"
    tops = (1, 0)

    def ends(self, tokens: int) -> range:
        """One question."""
        return range(tokens, tokens + 1)

    def sends(self, ids: Sequence[int]) -> Sequence[int]:
        """All of them."""
        return ids

    def works(self, ids: Sequence[int]) -> bool:
        """Whether it shows them; with the likeliest tokens by their ids it gives these as well."""
        places = self._places(ids)
        if self.names.by_id and all(place.top for place in places):
            self.numbers = frozenset({"logprob", "top_logprob", "top_id"})
        return all(place.logprob is not None for place in places)

    def cuts(self, ids: Sequence[int]) -> list[Sequence[int]]:
        """All of the text."""
        return [ids]

    def beside(self, ids: Sequence[int], count: int) -> list[Sequence[int]]:
        """So many beginnings."""
        whole = self.beginnings(ids)
        return [whole[max(0, len(whole) * n // count - 1)] for n in range(1, count + 1)]

    def told(self, ids: Sequence[int]) -> Shown:
        """The log-probabilities of all tokens after the first."""
        return {n: [max(-MOST, p.own)] for n, p in enumerate(self._places(ids))}

    def answer(self, ids: Sequence[int]) -> Columns:
        """The numbers of all tokens after the first."""
        places = self._places(ids)
        columns: Columns = {"logprob": rounded([place.own for place in places])}
        if "top_id" in self.numbers:
            tops = [self._best(place, ids) for place in places]
            columns["top_logprob"] = rounded([logprob for logprob, _ in tops])
            columns["top_id"] = [token for _, token in tops]
        return columns

    def _places(self, ids: Sequence[int]) -> list[Place]:
        """What the server shows of the tokens after the first."""
        return self.model.prompt(ids, self.top)

    def _best(self, place: Place, ids: Sequence[int]) -> tuple[float, int]:
        """The likeliest token's log-probability, and its id: the lowest where several are."""
        told = [(logprob, -token) for token, logprob in self._told(place)]
        if not told or len(told) < len(place.top):
            names = [*place.top][:3]
            why = f"top_logprobs has {names} for a token, which it names by their ids elsewhere. "
            raise ServerError(self.model.of_text(ids, f"{why}See that the server is one."))
        logprob, token = max(told)
        return logprob, -token


class ByParameter(Prompt):
    """The same by a parameter of vLLM's, `prompt_logprobs`, which names tokens by their ids."""

    name = "prompt_logprobs"

    @cached_property
    def names(self) -> Names:
        """By ids, however the server writes what it generates."""
        return Names(self.model.tokenizer, by_id=True)

    def _places(self, ids: Sequence[int]) -> list[Place]:
        return self.model.shown_prompt(ids, self.top)


class Forced(Way):
    """A bias makes the token the server's choice, whose unbiased log-probability it shows."""

    name = "forced token, raw"

    def works(self, ids: Sequence[int]) -> bool:
        """Whether a forced token is shown as without the bias."""
        token, logprob = self._second(ids)
        place = self._next(ids, {token: MOST})
        chosen, shown = place.token == self.model.names.of(token), place.logprob
        return chosen and shown is not None and abs(shown - logprob) < AGREES

    def queries_for(self, token: int) -> float:
        """More where a server may hide the token, as a part of a character; see `_listed`."""
        return 1.0 if "\ufffd" not in self.model.names.text(token) else 5.0

    def told(self, ids: Sequence[int]) -> Shown:
        """What the server shows after these tokens, also where it hides its own choice."""
        place = self._next(ids, may_hide=True)
        place = self._list(ids, 0, self.top) if place.hidden else place
        shown = sorted(place.top.values(), reverse=True)[: self.top]
        return {len(ids): [max(-MOST, number) for number in shown]}

    def answer(self, ids: Sequence[int]) -> Columns:
        """The last token's log-probability; LEAST where no bias makes it the choice."""
        place = self._next(ids[:-1], {ids[-1]: MOST}, may_hide=True)
        own = self.model.names.of(ids[-1])
        if place.hidden:
            return {"logprob": rounded([self._listed(ids)])}
        if place.token != own and not self._renamed(ids, place):
            if self.model.names.tells(ids[-1]) and place.top.get(own, LEAST) > -MOST:
                raise self._other_choice(place.token, ids, (own,))
            return {"logprob": rounded([LEAST])}
        if place.logprob is None:
            why = f"it shows no log-probability of its choice {place.token!r}. See that it runs as "
            raise ServerError(self.model.of_text(ids, f"{why}it did when it was probed."))
        return {"logprob": rounded([place.logprob])}

    def _listed(self, ids: Sequence[int]) -> float:
        """The last token's log-probability from longer and longer lists of likely tokens.

        llama.cpp's server shows nothing of a token that ends within a character, which it writes
        with the next one; beside a whole token it lists such a one like any other.
        """
        own, top = self.model.names.of(ids[-1]), FIRST_LIST
        place = self._list(ids[:-1], ids[-1], top)
        while own not in place.top and len(place.top) >= top:
            top *= LONGER_LIST
            place = self._list(ids[:-1], ids[-1], top)
        if own not in place.top or not self.model.names.tells(ids[-1]):
            raise self._untold(place, ids)
        return place.top[own]

    def _list(self, ids: Sequence[int], beside: int, top: int) -> Place:
        """The likeliest tokens after these, where another, whole token is chosen."""
        other = {str(self.model.names.some(beside)): MOST}
        return self.model.next(ids, shows=True, logprobs=top, logit_bias=other)

    def _renamed(self, ids: Sequence[int], place: Place) -> bool:
        """Whether the choice is the last token after all, by a name of the server's own.

        The bias then has changed the choice; or the token is chosen without one, and a ban does.
        """
        if self.model.names.by_id:
            return False
        plain = self._next(ids[:-1]).token
        return plain != place.token or self._next(ids[:-1], {ids[-1]: -MOST}).token != plain


class Biased(Way):
    """The server shows biased log-probabilities, from which the unbiased one follows."""

    name = "biased, closed form"
    resolution = RESOLUTION
    estimated = True

    @property
    def error(self) -> float:
        """The server's rounding, times what the bias makes of it."""
        return SPREAD * self.resolution

    @property
    def queries(self) -> float:
        """One, and one more for a token that the bias does not bring among the likeliest."""
        return 1.1 if self.top > 1 else 2.0

    def queries_for(self, token: int) -> float:
        """More where the token shares its name."""
        return self.queries if self.model.names.tells(token) else SHARED

    def works(self, ids: Sequence[int]) -> bool:
        """Whether what is shown under a bias follows the equation."""
        token, logprob = self._second(ids)
        place = self._next(ids, {token: 2.0}).shown
        self.resolution = max(RESOLUTION, resolution([*place.values()]))
        shown = place.get(self.model.names.of(token))
        return shown is not None and abs(unbiased(shown, 2.0) - logprob) < AGREES

    def answer(self, ids: Sequence[int]) -> Columns:
        """The last token's log-probability; LEAST where no bias shows it.

        A token whose name others have is told by what its bias does to another.
        """
        names, found = self.model.names, None
        if names.tells(ids[-1]):
            found = closed_form(lambda bias: self._under(ids, bias).shown, names.of(ids[-1]))
        if found is None and not names.by_id:
            found = self._by_another(ids)
        return {"logprob": rounded([LEAST if found is None else found])}

    def _by_another(self, ids: Sequence[int]) -> float | None:
        place = self._next(ids[:-1])
        if (another := self._another(place, ids) or self._unlisted(ids)) is None:
            raise self._untold(place, ids)
        other, plain = another
        name, lift = self.model.names.of(other), lifting(plain)

        def ask(bias: float) -> float:
            shown = self._under(ids, bias, {other: lift}).shown
            if name not in shown:
                why = f"{name!r} is not listed, which a bias has made the likeliest. See that the "
                raise ServerError(self.model.of_text(ids, f"{why}server is one."))
            return shown[name]

        return by_another(ask, plain, self.resolution)

    def _unlisted(self, ids: Sequence[int]) -> tuple[int, float] | None:
        """Another token, where all that are listed share their names, and its log-probability."""
        if (other := self.model.names.some(beside=ids[-1])) is None:
            return None
        named = self.model.names.of(other)
        found = closed_form(lambda bias: self._next(ids[:-1], {other: bias}).shown, named)
        return None if found is None else (other, found)

    def _under(
        self, ids: Sequence[int], bias: float, more: Mapping[int, float] | None = None
    ) -> Place:
        """What is shown in the last token's place, under a bias on it and on others."""
        return self._next(ids[:-1], {ids[-1]: bias, **(more or {})})


class Argmax(Way):
    """A bias changes the server's choice, and no probability is shown.

    The bias at which it changes is log(p_top / p), and nothing tells p_top.
    """

    name = "argmax only, bisection"
    note = "tells log(p_top / p), which no method reads"
    tops: ClassVar[tuple[int, ...]] = (1, 0)
    numbers = frozenset()

    @property
    def error(self) -> float:
        """How near the bisection comes."""
        return self.tolerance

    @property
    def queries(self) -> float:
        """The bisection's, and one for the list."""
        return bisection_queries(self.tolerance)

    def works(self, ids: Sequence[int]) -> bool:
        """Whether two tokens become the choice by a bias."""
        forced = ((token, self._next(ids, {token: MOST}).token) for token in ids[-2:])
        return all(self.model.names.of(token) == name for token, name in forced)

    def answer(self, ids: Sequence[int]) -> Columns:
        """Nothing."""
        return {}


class Listed(Argmax):
    """The server lists the likeliest tokens as they are, and a bias changes its choice alone."""

    name = "top-n, then bisection"
    note = ""
    tops = Way.tops
    numbers = frozenset({"logprob"})

    def works(self, ids: Sequence[int]) -> bool:
        """Whether the list stays as it is when the choice changes."""
        token, logprob = self._second(ids)
        place = self._next(ids, {token: MOST})
        shown = place.top.get(self.model.names.of(token), math.nan)
        return place.token == self.model.names.of(token) and abs(shown - logprob) < AGREES

    def answer(self, ids: Sequence[int]) -> Columns:
        """The last token's log-probability: listed, or found by a bisection against one that is.

        Another token is lifted above all others, to LEVEL. The bias at which the choice changes
        from it to the last token is LEVEL − log p, whatever the last token is called.
        """
        place, tells = self._next(ids[:-1]), self.model.names.tells(ids[-1])
        own = place.top.get(self.model.names.of(ids[-1])) if tells else None
        if own is not None:
            return {"logprob": rounded([own])}
        if (another := self._another(place, ids)) is None:
            raise self._untold(place, ids)
        other, logprob = another
        name, lift = self.model.names.of(other), LEVEL - logprob
        both = (name, self.model.names.of(ids[-1]))

        def is_chosen(bias: float) -> bool:
            found = self._next(ids[:-1], {other: lift, ids[-1]: bias}).token
            if self.model.names.by_id and found not in both:
                raise self._other_choice(found, ids, both)
            return found != name

        low = LEVEL - (min(place.top.values()) if tells else 0.0)
        bias = bisected(is_chosen, self.tolerance, low)
        return {"logprob": rounded([LEAST if bias is None else LEVEL - bias])}


class Sampling(Way):
    """The server only writes text."""

    name = "sampling only"
    note = "n samples tell p to √(p (1 − p) / n): for methods that read what is written"
    tops = (0,)
    numbers = frozenset()

    def works(self, ids: Sequence[int]) -> bool:
        """Whether it writes."""
        return bool(self.model.next(ids).token)

    def answer(self, ids: Sequence[int]) -> Columns:
        """Nothing."""
        return {}


WAYS: dict[str, type[Way]] = {
    way.name: way for way in (Prompt, ByParameter, Forced, Biased, Listed, Argmax, Sampling)
}
