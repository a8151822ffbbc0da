"""Unusual but valid workloads: no command hangs or gives a wrong result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from slotwise.core.objective import PENALTIES
from tiers import examples


def phase(work: float = 0.04, tasks: int = 2, **more: Any) -> dict[str, Any]:
    """A phase of little work."""
    return {"name": "m", "work": work, "tasks": tasks, **more}


def jobs(*ids: str) -> list[dict[str, Any]]:
    """Small jobs of these ids."""
    return [{"id": name, "phases": [phase()]} for name in ids]


NAMES = ("a b", "größer", "../x", "[red]x[/red]", "-", "a,b", "'q'", '"d"', "🦉")
OWING = {"deadline": 0.02, "steps": [[0, 0], [0.01, 1], [1e10, 7]]}
SLOW_HOST = {"name": "h", "slots": 1, "speed": 1e-12}

MANY = examples(100, slow=300)

ODD: dict[str, dict[str, Any]] = {
    "pools without jobs": {"pools": [{"name": "p", "slots_min": 9}], "jobs": jobs("a")},
    "one task": {"jobs": [{"id": "a", "phases": [phase(tasks=1)]}]},
    "many jobs": {"jobs": [{"id": f"j{n}", "phases": [phase(0.002)]} for n in range(MANY)]},
    "a long chain": {
        "jobs": [
            {
                "id": "a",
                "phases": [
                    {**phase(0.001, 1), "name": f"p{n}", "after": [f"p{n - 1}"] if n else []}
                    for n in range(60)
                ],
            }
        ]
    },
    "odd names": {"jobs": jobs(*NAMES)},
    "a penalty for each job": {
        "jobs": [
            {"id": name, "penalty": name, **OWING, "phases": [phase()]} for name in PENALTIES
        ]
    },
    "min shares that cannot be met": {
        "pools": [
            {"name": "p", "slots_min": 99},
            {"name": "q", "slots_min": 1, "slots_max": 1},
        ],
        "jobs": [
            {"id": "a", "pool": "p", "phases": [phase(tasks=8, slots_min=50)]},
            {"id": "b", "pool": "q", "phases": [phase(tasks=3, slots_min=2)]},
        ],
    },
    "tasks without work": {"jobs": [{"id": "a", "phases": [phase(1e-12, 50)]}]},
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("command", ["plan", "simulate", "run"])
@pytest.mark.parametrize("name", ODD)
def test_every_job_is_done(name: str, command: str, slotwise: Any, folder: Path) -> None:
    """All jobs have an end, and the bound is not above the value."""
    workload = {"slotwise": 1, "cluster": {"slots": 2}, **ODD[name]}
    (folder / "odd.json").write_text(json.dumps(workload))
    done = slotwise(command, "odd.json", "--slots", "2", "--json")
    assert done.exit_code == 0, done.stderr
    result = json.loads(done.stdout)
    ends = result.get("completion") or {
        job: times["completion"] for job, times in result["jobs"].items()
    }
    assert set(ends) == {job["id"] for job in workload["jobs"]}
    assert all(end > 0 for end in ends.values())
    numbers = result if command == "plan" else result["metrics"]
    assert result["bound"] <= numbers["value"]
    assert numbers["gap"] is None or numbers["gap"] >= -1e-9


DUE = {
    "in a moment": {"deadline": 0.01, "steps": [[0.01, 1], [0.02, 3]]},
    "at once": {"deadline": 0, "steps": [[0, 0], [1e-9, 5]]},
    "in the end": {"deadline": 1e10, "steps": [[1e10, 1e12]]},
}
"""Deadlines that cannot be met, that have passed at the start, and that cannot be missed."""

AIMS = [(name, how) for name in PENALTIES for how in ("sum", "max")]
AIMS.remove(("makespan", "sum"))

CASES = [
    # By default each objective has one of the deadlines.
    pytest.param(due, *aim, marks=[] if (place + number) % 3 == 0 else pytest.mark.slow)
    for place, due in enumerate(DUE)
    for number, aim in enumerate(AIMS)
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("due", "penalty", "aggregate"), CASES)
def test_every_objective_of_every_deadline(
    due: str, penalty: str, aggregate: str, slotwise: Any, folder: Path
) -> None:
    """Costs that are 0, negative or unavoidable are planned, simulated and compared."""
    workload = {
        "slotwise": 1,
        "cluster": {"slots": 2},
        "objective": {"penalty": penalty, "aggregate": aggregate},
        "jobs": [{**job, **DUE[due]} for job in jobs("a", "b", "c")],
    }
    (folder / "due.json").write_text(json.dumps(workload))
    sign = {"tardy": 0, "tardiness": 0, "sla": 0, "lateness": -1}.get(penalty, 1)
    for command in ("plan", "simulate", "compare"):
        done = slotwise(command, "due.json", "--json")
        assert (done.exit_code, done.exception) == (0, None), done.stderr
        for line in done.stdout.splitlines():
            result = json.loads(line)
            numbers = result if command == "plan" else result["metrics"]
            assert result["bound"] <= numbers["value"]
            if due == "in the end":
                assert (numbers["value"] > 0) - (numbers["value"] < 0) == sign
    for command in ("plan", "compare --schedulers fifo,flex"):
        done = slotwise(*command.split(), "due.json")
        assert (done.exit_code, done.exception) == (0, None), done.stderr
        assert "nan" not in done.stdout


@pytest.mark.parametrize("epoch", ["1e-6", "0.5", "1e300"])
def test_long_gaps_and_slow_hosts_end(epoch: str, slotwise: Any, folder: Path) -> None:
    """Centuries between arrivals, and hosts so slow that times lose digits, are simulated."""
    for cluster in ({"slots": 2}, {"hosts": [SLOW_HOST]}):
        late = [{**job, "arrival": 5e9 * n} for n, job in enumerate(jobs("a", "b", "c"))]
        work = [{"id": "d", "phases": [phase(1e12, 3)]}]
        odd = {"slotwise": 1, "cluster": cluster, "jobs": late + work}
        (folder / "odd.json").write_text(json.dumps(odd))
        done = slotwise("simulate", "odd.json", "--epoch", epoch, "--json")
        assert done.exit_code == 0, done.stderr
        assert json.loads(done.stdout)["metrics"]["jobs_done"] == 4


@pytest.mark.parametrize(("reducers", "parts"), [(0, 1), (9, 9)])
def test_any_number_of_reduces(reducers: int, parts: int, slotwise: Any, folder: Path) -> None:
    """No reduces, or many more of them than words."""
    (folder / "in.txt").write_text("a b a\n")
    job = {"id": "w", "program": "wordcount", "inputs": "in.txt", "output": "out"}
    odd = {"slotwise": 1, "jobs": [{**job, "reducers": reducers}]}
    (folder / "odd.json").write_text(json.dumps(odd))
    done = slotwise("run", "odd.json", "--slots", "1", "--json")
    assert done.exit_code == 0, done.stderr
    assert len(list((folder / "out").glob("part-*"))) == parts


def test_empty_input(slotwise: Any, folder: Path) -> None:
    """Programs run on empty files and write empty parts."""
    (folder / "in").mkdir()
    for name in "ab":
        (folder / "in" / name).write_bytes(b"")
    programs = [
        {"id": name, "program": name, "inputs": "in", "output": f"out/{name}"}
        for name in ("wordcount", "sort", "terasort", "inverted-index")
    ]
    (folder / "odd.json").write_text(json.dumps({"slotwise": 1, "jobs": programs}))
    for command in ("simulate", "run"):
        done = slotwise(command, "odd.json", "--slots", "1", "--json")
        assert done.exit_code == 0, done.stderr
    assert all(path.stat().st_size == 0 for path in folder.glob("out/*/part-*"))
    assert len(list(folder.glob("out/*/_SUCCESS"))) == 4
