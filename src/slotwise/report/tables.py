"""Tables of runs: as rows of text for the page, and for the terminal with rich."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from slotwise.report.numbers import MISSING, number, percent, seconds
from slotwise.report.reported import ReportedRun, run_names

Columns = dict[str, list[str]]
"""A table as text: the cells of each column, by its title."""


def comparison_table(runs: Sequence[ReportedRun]) -> Table:
    """The runs side by side, for the terminal."""
    columns = comparison_columns(runs)
    shown = ("scheduler", "world", "mean response", "mean stretch", "max stretch", "makespan")
    table = _rich({title: columns[title] for title in (*shown, "value", "bound", "gap")})
    objectives = list(dict.fromkeys(run.objective for run in runs))
    table.caption = Text(f"value and bound: {' or '.join(objectives)}")
    return table


def jobs_table(runs: Sequence[ReportedRun]) -> Table:
    """The jobs of all runs, for the terminal."""
    columns: Columns = {}
    for name, run in zip(run_names(runs), runs, strict=True):
        for title, cells in {
            "scheduler": [name] * len(run.outcome.jobs),
            **job_columns(run),
        }.items():
            columns.setdefault(title, []).extend(cells)
    return _rich(columns)


def comparison_columns(runs: Sequence[ReportedRun]) -> Columns:
    """The metrics of the runs as text, a row for each run."""
    metrics = [run.outcome.metrics for run in runs]

    def cells(show: Any, key: str) -> list[str]:
        return [show(values.get(key)) for values in metrics]

    return {
        "scheduler": run_names(runs),
        "world": [run.world for run in runs],
        "mean response": cells(seconds, "response_mean"),
        "mean stretch": cells(number, "stretch_mean"),
        "max stretch": cells(number, "stretch_max"),
        "makespan": cells(seconds, "makespan"),
        "objective": [run.objective for run in runs],
        "value": cells(number, "value"),
        "bound": [number(run.outcome.bound) for run in runs],
        "gap": cells(percent, "gap"),
        "utilisation": cells(percent, "utilisation"),
        "tasks beside their input": [
            percent(values.get("locality", {}).get("node")) for values in metrics
        ],
        "wasted slot-seconds": cells(number, "wasted_slot_seconds"),
        "jobs done": cells(number, "jobs_done"),
        "jobs failed": cells(number, "jobs_failed"),
    }


def job_columns(run: ReportedRun, most: int | None = None) -> Columns:
    """The jobs of one run as text, in order of arrival; failed ones first if `most` cuts."""
    failed = run.outcome.failed
    jobs = sorted(
        run.outcome.jobs.items(), key=lambda item: (item[1]["arrival"] or 0.0, item[0])
    )
    if most is not None and len(jobs) > most:
        jobs = sorted(jobs, key=lambda item: item[0] not in failed)[:most]
    columns: Columns = {"job": [name for name, _ in jobs]}
    for title in ("arrival", "start", "completion", "response"):
        columns[title] = [seconds(times[title]) for _, times in jobs]
    columns["failed because"] = [failed.get(name, "") for name, _ in jobs]
    return columns


def _rich(columns: Columns) -> Table:
    """Columns that say something. Cells are Text: what users wrote is shown, not obeyed."""
    table = Table(header_style="bold")
    shown = {title: cells for title, cells in columns.items() if any(cells)}
    for title, cells in shown.items():
        numeric = all(cell == MISSING or cell[:1].isdigit() for cell in cells)
        table.add_column(Text(title), justify="right" if numeric else "left")
    for row in zip(*shown.values(), strict=True):
        table.add_row(*(Text(cell) for cell in row))
    return table
