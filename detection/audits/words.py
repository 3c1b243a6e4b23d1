"""The command's words: a field of the audit may be given without `audit.` before it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields

from core.command import CONF
from core.stored import read_yaml
from detection.audits.base import AuditStage

CHOICE = re.compile(r"audit=([\w/]+)")


def spelled_out(words: Sequence[str]) -> list[str]:
    """`positives=DIR` as `audit.positives=DIR`, where the chosen audit has such a field.

    A field that has the name of a node of the stage, such as `model`, keeps its prefix.
    """
    chosen = [found[1] for found in map(CHOICE.fullmatch, words) if found]
    file = CONF / "audit" / f"{chosen[-1]}.yaml" if chosen else None
    if file is None or not file.is_file():
        return [*words]
    own = {*read_yaml(file)} - {field.name for field in fields(AuditStage)}
    short = re.compile(rf"(\+*)({'|'.join(map(re.escape, sorted(own)))})(?=[.=])")
    return [
        short.sub(r"\1audit.\2", word, count=1) if short.match(word) else word for word in words
    ]
