"""The preload that starts the gate with a scheduler: `dask scheduler --preload slotwise.dask`.

If a preload fails, Dask logs a traceback and starts the scheduler anyway. A scheduler without
the requested gate would be a surprise, so invalid options end the scheduler here.
"""

from __future__ import annotations

import asyncio
import atexit
import sys
from typing import Any, NoReturn

import click
from distributed.diagnostics.plugin import SchedulerPlugin

from slotwise.core.errors import InputError
from slotwise.core.log import check_writable
from slotwise.dask.gate import Gate
from slotwise.dask.options import GateOptions


def read_options(path: str | None) -> GateOptions:
    """The options in a file, or in the configuration of Dask.

    InputError if they are invalid, or if their log cannot be written.
    """
    options = GateOptions.configured() if path is None else GateOptions.read(path)
    if options.log is not None:
        check_writable(options.log)
    return options


class WrongOptions(click.ClickException):
    """Invalid options of the gate."""

    exit_code = 2


def _parsed(context: click.Context, option: click.Parameter, path: str | None) -> GateOptions:
    try:
        return read_options(path)
    except InputError as error:
        raise WrongOptions(f"slotwise: {error}") from error


class Preload(click.Command):
    """The command of the preload.

    `dask scheduler` parses the arguments after `--preload` before it starts anything, and an
    error ends it. If the preload is in the configuration of Dask, they are parsed while the
    scheduler starts. Dask would then ignore an error, so it is passed to `dask_setup`.
    """

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Parse the arguments; the parameter `options` is the error if they are invalid."""
        try:
            return super().make_context(*args, **kwargs)
        except click.ClickException as error:
            context = click.Context(self)
            context.params = {"options": error}
            return context


@click.command(cls=Preload)
@click.option(
    "--slotwise-config",
    "options",
    callback=_parsed,
    help="A YAML file with the options of the gate.",
)
async def dask_setup(scheduler: Any, options: GateOptions | click.ClickException) -> None:
    """Add the gate to the scheduler: `dask scheduler --preload slotwise.dask`."""
    if isinstance(options, GateOptions):
        scheduler.add_plugin(Gate(options), name=Gate.name)
    elif click.get_current_context(silent=True) is None:
        # The scheduler is in the process of a user, such as that of a LocalCluster.
        scheduler.add_plugin(_Refusal(options.message), name=Gate.name)
    else:
        await _exit(options)


class _Refusal(SchedulerPlugin):
    """Makes the start of the scheduler fail, with an error for its user.

    Dask closes the scheduler and raises "Scheduler failed to start" in place of the error. An
    error of `close` is passed on instead, and a cluster ends its own message with it.
    """

    def __init__(self, message: str) -> None:
        self._error = InputError(message)

    async def start(self, scheduler: Any) -> NoReturn:
        """Fail; called by Dask when the scheduler starts."""
        close = scheduler.close

        async def close_and_fail(*args: Any, **kwargs: Any) -> NoReturn:
            scheduler.close = close
            await close(*args, **kwargs)
            raise self._error

        scheduler.close = close_and_fail
        raise self._error


async def _exit(error: click.ClickException) -> NoReturn:
    """End the process, as for invalid arguments, with a message after all that Dask logs.

    SystemExit within a task would be logged with a traceback.
    """
    atexit.register(error.show)
    asyncio.get_running_loop().call_soon(sys.exit, error.exit_code)
    while True:
        await asyncio.sleep(1)  # Until the loop ends.
