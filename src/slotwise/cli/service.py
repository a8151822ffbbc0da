"""The commands that ask a server about jobs: `slotwise status`, `list`, `wait`, `cancel`, ...

They load without schedulers and backends, so that they start fast. `slotwise serve` is with the
other commands.
"""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from slotwise.cli import submit as submission
from slotwise.cli.application import (
    Application,
    CommandOfApplication,
    print_json,
    show_message,
)
from slotwise.cli.following import LIVE, exit_code, is_over, show_end, wait_for, wait_for_any
from slotwise.cli.parsing import Json, Server, seconds_option
from slotwise.cli.users import add_user_commands
from slotwise.cli.what_if import what_if
from slotwise.core.errors import InputError, SlotwiseError
from slotwise.service.clients.transport import NoServerError, Transport, job_path

NAMES_MAX = 100
"""The most names that a completion offers."""

JOBS_MAX = 10_000
"""The most jobs that one command cancels, or asks for the ends of."""

SHELLS = ("bash", "zsh", "fish")


def complete_jobs(incomplete: str) -> list[tuple[str, str]]:
    """The ids of the server's last jobs with this beginning, with their states."""
    return [
        (str(job["id"]), str(job["state"]))
        for job in _asked_to_complete("/v1/jobs", "jobs", limit=NAMES_MAX)
        if str(job["id"]).startswith(incomplete)
    ]


def complete_pools(incomplete: str) -> list[str]:
    """The names of the server's pools with this beginning."""
    found = _asked_to_complete("/v1/pools", "pools")
    return [str(pool["name"]) for pool in found if str(pool["name"]).startswith(incomplete)]


def _asked_to_complete(path: str, key: str, **query: Any) -> list[Mapping[str, Any]]:
    """What a server lists, or nothing: a completion has no messages."""
    try:
        found: list[Mapping[str, Any]] = Transport().get(path, **query)[key]
    except (SlotwiseError, LookupError):
        return []
    return found


Id = Annotated[str, typer.Argument(metavar="ID", help="A job.", autocompletion=complete_jobs)]
Ids = Annotated[
    list[str], typer.Argument(metavar="ID...", help="Jobs.", autocompletion=complete_jobs)
]
SomeIds = Annotated[
    list[str] | None,
    typer.Argument(metavar="[ID...]", help="Jobs.", autocompletion=complete_jobs),
]
PoolOption = Annotated[
    str | None,
    typer.Option("--pool", help="Only jobs of this pool.", autocompletion=complete_pools),
]


