"""From what a client has submitted to the execution of a job."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from slotwise.core.cluster import Cluster
from slotwise.core.errors import InputError, shown
from slotwise.core.units import seconds_of
from slotwise.jobs.commands import Commands, ResultOf
from slotwise.jobs.execution import Execution
from slotwise.sources import Source, with_limits
from slotwise.workload.file import read_job
from slotwise.workload.workload import CommandJob, Workload

Kind = Literal["command", "calls", "program", "object", "sleep"]

RESULT_OF = "result_of"
"""The key of a word of a command that stands for the output of another job."""

LEAST_SECONDS = 1e-3
"""The time to a deadline that has passed."""

NAME_MAX = 200
"""The most characters of a command that lists show."""

OF_SERVICE = ("restart", "deadline")
"""The keys of an entry that the service handles itself."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """An entry of a submission, checked.

    entry     the entry as a workload file has it, without id, deadline and `restart`
    deadline  Unix seconds, or None
    words     the jobs that words of its command stand for, by the number of the word
    """

    kind: Kind
    entry: Mapping[str, Any]
    deadline: float | None
    restart: bool
    words: Mapping[int, str]

    @property
    def name(self) -> str:
        """What it runs, in one line."""
        command = self.entry.get("command")
        if isinstance(command, list):
            command = shlex.join(str(word) for word in command)
        text = str(command or self.entry.get("program") or "")
        return text if len(text) <= NAME_MAX else f"{text[: NAME_MAX - 3]}..."

    @classmethod
    def of(cls, stated: object, now: float) -> Submitted:
        """Check the parts of an entry that the service handles. InputError for others."""
        if not isinstance(stated, Mapping) or not all(isinstance(key, str) for key in stated):
            raise InputError(
                f"a job is {shown(stated)}; expected an object like an entry of"
                " `jobs` in a workload file"
            )
        entry = {key: value for key, value in stated.items() if key not in OF_SERVICE}
        restart = stated.get("restart", True)
        if not isinstance(restart, bool):
            raise InputError(f"restart is {shown(restart)}; give true or false")
        words: dict[int, str] = {}
        if isinstance(command := entry.get("command"), list):
            entry["command"] = [
                _word(number, word, words) for number, word in enumerate(command)
            ]
        return cls(_kind(entry), entry, _due(stated.get("deadline"), now), restart, words)


def _word(number: int, word: object, words: dict[int, str]) -> object:
    if isinstance(word, Mapping) and word.keys() == {RESULT_OF}:
        words[number] = str(word[RESULT_OF])
        return f"result-of-{word[RESULT_OF]}"
    return word


def _kind(entry: Mapping[str, Any]) -> Kind:
    if entry.get("object"):
        return "object"
    if "command" in entry:
        return "command"
    phases = entry.get("phases")
    is_plain = isinstance(phases, list) and not any(
        isinstance(phase, Mapping) and ("program" in phase or "command" in phase)
        for phase in phases
    )
    return "sleep" if is_plain else "program"


def _due(stated: Any, now: float) -> float | None:
    """The deadline in Unix seconds: `{"at": seconds}`, or seconds or a duration from now."""
    if isinstance(stated, Mapping):
        at = stated.get("at")
        if stated.keys() != {"at"} or not isinstance(at, int | float) or isinstance(at, bool):
            raise InputError(f"deadline is {shown(stated)}; give seconds, or {{'at': seconds}}")
        return float(at)
    seconds = seconds_of("deadline", stated)
    return None if seconds is None else now + seconds


@dataclass(frozen=True, slots=True)
class Planner:
    """Makes executions for the session of a server.

    limits   the defaults of `retry_delay` and `time_limit`
    result   the result of a job that is over, as text
    """

    cluster: Callable[[], Cluster]
    limits: Mapping[str, Any]
    result: Callable[[str], str]

    def described(
        self,
        submitted: Submitted,
        id: str,
        folder: Path,
        predecessors: Mapping[str, str],
        pool: str | None = None,
    ) -> Any:
        """The job as `read_job` gives it, with the ids of the service."""
        entry = self.entry(submitted, id, predecessors, pool)
        slots = sum(self.cluster().capacity.values())
        return read_job(entry, max(1, slots), folder, now=datetime.now())

    def entry(
        self,
        submitted: Submitted,
        id: str,
        predecessors: Mapping[str, str],
        pool: str | None = None,
    ) -> dict[str, Any]:
        """The entry of a job with the ids of the service.

        `predecessors` are the ids for the names that it states in `after`.
        """
        entry = {**submitted.entry, "id": id}
        for key in ("after", "after_each"):
            if key in entry:
                names = [entry[key]] if isinstance(entry[key], str) else entry[key]
                kept = [predecessors[name] for name in names if name in predecessors]
                entry[key] = kept
                if not kept:
                    del entry[key]
        if pool is not None:
            entry["pool"] = pool
        if submitted.deadline is not None:
            entry["deadline"] = max(LEAST_SECONDS, submitted.deadline - time.time())
        return entry

    def execution(
        self,
        described: Any,
        submitted: Submitted,
        folder: Path,
        environ: Mapping[str, str],
        arrival: float,
        done: Sequence[int] = (),
    ) -> Execution:
        """The execution of a job without user code. InputError if it cannot be run."""
        moved = arriving_now(described, arrival)
        if done and isinstance(moved, CommandJob):
            moved = replace(moved, settings={**moved.settings, "done": tuple(done)})
        if self.limits:
            moved = with_limits(moved, self.limits)
        (execution,) = Source(Workload((moved,), folder=folder)).executions(self.cluster())
        if isinstance(execution, Commands):
            execution.runs_for(environ, self._words(submitted.words))
        return execution

    def _words(self, words: Mapping[int, str]) -> dict[int, ResultOf]:
        return {
            number: ResultOf(lambda job=job: self.result(job))  # type: ignore[misc]
            for number, job in words.items()
        }


def arriving_now(stated: Any, now: float) -> Any:
    """The job with arrival `now`; its deadline and steps keep their distance."""
    later = now - stated.arrival
    return replace(
        stated,
        arrival=now,
        deadline=None if stated.deadline is None else stated.deadline + later,
        steps=tuple((at + later, cost) for at, cost in stated.steps),
    )


@dataclass(frozen=True, slots=True)
class Spec:
    """What the store keeps of an entry: the ids of the jobs before it are those of the store.

    before  these ids, by the names that the entry states
    """

    submitted: Submitted
    before: Mapping[str, str]

    def packed(self) -> bytes:
        """Its JSON."""
        one = self.submitted
        stated = {"entry": one.entry, "words": one.words, "before": self.before}
        return json.dumps(stated, default=str).encode()

    @classmethod
    def of(cls, packed: bytes, kind: Kind, deadline: float | None, *, restart: bool) -> Spec:
        """The opposite of `packed`; the arguments are in the record of the job."""
        stated = json.loads(packed)
        words = {int(number): job for number, job in stated["words"].items()}
        return cls(Submitted(kind, stated["entry"], deadline, restart, words), stated["before"])
