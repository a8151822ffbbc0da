"""SWIM traces: what a line becomes, what is refused, and the workload file made of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotwise.api import simulate
from slotwise.core.errors import InputError
from slotwise.core.job import Job
from slotwise.workload.file import read_workload
from slotwise.workload.swim import SwimRates, racked_cluster, read_swim
from slotwise.workload.writer import write_workload

SMALL = """\
# id, submitted, gap, map input, shuffle, output
scan\t0\t0\t250\t0\t30
sort\t7\t7\t1000\t410\t1000

tiny\t7.5\t0\t0\t0\t0
"""

RATES = SwimRates(
    block_bytes=100,
    part_bytes=200,
    input_rate=10,
    shuffle_rate=20,
    output_rate=5,
    start_seconds=2,
)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A trace of three jobs: map-only, with a shuffle, and without a byte."""
    path = tmp_path / "small.tsv"
    path.write_text(SMALL, encoding="utf-8")
    return path


def test_a_line_becomes_phases_by_the_rates(small: Path) -> None:
    """Maps by blocks, reduces by parts; bytes take their time, and each task its start."""
    scan, sort, tiny = read_swim(small, RATES)
    (only,) = scan.phases
    assert (only.kind, only.tasks.count) == ("map", 3)
    assert only.tasks.work == pytest.approx(2 + (250 / 10 + 30 / 5) / 3)
    maps, reduces = sort.phases
    assert maps.tasks.count == 10
    assert maps.tasks.work == pytest.approx(2 + 100 / 10)
    # 410 bytes to fetch are three parts of 200, but 1,000 bytes to write are five.
    assert (reduces.kind, reduces.after) == ("reduce", frozenset({"map"}))
    assert reduces.tasks.count == 5
    assert reduces.tasks.work == pytest.approx(2 + (410 / 20 + 1000 / 5) / 5)
    assert [phase.tasks.count for phase in tiny.phases] == [1]
    assert tiny.phases[0].tasks.work == 2
    assert [job.arrival for job in (scan, sort, tiny)] == [0, 7, 7.5]


def test_a_map_only_job_that_writes_much_has_maps_for_it(tmp_path: Path) -> None:
    """A job that makes data out of nothing is not one map of days."""
    path = tmp_path / "gen.tsv"
    path.write_text("gen\t0\t0\t1\t0\t1001\n", encoding="utf-8")
    (job,) = read_swim(path, RATES)
    assert job.phases[0].tasks.count == 6


def test_the_first_jobs_are_read_alone(small: Path) -> None:
    """What stands behind them is not even looked at."""
    with small.open("a", encoding="utf-8") as stream:
        stream.write("no trace at all\n")
    assert [job.id for job in read_swim(small, first=2)] == ["scan", "sort"]
    with pytest.raises(InputError, match="line 6: 4 columns"):
        read_swim(small)


def test_columns_of_paths_are_not_read(small: Path) -> None:
    """Published traces have the paths of input and output there; paths may have blanks."""
    jobs = read_swim(small)
    lines = [line for line in small.read_text().splitlines() if not line.startswith("#")]
    paths = ("\tinputPath17", "\t/user/a b/in\t/user/out", "\t", "\tNULL\tNULL")
    small.write_text("".join(f"{line}{paths[n % 4]}\n" for n, line in enumerate(lines)))
    assert read_swim(small) == jobs


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (
            "a\t1\t1\t5\t0",
            "5 columns; a line has 6, separated by tabs, and perhaps paths after them: job id",
        ),
        ("a\t-1\t1\t5\t0\t0", "submit time is '-1'; expected seconds, a number from 0"),
        ("a\tnan\t1\t5\t0\t0", "submit time is 'nan'; expected seconds"),
        ("a\t1e99\t1\t5\t0\t0", "submit time is '1e99'; expected seconds"),
        ("a\t99999999999\t1\t5\t0\t0", "submit time is '99999999999'; expected seconds"),
        ("a\t1\t1\t5.5\t0\t0", "map input is '5.5'; expected bytes, a whole number"),
        ("a\t1\t1\t5\t-3\t0", "shuffle is '-3'; expected bytes"),
        ("a\t1\t1\t5\t0\t1_000", "output is '1_000'; expected bytes"),
        ("a\t1\t1\t5\t0\t" + "9" * 5000, "output is '9999.*[.]{3}'; expected bytes"),
        (
            "a\t1\t1\t999999999999999999\t0\t0",
            r"\d+ tasks of one phase are more than 100000000",
        ),
        ("a\x07\t1\t1\t5\t0\t0", "job id is .*; expected at most 200 characters"),
        ("scan\t1\t1\t5\t0\t0", "job id 'scan' occurs twice; rename one"),
    ],
)
def test_a_bad_line_is_refused_with_its_number(small: Path, line: str, says: str) -> None:
    """The message has the file, the line, the value and the remedy."""
    with small.open("a", encoding="utf-8") as stream:
        stream.write(line + "\n")
    with pytest.raises(InputError, match=rf"small\.tsv: line 6: {says}"):
        read_swim(small)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"# nothing\n", "no jobs"),
        (b"\xff\xfe\x00", "not text in UTF-8"),
        (None, "No such file"),
    ],
)
def test_files_that_are_no_traces_are_refused(
    tmp_path: Path, content: bytes | None, says: str
) -> None:
    """Without jobs, without text, without a file."""
    path = tmp_path / "no.tsv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=f"{says}.*; name a SWIM trace"):
        read_swim(path)


