"""The slots of this machine: one worker process each, used for many tasks, killable at once.

Tasks and results are bytes in this module; its base in `workers.py` pickles them. One thread,
no fork, no re-import of the user's main module. docs/decisions/0002-worker-processes.md
explains why no existing pool is used.
"""

from __future__ import annotations

import os
import pickle
import resource
import select
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from math import inf
from typing import Literal

from slotwise.backends.executing import Pickle
from slotwise.backends.inbox import Wakeup
from slotwise.backends.local.memory_watch import MemoryWatch
from slotwise.backends.local.output import OutputReader
from slotwise.backends.local.pacing import MIN_SPEED, CpuThrottle
from slotwise.backends.local.process import GarbledError, WorkerProcess, interpreter_options
from slotwise.backends.local.unresponsive import is_stopped
from slotwise.backends.local.worker import (
    BYTES,
    DONE,
    ERROR,
    FORGET,
    KEPT,
    RUNNER,
    STOPPED,
    TASK,
    TORN,
    VARIABLES,
)
from slotwise.backends.local.workers import (
    USUAL,
    Conditions,
    Reply,
    UserCodeError,
    Workers,
)
from slotwise.backends.simulated.many_tasks import free_memory
from slotwise.core.errors import InputError, SlotwiseError
from slotwise.jobs.accounts import Account, of_interpreter
from slotwise.jobs.commands import HASH_SEED, ONE_CORE
from slotwise.jobs.devices import variables as device_variables
from slotwise.jobs.endings import OomKills
from slotwise.task import SPEED_VARIABLE

DEFAULTS = {
    **ONE_CORE,
    # User code that spreads keys by hash() must agree in all workers and in every run.
    HASH_SEED: "0",
}
"""Defaults for the environment of the workers, below the manager's and the caller's."""

WORKER_FILES, FILES_SPARE = 5, 16
"""The descriptors that the manager needs for each worker, and the number kept for other use."""

WORKER_BYTES = 5 << 20
"""The memory that an idle worker needs for itself."""

STARTS_MAX = 3
"""The run fails if this number of workers of one slot in a row die before they are ready."""

STATUSES: dict[int, Literal["done", "bytes", "error", "stopped"]] = {
    DONE: "done",
    BYTES: "bytes",
    ERROR: "error",
    STOPPED: "stopped",
    TORN: "stopped",
}
"""The status of each type of reply."""

UNREADABLE: dict[type[BaseException], str] = {
    GarbledError: "the task wrote to the channel between its worker process and slotwise; it"
    " must leave alone the file descriptors that it did not open",
    MemoryError: "the result of the task does not fit into memory",
}
"""Why nothing more can be received from a worker."""


