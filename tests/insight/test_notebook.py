"""Output in notebooks: results as tables and pictures, and the progress of runs."""

from __future__ import annotations

import importlib
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

import slotwise
from slotwise import Job, Phase, Tasks
from slotwise.insight.report import notebook
from slotwise.insight.report.notebook import NotebookProgress, notebook_display, runs_html

JOBS = [
    Job("big", (Phase("map", Tasks(4, 10.0)),)),
    Job("small", (Phase("map", Tasks(2, 1.0)),)),
]
PICTURE = (
    '<img alt="{}" style="max-width: 100%; background: white" src="data:image/svg+xml;base64,'
)


def test_a_result_is_shown_as_tables_and_a_picture() -> None:
    """Metrics, jobs and their timelines; without scripts and requests."""
    html = slotwise.simulate(JOBS, "flex", slots=2)._repr_html_()
    for cell in ("flex", "mean response", "big", "small", "21.0 s"):
        assert f">{cell}</" in html
    assert PICTURE.format("Timelines of jobs") in html
    assert "<script" not in html
    assert "http" not in html


def test_compared_results_are_shown_side_by_side() -> None:
    """The result of compare is a list and has a table."""
    results = slotwise.compare(JOBS, ["fifo", "fair"], slots=2)
    assert isinstance(results, list)
    html = results._repr_html_()
    assert ">fifo</td>" in html
    assert ">fair</td>" in html
    assert PICTURE.format("Comparison of schedulers") in html
    assert PICTURE.format("Response of each job") in html


def test_plans_are_shown_with_their_jobs() -> None:
    """The value, the completion of each job, and the picture of the plan."""
    for plan in (slotwise.plan(JOBS, slots=2), slotwise.plan_tasks(JOBS, slots=2)):
        html = plan._repr_html_()
        assert f"<p>{plan.summary()}</p>" in html
        assert ">small</td>" in html
        assert PICTURE.format("Planned timelines of jobs") in html


def test_long_tables_are_cut() -> None:
    """A sentence gives the number of rows."""
    jobs = [Job(f"j{number}", (Phase("map", Tasks(1, 1.0)),)) for number in range(40)]
    plan = slotwise.plan(jobs, slots=2, budget_steps=0)
    for shown in (slotwise.simulate(jobs, slots=2), plan):
        assert "<p>30 of 40 jobs are listed.</p>" in shown._repr_html_()


def test_names_of_users_stay_text(hostile_runs: Any, hostile_names: list[str]) -> None:
    """No name becomes an element."""
    for run in hostile_runs:
        html = runs_html([run])
        assert "<script" not in html
        assert "<img src=x" not in html
        assert html.count("<b>") == 0


def test_without_the_extra_there_is_a_table_and_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It names the extra."""
    find = importlib.import_module

    def without_plots(name: str, *rest: Any) -> Any:
        if name.startswith(("altair", "vl_convert")):
            raise ImportError(name)
        return find(name, *rest)

    result = slotwise.simulate(JOBS, slots=2)
    plan = slotwise.plan(JOBS, slots=2)
    monkeypatch.setattr(importlib, "import_module", without_plots)
    for shown in (result, plan):
        html = shown._repr_html_()
        assert ">small</td>" in html
        assert "<img" not in html
        assert "<p>a picture needs an optional part: pip install" in html
        assert "slotwise[plots]" in html


class Cell:
    """A cell of a notebook, which records the displayed content as IPython receives it."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.displays = 0
        self.display = SimpleNamespace(HTML=str, display=self._display)

    def get_ipython(self) -> object:
        """The shell of a notebook has a kernel."""
        return SimpleNamespace(kernel=object())

    def _display(self, content: str, display_id: bool) -> Any:
        assert display_id
        self.displays += 1
        self.shown.append(content)
        return SimpleNamespace(update=self.shown.append)


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> Cell:
    """A notebook in which every turn of a run is shown immediately."""
    made = Cell()
    monkeypatch.setitem(sys.modules, "IPython", made)  # type: ignore[arg-type]
    monkeypatch.setattr(notebook, "REDRAW_SECONDS", -1.0)
    return made


def test_a_notebook_shows_progress_in_one_place(cell: Cell) -> None:
    """A bar for each unfinished job; after the run it is empty."""
    slotwise.simulate(JOBS, "fifo", slots=2)
    assert cell.displays == 1
    first, *_, last = cell.shown
    assert "fifo, simulated, 0.0 s: " in first
    assert "big" in first
    assert "0/4" in first
    assert any("2/4" in html and "━" in html for html in cell.shown)
    assert last == ""


def test_each_compared_run_has_its_place(cell: Cell) -> None:
    """One display for each."""
    slotwise.compare(JOBS, ["fifo", "fair"], slots=2)
    assert cell.displays == 2


def test_a_progress_callback_replaces_the_display(cell: Cell) -> None:
    """With `progress` nothing is displayed."""
    slotwise.simulate(JOBS, slots=2, progress=lambda now, events, decisions: None)
    assert cell.displays == 0


def test_failures_are_shown_below_the_table(cell: Cell, hostile_runs: Any) -> None:
    """Text of users is escaped."""
    shown: list[str] = []
    with NotebookProgress(shown.append, "fifo, live") as record:
        for turn in hostile_runs[0].log.turns:
            record(turn.now, turn.events, turn.decisions)
    assert any("ValueError: &lt;b&gt;bad" in html for html in shown)
    assert not any("<script" in html or "<img" in html for html in shown)


def test_outside_of_notebooks_nothing_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without IPython, in its terminal, and in a pipe."""
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert notebook_display() is None
    terminal = SimpleNamespace(get_ipython=lambda: SimpleNamespace(user_ns={}))
    monkeypatch.setitem(sys.modules, "IPython", terminal)  # type: ignore[arg-type]
    assert notebook_display() is None
    script = (
        "import slotwise; from slotwise import *;"
        "slotwise.run([Job('a', (Phase('m', Tasks(3, 0.3)),))], slots=1)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"", b"")
