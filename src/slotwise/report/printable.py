"""Text that users wrote, made safe to print: a terminal obeys some characters."""

from __future__ import annotations

import re

_OBEYED = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, those that turn the direction of text, and what is no text at all."""


def printable(text: str, *, lines: bool = False) -> str:
    """The text with such characters escaped as in Python: an escape character is "\\x1b".

    With `lines`, line breaks and tabs stay as they are.
    """
    return _OBEYED.sub(lambda match: _escaped(match[0], lines), text)


def _escaped(character: str, lines: bool) -> str:
    if lines and character in "\n\t":
        return character
    return character.encode("unicode_escape", "surrogatepass").decode()
