"""The jobs in execution on a live backend: attempts, results, kept values and commits.

A backend starts, stops and kills attempts, and reports their ends to `Executing`. Everything
else about a running job is in this module, for all live backends.
"""

from __future__ import annotations

import threading
from array import array
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple, Self

from slotwise.backends.attempt_logs import AttemptLogs, AttemptOutput
from slotwise.backends.local.memory_watch import Allotment
from slotwise.backends.signals import undisturbed
from slotwise.core.decisions import Launch
from slotwise.core.errors import (
    InputChanged,
    NotRetriedError,
    SlotwiseError,
    WorkFolderError,
)
from slotwise.core.events import (
    Event,
    LaunchDropped,
    OutputLost,
    TaskFailed,
    TaskFinished,
    TaskKilled,
)
from slotwise.core.job import PhaseId
from slotwise.core.resources import MEMORY
from slotwise.jobs.accounts import Account
from slotwise.jobs.commands import last_lines
from slotwise.jobs.execution import (
    Execution,
    FailedAttemptError,
    LostAttemptError,
    LostInputError,
)

FINAL = (InputChanged, NotRetriedError)
"""The errors after which no further attempt is made; not those derived from them."""


@dataclass(frozen=True, slots=True)
class Start:
    """The input of an attempt: the runner and its key, arguments, and the kept value.

    `output` takes what it prints, and `memory` is what was allotted to it, if anything. If it
    runs for more than `time_limit` seconds, it is asked to stop, and killed `ending_seconds`
    later. `seconds_before` count too: those of an attempt that an earlier run has begun. It
    runs as the `account`, if there is one.
    """

    runner_key: str
    runner: Callable[..., object]
    arguments: tuple[object, ...]
    kept: Pickle
    sleeps: bool
    output: AttemptOutput
    time_limit: float | None
    ending_seconds: float
    memory: Allotment | None
    seconds_before: float
    account: Account | None


