"""The finished stages of a job that did not complete, whose output a later run reads."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

from slotwise.jobs.blocks import is_complete
from slotwise.jobs.work_folder import is_private


class KeptTask(NamedTuple):
    """The successful attempt of a task, what it reported, and the bytes of its files.

    Names of files are relative to the work folder; those of parts of the output are absolute.
    """

    attempt: int
    records: int
    bytes: int
    files: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class KeptStages:
    """Stages of a job of which all tasks are done.

    folder  the work folder with their output
    plan    what the output depends on besides what the job is made from; others cannot use it
    stages  the tasks of each stage, by the name of its phase
    """

    folder: str
    plan: str
    stages: Mapping[str, tuple[KeptTask, ...]]

    @property
    def tasks(self) -> int:
        """The number of tasks of all stages."""
        return sum(map(len, self.stages.values()))

    @property
    def bytes(self) -> int:
        """The bytes of all files."""
        return sum(size for _, _, files in self._files() for size in files.values())

    def names(self) -> set[str]:
        """Return the names in the work folder that are part of the output."""
        return {Path(name).parts[0] for name in self._paths() if not os.path.isabs(name)}

    def parts(self) -> set[str]:
        """Return the names of the staged parts of the output of the job."""
        return {os.path.basename(name) for name in self._paths() if os.path.isabs(name)}

    def joined(self, more: KeptStages) -> KeptStages:
        """Return these and other stages of the same folder. Raises ValueError for another."""
        if (self.folder, self.plan) != (more.folder, more.plan):
            raise ValueError("stages of another run")
        return replace(self, stages={**self.stages, **more.stages})

    def without(self, stage: str) -> KeptStages:
        """Return the other stages."""
        left = {name: tasks for name, tasks in self.stages.items() if name != stage}
        return replace(self, stages=left)

    def measured(self) -> KeptStages:
        """Return the same with the sizes of the files. Raises OSError."""
        measured = {
            stage: tuple(
                one._replace(
                    files={name: self._path(name).stat().st_size for name in one.files}
                )
                for one in tasks
            )
            for stage, tasks in self.stages.items()
        }
        return replace(self, stages=measured)

    def damage(self) -> str:
        """Return why the output cannot be read any more, or "". Opens each file."""
        if not is_private(self.folder):
            return "its output was removed"
        for stage, task, files in self._files():
            for name, size in files.items():
                path, where = self._path(name), f"the output of {stage} task {task}"
                try:
                    is_whole = path.stat().st_size == size
                    if not is_whole or not (os.path.isabs(name) or is_complete(path)):
                        return f"{where} is incomplete"
                except OSError:
                    return f"{where} was removed"
        return ""

    def plain(self) -> dict[str, Any]:
        """Return it as JSON data."""
        return {"folder": self.folder, "plan": self.plan, "stages": self.stages}

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Self:
        """Return the value of JSON data. Raises KeyError, TypeError, ValueError or others."""
        stages = {
            str(stage): tuple(
                KeptTask(int(attempt), int(records), int(size), _sizes(files))
                for attempt, records, size, files in tasks
            )
            for stage, tasks in plain["stages"].items()
        }
        if not stages:
            raise ValueError("no stages")
        return cls(str(plain["folder"]), str(plain["plan"]), stages)

    def _files(self) -> Iterator[tuple[str, int, Mapping[str, int]]]:
        for stage, tasks in self.stages.items():
            for number, one in enumerate(tasks):
                yield stage, number, one.files

    def _paths(self) -> Iterator[str]:
        return (name for _, _, files in self._files() for name in files)

    def _path(self, name: str) -> Path:
        return Path(self.folder, name)


def _sizes(files: Mapping[str, Any]) -> dict[str, int]:
    return {name: int(size) for name, size in files.items()}