@pytest.mark.parametrize(
    "wrong", [{"block_bytes": 0}, {"input_rate": 0.0}, {"start_seconds": float("inf")}]
)
def test_rates_are_numbers_above_zero(wrong: dict[str, float]) -> None:
    """Nothing takes no time, and nothing for ever."""
    with pytest.raises(InputError, match=f"{next(iter(wrong))} is .*; expected"):
        SwimRates(**wrong)  # type: ignore[arg-type]


@given(
    read=st.integers(0, 10**7), shuffled=st.integers(0, 10**6), written=st.integers(0, 10**6)
)
def test_no_task_gets_more_than_it_may(read: int, shuffled: int, written: int) -> None:
    """Blocks and parts bound every task, and the work of all tasks is that of all bytes."""
    phases = RATES.phases(read, shuffled, written)
    maps, reduces = phases[0].tasks.count, phases[-1].tasks.count
    assert read <= maps * 100
    assert written <= reduces * 200
    assert shuffled == 0 or shuffled <= reduces * 200
    starts = sum(2 * phase.tasks.count for phase in phases)
    total = sum(phase.tasks.work_total() or 0 for phase in phases)
    assert total - starts == pytest.approx(read / 10 + shuffled / 20 + written / 5)


def test_the_file_written_is_the_trace_again(small: Path, tmp_path: Path) -> None:
    """Jobs and cluster survive the way through the file, and a simulation takes it."""
    jobs, cluster = read_swim(small), racked_cluster(5, hosts_a_rack=2)
    path = tmp_path / "workload.yaml"
    write_workload(jobs, path, cluster=cluster, replicas=3)
    read = read_workload(path)
    assert (read.jobs, read.cluster, read.replicas) == (jobs, cluster, 3)
    assert [host.rack for host in cluster.hosts] == ["r0", "r0", "r1", "r1", "r2"]
    result = simulate(read, "fair")
    assert sorted(result.jobs) == ["scan", "sort", "tiny"]


def test_all_values_of_a_job_are_written(tmp_path: Path) -> None:
    """Weights, deadlines, steps, pools, shares, uneven tasks and blocks come back as they were.

    So do reports of hosts, what is copied, and names that mean something else in YAML.
    """
    text = """\
slotwise: 1
cluster:
  heartbeat: 3
  hosts: [{name: "no", slots: {"null": 1, map: 2}, speed: 1.5}, {name: "1", slots: 3}]
pools: [{name: "true: x"}]
jobs:
  - id: "null"
    pool: "true: x"
    weight: 2
    deadline: 60
    steps: [[5, 1], [6, 2.5]]
    penalty: sla
    priority: high
    phases:
      - {name: "a#", kind: map, tasks: [5, 0.1], slots_min: 1, slots_max: 2,
         blocks: [["1"], ["no", "1"]]}
      - {name: "b", work: 7, tasks: 2, after: ["a#"], slow_start: 0.05, copy: 2.5}
      - {name: "c", work: 9, tasks: 2, continues: "b"}
"""
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text(text, encoding="utf-8")
    once = read_workload(first)
    jobs = tuple(job for job in once.jobs if isinstance(job, Job))
    write_workload(jobs, second, cluster=once.cluster)
    again = read_workload(second)
    assert (again.jobs, again.cluster) == (once.jobs, once.cluster)
    assert again.pools == once.pools


def test_nothing_to_write_is_refused(tmp_path: Path) -> None:
    """A workload file needs a job, and a folder that is there."""
    with pytest.raises(InputError, match="no jobs to write"):
        write_workload([], tmp_path / "workload.yaml")
    with pytest.raises(InputError, match="No such file or directory; name a file"):
        write_workload([Job("a", SwimRates().phases(1, 0, 0))], tmp_path / "no" / "w.yaml")
