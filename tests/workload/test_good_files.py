"""Workload files as they should be: what is read is what was written."""

from __future__ import annotations

import json
from math import inf
from pathlib import Path
from typing import Any

import pytest
import yaml

from slotwise.core.cluster import Cluster, Host, Network
from slotwise.core.errors import InputError
from slotwise.core.job import Block, Job, Phase, Shuffle, Tasks
from slotwise.core.objective import PENALTIES, Objective
from slotwise.core.pools import Pool, Preemption, pools_of
from slotwise.sources import Source
from slotwise.workload.file import parse_workload, read_workload
from slotwise.workload.workload import Placement, ProgramJob, Workload
from slotwise.workload.writer import write_workload

CONTRACT = """\
slotwise: 1
cluster: {slots: 100}
objective: {penalty: response, aggregate: sum}
pools:
  - {name: ads, weight: 2, slots_min: {map: 10}, slots_max: {map: 60}, policy: fair,
     parent: null}
jobs:
  - {id: q1, arrival: 0, pool: ads, weight: 1.5, deadline: 60, steps: [[60, 1], [120, 5]],
     phases: [{name: map, kind: map, work: 1200, tasks: 40, slots_min: 2, slots_max: 40},
              {name: reduce, kind: reduce, work: 300, tasks: 8, after: [map]}]}
  - {id: wc, pool: ads, program: wordcount, inputs: ["books/*.txt"], output: out/wc,
     reducers: 4}
"""

MEANT = Workload(
    jobs=(
        Job(
            "q1",
            (
                Phase("map", Tasks(40, 30.0), "map", frozenset(), 2, 40),
                Phase("reduce", Tasks(8, 37.5), "reduce", frozenset({"map"})),
            ),
            pool="ads",
            weight=1.5,
            deadline=60.0,
            steps=((60.0, 1.0), (120.0, 5.0)),
        ),
        ProgramJob(
            "wc", "wordcount", ("books/*.txt",), "out/wc", pool="ads", settings={"reducers": 4}
        ),
    ),
    cluster=Cluster.of_slots(100),
    pools=(Pool("ads", 2.0, {"map": 10}, {"map": 60}),),
    objective=Objective("response", "sum"),
)


def test_the_documented_file_parses_as_stated() -> None:
    """The example of the contract means what the contract says."""
    assert parse_workload(CONTRACT) == MEANT


def test_one_name_needs_no_brackets() -> None:
    """Nor does one exit code."""
    jobs = """
slotwise: 1
jobs:
  - {id: a, command: "true", no_retry: NO}
  - {id: b, command: "true", after: A}
  - {id: c, command: "true", after_each: A}
"""
    plain = parse_workload(jobs.replace("NO", "3").replace("A", "a"))
    assert plain == parse_workload(jobs.replace("NO", "[3]").replace("A", "[a]"))


def test_json_is_read_as_yaml_is(tmp_path: Path) -> None:
    """The same workload in JSON is the same workload, relative to its own folder."""
    file = tmp_path / "jobs.json"
    file.write_text(json.dumps(yaml.safe_load(CONTRACT), indent=2), encoding="utf-8")
    read = read_workload(file)
    assert (read.jobs, read.cluster, read.pools) == (MEANT.jobs, MEANT.cluster, MEANT.pools)
    assert read.folder == tmp_path


POOLS_STATED: dict[str, Any] = {
    "prod": 3,
    "dev": {"slots_min": 2, "slots_max": {"map": 4}},
    "idle": {},
}
POOLS_LISTED = [
    {"name": "prod", "weight": 3},
    {"name": "dev"} | POOLS_STATED["dev"],
    Pool("idle"),
]
POOLS_MEANT = (Pool("prod", 3), Pool("dev", 1, {"task": 2}, {"map": 4}), Pool("idle"))


