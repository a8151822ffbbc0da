"""Histories of dataflow jobs: what is learned of each stage, and used by the next run."""

from __future__ import annotations

from pathlib import Path

import slotwise
from dataflow_nodes import doubled, total
from slotwise.core.history import read_history
from slotwise.core.job import Observation
from slotwise.core.rates import estimate_rates
from slotwise.jobs.dataflow.planning import plan_dataflow


def lengths(lines: object) -> object:
    """The length of each line."""
    yield from map(len, lines)


def flow_of(folder: Path) -> slotwise.Dataflow:
    """Two splits of 1000 bytes, two readers by key, then one that adds."""
    (folder / "in.txt").write_text("123456789\n" * 200)
    flow = slotwise.Dataflow()
    found = flow.node(lengths, flow.read(folder / "in.txt", split_bytes=1000))
    twice = flow.node(doubled, found.file(by=int), copies=2)
    flow.write(flow.node(total, twice.file(), copies=1))
    return flow


def test_sizes_are_bytes_of_input_and_estimates_from_them(tmp_path: Path) -> None:
    """Readers by key share what is written; one reader of all gets all of it."""
    planned = plan_dataflow("j", flow_of(tmp_path), tmp_path / "out")
    assert planned.sizes == {"lengths": (1000, 1000), "doubled": (1000, 1000), "total": (2000,)}


def test_a_run_adds_the_tasks_of_all_stages_to_the_history(tmp_path: Path) -> None:
    """The stages are those of one program, named after the nodes."""
    job = flow_of(tmp_path).job("j", tmp_path / "out")
    assert not slotwise.run([job], slots=2, history=tmp_path / "h.db").failed
    seen = [(one.program, one.phase, one.bytes) for one in read_history(tmp_path / "h.db")]
    stages = [("lengths", 1000), ("lengths", 1000), ("doubled", 1000), ("doubled", 1000)]
    name = "dataflow input+lengths+doubled+total"
    assert sorted(seen) == sorted((name, *one) for one in [*stages, ("total", 2000)])


def test_the_work_of_each_stage_is_that_of_its_learned_rate(tmp_path: Path) -> None:
    """Seconds for each byte as observed."""
    planned = plan_dataflow("j", flow_of(tmp_path), tmp_path / "out")
    rates = {"lengths": 0.001, "doubled": 0.01, "total": 0.1}
    seen = [
        Observation(planned.program, phase, 1000, "h", 1.0, 1000 * rate)
        for phase, rate in rates.items()
    ]
    learned = estimate_rates(seen).job(planned.job, planned.program, planned.sizes)
    work = {phase.name: phase.tasks.work_total() for phase in learned.phases}
    assert {name: round(value, 6) for name, value in work.items()} == {
        "lengths": 2.0,
        "doubled": 20.0,
        "total": 200.0,
    }