class Executing:
    """All jobs in execution. Its methods report the events that follow from their arguments.

    A job is committed when its last task has succeeded. The end of that task is reported only
    after the commit, so that the output of a completed job is in place. A job that writes
    output is committed in a separate thread. For the scheduler, its last task holds its slot
    until the event. Errors of the job's own code and of the disk are reported as task failures.

    A gang is broken when one of its attempts ends without a result. The results of its other
    tasks are discarded, and attempts that end later count as killed: all of its tasks are
    repeated, with the next attempt. The scheduler stops those that run.

    now      the clock of the backend
    report   is called with each event
    wake     ends the wait of the backend, from any thread, so that it calls `finish_commits`
    forget   is called with the key of a runner that is not needed any more, and the names of
             the folders of its job on hosts with their own folders
    logs     where the output of attempts is kept, or None
    """

    def __init__(
        self,
        now: Callable[[], float],
        report: Callable[[Event], None],
        wake: Callable[[], None],
        forget: Callable[[str, tuple[str, ...]], None],
        logs: AttemptLogs | None = None,
    ) -> None:
        self._logs = logs
        self._now, self._report, self._forget_runner = now, report, forget
        self._jobs: dict[str, LiveJob] = {}
        # Attempts reported as lost that may still run.
        self._abandoned: dict[Launch, LiveJob] = {}
        self._commits = Commits(wake)

    def __contains__(self, job: object) -> bool:
        return job in self._jobs

    def __getitem__(self, job: str) -> LiveJob:
        return self._jobs[job]

    def add(self, execution: Execution) -> None:
        """Add a job, with no attempt started."""
        self._jobs[execution.job.id] = LiveJob.of(execution)

    def begin(self, launch: Launch, obstacle: str = "", address: str = "") -> Start | None:
        """Begin an attempt; None if it was dropped or has failed, which is reported.

        A repeated or late launch is dropped: neither an attempt nor an earlier one of its task
        begins again. A new attempt that cannot begin is lost, since the state counts it as
        running; the cause is an obstacle of the backend, or another attempt of the task that
        counts. `address` is that of the agent of the host, if there is one.
        """
        phase, task, attempt = launch.phase, launch.task, launch.attempt
        objection, is_new = self._objection(launch)
        if objection and not is_new:
            host = launch.host
            self._report(LaunchDropped(self._now(), phase, task, attempt, host, objection))
            return None
        live = self._jobs[phase.job]
        name, execution = phase.phase, live.execution
        if objection:
            reason = f"{execution.describe(name, task)}: it cannot be started: {objection}"
            self._report(TaskFailed(self._now(), phase, task, attempt, reason, lost=True))
            return None
        live.running[name, task] = None
        live.begun[name][task] = attempt
        if obstacle:
            self.failed(launch, f"it cannot be started: {obstacle}", lost=True)
            return None
        if not execution.begins_at(name, task, attempt, address):
            self._done(live, launch, 0.0)
            return None
        try:
            arguments = execution.arguments(name, task, attempt)
        except Exception as error:
            is_final = type(error) in FINAL  # No further attempt can succeed.
            self.failed(
                launch, error if is_final else f"it cannot be started: {sentence(error)}"
            )
            return None
        kept = live.kept.get((name, task), b"")
        output = AttemptOutput(self._logs, execution.job, launch, is_shown=execution.is_shown)
        if files := execution.output_files(name, task, attempt):
            output.link(files)
        live.running[name, task] = output
        limit = execution.job.time_limit
        return Start(
            live.runner_key,
            execution.runner,
            arguments,
            kept,
            execution.sleeps,
            output,
            limit,
            execution.ending_seconds,
            live.allotment(launch) if launch.memory or live.memory else None,
            0.0 if limit is None else execution.seconds_before(name, task),
            execution.account,
        )

    def slots_of(self, launch: Launch) -> int:
        """The slots that an attempt occupies."""
        live = self._jobs.get(launch.phase.job)
        return 1 if live is None else live.execution.job.by_name[launch.phase.phase].slots

    def grow(self, phase: PhaseId, count: int) -> None:
        """Add tasks to a phase, unless its job is over."""
        live = self._jobs.get(phase.job)
        if live is not None:
            live.begun[phase.phase].extend([0] * count)
            live.tasks_left += count

    def close_phase(self, phase: PhaseId) -> None:
        """Record that a phase gets no more tasks, which may complete its job."""
        live = self._jobs.get(phase.job)
        if live is not None:
            live.open -= 1
            if live.is_done:
                live.execution.close(succeeded=True)
                self._forget(live)

    def finished(
        self, launch: Launch, result: object, seconds: float, peak: int | None = None
    ) -> None:
        """Store the result of an attempt; commit the job if it was the last task."""
        live = self._jobs[launch.phase.job]
        output = live.end_output(launch)
        if output is not None and output.is_shown and output.files:
            live.execution.printed(launch.phase.phase, launch.task, output.path)
        if live.broken and live.is_broken(launch):
            self.killed(launch)
        elif live.given_up:
            self._done(live, launch, seconds, peak)
        elif not live.is_last:
            self._store(live, launch, result, seconds, peak)
        else:
            with undisturbed():  # No signal between the commit and its record.
                self._store(live, launch, result, seconds, peak, is_last=True)

    def failed(
        self,
        launch: Launch,
        reason: object,
        *,
        lost: bool = False,
        is_own: bool = False,
        peak: int | None = None,
    ) -> None:
        """Record that an attempt has failed, or was lost with its worker or its host.

        If the task itself has ended or stopped its worker (`is_own`), the attempt has failed
        although it was lost. The reason is a string or an error. With a LostInputError, the
        lost output is reported too. With one of `FINAL`, the job fails.
        """
        live = self._jobs[launch.phase.job]
        name, task = launch.phase.phase, launch.task
        output, lacks_input = live.end_output(launch), False
        lost = lost or isinstance(reason, LostAttemptError)
        if isinstance(reason, LostInputError) and reason.phase not in live.begun:
            # An earlier run has made it, and no phase of this job can make it again.
            remedy = "run again with --resume, which makes it again"
            reason = InputChanged(
                f"{reason.place}, kept from an earlier run, is lost; {remedy}"
            )
        if isinstance(reason, LostInputError):
            try:
                lacks_input, lost = self._lacks(live, reason), True
            except (OSError, WorkFolderError) as error:
                reason = f"{reason}; and its loss cannot be recorded: {sentence(error)}"
        final = type(reason) in FINAL  # Not only as one host sees it.
        if output is not None and (isinstance(reason, str) or final):
            reason = _with_output(str(reason), output)
        if live.execution.absorbs(name, task, str(reason), is_lost=lost, is_own=is_own):
            self._done(live, launch, 0.0, peak)
            return
        live.discard(launch)
        text = f"{live.execution.describe(name, task)}: {reason}"
        now, attempt, lost = self._now(), launch.attempt, lost and not is_own
        how = lost, lacks_input, final, peak
        self._report(TaskFailed(now, launch.phase, task, attempt, text, *how))
        self._break(live, launch)
        self._one_less(live, launch)

    def lost_output(self, job: str, phase: str, tasks: Iterable[int], reason: str) -> None:
        """Record that the intermediate output of tasks is lost, for example with their host.

        It is reported for tasks that are done and whose output may still be read. No effect if
        the job is over or its output is being committed. Raises OSError if the loss cannot be
        recorded.
        """
        live = self._jobs.get(job)
        if live is None or live.given_up or live.later is not None:
            return
        lost = tuple(live.execution.lose(phase, live.needed(phase, tasks)))
        if lost:
            if live.execution.job.by_name[phase].is_gang:
                lost = self._lose_gang(live, phase)
            else:
                for task in lost:
                    live.begun[phase][task] -= DONE
                live.tasks_left += len(lost)
            self._report(OutputLost(self._now(), PhaseId(job, phase), lost, reason))

    def lost_files(self, host: str) -> None:
        """Record that all files on a host are lost, with the output of tasks done on it."""
        for job, live in list(self._jobs.items()):
            by_phase: dict[str, list[int]] = {}
            for (phase, task), place in live.places.items():
                if place == host and live.begun[phase][task] >= DONE:
                    by_phase.setdefault(phase, []).append(task)
            for phase, tasks in by_phase.items():
                self.lost_output(job, phase, tasks, f"host {host} has left with its files")

    def abandoned(self, launch: Launch, reason: str) -> None:
        """Report an attempt as lost that may still run; call `over` when it has ended."""
        self._abandoned[launch] = self._jobs[launch.phase.job]
        self.failed(launch, reason, lost=True)

    def over(self, launch: Launch) -> None:
        """Discard the output of an abandoned attempt, which has ended on its host."""
        self._abandoned.pop(launch).discard(launch)

    def killed(self, launch: Launch) -> None:
        """Record that an attempt was killed."""
        self.stopped(launch, b"", 0.0)

    def stopped(self, launch: Launch, kept: Pickle, work: float) -> None:
        """Record that an attempt stopped on request. With a kept value, its work is kept."""
        live = self._jobs[launch.phase.job]
        if live.execution.job.by_name[launch.phase.phase].is_gang:
            kept = b""  # All of its tasks are repeated.
        if kept:
            live.kept[launch.phase.phase, launch.task] = kept
        live.end_output(launch)
        live.discard(launch)
        saved = work if kept else 0.0
        self._report(
            TaskKilled(self._now(), launch.phase, launch.task, launch.attempt, kept=saved)
        )
        self._break(live, launch)
        self._one_less(live, launch)

    def give_up(self, job: str) -> None:
        """Begin no more attempts of a job, and close it when none runs."""
        live = self._jobs[job]
        live.given_up = True
        self._close_if_given_up(live)

    def finish_commits(self) -> None:
        """Report the last tasks of jobs whose commits have ended."""
        while self._commits.ended:
            launch, seconds, peak, error = self._commits.take()
            live = self._jobs[launch.phase.job]
            later, live.later = live.later, None
            for attempt in later or ():
                live.discard(attempt)
            if error is None:
                self._done(live, launch, seconds, peak)
            elif isinstance(error, Exception):
                self._unkept(launch, error, peak)
            else:
                raise error

    def end_commits(self) -> None:
        """Wait for the commits in progress, so that their output is complete."""
        self._commits.join()

    def is_committing(self, host: str) -> bool:
        """Whether a job is being committed whose last task ran on this host."""
        return self._commits.is_on(host)

    def close(self) -> None:
        """Remove the output of unfinished jobs; no attempt runs any more. Idempotent."""
        while self._jobs:
            _, live = self._jobs.popitem()
            for output in filter(None, live.running.values()):
                output.close()
            live.later = None
            live.execution.close(succeeded=False)
        while self._abandoned:
            self.over(next(iter(self._abandoned)))

    def _objection(self, launch: Launch) -> tuple[str, bool]:
        """Why an attempt may not begin, or an empty string; and whether it is new."""
        live = self._jobs.get(launch.phase.job)
        if live is None or live.given_up:
            return "its job is over", False
        begun = live.begun[launch.phase.phase][launch.task]
        is_new = launch.attempt > begun % DONE
        if begun >= DONE:
            return "the task is done", is_new
        if (launch.phase.phase, launch.task) in live.running:
            return f"attempt {begun} of the task runs", is_new
        if not is_new:
            return f"attempt {begun} of the task was begun before, and is over", False
        return "", True

    def _store(
        self,
        live: LiveJob,
        launch: Launch,
        result: object,
        seconds: float,
        peak: int | None,
        *,
        is_last: bool = False,
    ) -> None:
        """Store a result, and commit the job if it is the last one."""
        name, task, execution = launch.phase.phase, launch.task, live.execution
        try:
            execution.finished(name, task, launch.attempt, result)
            if execution.waits:
                seconds -= execution.waited(name, task, launch.attempt)
            if is_last:
                if live.writes:
                    live.later = []
                    commit = partial(execution.close, succeeded=True)
                    self._commits.begin(commit, launch, seconds, peak)
                    return
                execution.close(succeeded=True)
        except FailedAttemptError as error:
            self.failed(launch, str(error), peak=peak)
            return
        except Exception as error:
            self._unkept(launch, error, peak)
            return
        self._done(live, launch, seconds, peak)

    def _break(self, live: LiveJob, launch: Launch) -> None:
        """Repeat the gang of an attempt that has ended without a result, if it has one.

        The output of its done tasks is reported as lost.
        """
        phase = launch.phase
        is_gang = live.execution.job.by_name[phase.phase].is_gang
        if not is_gang or live.given_up or live.is_broken(launch):
            return
        done = live.break_gang(phase.phase, launch.attempt)
        for task in done:
            live.discard(replace(launch, task=task))
        if done:
            self._report(OutputLost(self._now(), phase, tuple(done)))

    def _lose_gang(self, live: LiveJob, phase: str) -> tuple[int, ...]:
        """Discard the results of a gang that has lost output; returns its done tasks."""
        attempt = max(begun % DONE for begun in live.begun[phase])
        done = live.break_gang(phase, attempt)
        for task in done:
            with suppress(OSError):
                live.execution.discard(phase, task, attempt)
        return tuple(done)

    def _lacks(self, live: LiveJob, lost: LostInputError) -> bool:
        """Report the output that an attempt has found lost, unless it was reported before.

        Returns whether the attempt lacks output of other tasks, which are repeated. Raises
        OSError.
        """
        begun = live.begun[lost.phase]
        tasks = [task for task, attempt in lost.outputs if begun[task] == DONE + attempt]
        self.lost_output(live.execution.job.id, lost.phase, tasks, str(lost))
        return bool(lost.outputs)

    def _unkept(self, launch: Launch, error: Exception, peak: int | None) -> None:
        is_final = type(error) is InputChanged  # As in `begin`.
        reason = error if is_final else f"its result cannot be kept: {sentence(error)}"
        self.failed(launch, reason, peak=peak)

    def _done(
        self, live: LiveJob, launch: Launch, seconds: float, peak: int | None = None
    ) -> None:
        """Report a task as done, with its result stored; forget a complete job."""
        name, task = launch.phase.phase, launch.task
        live.tasks_left -= 1
        live.begun[name][task] = DONE + launch.attempt
        if live.folders:
            live.places[name, task] = launch.host
        live.kept.pop((name, task), None)
        attempt = launch.attempt
        self._report(TaskFinished(self._now(), launch.phase, task, attempt, seconds, peak))
        if live.is_done and not live.given_up:
            self._forget(live)
        else:
            self._one_less(live, launch)

    def _one_less(self, live: LiveJob, launch: Launch) -> None:
        live.running.pop((launch.phase.phase, launch.task), None)
        self._close_if_given_up(live)

    def _close_if_given_up(self, live: LiveJob) -> None:
        if live.given_up and not live.running:
            self._forget(live)
            live.execution.close(succeeded=False)

    def _forget(self, live: LiveJob) -> None:
        job = live.execution.job.id
        del self._jobs[job]
        if live.runner_key == job:
            self._forget_runner(job, live.folders)


