"""Candidates for mutants: small changes of the statements of functions.

    python -m mutants.generate [FILE ...]    candidates below src/slotwise, as JSON lines

The set was drawn from these. Messages, assertions, type checks, and what only shows values are
left out, and so are statements that occur twice in a function.
"""

from __future__ import annotations

import ast
import copy
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from mutants.finding import header, parsed, statements

SOURCE = Path(__file__).parents[2] / "src" / "slotwise"
SHOWING = {"__repr__", "__str__", "check", ""}
"""Functions that only show or check values; the empty name is the module."""

NAMES_LEFT_OUT = {"isinstance", "issubclass", "TYPE_CHECKING", "print", "warn"}
COMPARISONS: dict[type, tuple[type, ...]] = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
OPERATORS: dict[type, type] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
}
EXTREMES = {"min": "max", "max": "min"}


class Candidate(NamedTuple):
    """A mutant without its tests."""

    kind: str
    file: str
    function: str
    original: str
    mutated: str
    line: int


def changes(node: Any) -> Iterator[tuple[str, Callable[[Any], object]]]:
    """The kinds of changes of one node, with functions that make them."""
    match node:
        case ast.Compare(ops=[operator]):
            for index, new in enumerate(COMPARISONS[type(operator)]):
                kind = (
                    "boundary"
                    if index == 0 and len(COMPARISONS[type(operator)]) > 1
                    else "comparison"
                )
                yield kind, lambda node, new=new: setattr(node, "ops", [new()])
        case ast.BinOp(op=operator) if type(operator) in OPERATORS:
            new = OPERATORS[type(operator)]
            yield "arithmetic", lambda node: setattr(node, "op", new())
        case ast.BoolOp(op=operator):
            other = ast.Or if isinstance(operator, ast.And) else ast.And
            yield "and-or", lambda node: setattr(node, "op", other())
        case ast.Constant(value=int() | float()) if not isinstance(node.value, bool):
            yield "off-by-one", lambda node: setattr(node, "value", node.value + 1)
        case ast.If() | ast.IfExp():
            yield (
                "negated",
                lambda node: setattr(node, "test", ast.UnaryOp(ast.Not(), node.test)),
            )
        case ast.Call():
            yield from changes_of_call(node)
        case ast.Return(value=ast.expr()) if ast.unparse(node.value) != "None":
            yield "returned", lambda node: setattr(node, "value", ast.Constant(None))
        case ast.ExceptHandler(type=ast.expr()):
            yield "except", lambda node: setattr(node, "type", ast.Tuple([], ast.Load()))


def changes_of_call(node: ast.Call) -> Iterator[tuple[str, Callable[[Any], object]]]:
    """Sorted backwards, the other extreme, or the first two arguments swapped."""
    name = ast.unparse(node.func).rpartition(".")[2]
    if name in EXTREMES and isinstance(node.func, ast.Name):
        yield "extreme", lambda node: setattr(node.func, "id", EXTREMES[node.func.id])
    elif name in ("sorted", "sort") and not any(
        each.arg == "reverse" for each in node.keywords
    ):
        reverse = ast.keyword("reverse", ast.Constant(True))
        yield "sort", lambda node: node.keywords.append(reverse)
    elif len(node.args) >= 2 and not any(isinstance(arg, ast.Starred) for arg in node.args[:2]):
        yield "swapped", lambda node: node.args.__setitem__(slice(0, 2), node.args[1::-1])


def variants(text: str) -> Iterator[tuple[str, str]]:
    """The kind and the text of each change of a statement."""
    node = parsed(text)
    for index, part in enumerate(ast.walk(node)):
        for kind, change in changes(part):
            changed = copy.deepcopy(node)
            change(list(ast.walk(changed))[index])
            if (mutated := header(changed)) != text:
                yield kind, mutated
    targets = getattr(node, "targets", [getattr(node, "target", None)])
    is_effect = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    if is_effect or isinstance(targets[0], (ast.Attribute, ast.Subscript)):
        yield "removed", "pass"


def is_left_out(node: Any) -> bool:
    """Whether a statement only raises, asserts, checks types, or has an f-string (a message)."""
    if isinstance(node, (ast.Raise, ast.Assert, ast.Import, ast.ImportFrom)):
        return True
    parts = list(ast.walk(parsed(header(node))))
    names = {part.id for part in parts if isinstance(part, ast.Name)}
    return bool(names & NAMES_LEFT_OUT) or any(
        isinstance(part, ast.JoinedStr) for part in parts
    )


def candidates(files: Iterable[Path]) -> list[Candidate]:
    """All candidates of these files, in their order."""
    found = []
    for file in files:
        inside = list(statements(ast.parse(file.read_text())))
        times = Counter((function, header(node)) for function, node in inside)
        for function, node in inside:
            text = header(node)
            if times[function, text] > 1 or not SHOWING.isdisjoint(
                [function.rpartition(".")[2]]
            ):
                continue
            if not is_left_out(node):
                name = file.relative_to(SOURCE).as_posix()
                for kind, mutated in variants(text):
                    found.append(Candidate(kind, name, function, text, mutated, node.lineno))
    return found


def main(names: list[str]) -> None:
    """Print the candidates of files, or of all."""
    files = [SOURCE / name for name in names] or sorted(SOURCE.rglob("*.py"))
    for candidate in candidates(files):
        print(json.dumps(candidate._asdict()))


if __name__ == "__main__":
    main(sys.argv[1:])
