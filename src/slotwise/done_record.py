"""The record of the jobs of a workload file that have begun or were completed.

It is a file in `done` in the state directory (`run_folder.py`), with a line for each job that
began, and one when it was completed, with what it was made from. Of an array of commands each
done task has a line; of programs and dataflows each stage of which all tasks are done.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from slotwise.core.errors import InputError
from slotwise.core.files import state_folder
from slotwise.jobs.work_folder import FileLock, HeldError, remove_kept
from slotwise.run_folder import RunFolder, warn_of_state

if TYPE_CHECKING:
    from slotwise.jobs.kept import KeptStages

MadeFrom = Mapping[str, str]
"""What a job was made from: the digest of its command, and the version of each file."""


class JobRecord(NamedTuple):
    """What a job was made from that was completed, or that began: then, with its done tasks."""

    made_from: MadeFrom
    tasks: set[int] | None = None

    def to_plain(self, job: str) -> dict[str, Any]:
        """The line of the job in the record."""
        tasks = {} if self.tasks is None else {"tasks": sorted(self.tasks)}
        return {"job": job, "made_from": self.made_from, **tasks}


@dataclass(frozen=True, slots=True)
class KeptJob:
    """The finished stages of a job that did not complete, and what they were made from."""

    made_from: MadeFrom
    stages: KeptStages

    def to_plain(self, job: str) -> dict[str, Any]:
        """The line of the stages in the record."""
        return {"kept": job, "from": self.made_from, **self.stages.plain()}


class DoneRecord:
    """The record of a workload file. Writing it is best effort, like the folder of a run."""

    def __init__(self, file: str | Path) -> None:
        self._file = os.path.realpath(file)
        name = hashlib.sha256(os.fsencode(self._file)).hexdigest()[:32]
        self.path = state_folder() / "done" / f"{name}.jsonl"

    @contextmanager
    def in_use(self, *, refuses: bool) -> Iterator[None]:
        """Hold the record for a run. If another run holds it, warn, or raise InputError.

        The kernel releases it when the process ends.
        """
        lock: AbstractContextManager[object] = nullcontext()
        try:
            self.path.parent.mkdir(0o700, parents=True, exist_ok=True)
            owner = _process(os.getpid(), platform.node())
            lock = FileLock(self.path.with_suffix(".lock"), owner)
        except OSError:
            pass  # The state directory cannot be used, and a warning says so later.
        except HeldError as error:
            text = f"another run of {self._file} is in progress ({_run_of(str(error))})"
            if refuses:
                raise InputError(
                    f"{text}; both would run the same jobs: wait until it ends, or stop it"
                ) from None
            warn_of_state(f"{text}; --resume may run jobs again that one of them has done")
        with lock:
            yield

    def read(self) -> dict[str, JobRecord]:
        """The jobs that were completed or have begun, in the order in which that happened.

        Lines that are damaged are left out.
        """
        found: dict[str, JobRecord] = {}
        with suppress(OSError), self.path.open(encoding="utf-8") as lines:
            for line in lines:
                with suppress(ValueError, TypeError, KeyError, AttributeError):
                    plain = json.loads(line)
                    if "task" in plain:
                        begun = found[plain["job"]].tasks
                        if begun is not None:
                            begun.add(int(plain["task"]))
                        continue
                    made, tasks = plain["made_from"], plain.get("tasks")
                    made = {str(key): str(made[key]) for key in made}
                    record = JobRecord(made, None if tasks is None else {*map(int, tasks)})
                    found.pop(plain["job"], None)
                    found[plain["job"]] = record
        return found

    def stages(self) -> dict[str, KeptJob]:
        """The finished stages of jobs that did not complete. Damaged lines are left out."""
        found: dict[str, KeptJob] = {}
        with suppress(OSError), self.path.open(encoding="utf-8") as lines:
            for line in lines:
                with suppress(ValueError, TypeError, KeyError, AttributeError):
                    plain = json.loads(line)
                    if "kept" not in plain:
                        if "made_from" in plain and "tasks" not in plain:  # It was completed.
                            found.pop(plain["job"], None)
                        continue
                    from slotwise.jobs.kept import KeptStages  # Slow to load.

                    job, stages = str(plain["kept"]), KeptStages.of(plain)
                    if "from" in plain:
                        made = {str(key): str(one) for key, one in plain["from"].items()}
                        found[job] = KeptJob(made, stages)
                    else:
                        found[job] = replace(
                            found[job], stages=found[job].stages.joined(stages)
                        )
        return found

    def rewrite(
        self, jobs: Mapping[str, JobRecord], kept: Mapping[str, KeptJob] | None = None
    ) -> None:
        """Replace the record by that of these jobs and stages; remove other stages.

        Raises OSError.
        """
        kept = kept or {}
        stay = {one.stages.folder for one in kept.values()}
        for one in self.stages().values():
            if one.stages.folder not in stay:
                remove_kept(one.stages.folder)
        lines = [_line(record.to_plain(job)) for job, record in jobs.items()]
        lines += [_line(one.to_plain(job)) for job, one in kept.items()]
        partial = self.path.with_suffix(f".{os.getpid()}")
        try:
            self.path.parent.mkdir(0o700, parents=True, exist_ok=True)
            partial.write_text("".join(lines), "utf-8")
            os.replace(partial, self.path)
        except OSError:
            with suppress(OSError):
                partial.unlink()
            raise

    def append(self, plain: Mapping[str, Any]) -> None:
        """Add the line of a job, a task or a stage. Raises OSError."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(_line(plain))

    def keep(self, job: str, stages: KeptStages, made_from: MadeFrom | None) -> None:
        """Add finished stages of a job: the first ones with what it is made from. OSError."""
        if made_from is None:
            self.append({"kept": job, **stages.plain()})
        else:
            self.append(KeptJob(made_from, stages).to_plain(job))


def _line(plain: Mapping[str, Any]) -> str:
    return json.dumps(plain, separators=(",", ":")) + "\n"


def _process(pid: object, host: object) -> str:
    return f"process {pid} on {host}"


def _run_of(owner: str) -> str:
    """A process with the run that is in progress there, if it is known."""
    for folder in reversed(RunFolder.all()):
        about = folder.about()
        if _process(about.get("pid"), about.get("host")) == owner and folder.is_live:
            return f"run {folder.id}, {owner}"
    return owner
