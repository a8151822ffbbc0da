"""Read a workload file, parse it to plain data, and find the lines of its values.

JSON is read by `json`, which is many times faster than a YAML parser.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path as FilePath
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from slotwise.core.errors import UNSAFE_REMEDY, InputError, check_path, suggestion
from slotwise.core.files import open_to_read
from slotwise.core.units import NO_QUOTES, is_number_text
from slotwise.workload.schema import VERSION, WorkloadEntry
from slotwise.workload.yaml_text import HALF, integer, position, read_yaml

Path = tuple[str | int, ...]
"""The keys and item numbers that lead to a value."""

MAX_SIZE = 256 << 20
"""Bytes. A larger file is rejected and not read into memory."""

_WHOLE = re.compile(r"(\\u[dD][89abAB][0-9a-fA-F]{2})(\\u[dD][c-fC-F][0-9a-fA-F]{2})")
"""Both halves of a surrogate pair."""


class Lines:
    """The line on which each value of a document begins; computed on first use."""

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
    """Return the text of a file. An InputError asks for `wanted` in place of the file."""
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
    """Parse YAML or JSON. Return the data, and the line on which each value begins.

    Raises InputError, with the line, for invalid YAML, duplicate keys, tags, values that
    contain themselves, and aliases that expand to too many values. O(size).
    """
    try:
        return _parse_json(text), Lines(text)
    except (ValueError, RecursionError):
        pass  # Not JSON: the YAML parser reads it, or reports the error with its line.
    try:
        return read_yaml(text), Lines(text)
    except yaml.YAMLError as error:
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        mark = getattr(error, "problem_mark", None)
        where = f"{position(mark)}: " if mark else ""
        raise InputError(f"{where}not YAML or JSON: {problem}; correct it") from error
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


# Messages for validation errors of a workload file: place, value and remedy.

MAX_LENGTH = 60
"""The maximum number of characters of a value or a key that a message shows."""


def complaint(
    error: ValidationError,
    data: Any,
    lines: Lines,
    model: type[BaseModel] = WorkloadEntry,
    whole: str = "the file",
) -> str:
    """Return the message for the first error, in the order of the file.

    `model` is the schema. The message calls the whole data `whole`.
    """
    faults = [
        (real_path(fault["loc"], data, is_missing=fault["type"] == "missing"), fault)
        for fault in error.errors()
    ]
    first = min((path for path, _ in faults), key=lambda path: lines.get(path) or 0)
    # If a value may have one of several types, pydantic reports an error for each of them. The
    # intended type is assumed to be the one that matches deepest into the value.
    path = max((p for p, _ in faults if p[: len(first)] == first), key=len)
    same = [fault for p, fault in faults if p == path]
    kinds = {fault["type"] for fault in same}
    # A value of the right type has better remedies than those of other types.
    if any(not kind.endswith("_type") and kind != "literal_error" for kind in kinds):
        same = [fault for fault in same if not fault["type"].endswith("_type")]
    elif kinds & {"float_type", "int_type"}:  # Text may state a number with its unit.
        same = [fault for fault in same if fault["type"] != "string_type"]
    remedies = dict.fromkeys(_remedy(fault, path, data, model) for fault in same)
    remedy = ", or ".join(remedies).replace(", or expected ", ", or ")
    return f"{place(path, lines, whole)}{_value(same[0], path, data)}: {remedy}"


def place(path: Path, lines: Lines, whole: str = "the file") -> str:
    """Format a path with its line: jobs[2].phases[0].work (line 14)."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{_key(step)}" for step in path)
    text = "".join(steps)
    text = text.lstrip(".") or whole
    known = (lines.get(path[:length]) for length in range(len(path), 0, -1))
    line = next((line for line in known if line is not None), None)
    return text if line is None else f"{text} (line {line})"


def real_path(steps: Path, data: Any, is_missing: bool = False) -> Path:
    """The part of pydantic's location that is a path in the file, without names of types.

    The number of a value that is stated by name becomes its name. `is_missing`: the last key is
    not in the file.
    """
    path: list[str | int] = []
    for number, step in enumerate(steps, 1):
        is_mapping = isinstance(data, dict)
        if is_mapping and step not in data and isinstance(step, int) and step < len(data):
            step = list(data)[step]
        if is_mapping and (step in data or (is_missing and number == len(steps))):
            path.append(step)
            data = data.get(step)
        elif isinstance(data, list) and isinstance(step, int) and step < len(data):
            path.append(step)
            data = data[step]
    return tuple(path)


def _at(path: Path, data: Any) -> Any:
    """The value at a path in the file, or None."""
    for step in path:
        if isinstance(data, dict):
            data = data.get(step)
        elif isinstance(data, list) and isinstance(step, int):
            data = data[step]
    return data


def _value(fault: ErrorDetails, path: Path, data: Any) -> str:
    value = _at(path, data)
    exists = fault["type"] != "missing" or isinstance(value, list)
    if not exists or fault["type"] == "extra_forbidden" or isinstance(value, dict):
        return ""
    plain = value is None or isinstance(value, bool)
    text = json.dumps(value) if plain else repr(value)
    return f" is {short(text)}"