def show_status(
    job: Annotated[
        str | None,
        typer.Argument(metavar="[ID]", help="A job.", autocompletion=complete_jobs),
    ] = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Show the state of the server, or all about a job with its tasks.

    `slotwise status`

    `slotwise status 17`
    """
    from slotwise.cli import service_tables

    transport = Transport(server)
    found = transport.get("/v1" if job is None else job_path(job))
    if as_json:
        print_json(found)
    elif job is None:
        service_tables.show_server(found)
    else:
        service_tables.show_job(found)


def list_jobs(
    state: Annotated[
        str | None,
        typer.Option(
            help="Only these states: queued, waiting, held, running, done, failed, cancelled,"
            " lost; several with commas."
        ),
    ] = None,
    pool: PoolOption = None,
    user: Annotated[str | None, typer.Option(help="Only jobs of this user.")] = None,
    shows_all: Annotated[bool, typer.Option("--all", help="Also jobs that are over.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="At most this number, the last.")] = 100,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """List jobs, the newest at the end. Without `--all` or `--state`, those not over.

    `slotwise list --pool team`

    `slotwise list --state failed,lost --limit 10 --json`
    """
    from slotwise.cli import service_tables

    if state is None and not shows_all:
        state = LIVE
    found = Transport(server).get("/v1/jobs", state=state, pool=pool, user=user, limit=limit)
    if as_json:
        print_json(found)
        return
    service_tables.show_jobs(found["jobs"])
    if found["more"] and sys.stdout.isatty():
        show_message(f"slotwise: the last {limit} of more jobs; --limit shows others")


def show_etas(
    jobs: SomeIds = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Show when jobs start and end, as ranges; without ids, those of all jobs not over.

    It also says how old the forecasts are, and what they are based on. A new job has one within
    seconds.

    `slotwise eta`

    `slotwise eta 17 18 --json`
    """
    from slotwise.cli import service_tables

    transport, keys = Transport(server), ("id", "state", "eta")
    if jobs:
        listed = [transport.get(job_path(job, "eta")) for job in jobs]
    else:
        listed = transport.get("/v1/jobs", state=LIVE, limit=JOBS_MAX)["jobs"]
    found, now = [{key: job.get(key) for key in keys} for job in listed], time.time()
    if as_json:
        print_json({"now": now, "jobs": found})
    elif found:
        service_tables.show_etas(found, now)
    elif sys.stdout.isatty():
        print("no jobs")


def wait_jobs(
    jobs: Ids,
    any_: Annotated[bool, typer.Option("--any", help="Until the first one is over.")] = False,
    timeout: Annotated[
        float | None, seconds_option("Wait at most this long, then exit with 124.", 0)
    ] = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Wait until jobs are over, and exit with the code of the job; of several, the largest.

    That is 0 for a job that is done; for a command its exit code, or 128 and the number of its
    signal; 130 for a job that was cancelled; otherwise 1. After `--timeout` it is 124.

    `slotwise wait 17 && echo done`

    `slotwise wait 17 18 --any --timeout 10m`
    """
    transport = Transport(server)
    until = None if timeout is None else time.monotonic() + timeout
    if any_:
        found = [wait_for_any(transport, jobs, until)]
    else:
        found = [wait_for(transport, job, until) for job in jobs]
    if as_json:
        print_json({"jobs": found})
    if not all(map(is_over, found)):
        if not as_json:
            show_message(
                "slotwise: the jobs are not over, and the time of --timeout has passed"
            )
        raise typer.Exit(124)
    if not as_json:
        for job in found:
            show_end(job)
    raise typer.Exit(max(map(exit_code, found)))


def cancel_jobs(
    jobs: SomeIds = None,
    all_: Annotated[
        bool, typer.Option("--all", help="All jobs that are not over, or those of --pool.")
    ] = False,
    pool: PoolOption = None,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do not ask.")] = False,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Cancel jobs: their tasks stop, and jobs that wait for them are cancelled, too.

    On a terminal it asks before it cancels more than one.

    `slotwise cancel 17`

    `slotwise cancel --all --pool team`
    """
    transport, named = Transport(server), list(jobs or ())
    if bool(named) == (all_ or pool is not None):
        raise InputError("name the jobs to cancel, or add --all or --pool")
    if not named:
        query = {"state": LIVE, "pool": pool, "limit": JOBS_MAX}
        named = [str(job["id"]) for job in transport.get("/v1/jobs", **query)["jobs"]]
    if len(named) > 1 and not yes and sys.stdin.isatty() and sys.stderr.isatty():
        typer.confirm(f"cancel {len(named)} jobs?", abort=True, err=True)
    _change(transport, named, "cancel", {}, as_json)


def hold_jobs(jobs: Ids, server: Server = None, as_json: Json = False) -> None:
    """Hold jobs: what runs continues, and no further task begins before `slotwise release`.

    `slotwise hold 17`
    """
    _change(Transport(server), jobs, "hold", {}, as_json)


def release_jobs(jobs: Ids, server: Server = None, as_json: Json = False) -> None:
    """Let jobs that are held begin.

    `slotwise release 17`
    """
    _change(Transport(server), jobs, "release", {}, as_json)


def set_priority(
    job: Id,
    priority: Annotated[
        str,
        typer.Argument(
            metavar="PRIORITY",
            help="very_high, high, normal, low or very_low.",
            autocompletion=lambda: ["very_high", "high", "normal", "low", "very_low"],
        ),
    ],
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Change the priority of a job in its pool.

    `slotwise priority 17 high`
    """
    _change(Transport(server), [job], "change", {"priority": priority}, as_json)


def move_job(
    job: Id,
    pool: Annotated[
        str, typer.Argument(metavar="POOL", help="A pool.", autocompletion=complete_pools)
    ],
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Move a job to another pool.

    `slotwise move 17 team`
    """
    _change(Transport(server), [job], "change", {"pool": pool}, as_json)


def _change(
    transport: Transport,
    jobs: Sequence[str],
    what: str,
    body: Mapping[str, Any],
    as_json: bool,
) -> None:
    """Change each of the jobs, also after one that cannot be changed; then exit with 2."""
    from slotwise.cli import service_tables

    changed, refused = [], []
    for job in jobs:
        try:
            changed.append(transport.post(job_path(job, what), body))
        except NoServerError:
            raise
        except SlotwiseError as error:
            refused.append(error)
    if as_json:
        print_json({"jobs": changed})
    elif sys.stdout.isatty():
        for job in changed:
            print(service_tables.sentence(job))
    for one in refused[:-1]:
        show_message(f"slotwise: {one}", style="red")
    if refused:
        raise refused[-1]


def show_workers(server: Server = None, as_json: Json = False) -> None:
    """Show the hosts of the server: their slots, resources and states.

    `slotwise workers`
    """
    from slotwise.cli import service_tables

    found = Transport(server).get("/v1/workers")
    if as_json:
        print_json(found)
    else:
        service_tables.show_workers(found["workers"])


def show_pools(server: str | None, as_json: bool) -> None:
    """Show the pools of the server."""
    from slotwise.cli import service_tables

    found = Transport(server).get("/v1/pools")
    if as_json:
        print_json(found)
    else:
        service_tables.show_pools(found["pools"])


def show_top(
    once: Annotated[bool, typer.Option("--once", help="Print it once.")] = False,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Show slots, pools, running jobs and the queue, renewed each second; q leaves.

    If stdout is not a terminal, it prints them once.

    `slotwise top`
    """
    from slotwise.cli import top

    transport = Transport(server)
    if as_json:
        print_json(top.view_of(transport))
    elif once or not sys.stdout.isatty():
        top.print_once(transport)
    else:
        top.show_live(transport)


def print_completion(
    shell: Annotated[str, typer.Argument(metavar="SHELL", help=f"{', '.join(SHELLS)}.")],
) -> None:
    """Print the script that completes `slotwise` in a shell, with jobs and pools of the server.

    `source <(slotwise completion bash)` in ~/.bashrc, or the same with zsh in ~/.zshrc

    `slotwise completion fish > ~/.config/fish/completions/slotwise.fish`
    """
    from typer import completion

    if shell not in SHELLS:
        raise InputError(f"shell {shell!r}: expected one of {', '.join(SHELLS)}")
    print(
        completion.get_completion_script(  # type: ignore[attr-defined]
            prog_name="slotwise", complete_var="_SLOTWISE_COMPLETE", shell=shell
        )
    )


def print_slurm_path() -> None:
    """Print a folder with `sbatch`, `squeue`, `scancel`, `sacct` and others, for PATH.

    They ask the server, so that programs for Slurm use it.

    `export PATH="$(slotwise slurm-path):$PATH"`
    """
    from slotwise.slurm.folder import slurm_folder

    print(slurm_folder())


def _for_help() -> Any:
    """A function whose parameters are the options of `submit`, for its help and completion."""
    kinds = {"flag": bool, "list": list[str], "whole": int, "number": float, "text": str}
    completed = {"id": None, "after": complete_jobs, "pool": complete_pools}
    parameters = []
    for one in submission.OPTIONS:
        is_flag = one.kind == "flag"
        option = typer.Option(
            *one.names,
            help=one.help,
            metavar=one.metavar or None,
            show_default=False,
            autocompletion=completed.get(one.key),
        )
        kind: Any = kinds[one.kind]
        parameters.append(
            inspect.Parameter(
                one.key,
                inspect.Parameter.KEYWORD_ONLY,
                default=False if is_flag else None,
                annotation=Annotated[kind if is_flag else kind | None, option],
            )
        )
    words = typer.Argument(metavar="FILE | [--] COMMAND...", help="What to submit.")
    parameters.append(
        inspect.Parameter(
            "words",
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[list[str] | None, words],
        )
    )

    def submit(**given: Any) -> None:
        pass

    submit.__doc__ = submission.HELP
    submit.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return submit


class SubmitCommand(CommandOfApplication):
    """`slotwise submit`: its help and completion; `slotwise.cli.submit` parses the words."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Keep the words for `invoke`, unless the help or a completion is asked for."""
        if ctx.resilient_parsing:
            before = args[: args.index("--")] if "--" in args else args
            return super().parse_args(ctx, before)
        submitted = submission.parse_words(args)
        if submitted is None:
            return super().parse_args(ctx, ["--help"])
        ctx.obj = submitted
        return []

    def invoke(self, ctx: Any) -> None:
        """Submit, and exit with the code."""
        raise typer.Exit(submission.submit(ctx.obj))


COMMANDS = {
    "status": show_status,
    "list": list_jobs,
    "eta": show_etas,
    "what-if": what_if,
    "wait": wait_jobs,
    "cancel": cancel_jobs,
    "hold": hold_jobs,
    "release": release_jobs,
    "priority": set_priority,
    "move": move_job,
    "workers": show_workers,
    "top": show_top,
    "completion": print_completion,
    "slurm-path": print_slurm_path,
}


def add_commands(app: Application) -> None:
    """Add the commands of this module to an application."""
    app.command("submit", cls=SubmitCommand)(_for_help())
    command: Any
    for name, command in COMMANDS.items():
        app.command(name)(command)
    add_user_commands(app)


def main() -> None:
    """Run one of these commands, without the modules of the others."""
    app = Application(
        add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="markdown"
    )
    add_commands(app)
    app()
