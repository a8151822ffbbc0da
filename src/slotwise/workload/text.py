"""Read the text of a workload file, parse it to plain data, and find the lines of its values.

JSON is read by `json`, which is many times as fast as a YAML parser.
"""

from __future__ import annotations

import json
import re
from functools import cached_property
from pathlib import Path as FilePath
from typing import Any

import yaml

from slotwise.model.errors import InputError
from slotwise.model.typed import check_path
from slotwise.opening import open_to_read
from slotwise.workload.yaml_text import HALF, integer, position, read_yaml

Path = tuple[str | int, ...]
"""The keys and item numbers that lead to a value."""

MAX_SIZE = 256 << 20
"""Bytes. A larger file is rejected and not read into memory."""

_WHOLE = re.compile(r"(\\u[dD][89abAB][0-9a-fA-F]{2})(\\u[dD][c-fC-F][0-9a-fA-F]{2})")
"""Both halves of a surrogate pair."""


class Lines:
    """The lines of a text on which its values begin; computed on first use."""

    def __init__(self, text: str) -> None:
        self._text = text

    def get(self, path: Path) -> int | None:
        """The line on which a key or an item begins, or None."""
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
            return None  # Some JSON is not YAML, for example with tabs.


def read_text(path: str | FilePath, wanted: str) -> str:
    """The text of a file that a user names. InputError, which says what is `wanted`."""
    check_path("the path of a file", path, optional=False)
    try:
        with open_to_read(FilePath(path)) as stream:
            content = stream.read(MAX_SIZE + 1)
        if len(content) > MAX_SIZE:
            raise InputError(f"{path}: larger than {MAX_SIZE >> 20} MiB; split it")
        return content.decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; name {wanted}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not text in UTF-8; name {wanted}") from error


def parse_text(text: str) -> tuple[Any, Lines]:
    """Parse a YAML or JSON text to its data and the line on which each value begins.

    Raises InputError, with the line, for invalid YAML, duplicate keys, tags, values that
    contain themselves, and aliases that expand to too many values. O(size).
    """
    try:
        return _parse_json(text), Lines(text)
    except (ValueError, RecursionError):
        pass  # It is YAML, or reading it as YAML gives the error message.
    try:
        return read_yaml(text), Lines(text)
    except yaml.YAMLError as error:
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        mark = getattr(error, "problem_mark", None)
        where = f"{position(mark)}: " if mark else ""
        raise InputError(f"{where}not YAML or JSON: {problem}; correct it there") from error
    except (ValueError, OverflowError) as error:
        raise InputError(f"not YAML or JSON that can be read: {error}; correct it") from error


def _parse_json(text: str) -> Any:
    """Parse JSON. Raises ValueError if the text is not JSON or is ambiguous."""
    if not text.lstrip().startswith("{"):
        raise ValueError("not a mapping in JSON")
    if HALF.search(text) and HALF.search(_WHOLE.sub("", text)):
        raise ValueError("half a surrogate pair")
    return json.loads(
        text, object_pairs_hook=_mapping, parse_int=integer, parse_constant=_refuse_constant
    )


def _mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        raise ValueError("a key occurs twice")
    return mapping


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")
