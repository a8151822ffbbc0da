"""The tables of the figures of DMRS."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from experiments.dmrs.experiment import DMRS, ELEPHANTS_OF, RIVALS
from experiments.dmrs.figure import DmrsRow
from experiments.dmrs.profiles import LABELS
from experiments.dmrs.settings import MAX_PAPER, by_setting, gains_over
from slotwise.insight.report.text import number

PAPER = f"The paper: DMRS is better than its rivals by up to {100 * MAX_PAPER:.0f} %."


def table_of_jobs(table: Table, rows: Sequence[DmrsRow]) -> None:
    """A line for each case and scheduler, and below the measured profiles."""
    elephants = len({row.large_jobs for row in rows}) > 1
    table.add_column("elephants" if elephants else "benchmark")
    table.add_column("scheduler")
    for heading in (
        "TWCT\nweight x s",
        "over the bound,\nmean",
        "deviation",
        "least",
        "most",
        "DMRS better\nby, mean",
        "at most",
    ):
        table.add_column(heading, justify="right")
    last = None
    for row in rows:
        name = f"{row.large_jobs} of {ELEPHANTS_OF}" if elephants else LABELS[row.benchmark]
        if last not in (None, name):
            table.add_section()
        gains = ["", ""]
        if row.scheduler != DMRS:
            gains = [_percent(row.gain), _percent(row.gain_most)]
        table.add_row(
            "" if name == last else name,
            row.scheduler,
            number(row.twct),
            *(
                f"{value:.3f}"
                for value in (
                    row.over_bound,
                    row.over_bound_deviation,
                    row.over_bound_least,
                    row.over_bound_most,
                )
            ),
            *gains,
        )
        last = name
    table.caption = f"{_setting_of(rows[0])}\n{_profiles_of(rows)}\n{PAPER}"
    table.caption_justify = "left"


def table_of_settings(table: Table, rows: Sequence[DmrsRow]) -> None:
    """A line for each setting: DMRS's gain over each rival, over all benchmarks."""
    for heading in ("machines", "fast", "ratio", "second release\nat (part)"):
        table.add_column(heading, justify="right")
    for name in RIVALS:
        table.add_column(f"better than\n{name}", justify="right")
    for setting, some in by_setting(rows).items():
        cells = []
        for name in RIVALS:
            gain, most = gains_over(name, some)
            cells.append(f"{_percent(gain)}, at most {_percent(most)}")
        machines, fast, ratio, interval = setting
        table.add_row(f"{machines}", f"{fast:g}", f"{ratio:g}", f"{interval:g}", *cells)
    table.caption = f"Means over all benchmarks.\n{_profiles_of(rows)}\n{PAPER}"
    table.caption_justify = "left"


def _setting_of(row: DmrsRow) -> str:
    return (
        f"{row.machines} machines, {100 * row.fast:.0f} % of them {row.ratio:g} times as fast;"
        f" half of the jobs come at {row.interval:g} of the time that 20 GB take."
    )


def _profiles_of(rows: Sequence[DmrsRow]) -> str:
    """The measured rates of each benchmark, map and reduce."""
    rates = {
        row.benchmark: (row.map_seconds_per_byte, row.reduce_seconds_per_byte) for row in rows
    }
    said = (
        f"{LABELS[name]} {1e9 * mapping:.1f} and {1e9 * reducing:.1f}"
        for name, (mapping, reducing) in rates.items()
    )
    return f"Measured, ns a byte of input, map and reduce: {'; '.join(said)}."


def _percent(part: float) -> str:
    return f"{100 * part:.0f} %"
