"""Find words and phrases that the project avoids, by the list in docs/words.toml.

    scripts/words.py [--count] [PATH ...]

Without a path it checks the files that the list names, except those that it defers; with paths,
the Markdown and Python files there, deferred or not. `--count` prints the number of findings by
package. In Markdown it reads the prose, without code; in Python the comments, the strings with
a space, and the names that are defined.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LIST = ROOT / "docs" / "words.toml"
FENCED = re.compile(r"^([ ]*```).*?^\1", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]+`")
STRINGS = {"STRING", "FSTRING_MIDDLE", "TSTRING_MIDDLE"}
GAP = r"""(?: | ?["']?\n[ \t#>f"']*)"""
"""What a space of a phrase matches: a space, or a line end, also between joined strings."""


@dataclass(frozen=True)
class Words:
    """The list: regular expressions of phrases and words of names, each with its advice."""

    check: Sequence[str]
    phrases: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    allow: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def paths(self, root: Path) -> list[Path]:
        """The files to check."""
        return sorted({path for glob in self.check for path in root.glob(glob)})


@dataclass(frozen=True)
class Finding:
    """A phrase or name at a line of a file, and the text of that line."""

    line: int
    found: str
    advice: str
    text: str


def findings(path: Path, words: Words) -> list[Finding]:
    """The phrases and names of a file that the list has, by line; nothing is allowed here."""
    source = path.read_text(encoding="utf-8")
    lines = [*source.split("\n"), ""]
    is_python = path.suffix == ".py"
    prose = CODE.sub(blank, python_prose(source) if is_python else FENCED.sub(blank, source))
    hits = [
        (prose.count("\n", 0, hit.end()) + 1, re.sub(GAP, " ", hit[0]).strip(), advice)
        for phrase, advice in words.phrases.items()
        for hit in re.finditer(phrase.replace(" ", GAP), prose, re.IGNORECASE)
    ]
    if is_python:
        for line, name in defined_names(ast.parse(source)):
            parts = re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)
            hits += [
                (line, name, words.names[part.lower()])
                for part in parts
                if part.lower() in words.names
            ]
    return [
        Finding(line, found, advice, lines[line - 1]) for line, found, advice in sorted(hits)
    ]


def blank(hit: re.Match[str]) -> str:
    """Replace what is not prose by a character that no phrase has; lines stay."""
    return re.sub(r"[^\n]", "\0", hit[0])


def python_prose(source: str) -> str:
    """The comments and the strings with a space of a module; all else is blank, lines stay."""
    lines = [re.sub(r"\S", "\0", line) for line in source.splitlines(keepends=True)]
    original = source.splitlines(keepends=True)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        kind = tokenize.tok_name[token.type]
        if kind != "COMMENT" and not (kind in STRINGS and " " in token.string):
            continue
        (first, begin), (last, end) = token.start, token.end
        for number in range(first, last + 1):
            left = begin if number == first else 0
            right = end if number == last else len(original[number - 1])
            line = lines[number - 1]
            lines[number - 1] = line[:left] + original[number - 1][left:right] + line[right:]
    return "".join(lines)


def defined_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The names that a module defines: functions, classes, arguments, variables, attributes."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.lineno, node.name
            case ast.arg():
                yield node.lineno, node.arg
            case ast.Name(ctx=ast.Store()):
                yield node.lineno, node.id
            case ast.Attribute(ctx=ast.Store()):
                yield node.lineno, node.attr


def check(paths: Iterable[Path], words: Words, root: Path) -> Iterator[tuple[str, str]]:
    """Yield a file and a message for each finding that is not allowed.

    An allowed text that allows nothing in a file that is checked is a finding, too.
    """
    for path in paths:
        name = str(path.relative_to(root))
        allowed, used = words.allow.get(name, ()), set()
        for finding in findings(path, words):
            matching = {text for text in allowed if text in finding.text}
            used |= matching
            if not matching:
                yield name, f"{name}:{finding.line}: {finding.found!r}: {finding.advice}"
        for text in allowed:
            if text not in used:
                yield name, f"{name}: docs/words.toml allows {text!r}, which is not needed"


def files_in(arguments: Sequence[str]) -> list[Path]:
    """The Markdown and Python files at the paths that are given."""
    given = [Path(argument).resolve() for argument in arguments]
    if missing := [
        str(path) for path in given if not path.is_relative_to(ROOT) or not path.exists()
    ]:
        sys.exit(f"scripts/words.py: not a path of this project: {', '.join(missing)}")
    found = [path for one in given for path in (one.rglob("*") if one.is_dir() else [one])]
    return sorted(path for path in found if path.suffix in {".md", ".py"})


def package_of(name: str) -> str:
    """The folder under which findings of a file are counted: docs, or a package of src."""
    parts = Path(name).parts[:-1]
    return "/".join(parts[:3] if parts[:1] == ("src",) else parts[:1]) or "."


def main(arguments: Sequence[str]) -> int:
    """Print the findings; return 1 if there are any."""
    plain: dict[str, Any] = tomllib.loads(LIST.read_text(encoding="utf-8"))
    words = Words(**plain)
    if {"-h", "--help"} & set(arguments):
        print(__doc__, end="")
        return 0
    given = [argument for argument in arguments if argument != "--count"]
    if unknown := [argument for argument in given if argument.startswith("-")]:
        sys.exit(f"scripts/words.py: unknown option {unknown[0]}; expected --count or --help")
    found = list(check(files_in(given) if given else words.paths(ROOT), words, ROOT))
    if "--count" in arguments:
        counts = Counter(package_of(name) for name, _ in found)
        print(*(f"{count:5} {name}" for name, count in sorted(counts.items())), sep="\n")
    else:
        print(*(message for _, message in found), sep="\n", end="\n" if found else "")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
