"""Flows under FlowFlex on every backend: order is kept, and failures end no other flow."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pytest

import slotwise
from backends.test_backends import WORK, Live, Play, Stage, Trouble
from slotwise.backends.local.backend import LocalBackend
from slotwise.core.decisions import Launch
from slotwise.core.events import TaskFailed, TaskFinished
from slotwise.core.job import Job, Phase, Shuffle, Tasks
from slotwise.core.log import Log, read_log
from slotwise.insight.metrics import MetricsCollector
from slotwise.insight.replay import replay_log
from slotwise.jobs.calls import Calls
from slotwise.policy.scheduler import QUEUEINGS
from tiers import examples

NAMES = ("flowflex", "flowflex-fast", "flowflex-paper")
every_name = pytest.mark.parametrize("name", NAMES)


@pytest.fixture(autouse=True, scope="module")
def short_search(pytestconfig: pytest.Config) -> Iterator[None]:
    """Search little at each decision, except with `--slow`."""
    with pytest.MonkeyPatch.context() as patch:
        if not pytestconfig.getoption("--slow"):
            for module in ("policy.flowflex.allocator", "policy.dmrs.queueing"):
                patch.setattr(f"slotwise.{module}.BUDGET_SECONDS", 1e-4)
        yield


def phase(name: str, count: int, *after: str, kind: str = "task") -> Phase:
    """A phase of the given number of short tasks."""
    return Phase(name, Tasks(count, WORK), kind, after=frozenset(after))


def diamond(name: str, **rest: object) -> Job:
    """One phase, then two in parallel, then one that waits for both."""
    phases = phase("top", 2), phase("left", 3, "top"), phase("right", 1, "top")
    return Job(name, (*phases, phase("end", 1, "left", "right")), **rest)


def fan(name: str, **rest: object) -> Job:
    """Six parallel phases of one task, and one that waits for all of them."""
    sides = [phase(f"p{number}", 1) for number in range(6)]
    return Job(name, (*sides, phase("end", 1, *(side.name for side in sides))), **rest)


def line(name: str, **rest: object) -> Job:
    """Five phases in a chain."""
    names = [f"p{number}" for number in range(5)]
    before = [(), *((one,) for one in names)]
    return Job(
        name,
        tuple(phase(one, 1, *after) for one, after in zip(names, before, strict=False)),
        **rest,
    )


def assert_order_is_kept(log: Log, jobs: Iterable[Job]) -> None:
    """No task begins before all tasks of the phases that it waits for are done."""
    left = {(job.id, one.name): one.tasks.count for job in jobs for one in job.phases}
    waits = {(job.id, one.name): one.waits_for for job in jobs for one in job.phases}
    for turn in log.turns:
        for event in turn.events:
            if isinstance(event, TaskFinished):
                left[event.phase] -= 1
        for decision in turn.decisions:
            if isinstance(decision, Launch):
                name = decision.phase.job
                assert all(left[name, one] == 0 for one in waits[decision.phase]), decision


def skip_slow(stage: Stage, name: str) -> None:
    """Without `--slow`, only two schedulers run on the local backend."""
    is_first = name in ("flowflex", "dmrs")
    if not is_first and isinstance(stage, Live) and not examples(0, slow=1):
        pytest.skip("slow; run with --slow")


def assert_replays(play: Play) -> None:
    """The log explains every decision."""
    found = replay_log(play.log)
    assert found.is_identical, found.difference
    assert found.turns == len(play.log.turns)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", [*NAMES, *QUEUEINGS])
def test_flows_keep_their_order_despite_failures(stage: Stage, name: str) -> None:
    """Some come late, a task fails, a slot dies, and a job that always fails is given up.

    All others are done, each task once, and the log explains every decision. So it is where
    hosts have queues, too.
    """
    skip_slow(stage, name)
    jobs = [
        diamond("d"), fan("f"), line("bad"),
        line("l", arrival=0.05), diamond("late", arrival=0.1),
    ]  # fmt: skip
    troubles = {
        ("d", "left", 1): Trouble(1),
        ("f", "p3", 0): Trouble(1, kills=True),
        ("bad", "p2", 0): Trouble(99),
    }
    play = stage(jobs, troubles, name=name, attempts_max=2)
    assert play.completed.keys() == {"d", "f", "l", "late"}
    assert play.failed.keys() == {"bad"}
    assert_order_is_kept(play.log, jobs)
    done = Counter((*e.phase, e.task) for e in play.events(TaskFinished))
    assert set(done.values()) == {1}
    assert sum(one[0] != "bad" for one in done) == 7 + 7 + 5 + 7
    assert {e.phase.job for e in play.events(TaskFailed)} == {"d", "f", "bad"}
    assert_replays(play)
    outcome = MetricsCollector.of_log(play.log).outcome()
    assert 0 < outcome.bound <= outcome.metrics["value"]


@every_name
def test_slots_of_a_kind_run_only_phases_of_that_kind(stage: Stage, name: str) -> None:
    """Two maps and one reduce run at once, in flows of map, reduce, map and reduce."""
    skip_slow(stage, name)
    jobs = [
        Job(
            f"j{number}",
            (
                phase("m", 3, kind="map"),
                phase("r", 2, "m", kind="reduce"),
                phase("n", 2, "r", kind="map"),
                phase("s", 1, "n", kind="reduce"),
            ),
        )
        for number in range(3)
    ]
    play = stage(jobs, name=name, slots={"map": 2, "reduce": 1})
    assert play.completed.keys() == {"j0", "j1", "j2"}
    assert_order_is_kept(play.log, jobs)
    running: Counter[str] = Counter()
    most: dict[str, int] = defaultdict(int)
    kind = {"m": "map", "n": "map", "r": "reduce", "s": "reduce"}
    for turn in play.log.turns:
        for event in turn.events:
            if isinstance(event, TaskFinished):
                running[kind[event.phase.phase]] -= 1
        for decision in turn.decisions:
            if isinstance(decision, Launch):
                running[kind[decision.phase.phase]] += 1
        for of_kind, count in running.items():
            most[of_kind] = max(most[of_kind], count)
    assert most == {"map": 2, "reduce": 1}
    assert_replays(play)


def test_the_shorter_flow_goes_first_even_with_a_longer_first_phase(stage: Stage) -> None:
    """By whole flows b is shorter: a's last phase begins nothing while a task of b could."""
    a = Job("a", (phase("p", 2), phase("q", 40, "p")))
    b = Job("b", (phase("p", 4), phase("q", 2, "p")))
    play = stage([a, b], name="flowflex")
    launched: Counter[tuple[str, str]] = Counter()
    done: Counter[tuple[str, str]] = Counter()
    for turn in play.log.turns:
        done.update(one.phase for one in turn.events if isinstance(one, TaskFinished))
        for one in turn.decisions:
            if isinstance(one, Launch):
                assert launched or one.phase == ("b", "p")
                waits = launched["b", "p"] < 4 or (
                    done["b", "p"] == 4 and launched["b", "q"] < 2
                )
                assert one.phase != ("a", "q") or not waits
                launched[one.phase] += 1
    if play.begun is None:  # In real time, the last task of b may be delayed at will.
        assert play.completed["b"] < play.completed["a"]


