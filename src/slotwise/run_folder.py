"""The folder of a run: what was run, its log, and what its attempts printed.

The folders of the last runs of a user are in one folder, `runs` in the state directory by the
XDG specification: `$XDG_STATE_HOME/slotwise`, by default `~/.local/state/slotwise`. Each has:

    run.json                     what was run, when, and how it ended
    log.jsonl                    the log, up to `LOG_BYTES_MAX`
    logs/JOB/TASK.ATTEMPT.out    what an attempt printed; `.err` is its stderr
    kept                         the work folders that its jobs have left for `--resume`
    lock                         locked while the run is live

All of it is best effort: without a usable state directory a run only warns.
"""

from __future__ import annotations

import json
import os
import platform
import re
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from slotwise import __version__
from slotwise.backends.attempt_logs import AttemptLogs, attempt_files, file_name
from slotwise.core.decisions import Decision, GiveUp
from slotwise.core.dependencies import CANCELLED, predecessor_failed
from slotwise.core.errors import InputError, SlotwiseWarning, check_path
from slotwise.core.events import Event
from slotwise.core.files import state_folder
from slotwise.core.log import Header, LogFile
from slotwise.jobs.work_folder import FileLock, HeldError, holder, sweep

LOG_BYTES_MAX = 64 << 20
"""The size at which the log of a run in its folder ends."""

RUNS_VARIABLE, RUNS_MAX = "SLOTWISE_RUNS_MAX", 50
"""The environment variable for the number of runs that are kept, and its default."""

BYTES_VARIABLE, BYTES_MAX = "SLOTWISE_RUNS_BYTES_MAX", 1 << 30
"""The environment variable for the size of all runs that are kept, and its default."""

ABOUT, LOG, LOGS, LOCK = "run.json", "log.jsonl", "logs", "lock"

KEPT = "kept"
"""The file with the paths of work folders that are kept as long as the run, by line."""

ABOUT_BYTES = 4095
"""The least size of `run.json`."""

NAMES_MAX = 100
"""The most failed jobs that `run.json` names."""

ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}")

Keep = bool | str | Path | None
"""Whether a run has a folder, or the path of this folder; by default, live runs have one."""