def test_pools_may_be_stated_by_name_or_as_a_list() -> None:
    """In a file and in Python: with a weight or with keys."""
    job = {"id": "a", "pool": "dev", "phases": [{"name": "map", "work": 1}]}
    text = json.dumps({"slotwise": 1, "pools": POOLS_STATED, "jobs": [job]})
    assert parse_workload(text).pools == POOLS_MEANT
    for stated in (POOLS_STATED, POOLS_LISTED):
        assert Workload((), pools=stated).pools == POOLS_MEANT  # type: ignore[arg-type]
        assert pools_of(stated) == POOLS_MEANT


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ({"a": -1}, "pools.a.weight is -1; "),
        ({"a": None}, "pools.a.weight is None; "),
        ({"a": {"slots_min": {"map": 1.5}}}, "pools.a.slots_min of kind 'map' is 1.5; "),
        ({"a": {"wieght": 2}}, "pools.a: unknown key 'wieght'; did you mean 'weight'?"),
        ({"a": {"preemption": {"never": 1}}}, "pools.a: preemption: unknown key 'never'"),
        ({"a": Pool("a")}, "pools: pool 'a' is Pool("),
        ({"a": {"name": "b"}}, "pools: pool 'a' is named by its key; remove `name` within it"),
        ({5: 1}, "pools: the name of a pool is 5; "),
        ([{"weight": 1}], "pools[0]: name is missing; add it"),
        ([{"name": "a", "jobs_max": -1}], "pools[0].jobs_max is -1; "),
        (
            [{"name": "a", "jobs_max_per_user": {"ann": -1}}],
            "pools[0].jobs_max_per_user of user 'ann' is -1; give a whole number >= 0",
        ),
        ([3], "pools: 3 is not a pool; expected a list such as [slotwise.Pool('a')], or"),
        ("a", "pools: 'a' is not a pool; "),
    ],
)
def test_pools_of_wrong_values_are_refused(stated: Any, message: str) -> None:
    """In Python, with the place, the value and the remedy."""
    for prefix, make in (("", pools_of), ("workload: ", lambda p: Workload((), pools=p))):
        with pytest.raises(InputError) as refused:
            make(stated)
        assert str(refused.value).startswith(prefix + message)


@pytest.mark.parametrize("penalty", PENALTIES)
def test_the_name_of_a_penalty_is_an_objective(penalty: str) -> None:
    """With the aggregate that the penalty has by default."""
    job = "{id: a, deadline: 9, steps: [[1, 1]], phases: [{name: m, work: 1}]}"
    text = f"slotwise: 1\nobjective: {penalty}\njobs: [{job}]"
    assert parse_workload(text).objective == Objective.named(penalty)


@pytest.mark.parametrize(
    "number", ["1200", "1200.0", "1.2e3", "1.2E+3", "12e2", "+1200", "01200"]
)
def test_numbers_may_have_several_notations(number: str) -> None:
    """However a number is written it is that number, as in YAML 1.2 and in JSON."""
    text = f"slotwise: 1\njobs: [{{id: a, phases: [{{name: m, work: {number}, tasks: 1}}]}}]"
    assert parse_workload(text).jobs[0].phases[0].tasks.work == 1200.0


@pytest.mark.parametrize(
    "name", ["no", "on", "2020-01-01", "1:30", "größer, als/man denkt", "🦉"]
)
def test_names_are_strings(name: str) -> None:
    """Words that YAML 1.1 would take for a boolean, a date or minutes are names."""
    quote = '"' if "," in name else ""
    text = f"slotwise: 1\njobs: [{{id: {quote}{name}{quote}, phases: [{{name: m, work: 1}}]}}]"
    assert parse_workload(text).jobs[0].id == name


def test_json_may_escape_any_character() -> None:
    """A character that JSON escapes as two halves is one character."""
    data = {"slotwise": 1, "jobs": [{"id": "🦉", "phases": [{"name": "m", "work": 1}]}]}
    assert "\\ud83e" in json.dumps(data)
    assert parse_workload(json.dumps(data)).jobs[0].id == "🦉"


