"""The second act of the demo: three users share a service, which is killed and loses nothing.

Each user is a process of its own: two shells and a Python program.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from slotwise.service.clients.transport import Transport

SLOTS = 2

CONFIG = """\
scheduler = "fair"

[[pools]]
name = "batch"

[[pools]]
name = "research"
weight = 2

[[pools]]
name = "web"
weight = 2
slots_min = 1
"""

BATCH = """\
slotwise submit --pool batch --id sizes --array 12 -- \\
    sh -c 'xz -6 -c text/book-$(printf %02d $SLOTWISE_TASK).txt | wc -c'
slotwise submit --pool batch --after sizes --id report -- echo 'all sizes are known'
"""

WEB = """\
for book in 05 17 29; do
    slotwise submit --pool web --id imports-$book -- grep -c '^import ' text/book-$book.txt
done
"""

RESEARCH = """\
import re
from pathlib import Path
from typing import Any
import slotwise

def words(book):
    return len(re.findall(r"[a-z]+", Path(book).read_text(errors="replace").lower()))

books = sorted(str(one.resolve()) for one in Path("text").glob("book-*.txt"))
with slotwise.Client() as client:
    with client.executor(name="words", pool="research") as executor:
        counted = list(executor.map(words, books))
print(f"research: {sum(counted):,} words in {len(books)} books", flush=True)
"""


def main(folder: Path, console: Console) -> None:
    """Run the act on the text in `folder`; what it did is printed."""
    console.rule("the second act: a service for three users")
    with _service(folder, console) as run:
        _act(folder, run, console)


class Shell:
    """Runs the command of slotwise with the service of the demo."""

    def __init__(self, folder: Path, state: str) -> None:
        self.folder, self.config = folder, folder / "team.toml"
        self.environ = {
            **os.environ,
            "XDG_STATE_HOME": state,
            "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}",
        }
        self.transport = Transport(f"unix:{state}/slotwise/service/socket")

    def __call__(self, *words: str) -> str:
        """What a command prints. It must succeed."""
        done = subprocess.run(
            ["slotwise", *words],
            cwd=self.folder,
            env=self.environ,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return done.stdout

    def user(self, *words: str) -> subprocess.Popen[str]:
        """A process of a user."""
        return subprocess.Popen(words, cwd=self.folder, env=self.environ, text=True)

    def start(self) -> None:
        """Start the server."""
        self("serve", "--config", str(self.config), "--slots", str(SLOTS), "--background")


@contextmanager
def _service(folder: Path, console: Console) -> Iterator[Shell]:
    """A service with three pools in a folder of its own, which is stopped at the end."""
    state = tempfile.mkdtemp(prefix="slotwise-")  # The path of a socket must be short.
    run = Shell(folder, state)
    run.config.write_text(CONFIG, encoding="utf-8")
    try:
        console.print("$ slotwise serve --config team.toml --slots 2 --background")
        run.start()
        yield run
        console.print("$ slotwise serve --stop")
        console.print(run("serve", "--stop").strip())
    finally:
        with suppress(Exception):  # It has stopped, unless the demo has failed.
            os.kill(run.transport.get("/v1")["pid"], signal.SIGKILL)
        shutil.rmtree(state, ignore_errors=True)


def _act(folder: Path, run: Shell, console: Console) -> None:
    for name, text in (("batch.sh", BATCH), ("web.sh", WEB), ("research.py", RESEARCH)):
        (folder / name).write_text(text, encoding="utf-8")
    users = [
        run.user("sh", "batch.sh"),
        run.user(sys.executable, "research.py"),
        run.user("sh", "web.sh"),
    ]
    console.print("three users submit: batch.sh, web.sh and research.py")
    _until(lambda: _has(run, "report") and _has(run, "imports-29") and _has(run, "words"))
    for words in (["list"], ["pools"]):
        console.print(f"$ slotwise {' '.join(words)}")
        console.print(run(*words), soft_wrap=True)
    before = _jobs(run)
    pid = run.transport.get("/v1")["pid"]
    console.print(f"$ kill -9 {pid}    # the server, in the middle of the work")
    os.kill(pid, signal.SIGKILL)
    _until(lambda: not os.path.exists(f"/proc/{pid}"))
    run.start()
    after = _jobs(run)
    lost = before.keys() - after.keys()
    assert not lost, lost
    console.print(f"started again: all {len(before)} jobs are there, none is lost")
    asked, said = time.time(), _forecasts(run, after)
    for user in users:
        assert user.wait() == 0, user.args
    console.print(run("wait", *before), end="")
    states = {name: one["state"] for name, one in _jobs(run).items()}
    assert set(states.values()) == {"done"}, states
    again = sum(one["restarts"] for one in _jobs(run).values())
    console.print(f"all {len(states)} jobs are done; {again} of them ran calls again")
    _show_forecasts(run, asked, said, console)
    console.print("$ slotwise logs imports-17")
    printed = run("logs", "imports-17").strip()
    counted = _imports(folder / "text" / "book-17.txt")
    assert printed == str(counted), (printed, counted)
    console.print(printed)


def _forecasts(run: Shell, jobs: Iterable[str]) -> dict[str, tuple[float, float]]:
    """When the server says that each open job ends, as Unix seconds."""
    said = {}
    for job in jobs:
        found = run.transport.get(f"/v1/jobs/{job}/eta", timeout=10)["eta"]
        if found is not None and found["end"]["high"] is not None:
            said[job] = found["end"]["low"], found["end"]["high"]
    return said


def _show_forecasts(
    run: Shell, asked: float, said: dict[str, tuple[float, float]], console: Console
) -> None:
    """The ranges beside what happened."""
    ended = {name: one["ended"] for name, one in _jobs(run).items()}
    table = Table("job", "was to end after", "ended after", box=None, pad_edge=False)
    within = 0
    for job, (low, high) in said.items():
        held = low <= ended[job] <= high
        within += held
        span = f"{max(0.0, low - asked):.1f} to {high - asked:.1f} s"
        table.add_row(job, span, f"{ended[job] - asked:.1f} s{'' if held else ', not within'}")
    console.print("what `slotwise eta` said after the restart, beside what happened:")
    console.print(table)
    console.print(
        f"{within} of {len(said)} ranges of 80 % held, on a server that knew no job yet"
    )


def _jobs(run: Shell) -> dict[str, dict[str, Any]]:
    return {one["id"]: one for one in run.transport.get("/v1/jobs", limit=100)["jobs"]}


def _has(run: Shell, job: str) -> bool:
    return job in _jobs(run)


def _imports(book: Path) -> int:
    lines = book.read_bytes().split(b"\n")
    return sum(line.startswith(b"import ") for line in lines)


def _until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until, "the service has not done it within a minute"
        time.sleep(0.05)
