"""The command `slotwise history`: rates of programs and speeds of hosts in earlier runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from slotwise.cli.options import Json
from slotwise.cli.terminal import exit_codes, print_json
from slotwise.estimation.rates import Rates, estimate_rates
from slotwise.record.history import read_history
from slotwise.report.numbers import count, number, percent
from slotwise.report.printable import printable

DEFAULT = Path("history.db")
"""The default database."""

MEGA = 1e6


def show_history(
    database: Annotated[
        Path,
        typer.Argument(metavar="[DB]", help="A database that `run --history` has written."),
    ] = DEFAULT,
    as_json: Json = False,
) -> None:
    """Show rates of programs and speeds of hosts, as measured in earlier runs.

    Half of the measurements, weighted by bytes, are within the spread of the value shown.

    `slotwise history history.db`
    """
    with exit_codes():
        rates = estimate_rates(read_history(database))
        if as_json:
            print_json(_plain(rates))
        elif not rates.by_phase:
            print("no measurements yet")
        else:
            rows = [*_aligned(_of_programs(rates)), "", *_aligned(_of_hosts(rates))]
            print("\n".join(map(printable, rows)))


def _plain(rates: Rates) -> dict[str, Any]:
    return {
        "programs": [
            {
                "program": program,
                "phase": phase,
                "seconds_per_byte": rate.seconds_per_byte,
                "spread": rate.spread,
                "tasks": rate.count,
            }
            for (program, phase), rate in rates.by_phase.items()
        ],
        "hosts": [
            {
                "host": speed.host,
                "stated": speed.stated,
                "speed": speed.speed,
                "spread": speed.spread,
                "tasks": speed.count,
            }
            for speed in rates.speeds
        ],
    }


def _of_programs(rates: Rates) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("program", "phase", "MB/s a slot", "spread", "tasks")]
    for (program, phase), rate in rates.by_phase.items():
        pace = number(1 / rate.seconds_per_byte / MEGA)
        rows.append((program, phase, pace, _spread(rate.spread, rate.count), count(rate.count)))
    return rows


def _of_hosts(rates: Rates) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("host", "stated", "speed", "spread", "tasks")]
    for speed in rates.speeds:
        speeds = number(speed.stated), number(speed.speed)
        rows.append(
            (speed.host, *speeds, _spread(speed.spread, speed.count), count(speed.count))
        )
    return rows


def _spread(spread: float, tasks: int) -> str:
    """The spread as text; none for one task, because 0 % would suggest certainty."""
    return percent(spread if tasks > 1 else None)


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    """The rows with columns of equal width: names left-aligned, numbers right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    numbers_from = len(rows[0]) - 3
    return [
        "  ".join(
            cell.ljust(width) if place < numbers_from else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