def test_hosts_kinds_blocks_and_aliases() -> None:
    """Hosts have racks, speeds and slots by kind; aliases and merges save writing."""
    text = """\
slotwise: 1
cluster:
  hosts:
    - &host {name: h1, rack: r1, slots: {map: 2, reduce: 1}, speed: 2}
    - {<<: *host, name: h2}
    - {name: h3, slots: 3}
jobs:
  - {id: a, phases: [{name: m, kind: map, tasks: [1, 2], blocks: [[h1, h2], [h3]]}]}
"""
    read = parse_workload(text)
    assert read.cluster == Cluster(
        (
            Host("h1", {"map": 2, "reduce": 1}, "r1", 2.0),
            Host("h2", {"map": 2, "reduce": 1}, "r1", 2.0),
            Host("h3", {"task": 3}),
        )
    )
    blocks = (Block(frozenset({"h1", "h2"})), Block(frozenset({"h3"})))
    assert read.jobs[0].phases[0].tasks == Tasks(2, (1.0, 2.0), blocks)


def test_work_without_tasks_is_cut_as_finely_as_there_are_slots() -> None:
    """A phase that says no number of tasks has as many as can run at once."""
    text = "slotwise: 1\ncluster: {slots: 4}\njobs: [{id: a, phases: [{name: m, work: 8}]}]"
    assert parse_workload(text).jobs[0].phases[0].tasks == Tasks(4, 2.0)


def test_a_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    """Files as some editors write them, with a mark at the beginning, are read."""
    file = tmp_path / "jobs.yaml"
    file.write_text(CONTRACT, encoding="utf-8-sig")
    assert read_workload(file).jobs == MEANT.jobs


def test_penalties_may_be_mixed() -> None:
    """A job with its own penalty needs what that one needs, not what the other does."""
    text = """\
slotwise: 1
objective: {penalty: tardiness}
jobs:
  - {id: due, deadline: 0, phases: [{name: m, work: 8}]}
  - {id: agreed, penalty: sla, steps: [[0, 0], [60, 1]], phases: [{name: m, work: 8}]}
  - {id: query, penalty: slowdown, phases: [{name: m, work: 8}]}
  - {id: batch, penalty: makespan, program: wordcount, inputs: x, output: y}
"""
    read = parse_workload(text)
    assert read.objective == Objective("tardiness", "sum")
    assert [job.penalty for job in read.jobs] == [None, "sla", "slowdown", "makespan"]
    assert [job.deadline for job in read.jobs] == [0.0, None, None, None]
    assert read.jobs[1].steps == ((0.0, 0.0), (60.0, 1.0))


@pytest.mark.parametrize("penalty", PENALTIES)
def test_every_penalty_may_be_stated(penalty: str) -> None:
    """Of the workload, by its sum unless it is a maximum by nature."""
    text = (
        f"slotwise: 1\nobjective: {{penalty: {penalty}}}\njobs: [{{id: a, deadline: 9,"
        " steps: [[9, 1]], phases: [{name: m, work: 8}]}]"
    )
    assert parse_workload(text).objective == Objective.named(penalty)


def test_pools_lie_in_pools() -> None:
    """Pools may be stated in any order, at any depth; what is left out is as it always was."""
    text = """\
slotwise: 1
pools:
  - {name: etl, parent: ads, jobs_max: 3, job_weights: size, preemption: {least_after: 5},
     jobs_max_per_user: {ann: 2, "*": 1}, stops_per_hour: 3}
  - {name: ads, weight: 2, slots_min: {map: 3}, preemption: {fair_after: 60, grace: 2}}
  - {name: logs, parent: etl-all}
  - {name: etl-all, parent: ads, policy: fair}
preemption: {least_after: 1, fraction: 0.66}
jobs:
  - {id: a, pool: etl, user: ann, priority: very_high, phases: [{name: m, work: 8}]}
  - {id: b, pool: logs, phases: [{name: m, work: 8}]}
  - {id: c, priority: low, program: wordcount, inputs: x, output: y}
"""
    read = parse_workload(text)
    etl, ads, logs, etl_all = read.pools
    assert etl == Pool(
        "etl",
        parent="ads",
        jobs_max=3,
        job_weights="size",
        preemption=Preemption(5.0),
        jobs_max_per_user={"ann": 2, "*": 1},
        stops_per_hour=3,
    )
    assert ads == Pool("ads", 2.0, {"map": 3}, preemption=Preemption(None, 60.0, None, 2.0))
    assert (logs, etl_all) == (Pool("logs", parent="etl-all"), Pool("etl-all", parent="ads"))
    assert read.preemption == Preemption(1.0, None, 0.66, None)
    assert [job.priority for job in read.jobs] == ["very_high", "normal", "low"]
    assert [job.user for job in read.jobs] == ["ann", None, None]


