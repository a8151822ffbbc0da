"""One run of FlowFlex's cluster experiments (5.2), task by task, simulated or live."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from statistics import fmean
from types import MappingProxyType

import numpy as np

from experiments.dask_cluster import dask_cluster
from experiments.endings import Endings
from experiments.flowflex.jobs import STATED_SECONDS, GridMixFlows, believed, faster
from slotwise.backends.agents.source import dask_workers
from slotwise.backends.local.backend import LocalBackend
from slotwise.backends.simulated.backend import SimulatedBackend
from slotwise.core.cluster import Cluster
from slotwise.core.decisions import GiveUp, Launch, Preempt
from slotwise.core.events import Event, JobArrived
from slotwise.core.job import Job
from slotwise.core.loop import Backend, run
from slotwise.core.objective import Objective
from slotwise.core.state import State
from slotwise.jobs.calls import Sleep
from slotwise.jobs.execution import Execution
from slotwise.policy.scheduler import make_scheduler

EPOCH_SECONDS = 2.0
"""As in the paper, roughly."""

AIMS: Mapping[str, Objective] = MappingProxyType(
    {
        "mean completion": Objective("response"),
        "makespan": Objective("makespan", "max"),
        "mean stretch": Objective("stretch"),
        "max stretch": Objective("stretch", "max"),
    }
)
"""The metrics of Fig. 12, each with the objective that FlowFlex uses for it."""


@dataclass(frozen=True, slots=True)
class FlowClusterSetting:
    """The workload and the cluster of a run.

    slots  each for both maps and reduces, as in the paper; their number is ours
    speed  live: the factor by which the clock runs faster than drawn; None: simulated
    hosts  live: those of a Dask cluster, with these slots together; None: this machine
    """

    jobs: GridMixFlows = field(default_factory=GridMixFlows)
    slots: int = 50
    speed: float | None = None
    hosts: Cluster | None = None


@dataclass(frozen=True, slots=True)
class Scheme:
    """A scheduler, and the metric for which it plans; "" if it uses none."""

    scheduler: str
    metric: str = ""


FLOWFLEX = "flowflex-fast"
"""The paper's cluster experiments also leave out the minimum cost flow (5.2). With frequent
decisions this variant is as good, and takes a fraction of the time."""

SCHEMES = (*(Scheme(FLOWFLEX, metric) for metric in AIMS), Scheme("fair"), Scheme("fifo"))


def experiment(
    setting: FlowClusterSetting, scheme: Scheme, seed: int, number: int
) -> dict[str, float]:
    """Every metric of one run, in seconds of the drawn clock.

    Simulated runs are deterministic for the same arguments. A live run is simulated first, so
    that the process has loaded its code: the faster clock would multiply the loading time.
    """
    jobs = setting.jobs.draw(np.random.default_rng([seed, number]))
    if setting.speed is not None:
        completions(replace(setting, speed=None), jobs, scheme)
    return measured(jobs, completions(setting, jobs, scheme))


def measured(jobs: Sequence[Job], completed: Mapping[str, float]) -> dict[str, float]:
    """The metrics; stretch uses the true durations of the tasks of a flow."""
    response = [completed[job.id] - job.arrival for job in jobs]
    stretch = [time / (job.work or 1.0) for time, job in zip(response, jobs, strict=True)]
    values = (fmean(response), max(completed.values()), fmean(stretch), max(stretch))
    return dict(zip(AIMS, values, strict=True))


def completions(
    setting: FlowClusterSetting, jobs: Sequence[Job], scheme: Scheme
) -> dict[str, float]:
    """The completion time of each flow, on the drawn clock."""
    speed = setting.speed or 1.0
    scheduler = make_scheduler(
        scheme.scheduler,
        objective=AIMS.get(scheme.metric),
        epoch_seconds=EPOCH_SECONDS / speed,
    )
    real = [faster(job, speed) for job in jobs]
    state = State(Cluster.of_slots(setting.slots))
    if setting.speed is None:
        endings = Endings(state)
        run(scheduler, StatingWork(SimulatedBackend(state.cluster, real)), state, endings)
    else:
        with _live(setting, [Sleep(job) for job in real]) as (backend, cluster):
            state = State(cluster)
            endings = Endings(state)
            run(scheduler, StatingWork(backend, STATED_SECONDS / speed), state, endings)
    return {name: at * speed for name, at in endings.completed.items()}


@contextmanager
def _live(
    setting: FlowClusterSetting, executions: Sequence[Execution]
) -> Iterator[tuple[Backend, Cluster]]:
    """A backend with real processes, and its hosts."""
    if setting.hosts is None:
        with LocalBackend(executions, setting.slots) as backend:
            yield backend, LocalBackend.cluster(setting.slots)
        return
    from slotwise.backends.agents.backend import AgentsBackend, cluster_of

    with dask_cluster(setting.hosts) as address, closing(dask_workers(address)) as workers:
        hosts = workers.connect()
        cluster = cluster_of(hosts)
        assert sum(cluster.capacity.values()) == setting.slots
        with AgentsBackend(executions, workers, hosts) as agents:
            yield agents, cluster


class StatingWork:
    """A backend that states equal work for all tasks until they are done."""

    def __init__(self, backend: Backend, seconds: float = STATED_SECONDS) -> None:
        self._backend, self._seconds = backend, seconds

    @property
    def now(self) -> float:
        """The clock of the wrapped backend."""
        return self._backend.now

    def perform(self, decision: Launch | Preempt | GiveUp) -> None:
        """Perform the decision on the wrapped backend."""
        self._backend.perform(decision)

    def wait(self, until: float | None) -> Sequence[Event]:
        """The events of the wrapped backend, with jobs as schedulers receive them."""
        return [
            JobArrived(event.at, believed(event.job, self._seconds))
            if isinstance(event, JobArrived)
            else event
            for event in self._backend.wait(until)
        ]