@pytest.mark.parametrize(
    "name", ["flowflex", *(pytest.param(name, marks=pytest.mark.slow) for name in NAMES[1:])]
)
def test_flows_of_unknown_work_are_run(
    name: str, watched: Callable[..., object], tmp_path: Path
) -> None:
    """The time of the calls is not stated, as for any user function."""
    jobs = [
        Job(
            f"j{number}",
            (Phase("a", Tasks(3)), Phase("b", Tasks(2), after="a"), Phase("c", Tasks(1))),
            arrival=0.02 * number,
        )
        for number in range(3)
    ]
    executions = [Calls(job, lambda task: task + 1) for job in jobs]
    with LocalBackend(executions, 2) as backend:
        watch = watched(
            backend, jobs, LocalBackend.cluster(2), name=name, epoch_seconds=0.05,
            backend_name="live",
        )  # fmt: skip
    assert watch.state.completed.keys() == {"j0", "j1", "j2"}
    assert executions[2].results == {"a": {0: 1, 1: 2, 2: 3}, "b": {0: 1, 1: 2}, "c": {0: 1}}
    assert replay_log(watch.log).is_identical


@pytest.mark.parametrize("split", [False, True])
def test_programs_whose_reduces_begin_early_are_run(split: bool, tmp_path: Path) -> None:
    """Word counts on slots by kind, with a slow start of 0, copying split off or not."""
    count, slots = examples(2, slow=3), examples(1, slow=2)
    words = [f"word{number % 7} " * 20 for number in range(40)]
    (tmp_path / "in").write_text("\n".join(words))
    jobs: Sequence[dict[str, object]] = [
        {"id": f"w{n}", "program": "wordcount", "inputs": "in", "output": f"out{n}",
         "reducers": 3}
        for n in range(count)
    ]  # fmt: skip
    file = tmp_path / "jobs.yaml"
    file.write_text(f"slotwise: 1\njobs: {jobs}\n")
    log = tmp_path / "log.jsonl"
    result = slotwise.run(
        file, "flowflex", slots={"map": slots, "reduce": slots}, log=log,
        shuffle=Shuffle(slow_start=0.0, split=split),
    )  # fmt: skip
    assert not result.failed
    assert replay_log(read_log(log)).is_identical
    counts = [
        sorted(
            row for part in (tmp_path / f"out{n}").glob("part-*")
            for row in part.read_text().splitlines()
        )
        for n in range(count)
    ]  # fmt: skip
    assert counts == [counts[0]] * count
    assert counts[0][0] == f"word0\t{20 * 6}"
    assert len(counts[0]) == 7
