"""The `slotwise` command as a process: its folder, its processes, its temporary files."""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

from agent_processes import Reused
from forked import ForkedProcess, Forker

Process = subprocess.Popen[bytes] | ForkedProcess

TIMEOUT = 120.0
"""Seconds; a test that waits for this long has failed."""


def wait_for(condition: Callable[[], object], seconds: float = TIMEOUT) -> None:
    """Block until a condition holds."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "the condition did not come true in time"
        time.sleep(0.01)


def children(pid: int) -> list[int]:
    """The living processes whose parent is this one; not agents that wait for other tests."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = status.read_text().rpartition(")")[2].split()[:2]
        except (OSError, ValueError):
            continue
        if int(parent) == pid and state != "Z":
            found.append(int(status.parent.name))
    return [pid for pid in found if pid not in Reused.pids()]


def lives(pid: int) -> bool:
    """Whether a process exists and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@dataclass
class Command:
    """The command in its own folder, which also holds its temporary files.

    Each run is forked by the forker; without one, a new interpreter is started.
    """

    folder: Path
    forker: Forker | None = None
    begun: list[Process] = field(default_factory=list)

    @property
    def temporary(self) -> Path:
        """Where it puts temporary files."""
        return self.folder / "tmp"

    @property
    def stdout(self) -> str:
        """All that it has printed."""
        return (self.folder / "stdout").read_text()

    @property
    def stderr(self) -> str:
        """All that it has written to stderr."""
        return (self.folder / "stderr").read_text()

    def write(self, text: str, name: str = "jobs.yaml") -> Path:
        """Write a file into the folder."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def start(
        self,
        *arguments: str,
        limits: dict[int, int] | None = None,
        environment: dict[str, str] | None = None,
        interpreter: bool = False,
        before: str = "",
    ) -> Process:
        """Start it as the leader of a process group; `limits` are its resources.

        With `interpreter`, it is not forked: its start is part of what is tested.
        `before`: Python code that runs first in a forked one.
        """
        self.temporary.mkdir(exist_ok=True)
        environment = os.environ | {"TMPDIR": str(self.temporary)} | (environment or {})

        def limit() -> None:
            # A shell that starts tests in the background may have set them to be ignored.
            for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            for what, most in (limits or {}).items():
                resource.setrlimit(what, (most, most))

        with (
            (self.folder / "stdout").open("wb") as out,
            (self.folder / "stderr").open("wb") as err,
            open(os.devnull, "rb") as nothing,
        ):
            process: Process
            if self.forker and not interpreter:
                process = self.forker.start(
                    arguments,
                    self.folder,
                    [nothing.fileno(), out.fileno(), err.fileno()],
                    environment=environment,
                    limits=limits,
                    leads=True,
                    before=before,
                )
            else:
                process = subprocess.Popen(
                    [sys.executable, "-m", "slotwise", *arguments],
                    cwd=self.folder,
                    env=environment,
                    stdin=nothing,
                    stdout=out,
                    stderr=err,
                    start_new_session=True,
                    preexec_fn=limit,
                )
        self.begun.append(process)
        return process

    def run(self, *arguments: str, **how: object) -> int:
        """Run it to its end; the exit code."""
        return self.start(*arguments, **how).wait(TIMEOUT)  # type: ignore[arg-type]

    def end(self) -> None:
        """Kill what still runs."""
        for process in self.begun:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait()

    def left(self) -> list[str]:
        """The files in the folders for temporary files and for output.

        Without the maps that are kept for `--resume`.
        """
        roots = (self.temporary, self.folder / "out")
        found = [path for root in roots for path in root.rglob("*")]
        kept = {path.parent for path in found if path.name == "kept"}
        left = [path for path in found if not kept & {path, *path.parents}]
        return sorted(str(path.relative_to(self.folder)) for path in left)


@pytest.fixture(scope="session")
def forks(request: pytest.FixtureRequest) -> Forker | None:
    """Forks the commands; None with --slow, where each one starts an interpreter."""
    return None if request.config.getoption("--slow") else request.getfixturevalue("forker")


@pytest.fixture
def command(tmp_path: Path, forks: Forker | None) -> Iterator[Command]:
    """The command; what still runs at the end is killed."""
    made = Command(tmp_path, forks)
    yield made
    made.end()


@pytest.fixture(scope="module")
def make_command(
    tmp_path_factory: pytest.TempPathFactory, forks: Forker | None
) -> Iterator[Callable[[], Command]]:
    """Makes commands whose runs several tests look at."""
    made: list[Command] = []

    def make() -> Command:
        made.append(Command(tmp_path_factory.mktemp("command"), forks))
        return made[-1]

    yield make
    for one in made:
        one.end()


@pytest.fixture
def books(tmp_path: Path) -> Counter[str]:
    """Forty small books under in/; how often each word occurs in them."""
    return write_books(tmp_path, 40)


@pytest.fixture
def few_books(tmp_path: Path) -> Counter[str]:
    """The same with twelve books."""
    return write_books(tmp_path, 12)


def write_books(folder: Path, count: int) -> Counter[str]:
    """Write books into a folder; how often each word occurs in them."""
    rng, words = random.Random(7), Counter[str]()
    (folder / "in").mkdir()
    for number in range(count):
        lines = [[f"word{int(rng.expovariate(0.02))}" for _ in range(10)] for _ in range(150)]
        words.update(word for line in lines for word in line)
        text = "\n".join(" ".join(line) for line in lines) + "\n"
        (folder / "in" / f"book{number:02}.txt").write_text(text)
    return words


def counted(output: Path) -> Counter[str]:
    """The words that a word count has written."""
    assert (output / "_SUCCESS").exists()
    pairs = (line.split("\t") for part in output.glob("part-*") for line in part.open())
    return Counter({word: int(count) for word, count in pairs})


@pytest.fixture
def processes() -> SimpleNamespace:
    """Functions for processes: children, lives, wait_for, counted; and the time limit."""
    return SimpleNamespace(
        children=children, lives=lives, wait_for=wait_for, TIMEOUT=TIMEOUT, counted=counted
    )
