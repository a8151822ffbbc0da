"""A session under random requests: calls, jobs, cancels, changes, hosts, failures and kills.

By default for a few seconds; with `--slow` for an hour, or for as many seconds as the
environment variable LONG_SECONDS says.
"""

from __future__ import annotations

import os
import signal
import time
from concurrent import futures
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from core.test_memory import size_of
from sessions.small_calls import double, work
from slotwise import (
    Calls,
    InputError,
    Job,
    Phase,
    Pool,
    Preemption,
    Session,
    SlotwiseError,
    Tasks,
    read_log,
    replay,
)
from slotwise.core.log_validation import LogValidator
from tiers import examples

PATIENCE = 120.0
PREEMPTION = Preemption(least_after=0.5, fair_after=2.0, grace=0.2)
POOLS = (
    Pool("p", slots_min={"task": 1}, preemption=PREEMPTION),
    Pool("q", slots_max={"task": 2}),  # Two, so that wide calls never wait for other pools.
    Pool("inner", slots_max={"task": 2}),
    Pool("x", parent="inner", weight=3.0),
)
TREES = (
    POOLS,
    (Pool("p", jobs_max=2), Pool("x", preemption=PREEMPTION)),
    (Pool("q", parent="r"), Pool("r")),
    (),
)
USERS = 2
MAX_ENTRIES = 1000
"""An idle session keeps fewer entries, however many jobs it has had."""

OBJECTIVES = ("response", "stretch", "lateness")

Expected = tuple["futures.Future[Any]", object, bool]
"""A future, its value, and whether it may fail instead."""


class Users:
    """Ask a session for anything, at random."""

    def __init__(self, session: Session, random: Random, name: str) -> None:
        self.session, self.random = session, random
        self.expected: list[Expected] = []
        self.name, self.hosts, self.done = name, 0, 0

    def act(self) -> None:
        """One request."""
        kinds = [self.call] * 6 + [self.calls] * 5 + [self.run, self.cancel, self.change] * 2
        kinds += [self.add_host, self.remove_host, self.kill, self.pools, self.objective]
        with suppress(InputError):  # Pools, objectives or hosts do not fit at the moment.
            self.random.choice(kinds)()

    def pool(self) -> str:
        """The name of a pool; one of them has pools below it."""
        return self.random.choice(["default", "p", "q", "x", "inner"])

    def expect(
        self, future: futures.Future[Any], value: object, may_fail: bool = False
    ) -> None:
        """Remember what the result of a future must be."""
        self.expected.append((future, value, may_fail))

    def call(self) -> None:
        """One call; some raise, some end their process, some wait for others."""
        number, kind = self.random.randrange(100), self.random.random()
        if kind < 0.05:
            self.expect(self.session.submit(int, "x"), None, may_fail=True)
        elif kind < 0.06:
            self.expect(self.session.submit(os._exit, 3), None, may_fail=True)
        elif kind < 0.3 and self.expected:
            before, value, _ = self.random.choice(self.expected[-20:])
            self.expect(self.session.submit(list, (before,)), [value], may_fail=True)
        else:
            seconds = self.random.choice([0.0, 0.002, 0.02])
            self.expect(self.session.submit(work, number, seconds), 2 * number)

    def calls(self) -> None:
        """Some calls of one job, which may be wide."""
        slots = self.random.choice([1, 1, 2])
        name, pool = f"executor-{self.random.randrange(3)}", self.pool()
        executor = self.session.executor(name=name, pool=pool, slots=slots, deadline=60.0)
        for number in range(self.random.randrange(60)):
            self.expect(executor.submit(work, number, 0.001), 2 * number)
        executor.shutdown(wait=False)

    def run(self) -> None:
        """A job of phases, of real calls or of sleeps."""
        if self.random.random() < 0.5:
            phases = (Phase("a", Tasks(2, 0.003)), Phase("b", Tasks(1, 0.002), after="a"))
            job = Job("sleeps", phases, pool=self.pool(), deadline=60.0)
            self.expect(self.session.run(job), None)
        else:
            job = Job("calls", (Phase("p", Tasks(3)),), pool=self.pool(), deadline=60.0)
            self.expect(self.session.run(Calls(job, double)), {"p": {0: 0, 1: 2, 2: 4}})

    def cancel(self) -> None:
        """Cancel a call or a job, if it is not done."""
        if self.expected:
            at = self.random.randrange(len(self.expected))
            future, value, _ = self.expected[at]
            future.cancel()
            self.expected[at] = future, value, True

    def change(self) -> None:
        """Change a job."""
        if self.expected:
            future: Any = self.random.choice(self.expected)[0]
            weight = self.random.choice([1.0, 4.0])
            priority = self.random.choice(["low", "high"])
            self.session.change(future, pool=self.pool(), weight=weight, priority=priority)

    def pools(self) -> None:
        """Replace the pools."""
        self.session.set_pools(self.random.choice(TREES))

    def objective(self) -> None:
        """Replace the objective."""
        self.session.set_objective(self.random.choice(OBJECTIVES))

    def add_host(self) -> None:
        """Add a host, if there are not many."""
        if len(self.session.hosts()) < 4:
            self.hosts += 1
            name, speed = f"{self.name}-{self.hosts % 5}", self.random.choice([1.0, 1.0, 0.5])
            self.session.add_host(name, self.random.choice([1, 2]), speed=speed)

    def remove_host(self) -> None:
        """Drain or remove a host, except the first one."""
        hosts = [host.name for host in self.session.hosts() if host.name != "localhost"]
        if hosts:
            self.session.remove_host(self.random.choice(hosts), self.random.random() < 0.5)

    def kill(self) -> None:
        """Kill a worker process that is ready; if those that start end, the session fails."""
        workers = self.session._intake.loop.backend._workers

        def kill_one() -> None:
            pids = [worker.pid for worker in workers._workers.values() if worker.ready]
            if pids:
                with suppress(ProcessLookupError):
                    os.kill(self.random.choice(pids), signal.SIGKILL)

        self.session._intake.loop.ask(kill_one)

    def check_done(self, most: int) -> None:
        """Check results, until at most so many are left."""
        for future, value, may_fail in self.expected[: len(self.expected) - most]:
            try:
                found = future.result(PATIENCE)
            except (SlotwiseError, ValueError, futures.CancelledError):
                assert may_fail, future
            else:
                assert found == value
            self.done += 1
        del self.expected[: len(self.expected) - most]

    def act_until(self, until: float) -> None:
        """Ask for things, and check what comes of them."""
        while time.monotonic() < until:
            self.act()
            if len(self.expected) > 100:
                self.check_done(50)
        self.check_done(0)


