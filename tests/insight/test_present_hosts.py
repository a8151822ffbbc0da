"""The hosts that are present during a run: in metrics, pictures, explanations and logs."""

from __future__ import annotations

import json

import pytest

from experiments.measured import measured_jobs
from slotwise.api import explain, simulate
from slotwise.backends.simulated.simulation import Simulation
from slotwise.core import codec
from slotwise.core.cluster import Cluster, Host
from slotwise.core.events import HostAdded, HostDrained, HostLost, HostRemoved
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.log import Log
from slotwise.core.log_validation import LogValidator
from slotwise.insight.explanation import explanation_lines
from slotwise.insight.metrics import MetricsCollector
from slotwise.insight.present_hosts import SlotsOverTime
from slotwise.insight.timeline import timeline_of
from slotwise.workload.workload import Workload

CLUSTER = Cluster((Host("h1", {"task": 2}), Host("h2", {"task": 1})))
CHANGES = (
    HostDrained(1.0, "h1"),
    HostAdded(5.0, Host("h3", {"task": 2}, speed=2.0)),
    HostRemoved(8.0, "h2"),
)


@pytest.fixture(scope="module")
def log() -> Log:
    """Nine tasks of 4 s; those on h1 end at 4, when it leaves."""
    jobs = (Job("j", (Phase("map", Tasks(9, 4.0)),)),)
    truth = Simulation(changes=CHANGES)
    return simulate(Workload(jobs, CLUSTER), "fair", simulation=truth).log


def test_slots_over_time_are_those_of_the_hosts_that_are_there(log: Log) -> None:
    """A drained host counts until its last task has ended."""
    slots = timeline_of(log).slots
    assert list(slots.between(0.0, 10.0)) == [
        (0.0, 4.0, 3),
        (4.0, 5.0, 1),
        (5.0, 8.0, 3),
        (8.0, 10.0, 2),
    ]
    assert slots.most == 3
    assert slots.seconds(3.0, 6.0) == 3 + 1 + 3
    assert SlotsOverTime(2).seconds(1.0, 4.0) == 6


def test_utilisation_divides_by_the_slots_that_were_there(log: Log) -> None:
    """The task that would end on h2 at the instant of its removal is lost."""
    outcome = MetricsCollector.of_log(log).outcome()
    end = outcome.metrics["makespan"]
    line = timeline_of(log)
    busy = sum(placed.attempt.end - placed.attempt.start for placed in line.attempts)
    assert outcome.metrics["utilisation"] == busy / line.slots.seconds(0.0, end)
    assert outcome.metrics["work_seconds"] == 36.0
    assert outcome.metrics["attempts"] == {"done": 9, "lost": 1}


def test_all_hosts_have_rows_in_pictures(log: Log) -> None:
    """Also those that joined later or have left."""
    assert list(timeline_of(log).cluster.by_name) == ["h1", "h2", "h3"]


def test_measured_work_uses_the_speed_of_added_hosts(log: Log) -> None:
    """Tasks of 4 s of work took 2 s on h3."""
    (job,) = measured_jobs(log)
    assert job.phases[0].tasks.work == (4.0,) * 9


def test_an_explanation_tells_what_runs_on_a_host_that_leaves(log: Log) -> None:
    """These slots count for no share."""
    text = "\n".join(explanation_lines(explain(log, "j", 2.0)))
    assert "map: holds 1 of 1 slots" in text
    assert "on hosts that leave when their tasks have ended: 2 on h1" in text


@pytest.mark.parametrize("event", [*CHANGES, HostLost(0.0, "h1")])
def test_events_of_hosts_are_encoded(event: HostAdded | HostDrained | HostRemoved) -> None:
    """As objects that JSON can hold."""
    assert codec.decode(json.loads(json.dumps(codec.encode(event)))) == event


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([HostAdded(0.0, CLUSTER.hosts[0])], "host 'h1' is added, but is present"),
        ([HostRemoved(0.0, "x")], "host 'x' has not joined"),
        ([HostRemoved(0.0, "h1")] * 2, "HostRemoved of 'h1', which was removed"),
        ([HostDrained(0.0, "h1")] * 2, "host 'h1' is drained twice"),
        ([HostRemoved(0.0, "h1"), HostDrained(0.0, "h1")], "HostDrained of 'h1', which was"),
        ([HostRemoved(float("nan"), "h1")], "at is nan"),
    ],
)
def test_changes_that_no_run_can_have_are_refused(events: list[object], message: str) -> None:
    """Where a log is read."""
    with pytest.raises(ValueError, match=message):
        LogValidator(CLUSTER).check_turn(0.0, events, ())  # type: ignore[arg-type]
