"""The code of the guides for contributors, added to the modules as the guides say and run."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from statistics import median
from types import ModuleType

import pytest
from typer.testing import CliRunner

import slotwise
from slotwise import Job, Phase, Tasks
from slotwise.cli import trace
from slotwise.insight import metrics
from slotwise.insight.report import tables
from slotwise.workload.file import read_workload

HOWTO = Path(__file__).parents[2] / "docs" / "howto"
JOBS = [Job(f"of {count} tasks", (Phase("map", Tasks(count, 2.0)),)) for count in (1, 2, 9)]


def blocks_of(page: str) -> list[str]:
    """The Python blocks of a guide, as they are at the left margin of their step."""
    text = (HOWTO / page).read_text(encoding="utf-8")
    found = re.findall(r"^   ```python\n(.*?)^   ```", text, re.MULTILINE | re.DOTALL)
    return [re.sub(r"^   ", "", block, flags=re.MULTILINE) for block in found]


def changed(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, after: str, added: str, top: str = ""
) -> ModuleType:
    """A copy of a module with lines added after its only line that begins as stated."""
    lines = Path(str(module.__file__)).read_text(encoding="utf-8").splitlines(keepends=True)
    (place,) = [number for number, line in enumerate(lines) if line.startswith(after)]
    lines.insert(place + 1, added)
    future = lines.index("from __future__ import annotations\n")
    lines.insert(future + 1, top)
    copy = ModuleType(f"{module.__name__}_changed")
    monkeypatch.setitem(sys.modules, copy.__name__, copy)
    exec(compile("".join(lines), copy.__name__, "exec"), copy.__dict__)
    return copy


def test_a_metric_is_added_as_its_guide_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in the metrics of a log, and a row of the report."""
    entry, row = blocks_of("add-a-metric.md")
    more = changed(
        monkeypatch,
        metrics,
        '            "jobs_failed"',
        entry,
        top="from statistics import median\n",
    )
    result = slotwise.simulate(JOBS, "fair", slots=4)
    outcome = more.MetricsCollector.of_log(result.log).outcome()
    responses = [times["response"] for times in result.jobs.values()]
    assert outcome.metrics["response_median"] == median(responses)
    assert outcome.metrics == result.metrics | {"response_median": median(responses)}
    shown = changed(monkeypatch, tables, '    Metric("read through the core', row)
    assert "median response" in [metric.title for metric in shown.metrics_in_full([])]


def test_a_trace_format_is_added_as_its_guide_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The command writes a workload file with the jobs of a trace, and refuses a wrong one."""
    reader, command = blocks_of("add-a-trace-format.md")
    more = changed(
        monkeypatch,
        trace,
        "trace.add_typer(",
        reader + command,
        top="from slotwise.workload.swim import Job, Phase, Tasks, open_to_read\n",
    )
    (tmp_path / "day.txt").write_text("a 0 4 2.5\nb 10 1 30\n", encoding="utf-8")
    (tmp_path / "wrong.txt").write_text("a 0 4 2.5\nb 10 one 30\n", encoding="utf-8")

    def imported(name: str) -> str:
        arguments = ["import", "rows", str(tmp_path / name), "-o", str(tmp_path / "day.yaml")]
        return CliRunner().invoke(more.trace, arguments).output

    assert imported("day.txt") == f"{tmp_path / 'day.yaml'}\n"
    jobs = read_workload(tmp_path / "day.yaml").jobs
    assert [(job.id, job.arrival, job.work) for job in jobs] == [("a", 0, 10), ("b", 10, 30)]
    assert "wrong.txt: line 2: " in imported("wrong.txt")
