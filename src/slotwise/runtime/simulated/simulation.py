"""Parameters of a simulation: how the cluster differs from what the scheduler believes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slotwise.model.cluster import Cluster, Host
from slotwise.model.decision import Launch, Locality
from slotwise.model.errors import InputError
from slotwise.model.event import HostAdded, HostChange, TaskFinished
from slotwise.model.host_changes import check_changes, hosts_ever, in_order
from slotwise.model.job import Job
from slotwise.model.network import Network
from slotwise.model.option_names import option_name
from slotwise.model.typed import (
    MAX_NUMBER,
    check_all,
    check_name,
    check_positive,
    check_range,
    check_time,
    check_type,
    is_number,
    is_whole,
    shown,
)
from slotwise.runtime.simulated.outages import Outage, check_outages


@dataclass(frozen=True, slots=True)
class Fault:
    """An attempt fails after the part `after` of its time; `lost` if its slot dies."""

    reason: str
    after: float = 0.5
    lost: bool = False

    def __post_init__(self) -> None:
        check_name("the reason of a fault", self.reason)
        check_range("after of a fault", self.after, 0, 1, "give a part from 0 to 1")


@dataclass(frozen=True, slots=True)
class Simulation:
    """How the simulated cluster differs from what the scheduler believes.

    seed           the same seed gives the same task durations and the same log
    noise          spread of true durations around the estimates: the standard deviation of
                   the logarithm of a factor whose mean is 1; 0 makes the estimates true
    remote_factor  factor on the time of a task that reads its input from another rack
    rack_factor    the same for another host of its rack; None: as remote_factor
    fault          returns the fault of an attempt, or None; None: no attempt fails
    save_seconds   seconds that a task needs to save its work when it is asked to stop, after
                   which it ends; None: it saves nothing and runs until it is done or killed
    network        the network over which a task reads its block before it computes, if its host
                   has no copy; None: reading takes no time apart from the factors above
    speeds         the true speeds of hosts, where they differ from the believed ones
    outages        when hosts are cut off from the scheduler
    changes        the hosts that are added, drained and removed, and when; None: those of the
                   workload
    hide_work      the scheduler is not told the work of the jobs, only what finished tasks took
    repeats        returns the seconds after which a host receives a launch a second time, or
                   None; None: every launch is received once
    loss           returns the seconds from the end of a task to the loss of its output, or
                   None; the task is done again if other tasks still need it. None: no output is
                   lost
    """

    seed: int = 0
    noise: float = 0.0
    remote_factor: float = 1.0
    rack_factor: float | None = None
    fault: Callable[[Launch], Fault | None] | None = None
    save_seconds: float | None = None
    network: Network | None = None
    speeds: Mapping[str, float] = field(default_factory=dict)
    outages: tuple[Outage, ...] = ()
    repeats: Callable[[Launch], float | None] | None = None
    loss: Callable[[TaskFinished], float | None] | None = None
    changes: tuple[HostChange, ...] | None = None
    hide_work: bool = False

    def __post_init__(self) -> None:
        if not is_whole(self.seed) or self.seed < 0:
            raise InputError(
                f"{option_name('seed')} is {self.seed!r}; give a whole number >= 0"
            )
        if not is_number(self.noise) or not 0 <= self.noise <= 10:
            raise InputError(
                f"{option_name('noise')} is {self.noise!r}; it must be between 0 and 10"
            )
        if not isinstance(self.hide_work, bool):
            raise InputError(
                f"{option_name('hide_work')} is {self.hide_work!r}; give True or False"
            )
        for name in "remote_factor", "rack_factor":
            value = getattr(self, name)
            if value is not None:
                remedy = f"it must be >= 1, at most {MAX_NUMBER:g}"
                check_range(option_name(name), value, 1, MAX_NUMBER, remedy)
        if self.save_seconds is not None:
            check_time(option_name("save_seconds"), self.save_seconds)
        if not isinstance(self.speeds, Mapping):
            raise InputError(f"speeds is {self.speeds!r}; give a mapping of hosts to speeds")
        for host, speed in self.speeds.items():
            check_positive(f"true speed of host {host!r}", speed)
        check_outages(self.outages)
        for name in "fault", "repeats", "loss":
            value = getattr(self, name)
            if value is not None and not callable(value):
                raise InputError(f"{name} is {shown(value)}; give a function, or leave it out")
        remedy = "give a slotwise.Network, or leave it out"
        check_type("network", self.network, Network | None, remedy)
        if self.changes is not None:
            remedy = "give a list of slotwise.HostAdded, HostDrained and HostRemoved"
            check_all("changes", self.changes, HostChange, remedy)

    def check(self, cluster: Cluster, jobs: Sequence[Job] = ()) -> None:
        """InputError if outages, speeds or changes name hosts that are not there.

        Also if these jobs could wait forever, because no host has slots for them.
        """
        changes = in_order(self.changes or ())
        check_changes(cluster, changes, jobs)
        known_hosts = hosts_ever(cluster, changes).by_name
        for change in changes:
            if isinstance(change, HostAdded):
                self._check_added(change, known_hosts[change.host.name])
        named = [(outage.host, str(outage)) for outage in self.outages]
        named += [(host, f"true speed {host}={speed:g}") for host, speed in self.speeds.items()]
        for host, what in named:
            if host not in known_hosts:
                known = ", ".join(known_hosts)
                raise InputError(f"{what}: there is no host {host!r}; known: {known}")

    def _check_added(self, change: HostAdded, before: Host) -> None:
        """InputError if a host comes back in another rack of a network, which is fixed."""
        host = change.host
        if self.network is not None and host.rack != before.rack:
            raise InputError(
                f"host {host.name!r} comes back in rack {host.rack!r} at {change.at:g} s, but"
                f" was in rack {before.rack!r}; with a network, give it another name"
            )

    def told(self, job: Job) -> Job:
        """The job as the scheduler and the log get it."""
        return job.without_work() if self.hide_work else job

    def slowdown(self, locality: Locality) -> float:
        """The factor on the time of a task that reads its input at this distance."""
        if locality is Locality.NODE:
            return 1.0
        if locality is Locality.RACK and self.rack_factor is not None:
            return self.rack_factor
        return self.remote_factor

    def speed_of(self, host: Host) -> float:
        """The true speed of a host of the cluster."""
        return self.speeds.get(host.name, host.speed)

    def troubles(self, cluster: Cluster, believed_cluster: Cluster) -> dict[str, Any]:
        """How the truth differs from what the scheduler gets, for the log: true speeds that
        differ from the believed ones, outages, repeats, and whether work is hidden.

        `believed_cluster` is the cluster that the scheduler gets. Empty entries are left out.
        """
        believed = {host.name: host.speed for host in believed_cluster.hosts}
        hosts = hosts_ever(cluster, self.changes or ()).hosts
        true = {host.name: self.speed_of(host) for host in hosts}
        believed = {host.name: host.speed for host in hosts} | believed
        found: dict[str, Any] = {
            "speeds": {name: true[name] for name in true if true[name] != believed[name]},
            "outages": [[one.host, one.at, one.seconds] for one in self.outages],
            "repeats": self.repeats is not None,
            "hide_work": self.hide_work,
        }
        return {key: value for key, value in found.items() if value}
