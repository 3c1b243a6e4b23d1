"""The strategies for a token's log-probability, one class per strategy; `STRATEGIES` orders them.

Each is tried in turn when a server is probed, and the first that works is used.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import ClassVar

from contamination.core.errors import ServerError
from contamination.detection.models.served import logprob_tracking as tracking
from contamination.detection.models.served.answer_store import round_to_float32
from contamination.detection.models.served.client import RefusedError
from contamination.detection.models.served.fingerprint import MAX_NOISE
from contamination.detection.models.served.logprob_tracking import (
    Columns,
    LogprobStrategy,
    ShownLogprobs,
)
from contamination.detection.models.served.responses import TokenNames, TokenPosition
from contamination.detection.passes import LOWEST_LOGPROB

log = logging.getLogger(__name__)

SHARED_NAME_REQUESTS = 4.0
"""Requests by `BiasedClosedForm` for a token that shares its name with others: 3 to 5."""
FIRST_LIST, LIST_GROWTH = 64, 16
"""The length of the first list in which a hidden token is searched, and the factor of the next."""
AGREEMENT = 1e-2
"""Nats: two computations of one log-probability differ by less, or one of them does not work."""

COMPARED_POSITIONS = 4
"""The positions at which a prompt's log-probabilities are compared with those of the next token."""
MAX_DIFFERENCE = 3 * MAX_NOISE
"""Nats, root mean square over these positions: log-probabilities of other tokens differ by more."""
CERTAIN_LOGPROB, CERTAIN_TOKENS = -1e-6, 5
"""Nats, and a number of tokens: no model is this certain of every token of so long a text."""