def _with_output(reason: str, output: AttemptOutput) -> str:
    """The reason of a failure with the end of stderr, if that was not shown, and its file."""
    if not output.is_shown:
        reason = last_lines(output.tail) + reason
    if path := output.path:
        reason += f"\nits output: {path}" if "\n  File " in reason else f"; see {path}"
    return reason


def sentence(error: BaseException) -> str:
    """An error of a job as a part of the reason of a failure."""
    if isinstance(error, OSError) and error.strerror:
        place = f" ({error.filename})" if error.filename else ""
        return f"{error.strerror}{place}"
    if isinstance(error, SlotwiseError):
        return str(error)
    return f"{type(error).__name__}: {error}"


DONE = 1 << 31
"""Added to the number of the last attempt of a done task, so that no later one is valid."""

Pickle = bytes | bytearray
"""A pickled value, for code that passes it on without unpickling it."""


@dataclass(slots=True)
class LiveJob:
    """A job on a live backend that is not over.

    begun    the number of the last attempt begun of each task, by phase; 0 if there is none
    running  the tasks with a running attempt, or with one that is being committed, and the
             output of the former
    kept     the values kept by stopped attempts of tasks that are not done, by phase and number
    open     the number of phases that may still get tasks
    broken   for each broken gang, its last attempt that does not count
    folders  the names of its folders on each host with its own
    writes   whether it is closed in a thread, which commits its output
    places   the host that stores the output of each done task, by phase and number
    later    during the commit of the output, the attempts to discard afterwards; else None
    memory   what the phases request that request some
    """

    execution: Execution
    tasks_left: int
    begun: dict[str, array[int]]
    runner_key: str
    running: dict[tuple[str, int], AttemptOutput | None] = field(default_factory=dict)
    given_up: bool = False
    kept: dict[tuple[str, int], Pickle] = field(default_factory=dict)
    open: int = 0
    broken: dict[str, int] = field(default_factory=dict)
    folders: tuple[str, ...] = ()
    writes: bool = False
    places: dict[tuple[str, int], str] = field(default_factory=dict)
    later: list[Launch] | None = None
    memory: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, execution: Execution) -> Self:
        """A job with no attempt begun."""
        counts = {phase.name: phase.tasks.count for phase in execution.job.phases}
        begun = {name: array("I", [0]) * count for name, count in counts.items()}
        still_open = sum(phase.grows for phase in execution.job.phases)
        return cls(
            execution,
            sum(counts.values()) - sum(map(len, execution.done_before.values())),
            begun,
            execution.runner_key,
            open=still_open,
            folders=execution.folders,
            writes=execution.closes_in_thread,
            memory={p.name: p.needs[MEMORY] for p in execution.job.phases if MEMORY in p.needs},
        )

    @property
    def is_last(self) -> bool:
        """Whether the next task to be done completes the job."""
        return self.tasks_left == 1 and not self.open

    @property
    def is_done(self) -> bool:
        """Whether all tasks are done, and none can be added."""
        return not self.tasks_left and not self.open

    def needed(self, phase: str, tasks: Iterable[int]) -> list[int]:
        """The done tasks among `tasks` whose output an unfinished task may read."""
        done = [task for task in sorted(set(tasks)) if self.begun[phase][task] >= DONE]
        needed: set[int] = set()
        for reader in self.execution.job.phases:
            if reader.continues == phase:
                needed.update(t for t in done if self.begun[reader.name][t] < DONE)
            elif phase in reader.waits_for and (
                reader.grows or any(begun < DONE for begun in self.begun[reader.name])
            ):
                return done
        return sorted(needed)

    def allotment(self, launch: Launch) -> Allotment | None:
        """The memory that an attempt gets: what is learned, or else what its phase requests."""
        if launch.memory:
            return Allotment(launch.memory)  # An estimate may be too low to be a limit.
        memory = self.memory.get(launch.phase.phase)
        return None if memory is None else Allotment(memory, self.execution.job.memory_limit)

    def end_output(self, launch: Launch) -> AttemptOutput | None:
        """Close the output of an attempt that has ended, and return it if it had any."""
        place = launch.phase.phase, launch.task
        output = self.running.get(place)
        if output is not None:
            output.close()
            self.running[place] = None
        return output

    def is_broken(self, launch: Launch) -> bool:
        """Whether an attempt belongs to a gang that was broken after it began."""
        return launch.attempt <= self.broken.get(launch.phase.phase, 0)

    def break_gang(self, phase: str, attempt: int) -> list[int]:
        """Mark all tasks of a gang as not done; returns the numbers of those that were done.

        `attempt` and earlier ones do not count any more.
        """
        self.broken[phase] = attempt
        begun = self.begun[phase]
        done = [task for task, last in enumerate(begun) if last >= DONE]
        for task in done:
            begun[task] -= DONE
        self.tasks_left += len(done)
        return done

    def discard(self, launch: Launch) -> None:
        """Remove the files of an attempt. Files that remain are removed when the job closes."""
        if self.later is not None:
            self.later.append(launch)
            return
        with suppress(OSError):
            self.execution.discard(launch.phase.phase, launch.task, launch.attempt)


