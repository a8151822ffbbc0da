"""From what a client has submitted to the execution of a job."""

from __future__ import annotations

import io
import os
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, Literal, cast

from slotwise.core.errors import InputError, check_name, check_number, shown
from slotwise.core.resources import NOTHING
from slotwise.core.units import seconds_of
from slotwise.jobs.accounts import Account
from slotwise.jobs.commands import Commands, ResultOf
from slotwise.jobs.execution import Execution
from slotwise.service.planned.hosted import DeferredHosted, HostedExecution
from slotwise.service.store.records import StoredJob
from slotwise.service.supervision.supervised import SupervisedCommands, Supervision
from slotwise.service.supervision.supervisor_records import job_folder, remove_unused
from slotwise.service.wire import frame, frames
from slotwise.sessions.intake import SessionCore
from slotwise.sources import Source, replacing_own, with_limits
from slotwise.workload.file import read_job
from slotwise.workload.workload import PROPERTIES, CommandJob, Workload

Kind = Literal["command", "calls", "program", "object", "sleep"]

RESULT_OF = "result_of"
"""The key of a word of a command that stands for the output of another job."""

LEAST_SECONDS = 1e-3
"""The time to a deadline that has passed."""

NAME_MAX = 200
"""The most characters of a command that lists show."""

AFTER = ("after", "after_each")
"""The keys of an entry that name other jobs."""

OF_FILES = frozenset({"inputs", "output", "overwrite"})
"""The keys of a command that name files, or what is done with them."""

