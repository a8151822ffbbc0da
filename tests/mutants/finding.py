"""Finding the place of a mutant by its text, and changing the source there.

A mutant names no line: it has the qualified name of a function and a statement in it, of a
compound statement its header, as `ast.unparse` writes it. So it is found wherever the function
moves, in whatever file, and however it is formatted.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
HEADS = (ast.If, ast.While, ast.For, ast.AsyncFor, ast.With, ast.AsyncWith, ast.ExceptHandler)
"""Statements of which a mutant changes the header alone."""

BODIES = (*FUNCTIONS, ast.ClassDef, ast.Try, ast.TryStar, ast.Match)
"""Other statements with a body: no mutant changes them."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A change of one statement, and what the tests made of it.

    Args:
        id: Never changes, and is never used again.
        kind: What the change does: `boundary` (`<` for `<=`), `comparison` (another operator),
            `arithmetic` (`-` for `+`), `and-or`, `negated` (a condition), `off-by-one`,
            `extreme` (`min` for `max`), `sort` (reversed), `swapped` (arguments), `returned`
            (None), `removed` (a statement), `except` (which catches nothing).
        file: Below `src/slotwise`, when the mutant was made. It is not used to find the place.
        function: The qualified name, without the module: `State.apply`, `outer.inner`.
        original: The statement.
        mutated: What replaces it.
        tests: The test files to run.
        baseline: `killed` or `survived`; `timeout` counts as killed; None before the first run.
        killed_by: The test that failed.
        rewritten: Why the mutant was changed by hand after the set was made.
    """

    id: str
    kind: str
    file: str
    function: str
    original: str
    mutated: str
    tests: tuple[str, ...]
    baseline: str | None = None
    killed_by: str | None = None
    rewritten: str | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """A statement in a file."""

    file: Path
    function: str
    node: Any


def header(node: Any) -> str:
    """The statement on one line; of a compound statement the header."""
    if not isinstance(node, HEADS):
        return ast.unparse(node)
    bare = copy.copy(node)
    bare.body, bare.orelse = [ast.Pass()], []
    return ast.unparse(bare).removesuffix("\n    pass").strip()


def parsed(text: str) -> Any:
    """The statement, or the header with `pass` as its body; an error if it is neither."""
    if text.startswith("except"):
        return ast.parse(f"try:\n    pass\n{text}\n    pass").body[0].handlers[0]  # type: ignore[attr-defined]
    (node,) = ast.parse(f"{text}\n    pass" if text.endswith(":") else text).body
    return node


def statements(tree: ast.AST, function: str = "") -> Iterator[tuple[str, Any]]:
    """Each statement that a mutant may change, with the name of its function."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, (*FUNCTIONS, ast.ClassDef)):
            yield from statements(child, f"{function}.{child.name}".lstrip("."))
        else:
            if isinstance(child, (ast.stmt, ast.ExceptHandler)) and not isinstance(
                child, BODIES
            ):
                yield function, child
            yield from statements(child, function)


def places(
    files: Iterable[Path], functions: Iterable[str]
) -> dict[tuple[str, str], list[Place]]:
    """The statements of functions with these last names, by that name and the text."""
    wanted = {last_name(function) for function in functions}
    found: dict[tuple[str, str], list[Place]] = {}
    for file in files:
        for function, node in statements(ast.parse(file.read_text())):
            if (name := last_name(function)) in wanted:
                found.setdefault((name, header(node)), []).append(Place(file, function, node))
    return found


def last_name(function: str) -> str:
    """`apply` of `State.apply`."""
    return function.rpartition(".")[2]


def find(mutant: Mutant, places: Mapping[tuple[str, str], Sequence[Place]]) -> Place | None:
    """The one place of the mutant; None if there is none, or several.

    A function with the same qualified name comes first. Otherwise one with the same last name
    is enough, because a class or an outer function may have another name now.
    """
    same_text = places.get((last_name(mutant.function), header(parsed(mutant.original))), [])
    same_name = [place for place in same_text if place.function == mutant.function]
    found = same_name or same_text
    return found[0] if len(found) == 1 else None


def apply(source: str, node: Any, mutated: str) -> str:
    """The source with the statement, or its header, replaced. Other lines stay as they are."""
    lines = source.encode().splitlines(keepends=True)
    first = lines[node.lineno - 1]
    indent, rest = first[: node.col_offset], first[node.col_offset :]
    assert not indent.strip(), "a statement begins its line"
    text = mutated.encode()
    if isinstance(node, HEADS):
        inner = node.body[0]
        after = min(
            [inner.lineno, *(each.lineno for each in getattr(inner, "decorator_list", ()))]
        )
        assert after > node.lineno, "a body begins on a line of its own"
        if rest.startswith(b"elif"):
            text = b"el" + text
        lines[node.lineno - 1 : after - 1] = [indent + text + b"\n"]
    else:
        tail = lines[node.end_lineno - 1][node.end_col_offset :]
        lines[node.lineno - 1 : node.end_lineno] = [indent + text + tail]
    changed = b"".join(lines).decode()
    ast.parse(changed)
    return changed


def renamed(mutant: Mutant, renames: Sequence[tuple[str, str]]) -> Mutant:
    """The mutant with new names, one rename after the other, in names, texts and tests."""

    def new(text: str) -> str:
        for old, name in renames:
            text = re.sub(rf"(?<!\w){re.escape(old)}(?!\w)", lambda _, name=name: name, text)
        return text

    return replace(
        mutant,
        function=new(mutant.function),
        original=new(mutant.original),
        mutated=new(mutant.mutated),
        tests=tuple(map(new, mutant.tests)),
        killed_by=mutant.killed_by and new(mutant.killed_by),
    )


def read_renames(text: str) -> list[tuple[str, str]]:
    """The renames of a file with lines `old = new`; `#` begins a comment."""
    lines = (line.partition("#")[0] for line in text.splitlines())
    pairs = (line.partition("=") for line in lines if line.strip())
    return [(old.strip(), new.strip()) for old, _, new in pairs]
