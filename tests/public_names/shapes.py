"""The shapes of JSON values and of JSON schemas as lines of text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

FREE = "x-"
"""Names that users choose begin with this in the samples; their keys are written as `*`."""

SLOT_KINDS = ("task", "map", "reduce")
"""Keys that are kinds of slots, which users choose, too."""

CONSTRAINTS = (
    *("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"),
    *("minLength", "maxLength", "pattern", "minItems", "maxItems"),
)

KINDS = {type(None): "null", bool: "boolean", int: "integer", float: "number", str: "string"}


def shape(samples: Iterable[Any], *, types: bool = True) -> list[str]:
    """A line for each key that occurs in the samples, with its types.

    A `?` is at keys that not all samples have. `types` False: only the keys.
    """
    found: list[str] = []
    for path, mark, kinds in _shape("", "", list(samples)):
        found.append(f"{path}{mark}: {' | '.join(kinds)}" if types else f"{path}{mark}")
    return found


def _shape(path: str, mark: str, samples: list[Any]) -> Iterator[tuple[str, str, list[str]]]:
    objects = [one for one in samples if isinstance(one, Mapping)]
    lists = [one for one in samples if isinstance(one, list | tuple)]
    kinds = {KINDS[type(one)] for one in samples if type(one) in KINDS}
    if path:
        kinds |= ({"object"} if objects else set()) | ({"array"} if lists else set())
        yield path, mark, sorted(kinds - ({"integer"} if "number" in kinds else set()))
    keys: dict[str, list[Any]] = {}
    for one in objects:
        for key, value in one.items():
            keys.setdefault(
                "*" if key.startswith(FREE) or key in SLOT_KINDS else key, []
            ).append(value)
    for key in sorted(keys):
        is_always = key == "*" or len(keys[key]) == len(objects)
        dot = "." if path else ""
        yield from _shape(f"{path}{dot}{key}", "" if is_always else "?", keys[key])
    items = [item for one in lists for item in one]
    if items:
        yield from _shape(f"{path}[]", "", items)


def schema(root: Mapping[str, Any]) -> list[str]:
    """A line for each key of a JSON schema: its types, limits and default.

    A `?` is at keys that may be left out. References are followed, so the names of their
    targets make no difference.
    """
    targets = root.get("$defs", {})

    def resolved(node: Mapping[str, Any]) -> Mapping[str, Any]:
        while "$ref" in node:
            rest = {key: value for key, value in node.items() if key != "$ref"}
            node = {**targets[node["$ref"].rpartition("/")[2]], **rest}
        return node

    def choices(node: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        node = resolved(node)
        several = node.get("anyOf") or node.get("oneOf")
        if several is None:
            return [node]
        return [choice for one in several for choice in choices(one)]

    def kind(node: Mapping[str, Any]) -> str:
        limits = [f"{name} {json.dumps(node[name])}" for name in CONSTRAINTS if name in node]
        if "enum" in node or "const" in node:
            return " | ".join(map(json.dumps, node.get("enum", [node.get("const")])))
        return " ".join(
            [node.get("type", "anything"), *([f"({', '.join(limits)})"] * bool(limits))]
        )

    def lines(path: str, node: Mapping[str, Any], suffix: str, mark: str) -> Iterator[str]:
        all_choices = choices(node)
        if path:
            yield f"{path}{mark}: {' | '.join(sorted(map(kind, all_choices)))}{suffix}"
        for one in all_choices:
            dot = "." if path else ""
            for key, value in sorted(one.get("properties", {}).items()):
                optional = "" if key in one.get("required", ()) else "?"
                default = f" = {json.dumps(value['default'])}" if "default" in value else ""
                yield from lines(f"{path}{dot}{key}", value, default, optional)
            if isinstance(one.get("additionalProperties"), Mapping):
                yield from lines(f"{path}{dot}*", one["additionalProperties"], "", "")
            for number, item in enumerate(one.get("prefixItems", ())):
                yield from lines(f"{path}[{number}]", item, "", "")
            if isinstance(one.get("items"), Mapping):
                yield from lines(f"{path}[]", one["items"], "", "")

    return list(lines("", root, "", ""))
