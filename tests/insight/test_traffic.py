"""Traffic read off small logs, against numbers worked out by hand."""

from __future__ import annotations

import pytest

from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Launch, Locality
from slotwise.core.events import JobArrived, TaskFailed, TaskFinished
from slotwise.core.job import Block, Job, Phase, PhaseId, Tasks
from slotwise.core.log import Header, Log, Turn
from slotwise.insight.metrics import MetricsCollector, traffic_of
from slotwise.insight.timeline import StepFunction

MAP = PhaseId("a", "map")
CLUSTER = Cluster(tuple(Host(name, {"task": 2}, rack=name[0]) for name in ("a1", "a2", "b1")))


def log_of(sizes: tuple[int, ...], *turns: Turn) -> Log:
    """A log of one job that arrives at 0 and reads blocks of these sizes from a1."""
    blocks = tuple(Block(frozenset({"a1"}), size) for size in sizes)
    job = Job("a", (Phase("map", Tasks(len(sizes), 1.0, blocks)),))
    header = Header(
        backend="simulated",
        scheduler={"name": "fair"},
        objective={"penalty": "response", "aggregate": "sum"},
        cluster=CLUSTER,
        pools=(),
        jobs_expected=1,
    )
    return Log(header, [Turn(0.0, [JobArrived(0.0, job)], []), *turns])


def launch(task: int, host: str, far: Locality, attempt: int = 1) -> Launch:
    """An attempt of the job."""
    return Launch(MAP, task, attempt, host, far)


def test_a_block_is_read_before_its_task_computes() -> None:
    """100 bytes in the 4 seconds before 6 of computing; a task reads nothing but its input."""
    log = log_of(
        (100, 70),
        Turn(1.0, [], [launch(0, "a2", Locality.RACK), launch(1, "a1", Locality.NODE)]),
        Turn(11.0, [TaskFinished(11.0, MAP, 0, 1, 6.0)], []),
        Turn(12.0, [TaskFinished(12.0, MAP, 1, 1, 11.0)], []),
    )
    assert traffic_of(log).rack == StepFunction((1.0, 5.0), (25.0, 0.0))
    assert traffic_of(log).core == StepFunction()
    assert MetricsCollector.of_log(log).outcome().metrics["traffic_bytes"] == {
        "rack": 100.0,
        "core": 0.0,
    }


def test_an_attempt_without_a_read_time_reads_all_the_time() -> None:
    """A failed attempt, one that took its input without time, and one that is still there."""
    log = log_of(
        (100, 70, 40),
        Turn(0.0, [], [launch(task, "b1", Locality.ANY) for task in range(3)]),
        Turn(2.0, [TaskFailed(2.0, MAP, 0, 1, "it broke")], []),
        Turn(7.0, [TaskFinished(7.0, MAP, 1, 1, 7.0)], []),
        Turn(8.0, [], []),
    )
    core = traffic_of(log).core
    assert core == StepFunction((0.0, 2.0, 7.0, 8.0), (65.0, 15.0, 5.0, 0.0))
    assert core.area(0.0, 8.0) == pytest.approx(210.0)
    assert MetricsCollector.of_log(log).outcome().metrics["traffic_bytes"] == {
        "rack": 0.0,
        "core": 210.0,
    }


def test_each_attempt_reads_again() -> None:
    """A task that failed far away and is launched again in the rack has been read twice."""
    log = log_of(
        (100,),
        Turn(0.0, [], [launch(0, "b1", Locality.ANY)]),
        Turn(
            2.0, [TaskFailed(2.0, MAP, 0, 1, "it broke")], [launch(0, "a2", Locality.RACK, 2)]
        ),
        Turn(9.0, [TaskFinished(9.0, MAP, 0, 2, 2.0)], []),
    )
    assert MetricsCollector.of_log(log).outcome().metrics["traffic_bytes"] == {
        "rack": 100.0,
        "core": 100.0,
    }
    assert traffic_of(log).rack == StepFunction((2.0, 7.0), (20.0, 0.0))


def test_input_without_blocks_or_size_is_no_traffic() -> None:
    """Nothing is read over the network, and nothing is drawn."""
    log = log_of(
        (0,),
        Turn(0.0, [], [launch(0, "b1", Locality.ANY)]),
        Turn(2.0, [TaskFinished(2.0, MAP, 0, 1, 2.0)], []),
    )
    assert traffic_of(log).core == StepFunction()
    assert MetricsCollector.of_log(log).outcome().metrics["traffic_bytes"] == {
        "rack": 0.0,
        "core": 0.0,
    }