class PromptLogprobs(LogprobStrategy):
    """The server shows the log-probabilities of a whole text: one request per text."""

    name = "prompt log-probabilities"
    unit = "text"
    top_counts = (1, 0)

    def question_ends(self, tokens: int) -> range:
        """Returns the end of the only question, which is about the whole text."""
        return range(tokens, tokens + 1)

    def sent_ids(self, ids: Sequence[int]) -> Sequence[int]:
        """Returns all tokens of the question."""
        return ids

    def works(self, ids: Sequence[int]) -> bool:
        """Returns whether the server shows them, and they are those of the next token.

        If it also names top tokens by ids, those are used.
        """
        positions = self._prompt_positions(ids)
        if self.token_names.by_id and all(token_position.top for token_position in positions):
            self.numbers = frozenset({"logprob", "top_logprob", "top_id"})
        if any(position.logprob is None for position in positions):
            return False
        problem = self._prompt_problem(ids, positions)
        if problem:
            log.warning("%s", self.model.message_about_text(ids, f"{self.name}: {problem}"))
        return not problem

    def _prompt_problem(self, ids: Sequence[int], positions: Sequence[TokenPosition]) -> str:
        """Returns why the prompt's log-probabilities can't be used, or ""."""
        if _are_all_certain([position.prompt_logprob for position in positions]):
            return "all are 0. They are not used."
        prefixes, differences = self.sendable_prefixes(ids), []
        for n in range(COMPARED_POSITIONS, 0, -1):
            difference = self._difference_from_next_token(
                prefixes[len(prefixes) * n // COMPARED_POSITIONS - 1]
            )
            if difference is not None and abs(difference) < AGREEMENT:
                return ""
            differences += [] if difference is None else [difference]
        if not differences:
            log.warning("%s", self.model.message_about_text(
                ids, f"{self.name}: they are used, but not checked: the server shows no "
                "log-probability of a next token to compare them with."
            ))  # fmt: skip
            return ""
        rms = math.sqrt(sum(d * d for d in differences) / len(differences))
        if rms <= MAX_DIFFERENCE:
            return ""
        return f"they differ by {rms:.3g} nats from those of next tokens. They are not used."

    def _difference_from_next_token(self, prefix: Sequence[int]) -> float | None:
        """Returns log p of the likeliest next token in a prompt, minus that of the next token.

        Returns None if the server does not show the latter, or the token can't be sent.
        """
        try:
            position = self.model.next_token(prefix, logprobs=1)
        except RefusedError:
            return None
        token = self.model.token_names.unique_token(position.token)
        if token is None or position.logprob is None:
            return None
        ids = [*prefix, token]
        if not self.model.can_send(ids):
            return None
        return self._prompt_positions(ids)[-1].prompt_logprob - position.logprob

    def fingerprint_prefixes(self, ids: Sequence[int]) -> list[Sequence[int]]:
        """Returns the whole text."""
        return [ids]

    def concurrent_prefixes(self, ids: Sequence[int], count: int) -> list[Sequence[int]]:
        """Returns `count` prefixes of the text."""
        prefixes = self.sendable_prefixes(ids)
        return [prefixes[max(0, len(prefixes) * n // count - 1)] for n in range(1, count + 1)]

    def shown_logprobs(self, ids: Sequence[int]) -> ShownLogprobs:
        """Returns the log-probabilities of all tokens after the first."""
        positions = enumerate(self._prompt_positions(ids))
        return {
            n: [max(-tracking.MAX_BIAS, token_position.prompt_logprob)]
            for n, token_position in positions
        }

    def answer_columns(self, ids: Sequence[int]) -> Columns:
        """Returns the numbers of all tokens after the first."""
        positions = self._prompt_positions(ids)
        logprobs = [position.prompt_logprob for position in positions]
        if _are_all_certain(logprobs):
            problem = (
                f"its {len(logprobs)} log-probabilities are all 0, as those of no model are. Check "
                "that the server shows the log-probabilities of prompts."
            )
            raise ServerError(self.model.message_about_text(ids, problem))
        columns: Columns = {"logprob": round_to_float32(logprobs)}
        if "top_id" in self.numbers:
            tops = [self._top_logprob_and_id(token_position, ids) for token_position in positions]
            columns["top_logprob"] = round_to_float32([logprob for logprob, _ in tops])
            columns["top_id"] = [token for _, token in tops]
        return columns

    def _prompt_positions(self, ids: Sequence[int]) -> list[TokenPosition]:
        return self.model.prompt_logprobs(ids, self.top)

    def _top_logprob_and_id(
        self, token_position: TokenPosition, ids: Sequence[int]
    ) -> tuple[float, int]:
        """Returns the top token's log-probability and id; of several, the lowest id."""
        candidates = [(logprob, -token) for token, logprob in self._uniquely_named(token_position)]
        if not candidates or len(candidates) < len(token_position.top):
            names = [*token_position.top][:3]
            problem = f"top_logprobs has {names} for a token, but ids elsewhere. "
            raise ServerError(
                self.model.message_about_text(ids, f"{problem}Check that this is a single server.")
            )
        logprob, token = max(candidates)
        return logprob, -token


def _are_all_certain(logprobs: Sequence[float]) -> bool:
    return len(logprobs) >= CERTAIN_TOKENS and min(logprobs) > CERTAIN_LOGPROB


class PromptLogprobsParameter(PromptLogprobs):
    """Prompt log-probabilities by vLLM's parameter `prompt_logprobs`, which names tokens by ids."""

    name = "prompt_logprobs"

    @cached_property
    def token_names(self) -> TokenNames:
        """Names by ids, even if the server names generated tokens by their text."""
        return TokenNames(self.model.tokenizer, by_id=True)

    def _prompt_positions(self, ids: Sequence[int]) -> list[TokenPosition]:
        return self.model.prompt_logprobs_parameter(ids, self.top)


class ForcedToken(LogprobStrategy):
    """A bias makes the token the server's choice, and the server shows its unbiased logprob."""

    name = "forced token, raw"

    def works(self, ids: Sequence[int]) -> bool:
        """Returns whether a forced token has the same log-probability as without the bias."""
        token, logprob = self._second_likeliest(ids)
        token_position = self._next_position(ids, {token: tracking.MAX_BIAS})
        if (
            token_position.token != self.model.token_names.name(token)
            or token_position.logprob is None
        ):
            return False
        if len(token_position.top) == 1 and not self._chooses_other(ids, token):
            return False  # the token is the choice without the bias as well
        return abs(token_position.logprob - logprob) < AGREEMENT

    def request_count(self, token: int) -> float:
        """Returns more for a part of a character, which a server may hide."""
        return 1.0 if "\ufffd" not in self.model.token_names.text(token) else 5.0

    def shown_logprobs(self, ids: Sequence[int]) -> ShownLogprobs:
        """Returns the top log-probabilities after these tokens, even if the choice is hidden."""
        token_position = self._next_position(ids, may_hide=True)
        if token_position.is_hidden:
            token_position = self._position_with_other_forced(ids, 0, self.top)
        logprobs = sorted(token_position.top.values(), reverse=True)[: self.top]
        return {len(ids): [max(-tracking.MAX_BIAS, logprob) for logprob in logprobs]}

    def answer_columns(self, ids: Sequence[int]) -> Columns:
        """Returns the last token's logprob; LOWEST_LOGPROB if no bias makes it the choice."""
        token_position = self._next_position(ids[:-1], {ids[-1]: tracking.MAX_BIAS}, may_hide=True)
        name = self.model.token_names.name(ids[-1])
        if token_position.is_hidden:
            return {"logprob": round_to_float32([self._logprob_from_longer_lists(ids)])}
        if token_position.token != name and not self._is_renamed(ids, token_position):
            if (
                self.model.token_names.is_unique(ids[-1])
                and token_position.top.get(name, LOWEST_LOGPROB) > -tracking.MAX_BIAS
            ):
                raise self._wrong_choice_error(token_position.token, ids, (name,))
            return {"logprob": round_to_float32([LOWEST_LOGPROB])}
        if token_position.logprob is None:
            problem = (
                f"it shows no log-probability of its choice {token_position.token!r}. Check that "
                "its settings are the same as when it was probed."
            )
            raise ServerError(self.model.message_about_text(ids, problem))
        return {"logprob": round_to_float32([token_position.logprob])}

    def _logprob_from_longer_lists(self, ids: Sequence[int]) -> float:
        """Returns the last token's log-probability from longer and longer lists of top tokens.

        llama.cpp's server shows nothing for a token that ends within a character, since it writes
        the token with the next one. If a whole token is chosen, it lists such a token like others.
        """
        name, top = self.model.token_names.name(ids[-1]), FIRST_LIST
        token_position = self._position_with_other_forced(ids[:-1], ids[-1], top)
        while name not in token_position.top and len(token_position.top) >= top:
            top *= LIST_GROWTH
            token_position = self._position_with_other_forced(ids[:-1], ids[-1], top)
        if name not in token_position.top or not self.model.token_names.is_unique(ids[-1]):
            raise self._ambiguous_name_error(token_position, ids)
        return token_position.top[name]

    def _position_with_other_forced(
        self, ids: Sequence[int], token: int, top: int
    ) -> TokenPosition:
        """Returns the top tokens after these when a whole token other than `token` is forced."""
        other = {str(self.model.token_names.any_unique_token(excluded=token)): tracking.MAX_BIAS}
        return self.model.next_token(ids, must_show=True, logprobs=top, logit_bias=other)

    def _is_renamed(self, ids: Sequence[int], token_position: TokenPosition) -> bool:
        """Returns whether the choice is the last token under another name of the server.

        If so, the bias changed the choice; or the token is chosen without a bias, and a ban on it
        changes the choice.
        """
        if self.model.token_names.by_id:
            return False
        unbiased = self._next_position(ids[:-1]).token
        if unbiased != token_position.token:
            return True
        return self._next_position(ids[:-1], {ids[-1]: -tracking.MAX_BIAS}).token != unbiased


class BiasedClosedForm(LogprobStrategy):
    """The server shows biased log-probabilities, from which the unbiased one follows."""

    name = "biased, closed form"
    rounding_error = tracking.RESOLUTION
    is_estimate = True

    @property
    def max_error(self) -> float:
        """The server's rounding error, times the largest factor by which a bias increases it."""
        return tracking.MAX_ERROR_FACTOR * self.rounding_error

    @property
    def requests_per_question(self) -> float:
        """One, and one more for a token that the first bias does not bring into the list."""
        return 1.1 if self.top > 1 else 2.0

    def request_count(self, token: int) -> float:
        """Returns more for a token that shares its name."""
        unique = self.model.token_names.is_unique(token)
        return self.requests_per_question if unique else SHARED_NAME_REQUESTS

    def works(self, ids: Sequence[int]) -> bool:
        """Returns whether the log-probabilities under a bias follow equation 8."""
        token, logprob = self._second_likeliest(ids)
        biased = self._next_position(ids, {token: 2.0}).logprobs
        self.rounding_error = max(tracking.RESOLUTION, tracking.rounding_error([*biased.values()]))
        shown = biased.get(self.model.token_names.name(token))
        return shown is not None and abs(tracking.remove_bias(shown, 2.0) - logprob) < AGREEMENT

    def answer_columns(self, ids: Sequence[int]) -> Columns:
        """Returns the last token's logprob; LOWEST_LOGPROB if no bias brings it into the list.

        If the token shares its name, it follows from the effect of its bias on another token.
        """
        names, logprob = self.model.token_names, None
        if names.is_unique(ids[-1]):
            name = names.name(ids[-1])
            logprob = tracking.logprob_by_closed_form(
                lambda bias: self._position_under_bias(ids, bias).logprobs, name
            )
        if logprob is None and not names.by_id:
            logprob = self._logprob_from_other_token(ids)
        return {"logprob": round_to_float32([LOWEST_LOGPROB if logprob is None else logprob])}

    def _logprob_from_other_token(self, ids: Sequence[int]) -> float | None:
        token_position = self._next_position(ids[:-1])
        comparison = self._comparison_token(token_position, ids) or self._unlisted_comparison(ids)
        if comparison is None:
            raise self._ambiguous_name_error(token_position, ids)
        token, logprob = comparison
        name, raised = self.model.token_names.name(token), tracking.raising_bias(logprob)

        def ask(bias: float) -> float:
            logprobs = self._position_under_bias(ids, bias, {token: raised}).logprobs
            if name not in logprobs:
                problem = (
                    f"{name!r} is not listed, although a bias has made it the likeliest. Check "
                    "that this is a single server."
                )
                raise ServerError(self.model.message_about_text(ids, problem))
            return logprobs[name]

        return tracking.logprob_from_other_token(ask, logprob, self.rounding_error)

    def _unlisted_comparison(self, ids: Sequence[int]) -> tuple[int, float] | None:
        """Returns a token that is not listed and its logprob, if all listed names are shared."""
        if (token := self.model.token_names.any_unique_token(excluded=ids[-1])) is None:
            return None
        name = self.model.token_names.name(token)
        logprob = tracking.logprob_by_closed_form(
            lambda b: self._next_position(ids[:-1], {token: b}).logprobs, name
        )
        return None if logprob is None else (token, logprob)

    def _position_under_bias(
        self, ids: Sequence[int], bias: float, other_biases: Mapping[int, float] | None = None
    ) -> TokenPosition:
        return self._next_position(ids[:-1], {ids[-1]: bias, **(other_biases or {})})


class ArgmaxBisection(LogprobStrategy):
    """A bias changes the server's choice, and no probability is shown.

    The choice changes at the bias log(p_top / p), and nothing shows p_top.
    """

    name = "argmax only, bisection"
    note = "shows only log(p_top / p), which no method reads"
    top_counts: ClassVar[tuple[int, ...]] = (1, 0)
    numbers = frozenset()

    @property
    def max_error(self) -> float:
        """The tolerance of the bisection."""
        return self.tolerance

    @property
    def requests_per_question(self) -> float:
        """The requests of the bisection, and one for the list."""
        return tracking.max_bisection_requests(self.tolerance)

    def works(self, ids: Sequence[int]) -> bool:
        """Returns whether a bias makes each of two tokens the choice."""
        names = self.model.token_names
        return all(
            self._next_position(ids, {token: tracking.MAX_BIAS}).token == names.name(token)
            for token in ids[-2:]
        )

    def answer_columns(self, ids: Sequence[int]) -> Columns:
        """Returns no numbers."""
        return {}


class TopListBisection(ArgmaxBisection):
    """The server lists unbiased top tokens, and a bias changes only its choice."""

    name = "top-n, then bisection"
    note = ""
    top_counts = LogprobStrategy.top_counts
    numbers = frozenset({"logprob"})

    def works(self, ids: Sequence[int]) -> bool:
        """Returns whether the list stays the same when the choice changes."""
        token, logprob = self._second_likeliest(ids)
        token_position = self._next_position(ids, {token: tracking.MAX_BIAS})
        name = self.model.token_names.name(token)
        if len(token_position.top) == 1 and not self._chooses_other(ids, token):
            return False
        listed = token_position.top.get(name, math.nan)
        return token_position.token == name and abs(listed - logprob) < AGREEMENT

    def answer_columns(self, ids: Sequence[int]) -> Columns:
        """Returns the last token's log-probability from the list, or from a bisection.

        The bisection raises a listed token above all others, to RAISED_LOGPROB. The choice changes
        from it to the last token at the bias RAISED_LOGPROB − log p, whatever the last token's
        name is.
        """
        names, token_position = self.model.token_names, self._next_position(ids[:-1])
        is_unique, name = names.is_unique(ids[-1]), names.name(ids[-1])
        if is_unique and name in token_position.top:
            return {"logprob": round_to_float32([token_position.top[name]])}
        if (comparison := self._comparison_token(token_position, ids)) is None:
            raise self._ambiguous_name_error(token_position, ids)
        other, other_logprob = comparison
        other_name, raised = names.name(other), tracking.RAISED_LOGPROB - other_logprob

        def is_chosen(bias: float) -> bool:
            choice = self._next_position(ids[:-1], {other: raised, ids[-1]: bias}).token
            if names.by_id and choice not in (other_name, name):
                raise self._wrong_choice_error(choice, ids, (other_name, name))
            return choice != other_name

        low = tracking.RAISED_LOGPROB - (min(token_position.top.values()) if is_unique else 0.0)
        bias = tracking.bisect_bias(is_chosen, self.tolerance, low)
        return {
            "logprob": round_to_float32(
                [LOWEST_LOGPROB if bias is None else tracking.RAISED_LOGPROB - bias]
            )
        }


class SamplingOnly(LogprobStrategy):
    """The server only generates text."""

    name = "sampling only"
    note = "n samples estimate p to √(p (1 − p) / n): for methods that read generated text"
    top_counts = (0,)
    numbers = frozenset()

    def works(self, ids: Sequence[int]) -> bool:
        """Returns whether the server generates a token."""
        return bool(self.model.next_token(ids).token)

    def answer_columns(self, ids: Sequence[int]) -> Columns:
        """Returns no numbers."""
        return {}


STRATEGIES: dict[str, type[LogprobStrategy]] = {
    strategy.name: strategy
    for strategy in (
        PromptLogprobs,
        PromptLogprobsParameter,
        ForcedToken,
        BiasedClosedForm,
        TopListBisection,
        ArgmaxBisection,
        SamplingOnly,
    )
}
"""The strategies by name, the best first."""
