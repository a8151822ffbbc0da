"""The command `slotwise pools`: the pools of the server, or convert those of other systems."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slotwise.cli.application import Application, show_message
from slotwise.cli.parsing import Json, Server
from slotwise.cli.service import show_pools

pools = Application()


@pools.callback(invoke_without_command=True)
def _pools(context: typer.Context, server: Server = None, as_json: Json = False) -> None:
    """Show the pools of the server: weights, shares, and the slots that they hold.

    `slotwise pools --json`
    """
    if context.invoked_subcommand is None:
        show_pools(server, as_json)


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

    What has no counterpart, and pools in which no task may run, are named on stderr.

    `slotwise pools import fair-scheduler.xml > pools.yaml`
    """
    from slotwise.workload.allocation_file import read_allocations  # Slow to load.

    found = read_allocations(file)
    for what in found.missing:
        show_message(f"no counterpart: {what}")
    for what in found.closed:
        show_message(f"closed: {what}")
    print(found.text, end="")
