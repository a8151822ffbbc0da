"""A server with the commands of Slurm on PATH."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from service.conftest import RunningServer, end_processes
from slotwise.slurm.folder import slurm_folder


@dataclass(frozen=True)
class SlurmShell:
    """Runs commands in a folder, with those of Slurm on PATH."""

    server: RunningServer
    folder: Path
    environ: dict[str, str]

    def run(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """A command with what it has printed."""
        return subprocess.run(
            words,
            cwd=self.folder,
            env=self.environ,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def __call__(self, *words: str, stdin: str = "") -> str:
        """What a command has printed on stdout; it must succeed."""
        done = self.run(*words, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def submit(self, *words: str, stdin: str = "") -> str:
        """The id of a batch job."""
        return self("sbatch", "--parsable", *words, stdin=stdin).strip()

    def states(self, job: str) -> dict[str, str]:
        """The states of a job, or of the tasks of an array, by id."""
        lines = self("sacct", "-nPX", "-j", job, "-o", "JobID,State").splitlines()
        return dict(line.split("|") for line in lines)

    def read(self, name: str) -> str:
        """What a file in the folder holds."""
        return (self.folder / name).read_text()


@pytest.fixture(scope="module")
def shared_server() -> Iterator[RunningServer]:
    """A server of two slots with a pool, for all tests of a module."""
    with tempfile.TemporaryDirectory(prefix="sw-") as folder:
        config = Path(folder, "slotwise.toml")
        config.write_text("[pools]\nteam = 2\n")
        server = RunningServer(Path(folder), "--config", str(config)).start()
        yield server
        server.end()
        end_processes(server.folder / "service")


@pytest.fixture
def slurm(
    shared_server: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> SlurmShell:
    """A shell in an empty folder."""
    monkeypatch.setenv("XDG_STATE_HOME", shared_server.environ["XDG_STATE_HOME"])
    source = str(Path(__file__).parents[2] / "src")
    environ = {
        **{n: v for n, v in shared_server.environ.items() if not n.startswith("SLURM_")},
        "PATH": f"{slurm_folder()}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([source, str(tmp_path)]),
    }
    return SlurmShell(shared_server, tmp_path, environ)
