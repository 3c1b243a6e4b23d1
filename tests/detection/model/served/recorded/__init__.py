"""What real servers have answered about the golden model; see tests/servers/record.py."""

from pathlib import Path

PLACE = Path(__file__).parent
CHAT = PLACE / "chat_template.jinja"
"""A template for the golden model, which has none."""
TEXTS = ("The harbour was quiet that morning.", "The caf\u00e9")
"""The second ends with tokens that are parts of a character."""
WRITTEN = 6
"""Tokens that are written after the beginning of each text."""