class Committed(NamedTuple):
    """A commit that has ended: the last attempt, its seconds and its peak, and the error."""

    launch: Launch
    seconds: float
    peak: int | None
    error: BaseException | None


class Commits:
    """The commits in progress, one for each job, in threads that do not block other jobs.

    `wake` is called by each thread at its end, and `ended` are those that were not taken out.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._threads: dict[str, tuple[threading.Thread, Launch]] = {}
        self.ended: deque[Committed] = deque()

    def begin(
        self, close: Callable[[], None], launch: Launch, seconds: float, peak: int | None
    ) -> None:
        """Call `close` in a thread; `launch` is the last attempt of the job."""

        def commit() -> None:
            problem: BaseException | None = None
            try:
                close()
            except BaseException as error:
                problem = error
            self.ended.append(Committed(launch, seconds, peak, problem))
            self._wake()

        job = launch.phase.job
        thread = threading.Thread(target=commit, name=f"commit of {job}")
        self._threads[job] = thread, launch
        thread.start()

    def take(self) -> Committed:
        """Take out one that has ended."""
        committed = self.ended.popleft()
        self._threads.pop(committed.launch.phase.job)[0].join()
        return committed

    def join(self) -> None:
        """Wait for the commits in progress."""
        with undisturbed():
            for thread, _ in self._threads.values():
                thread.join()

    def is_on(self, host: str) -> bool:
        """Whether a job is being committed whose last task ran on this host."""
        return any(launch.host == host for _, launch in self._threads.values())
