"""The commands `slotwise plan`, `simulate`, `run` and `compare`."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from slotwise import __version__, api
from slotwise.cli.application import Application, errors, print_json
from slotwise.cli.commands import (
    explain_log,
    replay_log,
    report_logs,
    show_dataflow,
    show_history,
)
from slotwise.cli.defaults import Defaults, options_stated
from slotwise.cli.logs import show_logs
from slotwise.cli.options import (
    AggregateName,
    OutputOptions,
    Penalty,
    ResourcesText,
    Scheduling,
    SimulationOptions,
    SlotsText,
    grouped,
    objective_asked,
    parse_slots,
)
from slotwise.cli.parsing import Json, Server, parse_resources, seconds_option
from slotwise.cli.pools import pools
from slotwise.cli.resumed import Resumed
from slotwise.cli.run_forecasts import ForecastProgress
from slotwise.cli.serve import serve
from slotwise.cli.service import add_commands
from slotwise.cli.terminal import (
    cluster_left_out,
    results_shown,
    show_defaults,
    show_plan,
    show_unknown,
)
from slotwise.cli.trace import trace
from slotwise.core.errors import InputError
from slotwise.insight.report.progress import Progress
from slotwise.policy.dmrs.planning import PLANNERS
from slotwise.policy.scheduler import ALLOCATORS, SCHEDULERS
from slotwise.results import Plan, TaskPlan
from slotwise.running import checked_names
from slotwise.service.wire import SERVER_VARIABLE
from slotwise.sources import read_source

app = Application(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="""Schedule many jobs on a shared machine or Dask cluster.

    Every result has a proven lower bound.

    A workload file describes the jobs: `slotwise plan --help` shows one.""",
)
app.add_typer(trace, name="trace")
app.add_typer(pools, name="pools")

EXAMPLE = """
A workload file, **jobs.yaml**:

    slotwise: 1
    cluster: {slots: 10}
    jobs:
      - {id: small, phases: [{name: map, work: 40, tasks: 8}]}
      - {id: large, phases: [{name: map, work: 400, tasks: 40, slots_min: 2}]}
