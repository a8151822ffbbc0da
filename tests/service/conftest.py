"""Servers for tests: real processes, each with a folder of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from service.servers import processes_of
from slotwise.jobs.endings import descendants
from slotwise.service.clients.transport import (
    NoServerError,
    ServerClosedError,
    Transport,
    job_path,
)
from slotwise.service.supervision.supervised_runner import SupervisorLink
from waiting import until

START_SECONDS = 60.0


class RunningServer:
    """A server in a process, which can be killed and started again."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder, self.options = folder, options
        self.url = f"unix:{folder / 'service' / 'socket'}"
        self.environ = {
            **os.environ,
            "XDG_STATE_HOME": str(folder),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "XDG_RUNTIME_DIR": str(folder),  # Other runs of a test do not see it.
            "SLOTWISE_SERVER": self.url,
        }
        self.process: subprocess.Popen[bytes] | None = None
        self.transport = Transport(self.url)

    def start(self) -> RunningServer:
        """Start it, and wait until it answers."""
        self.begin()
        until(self.is_ready, START_SECONDS)
        return self

    def begin(self) -> None:
        """Start it."""
        log = (self.folder / "server.log").open("ab")
        arguments = ["serve", "--slots", "2", *self.options]
        place = ["--folder", str(self.folder / "service")]
        with log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "slotwise", *arguments, *place],
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def is_ready(self) -> bool:
        """Whether it answers, and has restored its jobs."""
        assert self.process is not None
        assert self.process.poll() is None, self.log
        with suppress(NoServerError, ServerClosedError):
            return not self.get("/v1")["restoring"]
        return False

    @property
    def log(self) -> str:
        """What it has written."""
        return (self.folder / "server.log").read_text()

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send it a signal, and wait for its end."""
        assert self.process is not None
        self.process.send_signal(number)  # If it has ended, to no other with its number.
        code = self.process.wait(60)
        self.transport.close()
        return code

    def restart(self, number: int = signal.SIGKILL) -> RunningServer:
        """End it, and start another one in the same folder."""
        self.end(number)
        return self.start()

    def get(self, path: str, **query: Any) -> Any:
        """The JSON at a path."""
        return self.transport.get(path, **query)

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The JSON that answers a body."""
        return self.transport.post(path, body)

    def submit(self, *jobs: Mapping[str, Any], **more: Any) -> list[str]:
        """The ids of jobs that it has accepted."""
        body = {"jobs": list(jobs), "folder": str(self.folder), "environ": dict(os.environ)}
        return [one["id"] for one in self.post("/v1/jobs", {**body, **more})["jobs"]]

    def wait(self, job: str, seconds: float = 60.0) -> dict[str, Any]:
        """A job at its end."""
        found: dict[str, Any] = self.get(job_path(job, "wait"), timeout=seconds)
        return found

    def job(self, job: str) -> dict[str, Any]:
        """All about a job."""
        found: dict[str, Any] = self.get(job_path(job))
        return found

    def printed(self, job: str) -> str:
        """What the tasks of a job have printed."""
        pieces = self.transport.stream(job_path(job, "logs"))
        return b"".join(part for _, parts in pieces for part in parts).decode()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The folder of a service. At the end, no process of it may be left."""
    yield tmp_path
    SupervisorLink.of(f"{tmp_path}/none")  # Drops the link to a supervisor.
    until(lambda: not processes_of(tmp_path))


@pytest.fixture
def make_server() -> Iterator[Callable[..., RunningServer]]:
    """Starts servers, which are ended after the test."""
    with tempfile.TemporaryDirectory(prefix="sw-") as folder:
        made: list[RunningServer] = []

        def make(*options: str) -> RunningServer:
            place = Path(folder, str(len(made)))
            place.mkdir()
            made.append(RunningServer(place, *options))
            return made[-1].start()

        yield make
        for one in made:
            if one.process is not None and one.process.poll() is None:
                one.end(signal.SIGKILL)
            end_processes(one.folder / "service")


@pytest.fixture
def server(make_server: Callable[..., RunningServer]) -> RunningServer:
    """A server with two slots."""
    return make_server()


def end_processes(folder: Path) -> None:
    """End the supervisors that a killed server has left, with their commands."""
    for pid in processes_of(folder):
        for one in (*descendants(pid), pid):
            with suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