def short(text: str) -> str:
    """Shorten a string to MAX_LENGTH characters, the last three of them dots."""
    return text if len(text) < MAX_LENGTH else text[: MAX_LENGTH - 3] + "..."


def _key(name: str) -> str:
    """A key in a place: in quotes if it is empty or would break the line."""
    return short(name if name and name.isprintable() else repr(name))


PAIR = "expected a list of two numbers, [time, cost]"

AMOUNTS = "expected amounts by name, as in {memory: 4 GiB, gpu: 1}"

REMEDIES: dict[str, Callable[[dict[str, Any]], str]] = {
    "missing": lambda context: "it is missing; add it",
    "value_error": lambda context: str(context["error"]),
    "float_type": lambda context: "expected a number",
    "int_type": lambda context: "expected a whole number",
    "int_from_float": lambda context: "expected a whole number",
    "finite_number": lambda context: "expected a finite number",
    "greater_than": lambda context: f"expected a number > {context['gt']:.15g}",
    "greater_than_equal": lambda context: f"expected a number >= {context['ge']:.15g}",
    "less_than_equal": lambda context: f"expected a number <= {context['le']:.15g}",
    "bool_type": lambda context: "expected true or false",
    "list_type": lambda context: "expected a list, in brackets [ ]",
    "dict_type": lambda context: "expected keys and values, in braces { }",
    "tuple_type": lambda context: PAIR,
    "too_long": lambda context: PAIR,
    "too_short": lambda context: f"expected at least {context['min_length']}",
    "string_too_short": lambda context: "expected a non-empty string",
    "string_too_long": lambda context: f"expected at most {context['max_length']} characters",
    "string_pattern_mismatch": lambda context: UNSAFE_REMEDY,
    "string_unicode": lambda context: "remove the characters that are not Unicode",
    "literal_error": lambda context: f"expected {context['expected']}",
}
"""The remedy for each type of pydantic error, given the context of the error."""


def _remedy(fault: ErrorDetails, path: Path, data: Any, model: type[BaseModel]) -> str:
    kind, value = fault["type"], _at(path, data)
    keys = [step for step in path if isinstance(step, str)]
    if kind == "extra_forbidden":
        known = _keys_at(keys[:-1], model)
        if path[-1] in known:
            return f"{path[-1]} is not for this kind of phase; remove it"
        return _unknown_key(str(path[-1]), known)
    if kind == "model_type":
        names = ", ".join(_keys_at(keys, model))
        return f"expected keys and values, in braces {{ }}; known keys: {names}"
    if kind == "string_type":
        scalar = isinstance(value, bool | int | float)
        return "expected a string, in quotes" if scalar else "expected a string"
    if kind == "float_type" and path[:-1] == ("pools",):
        return "expected a weight, or keys and values, in braces { }"
    is_request = "resources" in keys and keys[0] != "pools"
    is_limit = "resources_max" in (path[2:] if keys[:1] == ["pools"] else path)
    if (is_request or is_limit) and kind in ("dict_type", "float_type", "int_type"):
        return AMOUNTS
    if kind in ("float_type", "int_type") and isinstance(value, str) and is_number_text(value):
        return NO_QUOTES
    if kind == "missing" and path == ("slotwise",):
        return f"it is missing; begin the file with `slotwise: {VERSION}`"
    if kind == "missing" and isinstance(value, list):
        return PAIR  # The missing part is an item of a pair.
    if kind in REMEDIES:
        return REMEDIES[kind](fault.get("ctx", {}))
    return fault["msg"].replace("Input should be", "it must be")


MEANT = {
    "mapreduce": "program",
    **dict.fromkeys(("cmd", "run", "script", "shell"), "command"),
    **dict.fromkeys(("cores", "cpus", "threads", "workers"), "slots"),
    **dict.fromkeys(("depends_on", "needs", "requires"), "after"),
    **dict.fromkeys(("memory", "mem", "ram", "gpu", "gpus"), "resources"),
    "environment": "env",
    "due": "deadline",
}
"""Keys that similar spelling would not suggest, by what users write for them."""


def _unknown_key(key: str, known: Sequence[str]) -> str:
    key = short(key)
    hint = suggestion(key, known, f"known keys: {', '.join(known)}", MEANT)
    return f"unknown key {key!r}; {hint}"


def _keys_at(steps: Sequence[str], model: type[BaseModel]) -> list[str]:
    """The keys that the schema allows below these keys."""
    models = [model]
    for step in steps:
        if step in models[0].model_fields:
            models = list(_models_in(models[0].model_fields[step].annotation)) or models
    found: dict[str, None] = {}
    for one in models:
        own = [name for name in one.model_fields if name in one.__annotations__]
        names = [*own, *one.model_fields]
        found |= dict.fromkeys(one.model_fields[name].alias or name for name in names)
    return list(found)


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)
