"""The check of words: phrases in prose, words in names, and what the list allows or defers."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from scripts.words import LIST, Words, check, findings

LISTED = Words(**tomllib.loads(LIST.read_text(encoding="utf-8")))
WORDS = Words(
    check=("*.md", "src/**/*.py"),
    phrases=LISTED.phrases,
    names=LISTED.names,
)


def written(folder: Path, name: str, text: str) -> Path:
    """A file with this text."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("It waits for ever.\n", [1]),
        ("One.\n\n- It waits for\n  ever, and x is no job.\n", [4, 4]),
        ("It waits for\n\never.\n", []),
        ("`for ever` and\n```text\nfor ever\n```\n", []),
        ("```text\nfor\n```\nIt waits for ever.\n", [4]),
        ("There\n  is no job; it is no longer one.\n", []),
    ],
)
def test_phrases_are_found_in_the_prose_of_a_page(
    tmp_path: Path, text: str, lines: list[int]
) -> None:
    """Also across the end of a line; code is left out."""
    page = written(tmp_path, "page.md", text)
    assert [finding.line for finding in findings(page, WORDS)] == lines


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ('"""It waits for ever."""\n', [1]),
        ("x = 1\n# It waits for\n# ever.\n", [3]),
        ('x = (\n    "it is "\n    "no job"\n)\n', [3]),
        ('x = f"{1} is no job"\n', [1]),
        ('x = {"behind": "for_ever"}\n', []),
        ("behind = phase.successors\n", [1]),
        ("x = phase.behind\n", []),
        ("def is_behind(): ...\n", [1]),
        (
            "class Behind:\n    def __init__(self, behind):\n        self.behind = 1\n",
            [1, 2, 3],
        ),
    ],
)
def test_phrases_and_names_are_found_in_a_module(
    tmp_path: Path, text: str, lines: list[int]
) -> None:
    """Phrases in comments and in strings with a space; names where they are defined."""
    module = written(tmp_path, "module.py", text)
    assert [finding.line for finding in findings(module, WORDS)] == lines


def test_allowed_lines_pass_and_what_allows_nothing_is_reported(tmp_path: Path) -> None:
    """A line that has an allowed text passes, in this file only."""
    pages = [written(tmp_path, name, "It waits for ever.\n") for name in ("a.md", "b.md")]
    words = Words(WORDS.check, phrases=WORDS.phrases, allow={"a.md": ("waits for ever",)})
    ((_, message),) = check(pages, words, tmp_path)
    assert message.startswith("b.md:1: 'for ever': ")
    unused = Words(WORDS.check, phrases=WORDS.phrases, allow={"b.md": ("forever",)})
    assert [name for name, _ in check(pages, unused, tmp_path)] == ["a.md", "b.md", "b.md"]


def test_the_files_of_the_list_are_checked(tmp_path: Path) -> None:
    """Those that a pattern names."""
    names = ("page.md", "src/now/a.py", "src/other.txt")
    made = [written(tmp_path, name, "") for name in names]
    assert WORDS.paths(tmp_path) == made[:2]


def test_the_pages_of_the_project_pass() -> None:
    """What scripts/check runs."""
    root = LIST.parents[1]
    assert list(check(LISTED.paths(root), LISTED, root)) == []
