"""The text of a workload file as plain data, and the lines on which its values begin.

JSON is read by `json`, which is many times as fast as a parser of YAML.
"""

from __future__ import annotations

import json
import re
from functools import cached_property
from typing import Any

import yaml

from slotwise.model.errors import InputError
from slotwise.workload.yaml_text import HALF, integer, position, read_yaml

Path = tuple[str | int, ...]
"""The keys and item numbers that lead to a value."""

_WHOLE = re.compile(r"(\\u[dD][89abAB][0-9a-fA-F]{2})(\\u[dD][c-fC-F][0-9a-fA-F]{2})")
"""Both halves of a character."""


class Lines:
    """The lines of a text on which its values begin; found when they are first asked for."""

    def __init__(self, text: str) -> None:
        self._text = text

    def get(self, path: Path) -> int | None:
        """The line on which a key or an item begins; None where there is none."""
        line: int | None = None
        inside: Any = self._root
        for step in path:
            if type(inside) not in (dict, list):
                return None
            try:
                line, inside = inside[step]
            except (LookupError, TypeError):
                return None
        return line

    @cached_property
    def _root(self) -> Any:
        try:
            return read_yaml(self._text, with_lines=True)
        except (yaml.YAMLError, InputError, ValueError, OverflowError):
            return None  # It is JSON that is no YAML: with tabs, say.


def parse_text(text: str) -> tuple[Any, Lines]:
    """The data of a YAML or JSON text, and the line on which each value begins.

    InputError, with the line, for what is no YAML, for keys that stand twice, for tags, for
    values that contain themselves, and for aliases that stand for too much. O(size).
    """
    try:
        return _parse_json(text), Lines(text)
    except (ValueError, RecursionError):
        pass  # It is YAML, or reading it as such tells what is wrong.
    try:
        return read_yaml(text), Lines(text)
    except yaml.YAMLError as error:
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        mark = getattr(error, "problem_mark", None)
        where = f"{position(mark)}: " if mark else ""
        raise InputError(f"{where}not YAML or JSON: {problem}; mend it there") from error
    except (ValueError, OverflowError) as error:
        raise InputError(f"not YAML or JSON that can be read: {error}; mend it") from error


def _parse_json(text: str) -> Any:
    """The data of a text in JSON. ValueError if it is not, or if its meaning is not plain."""
    if not text.lstrip().startswith("{"):
        raise ValueError("no mapping in JSON")
    if HALF.search(text) and HALF.search(_WHOLE.sub("", text)):
        raise ValueError("half a character")
    return json.loads(
        text, object_pairs_hook=_mapping, parse_int=integer, parse_constant=_refuse_constant
    )


def _mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        raise ValueError("a key stands twice")
    return mapping


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")
