"""One clear message for whatever is wrong with a workload file: place, value, remedy."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from slotwise.workload.schema import WorkloadEntry

Path = tuple[str | int, ...]


def complaint(error: ValidationError, data: Any, lines: dict[Path, int]) -> str:
    """The message for the first fault that a reader of the file meets."""
    faults = sorted(error.errors(), key=lambda fault: lines.get(_real(fault["loc"], data), 0))
    fault = faults[0]
    path = _real(fault["loc"], data)
    same = [f for f in faults if _real(f["loc"], data) == path]
    # Where a value may have one of several types, each of them complains.
    says = "; or ".join(dict.fromkeys(_remedy(f, data) for f in same))
    return f"{place(path, lines)}{_value(fault, path, data)}: {says}"


def place(path: Path, lines: dict[Path, int]) -> str:
    """A path as people write it, with its line: jobs[2].phases[0].work (line 14)."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    text = text.lstrip(".") or "the file"
    known = path
    while known and known not in lines:
        known = known[:-1]
    return f"{text} (line {lines[known]})" if known in lines else text


def line_numbers(node: yaml.Node | None, path: Path = ()) -> dict[Path, int]:
    """The line on which each key or item of a YAML document begins. O(size)."""
    found: dict[Path, int] = {}
    waiting = [(node, path)]
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


def _real(location: Sequence[str | int], data: Any) -> Path:
    """The part of pydantic's location that is a place in the file: it also names types."""
    path: list[str | int] = []
    for step in location:
        if isinstance(data, dict):
            path.append(step)
            data = data.get(step)
        elif isinstance(data, list) and isinstance(step, int):
            path.append(step)
            data = data[step] if step < len(data) else None
    return tuple(path)


def _value(fault: ErrorDetails, path: Path, data: Any) -> str:
    if fault["type"] == "missing":
        return ""
    for step in path:
        data = data[step] if isinstance(data, dict | list) else None
    text = repr(data)
    return (
        "" if isinstance(data, dict) else f" is {text if len(text) < 60 else text[:57] + '...'}"
    )


def _remedy(fault: ErrorDetails, data: Any) -> str:
    kind, context = fault["type"], fault.get("ctx", {})
    if kind == "missing":
        return "it is missing; add it"
    if kind == "extra_forbidden":
        return _unknown_key(fault["loc"], data)
    if kind == "value_error":
        return str(context["error"])
    if kind == "none_required":
        return "nested pools are not supported yet; leave it out"
    message = fault["msg"].replace("Input should be", "it must be")
    message = message.replace("a valid string", "a text; put it in quotes")
    return message[0].lower() + message[1:]


def _unknown_key(location: Sequence[str | int], data: Any) -> str:
    *steps, key = location
    known = _keys_at([step for step in steps if isinstance(step, str)])
    close = get_close_matches(str(key), known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"known keys: {', '.join(known)}"
    return f"unknown key {key!r}; {hint}"


def _keys_at(steps: Sequence[str]) -> list[str]:
    """The keys that the schema knows below these keys."""
    model: type[BaseModel] = WorkloadEntry
    for step in steps:
        if step in model.model_fields:
            model = _model_in(model.model_fields[step].annotation) or model
    return list(model.model_fields)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in get_args(annotation):
        found = _model_in(argument)
        if found:
            return found
    return None