OF_SERVICE = ("restart", "deadline", "name", "array_index")
"""The keys of an entry that the service handles itself."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """An entry of a submission, checked.

    entry     the entry as a workload file has it, without the keys of the service
    deadline  Unix seconds, or None
    words     the jobs that words of its command stand for, by the number of the word
    title     its stated name; empty in a job that is planned again
    array_index  the number of its task in an array, or None
    """

    kind: Kind
    entry: Mapping[str, Any]
    deadline: float | None
    restart: bool
    words: Mapping[int, str]
    title: str = ""
    array_index: int | None = None

    @property
    def after(self) -> list[str]:
        """The jobs that it waits for, as it names them."""
        found = [self.entry.get(key) or () for key in AFTER]
        return [
            str(n) for group in found for n in ([group] if isinstance(group, str) else group)
        ]

    @property
    def name(self) -> str:
        """Its stated name, or what it runs, in one line."""
        command = self.entry.get("command")
        if isinstance(command, list):
            command = shlex.join(str(word) for word in command)
        text = str(self.title or command or self.entry.get("program") or "")
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
        for key in AFTER:
            if not isinstance(entry.get(key), str | list | tuple | None):
                raise InputError(f"{key} is {shown(entry[key])}; give a list of jobs")
        words: dict[int, str] = {}
        if isinstance(command := entry.get("command"), list):
            entry["command"] = [
                _word(number, word, words) for number, word in enumerate(command)
            ]
        if title := stated.get("name") or "":
            check_name("name", title, inf)
        index = stated.get("array_index")
        if index is not None and (type(index) is not int or index < 0):
            raise InputError(f"array_index is {shown(index)}; give a whole number >= 0")
        if index is not None and not isinstance(env := entry.get("env") or {}, Mapping):
            raise InputError(f"env is {shown(env)}; give an object with variables")
        due = _due("deadline", stated.get("deadline"), now)
        if (promise := _due("promise", stated.get("promise"), now)) is not None:
            entry["promise"] = {"at": promise}
        return cls(_kind(entry), entry, due, restart, words, title, index)

    def with_number(self, number: int) -> Submitted:
        """The same, with the number of its job in the environment of its command."""
        variables = {**(self.entry.get("env") or {}), "SLOTWISE_NUMBER": str(number)}
        return replace(self, entry={**self.entry, "env": variables})


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


def _due(key: str, stated: Any, now: float) -> float | None:
    """An instant in Unix seconds: `{"at": seconds}`, or seconds or a duration from now."""
    if isinstance(stated, Mapping):
        at = stated.get("at")
        if stated.keys() != {"at"} or not isinstance(at, int | float) or isinstance(at, bool):
            raise InputError(f"{key} is {shown(stated)}; give seconds, or {{'at': seconds}}")
        check_number(key, at)
        return float(at)
    seconds = seconds_of(key, stated)
    if seconds is None:
        return None
    check_number(key, seconds)
    return now + float(seconds)


@dataclass(frozen=True, slots=True)
class Spec:
    """What the store keeps of a job, so that it can be planned again.

    before  the ids of the jobs that it waits for, by the names that its entry states
    pickle  the job, if it is pickled
    """

    submitted: Submitted
    before: Mapping[str, str]
    pickle: bytes = b""

    def packed(self) -> bytes:
        """It as a frame."""
        one = self.submitted
        stated = {"entry": one.entry, "words": one.words, "before": self.before}
        return frame(stated, (self.pickle,) if self.pickle else ())

    @classmethod
    def of(cls, record: StoredJob) -> Spec:
        """The opposite of `packed`, of a stored job."""
        ((stated, parts),) = frames(io.BytesIO(record.spec))
        words = {int(number): job for number, job in stated["words"].items()}
        kind = cast(Kind, record.kind)
        one = Submitted(kind, stated["entry"], record.deadline, record.restart, words)
        return cls(one, stated["before"], b"".join(parts))


@dataclass(frozen=True, slots=True)
class Planner:
    """Makes executions for the session of a server.

    supervision  how commands outlive the server; None if they do not, on other hosts
    limits   the defaults of `retry_delay` and `time_limit`
    result   the result of a job that is over, as text
    account_of  the account as which the work of a user runs; None for that of the server
    """

    core: SessionCore
    supervision: Supervision | None
    limits: Mapping[str, Any]
    result: Callable[[str], str]
    account_of: Callable[[str | None], Account | None]

    def execution(
        self,
        id: str,
        spec: Spec,
        folder: str,
        environ: Mapping[str, str],
        *,
        outputs: Callable[[], Mapping[str, Sequence[str]]],
        changed: Mapping[str, Any] = NOTHING,
        done: Sequence[int] = (),
        since: float | None = None,
        user: str | None = None,
        is_trial: bool = False,
    ) -> Execution:
        """The execution of a job, which arrives now. InputError if it cannot be run.

        A job with user code is planned in a process of its own, which takes a second.

        outputs  gives the folders of other jobs that are not over, by id, for a program
        changed  properties in place of those of its entry
        done     the tasks that do not run again
        since    when a job was submitted that may have run; it replaces its own output
        user     whose job it is; it runs as the account of the user, if there is one
        is_trial  it never runs, so that its id may be that of another job
        """
        one, account = spec.submitted, self.account_of(user)
        if account is not None:
            environ = account.variables(environ)
        entry = {**_entry(one, id, spec.before), **changed}

        def hosted(**more: Any) -> HostedExecution | DeferredHosted:
            about = {key: entry[key] for key in PROPERTIES if key in entry and spec.pickle}
            return HostedExecution.start(
                spec.pickle or entry,
                folder,
                self.core.state.cluster,
                job=id,
                now=self.core.now,
                about=about,
                limits=self.limits,
                environ=environ,
                since=since,
                account=account,
                **more,
            )

        if one.kind in ("program", "object"):
            planned = hosted(outputs=outputs(), path=[folder])
            if account is not None:
                usual = planned.job.pool if spec.pickle else "default"
                _check_claims(planned, entry.get("pool", usual), user)
            return planned
        plain = entry
        if account is not None:  # This process opens no path that a user has named.
            plain = {key: value for key, value in entry.items() if key not in OF_FILES}
        made = self._plain(one, plain, folder, environ, done, since)
        made.account = account
        if not isinstance(made, Commands) or self.supervision is None:
            return made
        with_files: Any = None
        if account is not None and OF_FILES & entry.keys():
            kept = job_folder(self.supervision.folder, id)
            if not is_trial:
                os.makedirs(kept, exist_ok=True)
                os.chmod(kept, 0o711)  # Whatever the umask: `collect` opens files below it.
            try:
                with_files = hosted(kept="" if is_trial else kept)
            except BaseException:
                if not is_trial:
                    remove_unused(kept)
                raise
        return SupervisedCommands(
            made, self.supervision, is_new=since is None, owner=account, hosted=with_files
        )

    def _plain(
        self,
        one: Submitted,
        entry: Mapping[str, Any],
        folder: str,
        environ: Mapping[str, str],
        done: Sequence[int],
        since: float | None,
    ) -> Execution:
        """The execution of a job without code of users, in this process."""
        cluster, place = self.core.state.cluster, Path(folder)
        slots = max(1, sum(cluster.capacity.values()))
        job = arriving_now(read_job(entry, slots, place, now=datetime.now()), self.core.now)
        if isinstance(job, CommandJob):
            known = {"environ": environ, "done": tuple(done)}
            job = replace(job, settings={**job.settings, **known})
        if since is not None:
            job = replacing_own(job, str(entry["id"]), place, since)
        if self.limits:
            job = with_limits(job, self.limits)
        (made,) = Source(Workload((job,), folder=place)).executions(cluster)
        if isinstance(made, Commands):
            made.take_words(self._words(one.words))
        return made

    def _words(self, words: Mapping[int, str]) -> dict[int, ResultOf]:
        return {number: ResultOf(partial(self.result, job)) for number, job in words.items()}


def _check_claims(
    planned: HostedExecution | DeferredHosted, pool: str, user: str | None
) -> None:
    """InputError for a job that code of its user has made one of another user or pool."""
    job = planned.job
    if job.user in (None, user) and job.pool == pool:
        return
    planned.close(succeeded=False)
    raise InputError(
        f"job {job.id!r} is of user {job.user!r} in pool {job.pool!r} when it is planned, and"
        f" was submitted as one of {user!r} in {pool!r}; its code must not change that"
    )


def _entry(one: Submitted, id: str, before: Mapping[str, str]) -> dict[str, Any]:
    """The entry of a job with the ids of the service."""
    entry = {**one.entry, "id": id}
    entry.pop("object", None)
    for key in AFTER:
        if key in entry:
            names = _listed(entry[key])
            kept = [before[name] for name in names if name in before]
            if kept:
                entry[key] = kept
            else:
                del entry[key]
    if one.words and (after := [before[job] for job in one.words.values() if job in before]):
        entry["after"] = list(dict.fromkeys([*_listed(entry.get("after")), *after]))
    if one.deadline is not None:
        entry["deadline"] = max(LEAST_SECONDS, one.deadline - time.time())
    if "promise" in entry:
        entry["promise"] = max(LEAST_SECONDS, entry["promise"]["at"] - time.time())
    return entry


def _listed(names: str | list[str] | None) -> list[str]:
    return [names] if isinstance(names, str) else list(names or ())


def promised_at(record: StoredJob) -> float | None:
    """The date that a stored job was promised, in Unix seconds; None: it asked for none."""
    if not record.spec:
        return None
    entry = Spec.of(record).submitted.entry
    return entry["promise"]["at"] if "promise" in entry else None


def arriving_now(stated: Any, now: float) -> Any:
    """The job with arrival `now`; its deadline, promise and steps keep their distance."""
    later = now - stated.arrival
    return replace(
        stated,
        arrival=now,
        deadline=None if stated.deadline is None else stated.deadline + later,
        promise=None if stated.promise is None else stated.promise + later,
        steps=tuple((at + later, cost) for at, cost in stated.steps),
    )