"""

File = Annotated[Path, typer.Argument(metavar="FILE", help="A workload file, YAML or JSON.")]
SchedulerName = Annotated[str, typer.Option("--scheduler", help=f"{', '.join(SCHEDULERS)}.")]
Overwrite = Annotated[bool, typer.Option(help="Replace outputs that exist.")]
EmulateHosts = Annotated[
    bool,
    typer.Option(
        "--emulate-hosts",
        help="Emulate the hosts of the workload's cluster on this machine, at their speeds.",
    ),
]
DaskAddress = Annotated[
    str | None,
    typer.Option(
        "--dask",
        metavar="ADDRESS",
        help="Run on the hosts of the Dask cluster with the scheduler at this address.",
    ),
]
DaskSlots = Annotated[
    int | None,
    typer.Option(
        "--dask-slots",
        metavar="COUNT",
        min=1,
        help="Maximum slots of each Dask worker; its other threads stay Dask's.",
    ),
]
History = Annotated[
    Path | None,
    typer.Option(
        metavar="DB",
        help="Estimate programs and hosts by this database of earlier runs, to which live runs"
        " add theirs.",
    ),
]


COLLECTED_FROM = 50_000
"""New objects between searches for cycles. Large workloads have many objects and no cycles."""


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        print(f"slotwise {__version__}")
        raise typer.Exit()


@app.command(name="plan", epilog=EXAMPLE)
def _plan(
    file: File,
    allocator: Annotated[
        str | None, typer.Option(help=f"{', '.join(ALLOCATORS)} [default: flex].")
    ] = None,
    objective: Penalty = None,
    aggregate: AggregateName = None,
    slots: SlotsText = None,
    resources: ResourcesText = None,
    scheduler: Annotated[
        str | None,
        typer.Option(
            help="Instead of an allocator: plan whole tasks on hosts of any speed, for the sum"
            f" of weighted completion times; {', '.join(PLANNERS)}."
        ),
    ] = None,
    budget_seconds: Annotated[
        float | None,
        seconds_option(
            "How long flex, flowflex or dmrs-best may search; the plan then depends on how busy"
            " the machine is.",
            0,
        ),
    ] = None,
    budget_steps: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="How many steps they may search, for the same plan each time [default: by the"
            " number of phases; about a second or less].",
        ),
    ] = None,
    history: History = None,
    as_json: Json = False,
) -> None:
    """Print the malleable schedule of a static problem, its value, lower bound and gap.

    With `--scheduler`: a schedule of whole tasks on hosts of any speed, for jobs with arrival
    times.

    `slotwise plan jobs.yaml --allocator flex --objective tardiness --aggregate max --json`

    `slotwise plan jobs.yaml --scheduler dmrs`
    """
    from slotwise import plans  # Other commands do not need the planners.

    source = read_source(file).with_options(history=history)
    options: dict[str, Any] = {
        "slots": parse_slots(slots),
        "resources": parse_resources(resources),
        "budget_seconds": budget_seconds,
        "budget_steps": budget_steps,
    }
    plan: Plan | TaskPlan
    if scheduler is None:
        aim = objective_asked(source, objective, aggregate)
        plan = plans.plan(
            source,
            "flex" if allocator is None else allocator,
            objective=aim,
            **options,
        )
    elif (allocator, objective, aggregate) != (None, None, None):
        raise InputError(
            "--scheduler places whole tasks for the sum of weighted completion times;"
            " leave out --allocator, --objective and --aggregate"
        )
    else:
        plan = plans.plan_tasks(source, scheduler, **options)
    show_unknown(source)
    if as_json:
        print_json(plan.to_plain())
    else:
        show_plan(plan)


@app.command(name="simulate", epilog=EXAMPLE)
@grouped
def _simulate(
    file: File,
    *,
    scheduler: SchedulerName = "flex",
    slots: SlotsText = None,
    resources: ResourcesText = None,
    history: History = None,
    scheduling: Scheduling,
    truth: SimulationOptions,
    output: OutputOptions,
) -> None:
    """Simulate the workload task by task; the same seed gives the same result.

    `slotwise simulate jobs.yaml --scheduler flex --assigner delay --seed 1 --noise 0.3`
    """
    with results_shown(file, output) as (source, results):
        source = source.with_options(history=history)
        result = api.simulate(
            source,
            scheduler,
            simulation=truth.simulation(),
            slots=parse_slots(slots),
            resources=parse_resources(resources),
            history=history,
            **scheduling.options(source, output.log),
        )
        results.append(result)
        show_unknown(source)


@app.command(name="run")
@grouped
def _run(
    context: typer.Context,
    file: File,
    *,
    scheduler: SchedulerName = "flex",
    slots: SlotsText = None,
    resources: ResourcesText = None,
    emulate_hosts: EmulateHosts = False,
    dask: DaskAddress = None,
    dask_slots: DaskSlots = None,
    overwrite: Overwrite = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Run only what is not done or has changed.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show which jobs would run, and why.")
    ] = False,
    history: History = None,
    server: Server = None,
    scheduling: Scheduling,
    output: OutputOptions,
) -> None:
    """Run the workload in worker processes of this machine, or of a Dask cluster.

    Jobs of stated work sleep. With `--server`, or if SLOTWISE_SERVER is set, a server runs the
    jobs: they are submitted, what they print is shown, and the command waits for their end.

    `slotwise run jobs.yaml --scheduler fair --slots 2 --log run.jsonl --report run.html`

    `slotwise run jobs.yaml --resume`

    `slotwise run jobs.yaml --dask tcp://127.0.0.1:8786`
    """
    if server or os.environ.get(SERVER_VARIABLE):
        from slotwise.cli.server_run import run_on_server

        run_on_server(file, server, options_stated(context), as_json=output.as_json)
    resumed, defaults = (
        Resumed(file, is_wanted=resume, is_local=dask is None),
        Defaults.of(file),
    )
    if dry_run:
        source = read_source(file, is_live=True, defaults=defaults.workload)
        resumed.show_dry_run(source, as_json=output.as_json)
        return
    with results_shown(file, output, defaults) as (source, results):
        stated = options_stated(context)
        if "scheduler" not in stated:
            scheduler = defaults.options.get("scheduler", scheduler)
        scheduling = scheduling.with_defaults(defaults.options, stated)
        options = scheduling.options(source, output.log)
        given, amounts = parse_slots(slots), parse_resources(resources)
        if dask is None and not emulate_hosts:
            given, amounts = defaults.host_for(source, given, amounts)
        note = cluster_left_out(source, emulate_hosts, dask)
        source = source.with_options(overwrite=overwrite)
        with api.resumed(source, resume, options.get("keep"), is_local=dask is None) as (
            left,
            found,
        ):
            if not resumed.show(found):
                return
            show_defaults(defaults)
            with (
                resumed.showing_kept(),
                ForecastProgress(errors(), f"{scheduler}, live", note=note) as progress,
            ):
                options["progress"] = progress
                result = api.run(
                    left,
                    scheduler,
                    slots=given,
                    resources=amounts,
                    emulate_hosts=emulate_hosts,
                    dask=dask,
                    dask_slots=dask_slots,
                    history=history,
                    **options,
                )
            results.append(result)


@app.command(name="compare")
@grouped
def _compare(
    context: typer.Context,
    file: File,
    *,
    schedulers: Annotated[str, typer.Option(help="Their names.")] = "fifo,fair,flex",
    live: Annotated[bool, typer.Option("--live", help="Run on this machine, in turn.")] = False,
    slots: SlotsText = None,
    resources: ResourcesText = None,
    emulate_hosts: EmulateHosts = False,
    overwrite: Overwrite = False,
    history: History = None,
    scheduling: Scheduling,
    truth: SimulationOptions,
    output: OutputOptions,
) -> None:
    """Compare several schedulers on the same workload, with the lower bound.

    With `--live`, programs write to OUTPUT-fifo and so on; logs are named in the same way.

    `slotwise compare jobs.yaml --schedulers fifo,fair,flex --report compare.html`
    """
    defaults = Defaults.of(file) if live else None
    with results_shown(file, output, defaults) as (source, results):
        named = [name.strip() for name in schedulers.split(",") if name.strip()]
        names = checked_names(named)
        if live:
            truth.refuse_live()
        else:
            source = source.with_options(history=history)
        given, amounts = parse_slots(slots), parse_resources(resources)
        if defaults is not None:
            stated = options_stated(context)
            scheduling = scheduling.with_defaults(defaults.options, stated)
            if not emulate_hosts:
                given, amounts = defaults.host_for(source, given, amounts)
            show_defaults(defaults)
        options = scheduling.options(source, output.log)
        titles = [f"{name}, live" for name in names]
        note = cluster_left_out(source, emulate_hosts)
        with Progress(errors(), *titles, note=note) as progress:
            options["progress"] = progress if live else None
            results += api.compare(
                source.with_options(overwrite=overwrite),
                names,
                live=live,
                slots=given,
                resources=amounts,
                emulate_hosts=emulate_hosts,
                simulation=truth.simulation(),
                history=history,
                **options,
            )
        if not live:
            show_unknown(source)


app.command(name="report")(report_logs)
app.command(name="replay")(replay_log)
app.command(name="explain")(explain_log)
app.command(name="serve")(serve)
app.command(name="logs")(show_logs)
app.command(name="show")(show_dataflow)
app.command(name="history")(show_history)
add_commands(app)


def main() -> None:
    """The `slotwise` command, once its modules are loaded."""
    gc.freeze()  # Imported modules stay in memory.
    gc.set_threshold(COLLECTED_FROM)
    app()