State = Literal["running", "done", "failed", "interrupted", "killed"]


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The folder of a run that is live or over."""

    path: Path

    @classmethod
    def last(cls) -> RunFolder:
        """The folder of the last run. InputError if none is kept."""
        found = cls.all()
        if not found:
            raise InputError(
                f"no run is kept in {runs_folder()}; make one with `slotwise run FILE`, or name"
                " a log"
            )
        return found[-1]

    @classmethod
    def named(cls, name: str | Path) -> RunFolder:
        """The folder of the run with this id or the beginning of it, or at this path."""
        if os.path.isfile(os.path.join(name, ABOUT)):
            return cls(Path(name))
        found = [one for one in cls.all() if one.id.startswith(str(name))]
        if len(found) != 1:
            many = f"{len(found)} runs begin with it" if found else "no run has this id"
            raise InputError(
                f"run {str(name)!r}: {many}; `slotwise logs --list` shows the runs"
            )
        return found[0]

    @classmethod
    def all(cls) -> list[RunFolder]:
        """The folders of all runs that are kept, the last one at the end."""
        return [cls(path) for path in _folders(runs_folder()) if (path / ABOUT).exists()]

    @property
    def id(self) -> str:
        """The name of the run, which begins with its start in UTC."""
        return self.path.name

    @property
    def log(self) -> Path:
        """The log of the run, which is elsewhere if a run was given a file for it."""
        return self.path / str(self.about().get("log", LOG))

    def logs(self, job: str) -> Path:
        """The folder with what the attempts of a job have printed, which may not exist."""
        return self.path / LOGS / file_name(job)

    def about(self) -> dict[str, Any]:
        """The contents of `run.json`; empty if it cannot be read."""
        with suppress(OSError, ValueError):
            found = json.loads((self.path / ABOUT).read_text("utf-8"))
            if isinstance(found, dict):
                return found
        return {}

    @property
    def is_live(self) -> bool:
        """Whether the run has not ended."""
        return holder(self.path / LOCK) is not None

    @property
    def state(self) -> State:
        """How the run ended; "killed" if it could not record that."""
        if self.is_live:
            return "running"
        ended: State = self.about().get("exit") or "killed"
        return ended

    def size(self) -> int:
        """The bytes of its files, without those that an output also has."""
        stated = self.about().get("bytes")
        if isinstance(stated, int):
            return stated
        found = 0
        for path in self._files():
            with suppress(OSError):
                status = path.lstat()
                found += status.st_blocks * 512 if status.st_nlink == 1 else 0
        return found

    def remove(self) -> None:
        """Remove the files that slotwise wrote, unless the run is live. Errors are ignored."""
        kept: list[str] = []
        with suppress(OSError, HeldError), FileLock(self.path / LOCK, tries=1):
            with suppress(OSError):
                text = (self.path / KEPT).read_text("utf-8", "surrogateescape")
                kept = text.splitlines()
            for path in self._files():
                with suppress(OSError):
                    path.unlink()
            for folder in (*(self.path / LOGS).glob("*"), self.path / LOGS):
                with suppress(OSError):
                    folder.rmdir()
        with suppress(OSError):
            self.path.rmdir()  # Only if nothing else is in it.
        for one in kept:
            with suppress(OSError):
                sweep(os.path.dirname(one))

    def keeps(self, folder: str) -> Path:
        """Note a work folder that is kept as long as this run. Raises OSError.

        Returns the file while which exists it must be kept.
        """
        with (self.path / KEPT).open("a", encoding="utf-8", errors="surrogateescape") as file:
            file.write(f"{folder}\n")
        return self.path / ABOUT

    def _files(self) -> Iterator[Path]:
        yield from (one.path for one in attempt_files(self.path / LOGS))
        yield from (self.path / LOG, self.path / KEPT, self.path / ABOUT)


class OpenRun:
    """A run that begins: it makes the folder, writes to it, and is a record for the loop.

    folder  the folder; None if the run has none
    logs    takes what its attempts print; None without a folder

    `log` is where the run writes its log by itself, which is not written twice. `workload` is
    the file that it runs, or empty.
    """

    def __init__(
        self, keep: Keep, header: Header, log: str | Path | None = None, workload: str = ""
    ) -> None:
        self._keep = header.backend == "live" if keep is None else keep
        self._header, self._log, self._workload = header, log, workload
        self.folder: RunFolder | None = None
        self.logs: AttemptLogs | None = None
        self._lock: FileLock | None = None
        self._file: LogFile | None = None
        self._about: dict[str, Any] = {}
        self._failed: dict[str, None] = {}
        self._cancelling = {CANCELLED}  # The reasons of jobs that were cancelled.
        self._has_warned = False

    def __enter__(self) -> Self:
        """Make the folder. InputError if it was named and cannot be used."""
        if self._keep is False:
            return self
        root, is_named = runs_folder(), self._keep is not True
        count, size = _limit(RUNS_VARIABLE, RUNS_MAX), _limit(BYTES_VARIABLE, BYTES_MAX)
        try:
            self._open(_made(Path(str(self._keep))) if is_named else _new(root), size)
        except (OSError, HeldError, InputError) as error:
            self._give_up()
            why = error.strerror or error if isinstance(error, OSError) else error
            if is_named:
                text = f"keep {str(self._keep)!r}: {why}; name another folder"
                raise InputError(text) from error
            remedy = "set XDG_STATE_HOME to another folder"
            self._warn(f"this run is not kept in {root}: {why}; {remedy}")
            return self
        if not is_named:
            _remove_old(root, count, size)
        return self

    def __call__(
        self, now: float, events: Sequence[Event], decisions: Sequence[Decision]
    ) -> None:
        """Write one turn to the log, and note which jobs have failed."""
        if self._file is not None:
            try:
                self._file(now, events, decisions)
            except InputError as error:
                self._continue_without(error)
        for one in decisions:
            if type(one) is GiveUp:
                if one.reason not in self._cancelling:
                    self._failed[one.job] = None
                self._cancelling.add(predecessor_failed(one.job))

    @property
    def due(self) -> float:
        """When the turns that are held must be written to the log."""
        return inf if self._file is None else self._file.due

    def flush(self) -> None:
        """Write the turns that are held to the log."""
        if self._file is not None:
            try:
                self._file.flush()
            except InputError as error:
                self._continue_without(error)

    def _continue_without(self, error: InputError) -> None:
        self._warn(f"this run continues without {error}")
        self._close_log(error)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.folder is None or self._lock is None:
            return
        self._close_log(error)
        ended: State = "failed" if self._failed or kind is not None else "done"
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            ended = "interrupted"
        failed = list(self._failed)
        about = {"exit": ended, "end": time.time(), "failed": failed[:NAMES_MAX]}
        try:
            self._write(about | {"failed_count": len(failed), "bytes": self.folder.size()})
        except OSError as problem:
            self._warn(f"the end of run {self.folder.id} is not recorded: {problem.strerror}")
        self._lock.release()
        self._lock = None

    def _open(self, path: Path, bytes_max: int) -> None:
        self.folder = RunFolder(path)
        self._lock = FileLock(path / LOCK, f"run {path.name}")
        header = self._header
        kind = "run" if header.jobs_expected is not None else "session"
        self._write(
            {
                "slotwise": __version__,
                "kind": kind if header.backend == "live" else "simulation",
                "command": sys.argv,
                "workload": self._workload and os.path.abspath(self._workload),
                "scheduler": header.scheduler["name"],
                "folder": os.getcwd(),
                "host": platform.node(),
                "pid": os.getpid(),
                "start": time.time(),
                "end": None,
                "exit": None,
                "log": LOG if self._log is None else os.path.abspath(self._log),
            }
        )
        if self._log is None:
            self._file = LogFile(path / LOG, header, LOG_BYTES_MAX)
        self.logs = AttemptLogs(path / LOGS, bytes_max, self._warn)

    def _give_up(self) -> None:
        """Remove what was made of a folder that cannot be used."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None
        if self.folder is not None:
            self.folder.remove()
            self.folder = None

    def _write(self, more: dict[str, Any]) -> None:
        """Write `run.json`, with room for its end, which a full disk then does not prevent."""
        assert self.folder is not None
        self._about |= more
        data = json.dumps(self._about, indent=1).encode().ljust(ABOUT_BYTES) + b"\n"
        file = os.open(self.folder.path / ABOUT, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with open(file, "wb") as target:
            target.write(data)

    def _close_log(self, error: BaseException | None) -> None:
        file, self._file = self._file, None
        if file is not None:
            with suppress(InputError):
                file.__exit__(None if error is None else type(error), error, None)

    def _warn(self, text: str) -> None:
        """Warn of the first problem only: all come from the same disk."""
        if not self._has_warned:
            self._has_warned = True
            warn_of_state(text)


def runs_folder() -> Path:
    """The folder with the folders of the last runs."""
    return state_folder() / "runs"


def check_keep(keep: object) -> None:
    """InputError unless it is True, False, None or a path."""
    if not isinstance(keep, bool):
        check_path("keep", keep)


def _folders(root: Path) -> list[Path]:
    """The folders of runs, the last one at the end."""
    with suppress(OSError), os.scandir(root) as entries:
        return sorted(
            Path(one.path)
            for one in entries
            if ID.fullmatch(one.name) and one.is_dir(follow_symlinks=False)
        )
    return []


def _new(root: Path) -> Path:
    """Make a folder whose name sorts after those of earlier runs."""
    root.mkdir(0o700, parents=True, exist_ok=True)
    now = time.time()
    while True:
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
        path = root / f"{stamp}-{int(now % 1 * 0x10000):04x}"
        with suppress(FileExistsError):
            path.mkdir(0o700)
            return path
        now += 1 / 0x10000


def _made(path: Path) -> Path:
    """Make a folder that a user names, unless it is empty already."""
    path.mkdir(parents=True, exist_ok=True)
    if any(path.iterdir()):
        raise InputError("it is not empty")
    return path.absolute()


def _remove_old(root: Path, count: int, size: int) -> None:
    """Remove the oldest runs above a number of runs, or of bytes in all, that are over."""
    for place, path in enumerate(reversed(_folders(root))):
        folder = RunFolder(path)
        size -= folder.size()
        if place >= count or size < 0:
            folder.remove()


def _limit(variable: str, default: int) -> int:
    stated = os.environ.get(variable, "")
    if not stated:
        return default
    if not stated.isdecimal():
        raise InputError(f"{variable} is {stated!r}; expected a whole number")
    return int(stated)


def warn_of_state(text: str) -> None:
    """Warn that something in the state directory was not written."""
    warnings.warn(text, SlotwiseWarning, stacklevel=3)
