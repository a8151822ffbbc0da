"""The text of a workload file as plain data, by the rules of YAML 1.2, and its line numbers.

PyYAML reads YAML 1.1, where `1e3` and `no` are not what they seem and JSON is no part of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from slotwise.model.errors import InputError

Path = tuple[str | int, ...]
"""The keys and item numbers that lead to a value."""

UNFOLDED_MOST = 1_000_000
"""A file whose aliases stand for more values than this is refused."""

_TAG = "tag:yaml.org,2002:"
_DIGITS_MOST = 400


class _Loader(yaml.SafeLoader):
    """Plain data only; bare words are read as YAML 1.2 reads them."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012


_BARE = (
    ("null", r"null|~|", [*"n~", ""]),
    ("bool", r"true|false", [*"tf"]),
    ("int", r"[-+]?[0-9]+", [*"-+0123456789"]),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", [*"-+.0123456789"]),
    ("float", r"[-+]?\.inf|\.nan", [*"-+."]),
    ("merge", r"<<", ["<"]),
)
"""What a bare word may be other than a text: its tag, its pattern, how it begins."""

for _name, _pattern, _first in _BARE:
    _Loader.add_implicit_resolver(_TAG + _name, re.compile(f"(?:{_pattern})$"), _first)


def _integer(loader: _Loader, node: yaml.ScalarNode) -> int | float:
    text = str(loader.construct_scalar(node))
    # Python refuses to read very long integers; as a float they are infinite, and refused so.
    return int(text) if len(text) < _DIGITS_MOST else float(text)


_Loader.add_constructor(f"{_TAG}int", _integer)

_TAGS = {_TAG + name for name in ("map", "seq", "str", *(name for name, _, _ in _BARE))}


def parse_text(text: str) -> tuple[Any, dict[Path, int]]:
    """The data of a YAML or JSON text, and the line on which each value begins.

    InputError, with the line, for what is no YAML, for keys that stand twice, for tags, for
    values that contain themselves, and for aliases that stand for too much. O(size).
    """
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None, {}
        sizes: dict[int, int] = {}
        unfolded = _size(node, sizes)
        if unfolded - len(sizes) > UNFOLDED_MOST:
            raise InputError(
                f"its aliases stand for more than {UNFOLDED_MOST} values; use fewer of them"
            )
        return loader.construct_document(node), _line_numbers(node)
    except yaml.YAMLError as error:
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        mark = getattr(error, "problem_mark", None)
        where = f"{_at(mark)}: " if mark else ""
        raise InputError(f"{where}not YAML or JSON: {problem}; mend it there") from error
    except RecursionError as error:
        raise InputError("its values are nested too deeply; use fewer levels") from error
    except ValueError as error:
        raise InputError(f"not YAML or JSON that can be read: {error}; mend it") from error


def _size(node: yaml.Node, sizes: dict[int, int]) -> int:
    """The number of values below a node with all aliases unfolded; checks each node once."""
    size = sizes.get(id(node))
    if size == 0:
        raise InputError(f"{_at(node.start_mark)}: this value contains itself; write it out")
    if size is None:
        _check_tag(node)
        if isinstance(node, yaml.ScalarNode) and not node.value.isascii():
            # JSON writes a character beyond the first plane as two halves, which YAML keeps.
            halves = node.value.encode("utf-16", "surrogatepass")
            node.value = halves.decode("utf-16", "replace")
        sizes[id(node)] = 0  # Until all below it is known.
        size = sizes[id(node)] = 1 + sum(_size(part, sizes) for part in _parts(node))
    return size


def _parts(node: yaml.Node) -> Iterator[yaml.Node]:
    if isinstance(node, yaml.SequenceNode):
        yield from node.value
    elif isinstance(node, yaml.MappingNode):
        seen = set()
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag not in (
                f"{_TAG}str",
                f"{_TAG}merge",
            ):
                said = f"key {key.value}" if isinstance(key, yaml.ScalarNode) else "this key"
                raise InputError(f"{_at(key.start_mark)}: {said} is no text; put it in quotes")
            if key.value in seen:
                line = key.start_mark.line + 1
                raise InputError(f"line {line}: key {key.value!r} stands twice; remove one")
            seen.add(key.value)
            yield key
            yield value


def _check_tag(node: yaml.Node) -> None:
    if node.tag not in _TAGS:
        tag = node.tag.replace(_TAG, "!!")
        raise InputError(f"{_at(node.start_mark)}: unknown tag {tag!r}; write plain values")


def _at(mark: Any) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}"


def _line_numbers(root: yaml.Node) -> dict[Path, int]:
    """The line on which each key or item of a YAML document begins."""
    found: dict[Path, int] = {}
    waiting: list[tuple[yaml.Node, Path]] = [(root, ())]
    while waiting:
        node, path = waiting.pop()
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                inner = (*path, key.value)
                found[inner] = key.start_mark.line + 1
                waiting.append((value, inner))
        elif isinstance(node, yaml.SequenceNode):
            for number, value in enumerate(node.value):
                found[*path, number] = value.start_mark.line + 1
                waiting.append((value, (*path, number)))
    return found
