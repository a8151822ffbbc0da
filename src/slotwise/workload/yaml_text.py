"""Read YAML as plain data from parser events, without a tree of nodes or recursion.

PyYAML reads YAML 1.1, where `1e3` is text and `no` is false. This module reads plain scalars as
in YAML 1.2. libyaml parses the text if PyYAML was built with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from sys import intern
from typing import Any

import yaml

from slotwise.core.errors import InputError

MAX_UNFOLDED = 1_000_000
"""A file whose aliases expand to more values than this is rejected."""

MAX_LEVELS = 200
"""A file whose values are nested more deeply than this is rejected."""

NESTED_TOO_DEEPLY = "its values are nested too deeply; use fewer levels"

MAX_EXPLAINED = 1_000_000
"""Characters. If libyaml rejects a shorter text, PyYAML's own slower parser reads it again,
because its messages are clearer."""

_TAG = "tag:yaml.org,2002:"
MAX_DIGITS = 400
HALF = re.compile(r"\\u[dD][89a-fA-F]")
"""Half of a surrogate pair in JSON notation, which libyaml rejects."""


def integer(text: str) -> int | float:
    """Parse a whole number. Very long ones, which `int` rejects, become infinite floats."""
    return int(text) if len(text) < MAX_DIGITS else float(text)


def _float(text: str) -> float:
    return float(text.replace(".inf", "inf").replace(".nan", "nan"))


def _text(text: str) -> str:
    if text.isascii():
        return text
    # JSON writes a character beyond the first plane as a surrogate pair, which YAML keeps.
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


_Make = Callable[[str], Any]

_BARE: tuple[tuple[str, str, str, _Make], ...] = (
    ("null", r"null|~|", "n~", lambda text: None),
    ("bool", r"true|false", "tf", "true".__eq__),
    ("int", r"[-+]?[0-9]+", "-+0123456789", integer),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.inf|\.nan",
        "-+.0123456789",
        _float,
    ),
)
"""Types of plain scalars other than strings: tag, pattern, first characters, conversion."""

_BY_FIRST: dict[str, list[tuple[re.Pattern[str], _Make]]] = {}
_BY_TAG: dict[str, tuple[re.Pattern[str], _Make]] = {
    f"{_TAG}str": (re.compile(r"(?s).*"), _text)
}
_KNOWN = {"map", "seq", "str", *(name for name, *_ in _BARE)}

for _name, _pattern, _first, _make in _BARE:
    _reading = re.compile(_pattern), _make
    _BY_TAG[_TAG + _name] = _reading
    for _letter in (*_first, *([""] if _name == "null" else [])):
        _BY_FIRST.setdefault(_letter, []).append(_reading)


def _bare(text: str) -> Any:
    for pattern, make in _BY_FIRST.get(text[:1], ()):
        if pattern.fullmatch(text):
            return make(text)
    return _text(text)


def read_yaml(text: str, with_lines: bool = False) -> Any:
    """Parse YAML to plain data. O(size). Raises yaml.YAMLError or InputError if invalid.

    With lines, each item of a list and each value of a mapping is a pair: the line on which the
    item or the key begins, and the value.
    """
    fast = getattr(yaml, "CSafeLoader", None)
    if fast is None or HALF.search(text):
        return _Reader(with_lines).read(text, yaml.SafeLoader)
    try:
        return _Reader(with_lines).read(text, fast)
    except yaml.YAMLError as error:
        if len(text) > MAX_EXPLAINED:
            raise
        try:
            return _Reader(with_lines).read(text, yaml.SafeLoader)
        except (ValueError, OverflowError):
            raise error from None  # The parser cannot handle escapes of invalid characters.


class _Open:
    """A list or mapping that is being read.

    key     key of the next value; None if a key or an item of a list comes next
    line    line of that key
    merged  entries from a key `<<`
    size    number of values so far, including itself, with all aliases expanded
    """

    __slots__ = ("anchor", "is_mapping", "items", "key", "line", "merged", "size", "start_mark")

    def __init__(self, event: Any, is_mapping: bool) -> None:
        self.is_mapping = is_mapping
        self.items: Any = {} if is_mapping else []
        self.key: Any = None
        self.line = 0
        self.merged: dict[str, Any] | None = None
        self.size = 1
        self.anchor, self.start_mark = event.anchor, event.start_mark


_MERGE = object()
"""The key `<<`: its value supplies entries that the mapping lacks."""


class _Reader:
    """Reads one document, event by event."""

    def __init__(self, with_lines: bool) -> None:
        self._with_lines = with_lines
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Any, int, Any]] = {}
        self._unfolded = 0
        self._root: Any = None

    def read(self, text: str, loader: Any) -> Any:
        """Parse a document with this loader; return its value."""
        documents = 0
        for event in iter(loader(text).get_event, None):
            kind = type(event)
            if kind is yaml.ScalarEvent:
                self._scalar(event)
            elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
                self._begin(event, kind is yaml.MappingStartEvent)
            elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                self._end()
            elif kind is yaml.AliasEvent:
                self._alias(event)
            elif kind is yaml.DocumentStartEvent:
                documents += 1
                if documents > 1:
                    raise _fault("but found another document", event)
        return self._root

    def _scalar(self, event: Any) -> None:
        value: Any
        if event.tag is None or event.tag == "!":
            value = event.value
            if not event.implicit[0]:
                value = _text(value)
            elif value == "<<" and self._awaits_key():
                value = _MERGE
            else:
                value = _bare(value)
        else:
            value = _tagged(event)
        if event.anchor is not None:
            self._name(event.anchor, value, 1, event)
        self._put(value, 1, event)

    def _begin(self, event: Any, is_mapping: bool) -> None:
        if event.tag not in (None, "!", _TAG + ("map" if is_mapping else "seq")):
            raise _wrong_tag(event)
        if self._awaits_key():
            raise _not_a_string("this key", event)
        if len(self._open) >= MAX_LEVELS:
            raise InputError(NESTED_TOO_DEEPLY)
        opened = _Open(event, is_mapping)
        if opened.anchor is not None:
            self._name(opened.anchor, opened, 0, event)
        self._open.append(opened)

    def _end(self) -> None:
        done = self._open.pop()
        value = done.items if done.merged is None else done.merged | done.items
        if done.anchor is not None:
            self._anchors[done.anchor] = value, done.size, done
        self._put(value, done.size, done)

    def _alias(self, event: Any) -> None:
        if event.anchor not in self._anchors:
            raise _fault(f"found undefined alias {event.anchor!r}", event)
        value, size, source = self._anchors[event.anchor]
        if isinstance(value, _Open):
            where = position(value.start_mark)
            raise InputError(f"{where}: this value contains itself; write it out")
        self._unfolded += size
        if self._unfolded > MAX_UNFOLDED:
            raise InputError(
                f"its aliases expand to more than {MAX_UNFOLDED} values; use fewer of them"
            )
        self._put(value, size, source)

    def _name(self, anchor: str, value: Any, size: int, source: Any) -> None:
        if anchor in self._anchors:
            raise _fault("second occurrence", source)
        self._anchors[anchor] = value, size, source

    def _awaits_key(self) -> bool:
        return bool(self._open) and self._open[-1].is_mapping and self._open[-1].key is None

    def _put(self, value: Any, size: int, source: Any) -> None:
        """Add the value of an event, or of a finished list or mapping, to its container."""
        if not self._open:
            self._root = value
            return
        container = self._open[-1]
        container.size += size
        if not container.is_mapping:
            line = source.start_mark.line + 1
            container.items.append((line, value) if self._with_lines else value)
        elif container.key is None:
            _check_key(container, value, source)
            container.key, container.line = value, source.start_mark.line + 1
        elif container.key is _MERGE:
            container.key, container.merged = None, self._entries(value, source)
        else:
            key, container.key = intern(container.key), None
            container.items[key] = (container.line, value) if self._with_lines else value

    def _entries(self, value: Any, source: Any) -> dict[str, Any]:
        """The entries that a key `<<` supplies: those of a mapping or of a list of mappings."""
        merged: dict[str, Any] = {}
        for part in reversed(value) if isinstance(value, list) else [value]:
            entries = part[1] if self._with_lines and isinstance(value, list) else part
            if not isinstance(entries, dict):
                raise _fault("expected a mapping or list of mappings for merging", source)
            merged |= entries
        return merged


def _tagged(event: Any) -> Any:
    reading = _BY_TAG.get(event.tag)
    if reading is None or not reading[0].fullmatch(event.value):
        raise _wrong_tag(event)
    return reading[1](event.value)


def _check_key(container: _Open, key: Any, source: Any) -> None:
    """Raise InputError for a key that is not a string, and for a duplicate key."""
    if key is _MERGE:
        if container.merged is None:
            return
        key = "<<"
    elif not isinstance(key, str):
        name = f"key {source.value}" if isinstance(source, yaml.ScalarEvent) else "this key"
        raise _not_a_string(name, source)
    elif key not in container.items:
        return
    line = source.start_mark.line + 1
    raise InputError(f"line {line}: key {key!r} occurs twice; remove one")


def _not_a_string(key: str, event: Any) -> InputError:
    return InputError(f"{position(event.start_mark)}: {key} is not a string; put it in quotes")


def _wrong_tag(event: Any) -> InputError:
    tag, where = event.tag.replace(_TAG, "!!"), position(event.start_mark)
    known = event.tag.startswith(_TAG) and event.tag.removeprefix(_TAG) in _KNOWN
    what = f"tag {tag!r} does not fit this value" if known else f"unknown tag {tag!r}"
    return InputError(f"{where}: {what}; write plain values")


def _fault(problem: str, event: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)


def position(mark: Any) -> str:
    """The line and column of a mark in the text."""
    return f"line {mark.line + 1}, column {mark.column + 1}"
