"""Which jobs waited, for which others, and what would have helped."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import slotwise
from slotwise import Block, Cluster, Host, Job, Phase, Pool, Preemption, Simulation, Tasks
from slotwise.cli.main import app
from slotwise.core.log import Log
from slotwise.insight.report.tables import wait_lines
from slotwise.insight.waits import Wait
from slotwise.workload.workload import Workload
from tiers import examples

RESEARCH, REPORTS = Pool("research"), Pool("reports")


def job(name: str, pool: str, count: int, work: float, arrival: float = 0.0) -> Job:
    """A job of one phase of equal tasks."""
    return Job(name, (Phase("map", Tasks(count, work)),), arrival, pool)


TRAINING = job("training", "research", 24, 4.0)
QUERY = job("query", "reports", 30, 3.0, arrival=5.0)


def log_of(
    jobs: Sequence[Job],
    slots: int = 4,
    pools: Sequence[Pool] = (RESEARCH, REPORTS),
    name: str = "flex",
    **options: object,
) -> Log:
    """The log of a simulation."""
    workload = Workload(tuple(jobs), cluster=Cluster.of_slots(slots), pools=tuple(pools))
    return slotwise.simulate(workload, name, **options).log


def waits(log: Log, job: str | None = None) -> list[Wait]:
    """The worst waits."""
    return list(slotwise.explain(log, job))


def test_a_wait_names_the_holders_of_the_slots() -> None:
    """Flex lets the larger job of reports wait for all that is left of training."""
    (wait,) = waits(log_of([TRAINING, QUERY]))
    assert (wait.job, wait.pool, wait.start, wait.end) == ("query", "reports", 5.0, 24.0)
    assert [(h.job, h.pool, h.slot_seconds) for h in wait.holders] == [
        ("training", "research", 76.0)
    ]
    assert (wait.free_slot_seconds, wait.reason) == (0.0, "")


def test_a_guarantee_that_would_have_helped_is_named_and_does_help() -> None:
    """A slot came free after 3 s: with the min share, the job begins then."""
    (wait,) = waits(log_of([TRAINING, QUERY]))
    assert wait.remedy == "a min share of 1 for pool reports would have started it within 3 s"
    better = log_of([TRAINING, QUERY], pools=[RESEARCH, replace(REPORTS, slots_min=1)])
    (shorter,) = waits(better)
    assert (shorter.start, shorter.end) == (5.0, 8.0)


def test_a_remedy_that_works_at_once_says_so() -> None:
    """The query arrives at the very instant at which tasks of the training end."""
    (wait,) = waits(log_of([TRAINING, replace(QUERY, arrival=8.0)]))
    assert wait.remedy == "a min share of 1 for pool reports would have started it at once"


def test_guarantees_that_do_not_fit_are_not_suggested() -> None:
    """All four slots are guaranteed already: one more would not be kept."""
    pools = [Pool("research", slots_min=4), REPORTS]
    (wait,) = waits(log_of([TRAINING, QUERY], pools=pools))
    assert (wait.job, wait.remedy) == ("query", "")


def test_in_one_pool_the_guarantee_is_that_of_a_phase() -> None:
    """The same two jobs in the pool that all share."""
    jobs = [replace(one, pool="default") for one in (TRAINING, QUERY)]
    (wait,) = waits(log_of(jobs, pools=[]))
    assert wait.remedy == (
        "a min share of 1 for phase map of the job would have started it within 3 s"
    )
    phase = replace(jobs[1].phases[0], slots_min=1)
    (shorter,) = waits(log_of([jobs[0], replace(jobs[1], phases=(phase,))], pools=[]))
    assert shorter.seconds == 3.0


def test_preemption_is_suggested_where_no_slot_becomes_free() -> None:
    """Under fair a job waits for tasks that run, and a guarantee alone ends none of them."""
    long = job("training", "research", 4, 60.0)
    (wait,) = waits(log_of([long, QUERY], name="fair"))
    assert wait.seconds == 55.0
    assert wait.reason == "no slot became free"
    assert wait.remedy == (
        "a min share of 1 for pool reports with preemption (least_after: 0) would have started"
        " it at once"
    )
    taking = Pool("reports", slots_min=1, preemption=Preemption(least_after=0.0))
    assert "query" not in [
        w.job for w in waits(log_of([long, QUERY], pools=[RESEARCH, taking], name="fair"))
    ]


def test_fifo_is_named_as_the_reason() -> None:
    """It has no guarantees to give; others share the slots."""
    (wait,) = waits(log_of([TRAINING, QUERY], name="fifo"))
    assert wait.reason.startswith("fifo serves jobs in order of priority and arrival")
    assert wait.remedy == "fair and flex share the slots among jobs and pools"


def test_a_max_share_that_holds_a_job_back_is_named() -> None:
    """One slot stands free while the pool holds its three."""
    pools = [Pool("research", slots_max=3)]
    log = log_of([TRAINING, replace(QUERY, pool="research")], pools=pools, name="flex")
    (wait,) = waits(log)
    assert wait.reason == "pool research held its max share of 3 while slots were free"
    assert wait.remedy == "a larger slots_max for pool research would let it use these slots"
    assert wait.free_slot_seconds == wait.seconds


def test_a_cause_that_comes_later_is_named_with_its_part_of_the_time() -> None:
    """Nothing is free at first; from 10 to 40 s the pool is at its max share of two."""
    pools = [Pool("research", slots_max=2), REPORTS]
    jobs = [
        job("training", "research", 2, 40.0),
        job("other", "reports", 2, 10.0),
        job("late", "research", 1, 1.0, arrival=0.0),
    ]
    (wait,) = waits(log_of(jobs, pools=pools, name="fifo"), "late")
    assert (wait.start, wait.end) == (0.0, 40.0)
    assert wait.reason == (
        "for 75 % of the time pool research held its max share of 2 while slots were free; for"
        " 25 % of the time pool research held its max share of 2"
    )
    assert wait.remedy == "a larger slots_max for pool research would let it use these slots"


def test_a_wait_for_admission_is_named() -> None:
    """The pool runs one job at a time."""
    pools = [Pool("research", jobs_max=1)]
    (wait,) = waits(log_of([TRAINING, replace(QUERY, pool="research")], pools=pools))
    assert wait.reason == "pool research ran training, its maximum number of jobs (jobs_max)"
    assert wait.remedy == "a larger jobs_max for pool research would admit it sooner"


def test_a_wait_for_locality_is_named() -> None:
    """Delay scheduling keeps it waiting for the host that has its input."""
    cluster = Cluster((Host("a", {"task": 1}), Host("b", {"task": 1}, rack="other")))
    blocks = (Block(frozenset({"a"})),)
    jobs = (
        job("busy", "default", 1, 30.0),
        Job("near", (Phase("map", Tasks(1, 4.0, blocks=blocks)),), arrival=1.0),
    )
    workload = Workload(jobs, cluster=cluster)
    log = slotwise.simulate(workload, "fair", assigner="delay", waits=(5.0, 10.0)).log
    (wait,) = waits(log)
    assert (wait.job, wait.seconds) == ("near", 10.0)
    assert wait.reason == "it skipped slots far from its input (delay scheduling)"


def test_queues_and_fifo_pools_are_named_as_reasons() -> None:
    """dmrs plans the order of tasks; a pool of policy fifo serves jobs in order of arrival."""
    jobs = [job("one", "p", 8, 5.0), job("two", "p", 2, 6.0)]
    (wait,) = waits(log_of(jobs, pools=[Pool("p", policy="fifo")], name="fair", slots=2))
    assert wait.reason == "pool p serves its jobs one after the other (policy fifo)"
    queued = waits(log_of([replace(j, pool="default") for j in jobs], 2, [], "dmrs"))
    assert [w.reason for w in queued] == ["dmrs had planned tasks of other jobs before its own"]


def test_waits_between_phases_and_at_the_end_of_a_log_count() -> None:
    """A job whose next phase finds no slot waits; so does one that never began."""
    phases = (Phase("a", Tasks(1, 2.0)), Phase("b", Tasks(1, 2.0), after=frozenset({"a"})))
    jobs = [Job("chain", phases), job("other", "first", 2, 10.0, 1.0)]
    log = log_of(jobs, slots=1, name="fair", pools=[Pool("first", slots_min=1)])
    found = [(w.job, w.start, w.end) for w in waits(log)]
    assert found == [("chain", 2.0, 22.0), ("other", 1.0, 2.0)]
    begun = [turn for turn in log.turns if turn.now < 20.0]
    (last,) = waits(Log(log.header, begun), "chain")
    assert (last.start, last.end) == (2.0, begun[-1].now)


def test_each_wait_is_one_line() -> None:
    """How long, behind whom, and what would have helped."""
    log = log_of([TRAINING, QUERY])
    assert list(wait_lines(waits(log))) == [
        "query waited 19.0 s in pool reports, from 5.00 s to 24.0 s, behind training in pool"
        " research; a min share of 1 for pool reports would have started it within 3 s"
    ]
    assert list(wait_lines(waits(log, "training"))) == [
        "no job waited for longer than 1.0 % of the run"
    ]


def test_a_list_that_is_cut_says_so() -> None:
    """Of twelve jobs that wait one after the other, the ten longest waits are listed."""
    lines = list(wait_lines(waits(log_of([job(f"j{i}", "p", 1, 1.0) for i in range(13)], 1))))
    assert len(lines) == 11
    assert lines[-1] == "only the 10 longest waits are listed"


def test_the_command_lists_waits_without_an_instant(tmp_path: Path) -> None:
    """As lines or as one JSON object; an instant without a job is refused."""
    path = tmp_path / "run.jsonl"
    log = log_of([TRAINING, QUERY], log=path)
    shown = CliRunner().invoke(app, ["explain", str(path)])
    assert shown.stdout.splitlines() == list(wait_lines(waits(log)))
    shown = CliRunner().invoke(app, ["explain", str(path), "--job", "query", "--json"])
    plain = json.loads(json.dumps([w.to_plain() for w in waits(log)]))
    assert json.loads(shown.stdout)["waits"] == plain
    for arguments, words in (
        (["--at", "6"], "--at 6 is given without --job"),
        (["--job", "nobody"], "job 'nobody' is not in the log"),
    ):
        shown = CliRunner().invoke(app, ["explain", str(path), *arguments])
        assert shown.exit_code == 2
        assert words in shown.stderr


def test_with_an_instant_the_holders_in_other_pools_are_named() -> None:
    """They hold the slots, although by the shares of pools nobody holds too much."""
    (phase,) = slotwise.explain(log_of([TRAINING, QUERY]), "query", 6.0).phases
    assert [(h.job, h.pool, h.running) for h in phase.holders] == [("training", "research", 4)]


def some_backend(random: Random) -> Workload:
    """A few jobs in a few pools on a few slots, of one kind or of several."""
    count = random.choice([1, 1, 2, 3])
    pools = [
        Pool(
            f"p{number}",
            weight=random.choice([1, 3]),
            slots_min=random.choice([0, 0, 0, 1]),
            policy=random.choice(["fair", "fifo"]),
        )
        for number in range(count)
    ]
    if count > 2:
        pools = [pools[0], *(replace(p, parent="top") for p in pools[1:]), Pool("top")]
    jobs = []
    for number in range(random.randint(2, 6)):
        first = Phase(
            "m", Tasks(random.randint(1, 9), random.choice([1.0, 3.0, 10.0])), kind="map"
        )
        last = Phase("r", Tasks(2, 4.0), kind="reduce", after=frozenset({"m"}))
        phases = random.choice([(first,), (first, last)])
        pool = f"p{random.randrange(count)}"
        jobs.append(Job(f"j{number}", phases, random.choice([0.0, 1.0, 2.5, 4.0, 7.0]), pool))
    slots = random.choice([{"task": 2}, {"task": 5}, {"map": 2, "reduce": 1}])
    hosts = [Host(f"h{number}", slots) for number in range(random.choice([1, 2]))]
    return Workload(tuple(jobs), cluster=Cluster(tuple(hosts)), pools=tuple(pools))


def remedied(backend: Workload, wait: Wait) -> Workload:
    """The same with the guarantee that is said to have helped."""
    taken = Preemption(least_after=0.0) if "least_after" in wait.remedy else None
    assert backend.cluster is not None
    one = {"map": 1} if len(backend.cluster.capacity) > 1 else 1
    if "for phase m" in wait.remedy:
        jobs = [
            replace(j, phases=(replace(j.phases[0], slots_min=1), *j.phases[1:]))
            if j.id == wait.job
            else j
            for j in backend.jobs
        ]
        return replace(backend, jobs=tuple(jobs))
    return replace(
        backend,
        pools=tuple(
            replace(p, slots_min=one, preemption=taken) if p.name == wait.pool else p
            for p in backend.pools
        ),
    )


@settings(max_examples=examples(5, slow=25))
@given(random=st.randoms(use_true_random=False), name=st.sampled_from(["fair", "flex"]))
def test_a_suggested_remedy_works(random: Random, name: str) -> None:
    """Simulated again with the guarantee, the job begins as soon as it was said that it would.

    Only first waits in pools where nobody was before are tried: with the guarantee, nothing
    before them is another.
    """
    backend, truth = some_backend(random), Simulation(seed=random.randrange(99), noise=0.3)
    for wait in waits(slotwise.simulate(backend, name, simulation=truth).log):
        stated = next(j for j in backend.jobs if j.id == wait.job)
        earlier = [
            j for j in backend.jobs if j.pool == wait.pool and j.arrival < stated.arrival
        ]
        if "would have started" not in wait.remedy or wait.start != stated.arrival:
            continue
        if earlier and "for phase" not in wait.remedy:
            continue
        event("pool" if "for pool" in wait.remedy else "phase")
        again = slotwise.simulate(remedied(backend, wait), name, simulation=truth)
        start = again.jobs[wait.job]["start"]
        assert start is not None
        within = 0.0
        if not wait.remedy.endswith("at once"):
            within = float(wait.remedy.rsplit("within ")[1].split()[0])
        assert start == pytest.approx(wait.start, abs=within + 1e-9)