class Processes(Workers):
    """One worker process for each slot; each runs one task at a time.

    A worker that dies for any reason is replaced at once, and so is one whose task was stopped
    by its hook at an arbitrary point, or had GPUs. `close` kills the processes; the kernel
    kills them when the manager dies, even by SIGKILL. The same holds for processes that user
    code starts. Only those that leave their process group survive a manager that is killed. Of
    these, only those whose parents have ended survive `kill` and `close`.

    `speeds` has a number of at most 1 for each slot, by default 1: the part of the time for
    which its worker runs while it has a task. Slots may be added and removed at any time; the
    number of a slot is not reused. The output of user code is passed to its attempt. It is also
    shown unless the attempt says otherwise: at the descriptor `stdout`, by default stderr, so
    that it does not mix with our own output. New workers have the `options` of the interpreter,
    by default those of this one.

    SlotwiseError if a worker process cannot be started.
    """

    def __init__(
        self,
        slots: int = 0,
        *,
        environment: Mapping[str, str] | None = None,
        speeds: Sequence[float] | None = None,
        stdout: int = 2,
    ) -> None:
        super().__init__()
        speeds = speeds or [1.0] * slots
        assert len(speeds) == slots
        self._speeds: dict[int, float] = {}  # by slot
        self._throttle: CpuThrottle | None = None
        self._to_throttle: set[int] = (
            set()
        )  # slots whose worker will be slowed once it is ready
        self.options = interpreter_options()
        self._environment = DEFAULTS | os.environ | dict(environment or {})
        self._dying: list[WorkerProcess] = []
        self._poll = select.poll()
        self._wakeup = Wakeup()
        self._poll.register(self._wakeup.channel, select.POLLIN)
        self._by_channel: dict[int, int] = {}
        self._others: dict[int, Callable[[int], None]] = {}  # by channel; see `attend`
        self._output = OutputReader(stdout, self.attend)
        self.reads_output = True
        self._workers: dict[int, WorkerProcess] = {}  # by slot
        self._count = 0  # of all slots so far
        self._oom_kills = OomKills()
        self._memory = MemoryWatch(lambda slot: self._workers[slot].memory())
        try:
            self.add(speeds)
        except SlotwiseError:
            self.close()
            raise

    def add(self, speeds: Sequence[float]) -> list[int]:
        """Add a slot with a worker for each of the speeds; returns the slots.

        SlotwiseError if a worker process cannot be started; then none is added. InputError,
        before any is started, if limits of the machine do not allow them.
        """
        check_room(len(speeds))
        assert all(MIN_SPEED <= speed <= 1 for speed in speeds)
        if self._throttle is None and min(speeds, default=1) < 1:
            self._throttle = CpuThrottle()
        added: list[int] = []
        try:
            for speed in speeds:
                slot = self._count
                self._speeds[slot] = speed
                self._workers[slot] = self._new_worker(slot)
                self._count += 1
                added.append(slot)
        except OSError as error:
            self._speeds.pop(slot)
            self.remove(added)
            raise SlotwiseError(
                f"only {len(added)} of {len(speeds)} worker processes could be started:"
                f" {error.strerror}; use fewer slots"
            ) from error
        return added

    def remove(self, slots: Iterable[int]) -> None:
        """See `Workers`."""
        removed = set(slots)
        for slot in sorted(removed):
            self._end(slot)
            del self._workers[slot], self._speeds[slot]
            if self._throttle is not None:
                self._throttle.forget(slot)

    def start_pickled(
        self, slot: int, key: str, task: bytes, conditions: Conditions = USUAL
    ) -> None:
        """See `Workers`."""
        kept, sleeps, output, devices, memory, account = conditions
        worker = self._workers[slot]
        assert not worker.busy
        # CUDA reads the variables once in a process.
        if worker.account != account or (devices and worker.tasks):
            self._replace_for(slot, account)
        if not self._send(slot, key, task, kept, devices):
            # The worker died while idle, so no task is lost.
            self._replace_for(slot, account)
            self._send(slot, key, task, kept, devices)
        self._workers[slot].output.attempt = output
        if memory is not None:
            self._memory.begin(slot, memory, time.monotonic())
        if self._throttle is not None and self._speeds[slot] < 1 and not sleeps:
            self._to_throttle.add(slot)
            self._throttle_if_ready(slot)

    def wait(self, timeout: float | None = None) -> list[Reply]:
        """See `Workers`."""
        until = None if timeout is None else time.monotonic() + timeout
        replies: list[Reply] = []
        if self._dying:
            self._dying = [worker for worker in self._dying if not worker.is_reaped()]
        while True:
            left = None if until is None else until - time.monotonic()
            if self._memory.next_check < inf:
                next_check = self._memory.next_check - time.monotonic()
                left = next_check if left is None else min(left, next_check)
            is_woken = False
            ready = self._poll.poll(milliseconds(left))
            if ready and ready[-1][0] == self._output.channel:
                del ready[-1]
                self._output.read_ready()
            for channel, event in ready:
                if channel == self._wakeup.channel:
                    self._wakeup.reset()
                    is_woken = True
                elif channel in self._others:
                    self._others[channel](event)
                    is_woken = True
                elif (slot := self._by_channel.get(channel)) is not None and (
                    reply := self._serve(slot, event)
                ):
                    replies.append(reply)
            if self._memory.next_check < inf:
                replies += self._stop_excesses()
            if is_woken or replies or (until is not None and time.monotonic() >= until):
                return replies

    def attend(self, channel: int, events: int, callback: Callable[[int], None]) -> None:
        """Let `wait` call `callback` for events of another channel, and return after that.

        Without events, remove the channel.
        """
        if events:
            self._others[channel] = callback
            self._poll.register(channel, events)
            self._await_output()
        elif self._others.pop(channel, None):
            self._poll.unregister(channel)

    def read_output(self, reads: bool) -> None:
        """Read what tasks print from now on, or let those that print much wait."""
        if reads != self.reads_output:
            self.reads_output = reads
            self._await_output()

    def wake(self) -> None:
        """See `Workers`."""
        self._wakeup.ring()

    def request_stop(self, slot: int, until: float) -> None:
        """See `Workers`."""
        if self._workers[slot].busy:
            self._workers[slot].request_stop(until)
            if self._throttle is not None:
                # A throttled worker must get the signal now, not when it is continued.
                self._throttle.nudge(slot)

    def kill(self, slot: int) -> None:
        """See `Workers`."""
        self._replace(slot)

    def _forget(self, key: str) -> None:
        for worker in self._workers.values():
            if key in worker.keys:
                worker.keys.remove(key)
                worker.send(FORGET, pickle.dumps(key), waits=True)

    def is_stopped(self, slot: int) -> bool:
        """Whether another process stopped the worker of a slot by SIGSTOP."""
        pid = self._workers[slot].pid
        if self._throttle is not None:
            return self._throttle.is_held(slot, pid)
        return is_stopped(pid, by_us=False)

    def progress(self, slot: int) -> tuple[float, float | None] | None:
        """See `Workers`."""
        return self._workers[slot].progress()

    def pids(self) -> tuple[int, ...]:
        """The current process id of each slot."""
        return tuple(worker.pid for worker in self._workers.values())

    def close(self) -> None:
        """See `Workers`."""
        if self._throttle is not None:
            self._throttle.close()
        ending = [*self._dying, *self._workers.values()]
        for worker in ending:
            worker.kill()
        for worker in ending:
            worker.reap()
        self._dying, self._workers = [], {}
        self._by_channel = {}
        self._output.close()
        self._wakeup.close()

    def _send(
        self, slot: int, key: str, task: bytes, kept: Pickle, devices: tuple[int, ...]
    ) -> bool:
        """Send a task to the worker of a slot; False if it is dead."""
        worker = self._workers[slot]
        worker.busy = True
        if key not in worker.keys:
            worker.keys.add(key)
            worker.send(RUNNER, self._runners[key], waits=True)
        if kept:
            worker.send(KEPT, kept, waits=True)
        if devices:
            worker.has_devices = True
            variables = device_variables(self._environment, devices)
            worker.send(VARIABLES, pickle.dumps(variables), waits=True)
        alive = worker.send(TASK, task)
        if worker.unsent:
            self._watch(worker)
        return alive

    def _serve(self, slot: int, event: int) -> Reply | None:
        """Send the rest of a request to a worker, or receive a part of its reply."""
        worker = self._workers[slot]
        if event & select.POLLOUT:
            worker.flush()
            self._watch(worker)
        if not event & ~select.POLLOUT:
            return None
        was_ready = worker.ready
        try:
            reply = worker.receive()
        except EOFError:
            self._output.read([worker.output])
            worker.output.end_attempt()
            words, peak = worker.exit_reason(), 0
            if worker.was_killed and (hint := self._oom_kills.hint()):
                words, peak = words + hint, worker.peak
            status: Literal["lost", "exited"] = "exited" if worker.ended_itself else "lost"
            return self._replace_dead_worker(slot, status, words, peak)
        except (GarbledError, MemoryError) as error:
            return self._replace_dead_worker(slot, "unreadable", UNREADABLE[type(error)])
        if reply is None:
            self._throttle_if_ready(slot)
            return None
        if not (was_ready and self.reads_output):  # `poll` may have come before the task.
            self._output.read([worker.output])
        worker.busy = False
        worker.output.end_attempt()
        what, started, seconds, peak, body = reply
        if self._memory.next_check < inf:
            # With children, of which a call knows nothing.
            peak = max(peak, self._memory.end(slot))
        if self._throttle is not None:
            self._stop_throttling(slot, started, started + seconds)
        if what == TORN or worker.has_devices:  # It would keep memory of its GPUs.
            self._replace(slot)
        return Reply(slot, STATUSES[what], body, started, seconds, peak)

    def _replace_dead_worker(
        self,
        slot: int,
        status: Literal["lost", "exited", "unreadable"],
        sentence: str,
        peak: int = 0,
    ) -> Reply | None:
        """Replace an unusable worker; returns the answer for its task, if it had one."""
        worker = self._workers[slot]
        self._stop_throttling(slot)
        unready = 0 if worker.ready else worker.unready + 1
        if unready and worker.account is not None:  # That one has no rights, or processes.
            status, unready = "unreadable", 0
        if unready >= STARTS_MAX:
            raise SlotwiseError(
                f"worker processes cannot start: {unready} in a row ended before they were"
                f" ready; the last one: {sentence}; see stderr for their messages"
            )
        self._replace(slot, unready)
        return Reply(slot, status, sentence, peak=peak) if worker.busy else None

    def _stop_excesses(self) -> Iterator[Reply]:
        """Kill the tasks that may not continue because of the memory that they use, if any."""
        now = time.monotonic()
        for one in self._memory.check(now) if self._memory.next_check <= now else ():
            output = self._workers[one.slot].output
            self._output.read([output])
            output.end_attempt()
            self._replace(one.slot)
            yield Reply(one.slot, one.status, one.reason, peak=one.used)

    def _replace(self, slot: int, unready: int = 0) -> None:
        """Kill the worker of a slot, if alive, and start another without waiting."""
        self._end(slot)
        self._workers[slot] = self._new_worker(slot, unready)

    def _replace_for(self, slot: int, account: Account | None) -> None:
        """Replace the worker of a slot by one of an account.

        UserCodeError if that cannot have one more process, or not run the interpreter. All
        other code replaces a worker by one of this process' own account, which can start.
        """
        if account is None:
            self._replace(slot)
            return
        self._end(slot)
        try:
            self._workers[slot] = self._new_worker(slot, account=account)
        except OSError as error:
            self._workers[slot] = self._new_worker(slot)
            why = f"no worker process of account {account.name!r} can start: {error.strerror}"
            raise UserCodeError(f"{why}; it must be able to run {sys.executable}") from error

    def _end(self, slot: int) -> None:
        """Kill the worker of a slot, if alive, without waiting."""
        worker = self._workers[slot]
        self._memory.end(slot)
        self._stop_throttling(slot)
        self._poll.unregister(worker.channel)
        del self._by_channel[worker.channel]
        worker.kill()
        self._dying.append(worker)

    def _new_worker(
        self, slot: int, unready: int = 0, account: Account | None = None
    ) -> WorkerProcess:
        environment = self._environment
        if account is not None:
            environment = DEFAULTS | account.variables(of_interpreter())
        speed = {SPEED_VARIABLE: repr(self._speeds[slot])}
        worker = WorkerProcess(environment | speed, unready, self.options, account)
        self._by_channel[worker.channel] = slot
        self._watch(worker)
        self._output.add(worker.output)
        self._await_output()
        return worker

    def _await_output(self) -> None:
        """Make output the last channel of `poll`; see `output.py`."""
        with suppress(KeyError):
            self._poll.unregister(self._output.channel)
        if self.reads_output:
            self._poll.register(self._output.channel, select.POLLIN)

    def _throttle_if_ready(self, slot: int) -> None:
        """Slow the worker of a slot from now on, if it is to be slowed and is ready.

        A worker that is stopped before it is ready would survive the manager.
        """
        if slot in self._to_throttle and self._workers[slot].ready:
            assert self._throttle is not None
            self._to_throttle.remove(slot)
            self._throttle.begin(slot, self._workers[slot].pid, self._speeds[slot])

    def _stop_throttling(self, slot: int, started: float = 0.0, over: float = 0.0) -> None:
        """Stop slowing the worker of a slot, which has no task any more or will be killed."""
        if self._throttle is not None:
            self._to_throttle.discard(slot)
            self._throttle.end(slot, started, over)

    def _watch(self, worker: WorkerProcess) -> None:
        wanted = select.POLLIN | select.POLLOUT if worker.unsent else select.POLLIN
        self._poll.register(worker.channel, wanted)


def check_room(workers: int) -> None:
    """InputError for more workers than the limits of this machine allow now."""
    files, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    processes, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    reasons = []
    if files != resource.RLIM_INFINITY:
        used = len(os.listdir("/proc/self/fd")) + FILES_SPARE
        if files < used + workers * WORKER_FILES <= most_files:
            files = used + workers * WORKER_FILES
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, most_files))
        free = files - used
        reasons.append(
            (free // WORKER_FILES, f"a program may open {files} files (see ulimit -n)")
        )
    if processes != resource.RLIM_INFINITY:
        reasons.append((processes, f"a user may have {processes} processes (see ulimit -u)"))
    if (memory := free_memory()) is not None:
        reasons.append((memory // WORKER_BYTES, f"{memory / 1e9:.3g} GB of memory are free"))
    most, reason = min(reasons, default=(workers, ""))
    if workers > most:
        raise InputError(
            f"{workers} worker processes cannot be started, one for each slot: this machine has"
            f" room for {max(0, most)}, as {reason}; use fewer slots"
        )


def milliseconds(seconds: float | None) -> float | None:
    """Seconds as a timeout for poll, which accepts neither infinity nor more than 24 days."""
    return None if seconds is None else min(max(seconds, 0.0), 86_400.0) * 1000
