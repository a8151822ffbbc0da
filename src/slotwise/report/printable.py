"""Make text from users safe to print: terminals interpret control characters."""

from __future__ import annotations

import re

_OBEYED = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, characters that change the text direction, and lone surrogates."""


def printable(text: str, *, lines: bool = False) -> str:
    """Escape such characters as in Python: an escape character becomes "\\x1b".

    With `lines`, line breaks and tabs are kept.
    """
    return _OBEYED.sub(lambda match: _escaped(match[0], lines), text)


def _escaped(character: str, lines: bool) -> str:
    if lines and character in "\n\t":
        return character
    return character.encode("unicode_escape", "surrogatepass").decode()
