"""Shared by all tests: the `--slow` flag, hypothesis profiles, and runs with checks."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings

import rounding  # noqa: F401  # Before numpy.
from agent_processes import run_on_agents
from forked import Forker
from oracles.failures import FailuresInARow
from oracles.guarantees import (
    Guarantees,
    assert_no_pool_holds_too_much,
    assert_nothing_is_reserved_in_vain,
    assert_taken_rightly,
)
from slotwise.backends.simulated.backend import SimulatedBackend, Simulation
from slotwise.core.cluster import Cluster
from slotwise.core.decisions import Decision
from slotwise.core.events import Event
from slotwise.core.job import Job
from slotwise.core.log import Header, Log
from slotwise.core.loop import Backend, Decider, run
from slotwise.core.objective import Objective
from slotwise.core.pools import Pool
from slotwise.core.snapshot import Snapshot
from slotwise.core.state import State
from slotwise.policy.backfilling import Conservative, Easy
from slotwise.policy.claims import allocate, claims_of, kept_claims
from slotwise.policy.dmrs.queueing import Queueing
from slotwise.policy.scheduler import make_scheduler

settings.register_profile(
    "fixed",
    max_examples=20,
    deadline=None,
    derandomize="CI" in os.environ,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("slow", settings.get_profile("fixed"), max_examples=1000)

DECISIONS_MAX = 10_000
"""A scheduler that decides more often at one instant is in an endless loop."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--slow` and `--agents`."""
    parser.addoption("--slow", action="store_true", help="run slow tests and more examples")
    parser.addoption(
        "--agents", action="store_true", help="run the tests of live runs on agents, instead"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Choose how many examples hypothesis tries, and how often states are checked."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell that starts tests in the background has set it so.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    settings.load_profile("slow" if config.getoption("--slow") else "fixed")
    CheckedState.at_every_step = config.getoption("--slow")
    if config.getoption("--agents"):
        run_on_agents()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without --slow, skip the tests marked slow, and of sampled ones all but every n-th case.

    A case that is named on the command line runs. With --agents, skip what is local only.
    """
    if config.getoption("--agents"):
        for item in items:
            if marker := item.get_closest_marker("local_only"):
                item.add_marker(pytest.mark.skip(reason=f"local only: {marker.args[0]}"))
    if not config.getoption("--slow"):
        cases = Counter[str]()
        for item in items:
            if "slow" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="slow; run with --slow"))
            elif marker := item.get_closest_marker("sampled"):
                test = item.nodeid.partition("[")[0]
                is_named = any(item.nodeid == argument for argument in config.args)
                if cases[test] % marker.args[0] and not is_named:
                    item.add_marker(pytest.mark.skip(reason="not of the sample; use --slow"))
                cases[test] += 1


@pytest.fixture(scope="session", autouse=True)
def _sessions_apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Sessions of this process do not hear of those of other processes of the tests.

    No test writes into the folder of the user's runs, or reads the user's defaults, or asks the
    user's server.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SLOTWISE_SERVER", raising=False)
        patch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("runtime")))
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        yield


@pytest.fixture(scope="session")
def forker() -> Iterator[Forker]:
    """Forks processes of the command."""
    made = Forker()
    yield made
    made.close()


PLANNING = (Queueing, Easy, Conservative)
"""The schedulers that keep slots free for tasks that come later."""


class CheckedState(State):
    """A state that asserts all its invariants after every turn, or after every single step.

    Unlike the state itself, it keeps how all jobs ended.
    """

    at_every_step = False

    def __init__(self, *given: object, **options: object) -> None:
        super().__init__(*given, **options)
        self.completed, self.failed = {}, {}
        self.failures = FailuresInARow()

    def apply(self, entry: Event | Decision) -> None:
        """Apply the entry, then check with `at_every_step`."""
        super().apply(entry)
        self.failures.note(entry)
        self.completed |= self._jobs.completed
        self.failed |= self._jobs.failed
        if self.at_every_step:
            self.check()

    def next_wakeup(self) -> float | None:
        """Check, because a turn is over."""
        self.check()
        return super().next_wakeup()


@dataclass
class CheckedScheduler:
    """A scheduler whose decisions, and what it leaves undecided, are checked."""

    inner: Decider
    decided: int = 0
    at: float = -1.0
    guarantees: Guarantees = field(default_factory=Guarantees)

    def decide(self, snapshot: CheckedState) -> Sequence[Decision]:
        """The decisions of the inner scheduler."""
        if snapshot.now != self.at:
            self.at, self.decided = snapshot.now, 0
        self.decided += 1
        assert self.decided < DECISIONS_MAX, "decisions without end at one instant"
        assert_kept_claims_hold(self.inner, snapshot)
        decisions = self.inner.decide(snapshot)
        assert_taken_rightly(snapshot, decisions)
        if not decisions:
            if not isinstance(self.inner, PLANNING):  # They leave slots idle as planned.
                assert_no_slot_idles(snapshot, snapshot.failures)
            assert_allocation_is_current(self.inner, snapshot)
            assert_no_pool_holds_too_much(snapshot)
            assert_nothing_is_reserved_in_vain(snapshot)
            # A guarantee holds for the whole tasks that fit into it, so only for narrow ones.
            allocator = None if snapshot.has_wide else getattr(self.inner, "allocator", None)
            keeps = getattr(allocator, "keeps_min_shares", False)
            if keeps and not snapshot.pools.stop_limits:  # With these it may wait.
                self.guarantees.look(snapshot, self.inner.epoch_seconds)
        return decisions


def assert_kept_claims_hold(scheduler: Decider, snapshot: Snapshot) -> None:
    """The claims that the snapshot keeps are those that are read from all phases."""
    allocator = getattr(scheduler, "allocator", None)
    for kind in snapshot.cluster.capacity if allocator is not None else ():
        kept = kept_claims(snapshot, kind, allocator.reads_work)
        assert kept is None or kept == claims_of(snapshot, kind, allocator.reads_work)


def assert_allocation_is_current(scheduler: Decider, snapshot: Snapshot) -> None:
    """When an epoch has ended without a new allocation, a new one would be the same."""
    allocator = getattr(scheduler, "allocator", None)
    if allocator is None or allocator.reads_work or snapshot.now < snapshot.epoch_ends:
        return
    wanted = allocate(allocator, snapshot)
    for kind in snapshot.cluster.capacity:
        for phase in snapshot.ready(kind):
            assert phase.allocated == pytest.approx(wanted.get(phase.id, 0.0)), (
                f"{phase.id} should hold more"
            )


def assert_no_slot_idles(snapshot: Snapshot, failures: FailuresInARow) -> None:
    """No slot stays free while a phase could use it now and does not wait for a better one.

    It need not use a slot on a host where its tasks only fail if there is another host.
    """
    for kind in snapshot.cluster.capacity:
        free = snapshot.free(kind)
        if not free or snapshot.wide(kind):
            continue  # Slots may be kept for tasks that occupy several.
        for phase in snapshot.ready(kind):
            if phase.is_limited and snapshot.has_wide:
                continue  # Room in its pool may be kept for such a task of another kind.
            if snapshot.promises.open and not snapshot.promises.permits(phase):
                continue  # It would run into what is promised to another job.
            if phase.is_pinned:
                can_run = phase.may_launch and phase.next_task_on(free) is not None
                assert not can_run, f"{phase.id} could continue on its host"
            elif phase.pending and phase.may_launch:
                usable = [h for h in failures.usable(snapshot, phase) if phase.allows(h)]
                if phase.needs:
                    if any(map(snapshot.wide, snapshot.cluster.capacity)):
                        continue  # Resources may be kept for tasks of another kind.
                    usable = [h for h in usable if snapshot.spare.holds(h, phase.needs)]
                if not usable:
                    continue
                assert phase.deferred_until is not None, f"{phase.id} could use a free slot"
                assert phase.deferred_until > snapshot.now, f"the wait of {phase.id} is over"
                for host in usable:
                    assert phase.next_task_on([host]) is None, f"{phase.id} waits for {host}"


@dataclass(frozen=True)
class CheckedRun:
    """The log of a run, and its last state."""

    log: Log
    state: State


def run_checked(
    backend: Backend,
    jobs: Sequence[Job],
    cluster: Cluster,
    pools: Iterable[Pool] = (),
    name: str = "fair",
    *,
    assigner: str = "greedy",
    waits: tuple[float, float] | None = None,
    levels: str | None = None,
    core_cost: float | None = None,
    move_within: float | None = None,
    epoch_seconds: float = 0.5,
    objective: Objective | None = None,
    attempts_max: int = 4,
    parameters: dict[str, object] | None = None,
    backend_name: str = "simulated",
) -> CheckedRun:
    """Run jobs on a backend by the real loop, with checks of state and scheduler."""
    options = {"assigner": assigner, "epoch_seconds": epoch_seconds, "waits": waits}
    of_flow = {"levels": levels, "core_cost": core_cost, "move_within": move_within}
    options |= {name: value for name, value in of_flow.items() if value is not None}
    objective = objective or Objective()
    header = Header(
        backend=backend_name,
        scheduler={"name": name, **options},
        objective={"penalty": objective.penalty, "aggregate": objective.aggregate},
        cluster=cluster,
        pools=tuple(pools),
        jobs_expected=len(jobs),
        attempts_max=attempts_max,
        parameters=parameters or {},
    )
    log = Log(header)
    state = CheckedState(cluster, header.pools, attempts_max=attempts_max)
    run(
        CheckedScheduler(make_scheduler(name, **options, objective=objective)),
        backend,
        state,
        log,
    )
    state.check()
    return CheckedRun(log, state)


@pytest.fixture(scope="session")
def watched() -> Callable[..., CheckedRun]:
    """Runs jobs on a given backend; see `run_checked`."""
    return run_checked


@pytest.fixture(scope="session")
def simulated() -> Callable[..., CheckedRun]:
    """Runs jobs on the simulated backend; keywords as in `run_checked`, and `simulation`."""
    return simulate_checked


def simulate_checked(
    jobs: Sequence[Job],
    cluster: Cluster,
    pools: Iterable[Pool] = (),
    name: str = "fair",
    simulation: Simulation | None = None,
    **options: object,
) -> CheckedRun:
    """Run jobs on the simulated backend."""
    backend = SimulatedBackend(cluster, jobs, simulation)
    return run_checked(backend, jobs, cluster, pools, name, **options)