def test_pools_have_what_they_do_not_state_from_defaults() -> None:
    """The nearest counts: its own, of its parent for its children, of all pools."""
    text = """\
slotwise: 1
cluster: {slots: 10}
pool_defaults: {jobs_max: 5, slots_max: 50%, policy: fifo, resources_max: {memory: 2 GiB}}
pools:
  lab: {jobs_max: 9, child_defaults: {jobs_max: 2, weight: 3, resources_max: {gpu: 1}}}
  ann: {parent: lab}
  bob: {parent: lab, weight: 1, policy: fair}
jobs: [{id: a, phases: [{name: m, work: 8}]}]
"""
    workload = parse_workload(text)
    pools = Source(workload).pools(workload.cluster)
    most = {"task": 5}
    memory, gpu = {"memory": 2**31}, {"gpu": 1}
    assert pools["lab"] == Pool("lab", slots_max=most, jobs_max=9, resources_max=memory)
    of_lab: dict[str, Any] = {"slots_max": most, "jobs_max": 2, "resources_max": gpu}
    assert pools["ann"] == Pool("ann", 3.0, policy="fifo", parent="lab", **of_lab)
    assert pools["bob"] == Pool("bob", 1.0, parent="lab", **of_lab)
    rest = Pool("default", 1.0, {}, most, "fifo", jobs_max=5, resources_max=memory)
    assert pools["default"] == rest


def test_limits_of_resources_change() -> None:
    """At an instant, all limits of the pool are those of the change."""
    text = """\
slotwise: 1
cluster: {slots: 10}
pools: {lab: {resources_max: {memory: 4 GiB, gpu: 1}}}
pool_changes: [{at: 5, pool: lab, resources_max: {memory: 6 GiB}}]
jobs: [{id: a, pool: lab, phases: [{name: m, work: 8, resources: {memory: 1 GiB}}]}]
"""
    workload = parse_workload(text)
    (change,) = workload.pool_changes
    assert change.pools[0].resources_max == {"memory": 6 * 2**30}
    for old, new, said in (
        ("memory: 6 GiB", "memory: 6 GX", "pool_changes[0].resources_max (line 4)"),
        ("gpu: 1}", "gpu: -1}", "pools.lab.resources_max.gpu (line 3)"),
    ):
        with pytest.raises(InputError) as error:
            parse_workload(text.replace(old, new))
        assert said in str(error.value)


def test_phases_and_commands_state_their_hosts() -> None:
    """One name, or several."""
    text = """\
slotwise: 1
cluster: {hosts: [{name: a, slots: 1}, {name: b, slots: 1}]}
jobs:
  - {id: one, phases: [{name: m, work: 8, hosts: a}]}
  - {id: two, command: "true", hosts: [a, b]}
"""
    jobs = Source(parse_workload(text)).jobs()
    assert [set(job.phases[0].hosts) for job in jobs] == [{"a"}, {"a", "b"}]


def test_never_is_stated() -> None:
    """It is not the same as a key that is left out, which is inherited."""
    text = """\
slotwise: 1
preemption: {least_after: never, fair_after: 3}
jobs: [{id: a, phases: [{name: m, work: 8}]}]
"""
    assert parse_workload(text).preemption == Preemption(least_after=inf, fair_after=3.0)