def rest(session: Session) -> int:
    """Remove the other hosts; the size of what the session keeps when nothing is left to do."""
    for host in session.hosts():
        if host.name != "localhost":
            session.remove_host(host.name, drain=False)
    session.set_pools(POOLS)
    until = time.monotonic() + PATIENCE
    while session.jobs().left:  # Cancelled calls may still be stopped.
        assert time.monotonic() < until
        time.sleep(0.01)
    intake, backend = session._intake, session._intake.loop.backend
    kept: tuple[Any, ...] = (
        *(intake._calls, intake.jobs, intake._settled, session._single._streams),
        *(vars(backend._slots), vars(backend._monitor), vars(backend._jobs), backend._ends),
    )
    return intake.loop.ask(lambda: sum(size_of(part) for part in kept))


@pytest.mark.local_only("it kills worker processes of this process")
def test_a_session_survives_all_that_users_do(tmp_path: Path) -> None:
    """All results are right, the state is consistent, the replay identical, memory bounded."""
    seconds = float(os.environ.get("LONG_SECONDS", examples(2, slow=3600)))
    log, turns = tmp_path / "log", 0

    def check(now: float, events: object, decisions: object) -> None:
        nonlocal turns
        turns += 1
        if turns % 10 == 0:
            session._intake.state.check()

    session = Session(2, "fair", pools=POOLS, log=log, progress=check)
    with session, futures.ThreadPoolExecutor(USERS) as threads:
        users = [Users(session, Random(number), str(number)) for number in range(USERS)]
        sizes = []
        for _ in range(4):
            until = time.monotonic() + seconds / 4
            for done in [threads.submit(user.act_until, until) for user in users]:
                done.result()
            sizes.append(rest(session))
    plausible = LogValidator(read_log(log).header.cluster)
    for one in read_log(log).turns:
        plausible.check_turn(one.now, one.events, one.decisions)
    assert replay(log).is_identical
    counts = sum(user.done for user in users), turns, sum(user.hosts for user in users)
    print("{} results, {} turns, {} hosts were added".format(*counts), sizes)
    assert max(sizes) <= MAX_ENTRIES
