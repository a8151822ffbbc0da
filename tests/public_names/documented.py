"""The import statements that the documents and the docstrings show."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]

STATEMENT = re.compile(
    r"^[ \t]*(?:>>> )?"
    r"(from slotwise[\w.]* import (?:\([^)]*\)|[\w, ]*\w)|import slotwise[\w.]*)"
    r"[ \t]*(?:#.*)?$",
    re.MULTILINE,
)
CODE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
IN_TEXT = re.compile(r"`(from slotwise[\w.]* import [\w, ]*\w|import slotwise[\w.]*)`")


def documented_imports() -> dict[str, set[str]]:
    """For each module that the documents import, the names that they take from it."""
    found: dict[str, set[str]] = {}
    for text in documented_texts():
        for pattern in (STATEMENT, IN_TEXT):
            for statement in pattern.findall(text):
                (node,) = ast.parse(statement).body
                if isinstance(node, ast.ImportFrom):
                    taken = {one.name for one in node.names}
                    found.setdefault(str(node.module), set()).update(taken)
                elif isinstance(node, ast.Import):
                    for one in node.names:
                        found.setdefault(one.name, set())
    return found


@cache
def documented_texts() -> tuple[str, ...]:
    """The pages, the examples, and the docstrings of the package."""
    return tuple(_texts())


def _texts() -> Iterator[str]:
    for page in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]):
        text = page.read_text(encoding="utf-8")
        # The code of the guides for contributors adds names that the package does not have.
        yield CODE.sub("", text) if page.name.startswith("add-a") else text
    for example in sorted((ROOT / "docs").rglob("*.py")):
        yield example.read_text(encoding="utf-8")
    for module in sorted((ROOT / "src").rglob("*.py")):
        yield from docstrings(ast.parse(module.read_text(encoding="utf-8")))


def docstrings(tree: ast.Module) -> Iterator[str]:
    """The docstrings of a module: its own, and those of its classes and functions."""
    for node in ast.walk(tree):
        if isinstance(
            node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        ) and (text := ast.get_docstring(node)):
            yield text
