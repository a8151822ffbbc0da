"""What the tests of the documents share: pages as blocks, and outputs with `...` in them."""

from __future__ import annotations

import io
import os
import re
import runpy
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, chdir, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from slotwise.cli.main import app
from slotwise.service.clients.transport import NoServerError, Transport, job_path
from waiting import until

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)
FILE_NAME = re.compile(r"# ([\w./-]+\.(?:py|yaml|toml|txt))\n")
TIMEOUT_SECONDS = 300

TERMINAL = {"COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1"}
"""Makes tables equally wide everywhere."""

RunCommand = Callable[[Sequence[str]], str]
"""Runs `slotwise` with arguments; returns what it prints, stderr before stdout.

The order in time of the two is not defined.
"""


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


def run_in_process(arguments: Sequence[str]) -> str:
    """Run `slotwise` in this process, which has its modules already."""
    done = CliRunner().invoke(app, list(arguments), env=TERMINAL)
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.stderr + done.stdout


def run_as_command(arguments: Sequence[str]) -> str:
    """Run the installed `slotwise`."""
    done = run_process(str(Path(sys.executable).with_name("slotwise")), *arguments)
    return done.stderr + done.stdout


def run_process(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in an environment in which it prints the same everywhere."""
    environment = {
        "PATH": search_path(),
        "PYTHONUTF8": "1",
        "HOME": os.environ.get("HOME", "/"),
        "XDG_STATE_HOME": os.environ.get("XDG_STATE_HOME", ""),
        "TMPDIR": os.getcwd(),
    }
    return subprocess.run(
        command,
        env=environment | TERMINAL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )


def run_page(page: Path, run_command: RunCommand, *, scripts: bool = False) -> Iterator[str]:
    """Do what a page says in the current directory; yield each output that differs from it.

    A block that begins with `# name.yaml` (.py, .toml, .txt) is written to that file. Other
    blocks of Python run one after another in one namespace, and a text block directly after one
    is its output. So do the commands of `sh` blocks, of which those that end with `&` run until
    the end of the page. A console block has commands after `$ `, each with its output. With
    `scripts` each block of Python has a namespace of its own, as a script has.
    """
    shared: dict[str, Any] = {"__name__": "__main__"}
    with ExitStack() as stack:
        yield from _run_blocks(page, run_command, None if scripts else shared, stack)


def _run_blocks(
    page: Path, run_command: RunCommand, shared: dict[str, Any] | None, stack: ExitStack
) -> Iterator[str]:
    printed: str | None = None
    for block in blocks_of(page):
        where = f"{page.name}:{block.line}"
        if printed and block.language != "text":
            yield f"{where}: printed, but not on the page before it:\n{printed}"
        if block.language == "text" and printed is not None:
            if not same(block.text, printed):
                yield f"{where}: printed is\n{printed}"
        elif block.language == "console":
            yield from (f"{where}: {fault}" for fault in run_console(block.text, run_command))
        elif named := FILE_NAME.match(block.text):
            Path(named[1]).parent.mkdir(parents=True, exist_ok=True)
            Path(named[1]).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            out = io.StringIO()
            namespace: dict[str, Any] = {"__name__": "__main__"} if shared is None else shared
            with redirect_stdout(out):
                exec(compile(block.text, where, "exec"), namespace)
            printed = out.getvalue()
            continue
        elif block.language == "sh":
            printed = run_shell(block.text, stack)
            continue
        printed = None
    if printed:
        yield f"{page.name}: the last block printed, but not on the page:\n{printed}"


def run_shell(text: str, stack: ExitStack) -> str:
    """Run commands in a shell; what they print is returned if the last one has failed.

    What they leave running is ended with the stack.
    """
    with tempfile.TemporaryFile("w+") as out:
        shell = subprocess.Popen(
            ["bash", "-c", text],
            env=os.environ | {"PATH": search_path()},
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        stack.callback(end_group, shell.pid)
        if not shell.wait(TIMEOUT_SECONDS):
            return ""
        out.seek(0)
        return out.read()


def end_group(leader: int) -> None:
    """End the processes of a group that are left."""
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def search_path() -> str:
    """The folders in which commands are looked up: those of this environment first."""
    scripts = str(Path(sys.executable).parent)
    return f"{scripts}{os.pathsep}{os.environ.get('PATH', '')}"


def run_console(text: str, run_command: RunCommand) -> Iterator[str]:
    """Run the `slotwise` commands of a console block; yield each output that differs.

    Variables of the environment are replaced, as by a shell.
    """
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        name, *arguments = shlex.split(os.path.expandvars(command))
        if name != "slotwise":
            yield f"{command!r} is not a slotwise command"
            continue
        printed = run_command(arguments)
        if not same(expected, printed):
            yield f"{command}\nprinted is\n{printed}"


@pytest.fixture
def starts_processes(pytestconfig: pytest.Config) -> bool:
    """Whether commands and scripts run as processes, which take long to start: with --slow."""
    return bool(pytestconfig.getoption("--slow"))


@pytest.fixture
def own_state(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder for what runs and the service of a page keep; the server in it is ended."""
    with tempfile.TemporaryDirectory(prefix="sw-") as folder:  # Paths of sockets are short.
        monkeypatch.setenv("XDG_STATE_HOME", folder)
        yield
        end_server(f"unix:{folder}/slotwise/service/socket")


def end_server(url: str) -> None:
    """End the server that a page has left, with its jobs."""
    transport = Transport(url)
    try:
        pid = transport.get("/v1")["pid"]
        live = transport.get("/v1/jobs", state="queued,waiting,held,running")["jobs"]
        for job in live:
            transport.post(job_path(job["id"], "cancel"))
            transport.get(job_path(job["id"], "wait"))
    except NoServerError:
        return
    os.kill(pid, signal.SIGKILL)
    until(lambda: not os.path.exists(f"/proc/{pid}"))


@pytest.fixture
def page_faults(
    tmp_path: Path, starts_processes: bool, own_state: None, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., list[str]]:
    """Runs pages of the project in an empty directory; returns the outputs that differ.

    Several pages are steps of one: they share the directory and the server. `scripts` is that
    of `run_page`. By default reports are without the library that draws, which takes seconds
    to make.
    """
    if not starts_processes:
        monkeypatch.setattr("vl_convert.javascript_bundle", str)

    def faults(*names: str, scripts: bool = False) -> list[str]:
        run_command = run_as_command if starts_processes else run_in_process
        found: list[str] = []
        with chdir(tmp_path):
            for name in names:
                found += run_page(ROOT / name, run_command, scripts=scripts)
        return found

    return faults


@pytest.fixture
def run_example(
    tmp_path: Path, starts_processes: bool, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Path], str]:
    """Runs a script in an empty directory and returns what it prints."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def run(script: Path) -> str:
        with chdir(tmp_path):
            if starts_processes:
                done = run_process(sys.executable, str(script))
                assert done.returncode == 0, done.stderr
                return done.stdout
            with redirect_stdout(io.StringIO()) as out:
                runpy.run_path(str(script), run_name="__main__")
            return out.getvalue()

    return run


@pytest.fixture
def matches() -> Callable[[str, str], bool]:
    """The comparison of outputs."""
    return same
