"""What the tests of the documents share: pages as blocks, and outputs with `...` in them."""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import chdir, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)
FILE_NAME = re.compile(r"# ([\w./-]+\.(?:py|yaml|txt))\n")
SECONDS_MOST = 300


@dataclass(frozen=True)
class Block:
    """A fenced block of a page: its language, its text, and the line on which it begins."""

    language: str
    text: str
    line: int


def blocks_of(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(found[1], found[2], text[: found.start()].count("\n") + 1)
        for found in FENCE.finditer(text)
    ]


def same(expected: str, got: str) -> bool:
    """Whether an output is as written; `...` stands for anything, and outer blanks for none."""
    lines = [re.escape(line).replace(r"\.\.\.", "(?s:.*)") for line in _lines(expected)]
    return re.fullmatch("\n".join(lines), "\n".join(_lines(got))) is not None


def _lines(text: str) -> list[str]:
    return "\n".join(map(str.rstrip, text.splitlines())).strip("\n").split("\n")


def clean_environment() -> dict[str, str]:
    """An environment in which `slotwise` is found and prints alike everywhere."""
    scripts = str(Path(sys.executable).parent)
    own = {"PATH": f"{scripts}{os.pathsep}{os.environ.get('PATH', '')}", "PYTHONUTF8": "1"}
    plain = {
        "COLUMNS": "100",
        "TERM": "dumb",
        "NO_COLOR": "1",
        "HOME": os.environ.get("HOME", "/"),
    }
    return own | plain


def run_page(page: Path) -> Iterator[str]:
    """Do what a page says in the present directory; yields what came out otherwise.

    A block that begins with `# name.yaml` (.py, .txt) is written to that file. Other python
    blocks run one after another in one namespace, and a text block right behind one is what it
    prints. A console block holds commands behind `$ ` with what they print.
    """
    namespace: dict[str, Any] = {"__name__": "__main__"}
    printed: str | None = None
    for block in blocks_of(page):
        where = f"{page.name}:{block.line}"
        if printed and block.language != "text":
            yield f"{where}: printed, but not on the page before it:\n{printed}"
        if block.language == "text" and printed is not None:
            if not same(block.text, printed):
                yield f"{where}: printed is\n{printed}"
        elif block.language == "console":
            yield from (f"{where}: {fault}" for fault in run_console(block.text))
        elif named := FILE_NAME.match(block.text):
            Path(named[1]).parent.mkdir(parents=True, exist_ok=True)
            Path(named[1]).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            out = io.StringIO()
            with redirect_stdout(out):
                exec(compile(block.text, where, "exec"), namespace)
            printed = out.getvalue()
            continue
        printed = None
    if printed:
        yield f"{page.name}: the last block printed, but not on the page:\n{printed}"


def run_console(text: str) -> Iterator[str]:
    """Run the `slotwise` commands of a console block; yields what came out otherwise."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        words = shlex.split(command)
        if words[0] != "slotwise":
            yield f"{command!r} is no slotwise command"
            continue
        done = subprocess.run(
            words,
            env=clean_environment(),
            capture_output=True,
            text=True,
            timeout=SECONDS_MOST,
            check=False,
        )
        printed = done.stderr + done.stdout  # Their order in time is not ours to know.
        if not same(expected, printed):
            yield f"{command}\nprinted is\n{printed}"


@pytest.fixture
def page_faults(tmp_path: Path) -> Callable[[str], list[str]]:
    """Runs a page of the project in an empty directory; what did not come out as written."""

    def faults(name: str) -> list[str]:
        with chdir(tmp_path):
            return list(run_page(ROOT / name))

    return faults


@pytest.fixture
def run_example(tmp_path: Path) -> Callable[[Path], str]:
    """Runs a script in an empty directory and returns what it prints."""

    def run(script: Path) -> str:
        done = subprocess.run(
            [sys.executable, str(script)],
            cwd=tmp_path,
            env=clean_environment() | {"TMPDIR": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=SECONDS_MOST,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture
def matches() -> Callable[[str, str], bool]:
    """The comparison of outputs."""
    return same
