"""The examples of docs/howto/add-a-penalty.md, added as the page says and run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import slotwise
from slotwise.core import objective as penalties
from slotwise.core.cluster import Cluster
from slotwise.core.errors import InputError
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.objective import PENALTIES, Curve, Objective, Size
from slotwise.workload.workload import Workload

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "add-a-penalty.md"
JOBS = (
    Job("short", (Phase("map", Tasks(4, 5.0)),), weight=3.0, deadline=10.0),
    Job("long", (Phase("map", Tasks(40, 90.0)),), deadline=20.0),
)
"""Alone on 4 slots they need 5 and 900 seconds."""


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The penalties of the page, added to those of penalty.py."""
    namespace = dict(vars(penalties)) | {"Curve": Curve}
    blocks = re.findall(
        r"^```python\n(def .*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), namespace)
    added = {name: namespace[name] for name in ("patience", "fading", "overdue")}
    for place in ("core.objective", "workload.schema"):
        monkeypatch.setattr(f"slotwise.{place}.PENALTIES", {**PENALTIES, **added})
    return added


def test_own_penalties_have_their_stated_costs(own: dict[str, Any]) -> None:
    """By hand: nothing and then all of it, half after an hour, a step."""
    short, size = JOBS[0], Size(20.0, 5.0)
    assert [own["patience"](short, size).at(at) for at in (5, 10, 12)] == [0.0, 0.0, 6.0]
    assert [own["fading"](short, size).at(at) for at in (0, 3600, 7200)] == [0.0, 1.5, 2.25]
    assert own["fading"](short, size).latest(1.5) == pytest.approx(3600.0)
    assert [own["overdue"](short, size).at(at) for at in (3610, 3611)] == [0.0, 3.0]


@pytest.mark.parametrize("name", ["patience", "fading", "overdue"])
@pytest.mark.parametrize("aggregate", ["sum", "max"])
def test_own_penalties_work_in_plans_and_bounds(
    own: dict[str, Any], name: str, aggregate: str
) -> None:
    """It can be planned for and measured, and the bound is below the value."""
    aim = Objective(name, aggregate)  # type: ignore[arg-type]
    workload = Workload(JOBS, Cluster.of_slots(4), objective=aim)
    plan = slotwise.plan(workload)
    plan.schedule.check(JOBS, Cluster.of_slots(4))
    result = slotwise.simulate(workload)
    assert plan.bound <= plan.value
    assert result.bound <= result.metrics["value"]


def test_a_workload_file_may_name_own_penalties(own: dict[str, Any], tmp_path: Path) -> None:
    """What they need of a job is checked when the file is read."""
    file = tmp_path / "w.yaml"
    text = "slotwise: 1\njobs: [{id: a, penalty: %s, phases: [{name: m, work: 1}]}]\n"
    file.write_text(text % "patience")
    assert slotwise.read_workload(file).jobs[0].penalty == "patience"
    file.write_text(text % "overdue")
    with pytest.raises(
        InputError, match=r"jobs\[0\]\.penalty \(line 2\): .*overdue needs a de"
    ):
        slotwise.read_workload(file)
