"""The record of the jobs of a workload file that have begun or were completed.

It is a file in `done` in the state directory (`run_folder.py`), with a line for each job that
began, and one when it was completed, with what it was made from. Of an array of commands each
done task has a line; of a MapReduce job, its maps when all are done.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from slotwise.jobs.work_folder import remove_kept
from slotwise.run_folder import state_folder

if TYPE_CHECKING:
    from slotwise.jobs.mapreduce.kept import KeptMaps

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
class KeptStage:
    """The maps of a job that did not complete, and what they were made from."""

    made_from: MadeFrom
    maps: KeptMaps

    def to_plain(self, job: str) -> dict[str, Any]:
        """The line of the stage in the record."""
        return {"kept": job, "from": self.made_from, "maps": self.maps.plain()}


class DoneRecord:
    """The record of a workload file. Writing it is best effort, like the folder of a run."""

    def __init__(self, file: str | Path) -> None:
        self._file = os.path.realpath(file)
        name = hashlib.sha256(os.fsencode(self._file)).hexdigest()[:32]
        self.path = state_folder() / "done" / f"{name}.jsonl"

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

    def stages(self) -> dict[str, KeptStage]:
        """The maps of each job that did not complete. Damaged lines are left out."""
        found: dict[str, KeptStage] = {}
        with suppress(OSError), self.path.open(encoding="utf-8") as lines:
            for line in lines:
                with suppress(ValueError, TypeError, KeyError, AttributeError):
                    plain = json.loads(line)
                    if "kept" not in plain:
                        if "made_from" in plain and "tasks" not in plain:  # It was completed.
                            found.pop(plain["job"], None)
                        continue
                    from slotwise.jobs.mapreduce.kept import KeptMaps  # Slow to load.

                    made = {str(key): str(one) for key, one in plain["from"].items()}
                    found[str(plain["kept"])] = KeptStage(made, KeptMaps.of(plain["maps"]))
        return found

    def rewrite(
        self, jobs: Mapping[str, JobRecord], stages: Mapping[str, KeptStage] | None = None
    ) -> None:
        """Replace the record by that of these jobs and stages; remove other stages.

        Raises OSError.
        """
        stages = stages or {}
        stay = {stage.maps.folder for stage in stages.values()}
        for stage in self.stages().values():
            if stage.maps.folder not in stay:
                remove_kept(stage.maps.folder)
        lines = [_line(record.to_plain(job)) for job, record in jobs.items()]
        lines += [_line(stage.to_plain(job)) for job, stage in stages.items()]
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
        """Add the line of a job or of a task. Raises OSError."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(_line(plain))

    def keep(self, job: str, stage: KeptStage) -> None:
        """Add that the maps of a job are done. Raises OSError."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(_line(stage.to_plain(job)))


def _line(plain: Mapping[str, Any]) -> str:
    return json.dumps(plain, separators=(",", ":")) + "\n"
