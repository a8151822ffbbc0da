"""The command `slotwise pools`: convert pools of other systems."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slotwise.cli.application import Application, show_message
from slotwise.workload.allocation_file import read_allocations

pools = Application(no_args_is_help=True, help="Import pools of other systems.")


@pools.callback()
def _pools() -> None:
    """Do nothing. With a callback, typer keeps the name of a single subcommand."""


@pools.command(name="import")
def _import(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="fair-scheduler.xml of Hadoop, or fairscheduler.xml of Spark."
        ),
    ],
) -> None:
    """Print the pools of an allocation file as keys of a workload file.

    What has no counterpart is named on stderr.

    `slotwise pools import fair-scheduler.xml > pools.yaml`
    """
    found = read_allocations(file)
    for what in found.missing:
        show_message(f"no counterpart: {what}")
    print(found.text, end="")