def test_the_shuffle_the_network_and_the_placement() -> None:
    """All keys of a simulated cluster, and their defaults."""
    text = """\
slotwise: 1
cluster: {slots: 4, heartbeat: 3}
placement: {replicas: 2, policy: random, block_bytes: 64000000}
network: {host: 1.25e8, core: 1e10}
shuffle: {slow_start: 0.05, split: true, copies_per_slot: 3, copies_per_job: 9}
jobs:
  - id: a
    phases:
      - {name: m, work: 8}
      - {name: c, kind: copy, work: 1, tasks: 2, after: [m], slow_start: 0.5, copy: 3}
      - {name: r, kind: reduce, work: 8, tasks: 2, continues: c}
"""
    read = parse_workload(text)
    assert read.cluster is not None
    assert (read.cluster.heartbeat, read.cluster.capacity) == (3.0, {"task": 4})
    assert (read.placement, read.replicas) == (Placement(2, "random", 64_000_000), 2)
    assert read.network == Network(1.25e8, inf, 1e10)
    assert read.shuffle == Shuffle(0.05, True, 3, 9)
    _, copying, computing = read.jobs[0].phases
    assert (copying.slow_start, copying.copy) == (0.5, 3.0)
    assert computing == Phase("r", Tasks(2, 4.0), "reduce", continues="c")
    plain = parse_workload("slotwise: 1\njobs: [{id: a, phases: [{name: m, work: 8}]}]")
    assert plain == Workload((Job("a", (Phase("m", Tasks(1, 8.0)),)),))
    assert [plain.preemption, plain.shuffle, plain.network, plain.placement] == [None] * 4


def test_all_values_of_jobs_and_hosts_are_written_back(tmp_path: Path) -> None:
    """Priorities, heartbeats, and how phases begin survive the way through a file."""
    text = """\
slotwise: 1
cluster: {hosts: [{name: h, slots: {map: 1, copy: 2, reduce: 1}}], heartbeat: 3}
jobs:
  - id: a
    priority: very_low
    phases:
      - {name: m, kind: map, work: 8, tasks: 4}
      - {name: c, kind: copy, work: 1, tasks: 2, after: [m], slow_start: 0.5, copy: 3}
      - {name: r, kind: reduce, work: 8, tasks: 2, continues: c}
"""
    read = parse_workload(text)
    write_workload(read.jobs, tmp_path / "again.yaml", cluster=read.cluster)
    again = read_workload(tmp_path / "again.yaml")
    assert (again.jobs, again.cluster) == (read.jobs, read.cluster)


def test_split_copying_adds_slots_of_the_kind_copy() -> None:
    """Where copying is split off, a phase of kind copy needs no slots that a host states."""
    text = """\
slotwise: 1
cluster: {hosts: [{name: h, slots: {map: 1, reduce: 1}}]}
shuffle: {split: SPLIT}
jobs: [{id: a, phases: [{name: c, kind: copy, work: 1}]}]
"""
    read = parse_workload(text.replace("SPLIT", "true"))
    assert read.jobs[0].phases[0].tasks.count == 2  # as many as there are slots for copying
    with pytest.raises(InputError, match="no host has slots for phases of kind 'copy'"):
        parse_workload(text.replace("SPLIT", "false"))


def test_replicas_is_an_abbreviation_of_placement() -> None:
    """In Python either may be given; both say the same, and they may not differ."""
    jobs = (Job("a", (Phase("m", Tasks(1, 8.0)),)),)
    assert Workload(jobs, replicas=2) == Workload(jobs, placement=Placement(2))
    assert Workload(jobs, placement=Placement(2)).replicas == 2
    with pytest.raises(InputError, match="replicas is 3, but those of the placement are 2"):
        Workload(jobs, replicas=3, placement=Placement(2))
