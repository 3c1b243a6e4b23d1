"""Whether two models read the same tokens, so that these can be compared one by one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from contamination.detection.methods.base import Method
from contamination.detection.models.base import ModelHandle

SETTINGS = ("truncation", "padding")
"""The parts of a tokenizer's JSON that don't change how a text is divided into tokens."""


def describe_other_tokenizer(
    models: Mapping[str, ModelHandle], method: Method
) -> tuple[str, str] | None:
    """Returns that an aligned method's models have different tokenizers, without and with remedy.

    Returns None if the method compares no tokens, or if the tokenizers agree.
    """
    others = {wanted.model for wanted in method.passes} - {"target"}
    if not method.aligned:
        return None
    for role in sorted(others & models.keys()):
        if not have_same_tokenizer(models["target"], models[role]):
            reason = f"a {role} with the target's tokenizer"
            return reason, (
                f"{reason}, whose tokens it compares one by one, but {models[role].field} is "
                f"{models[role].path!r} and divides texts in another way than "
                f"{models['target'].field} ({models['target'].path!r}). Give another {role}, or "
                "method=reference, which compares means."
            )
    return None


def have_same_tokenizer(first: ModelHandle, second: ModelHandle) -> bool:
    """Returns whether two models' tokenizers are equal but for truncation and padding."""
    if first.tokenizer_digest == second.tokenizer_digest:
        return True
    first_content, second_content = _content(first.tokenizer()), _content(second.tokenizer())
    return first_content is not None and first_content == second_content


def _content(tokenizer: Any) -> dict[str, Any] | None:
    """Returns all that decides how a text is divided, or None if the tokenizer does not say."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return None
    content = json.loads(backend.to_str())
    return {name: part for name, part in content.items() if name not in SETTINGS}
