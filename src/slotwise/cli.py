"""The commands: their options, and the functions of slotwise.api that they call."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slotwise import api
from slotwise.analysis.explain import explain
from slotwise.api import PLAN_SECONDS
from slotwise.experiments.printed import list_figures, show_reproduction, showing_progress
from slotwise.experiments.reproduce import FIGURES, figure_named, reproduce
from slotwise.experiments.reproduction import check_folder
from slotwise.model.errors import InputError
from slotwise.objective.objective import Objective
from slotwise.objective.penalty import PENALTIES
from slotwise.record.log import read_log
from slotwise.report.explanation import explanation_lines
from slotwise.report.page import check_report
from slotwise.report.progress import Progress
from slotwise.results import Result
from slotwise.runtime.simulated.world import Simulation
from slotwise.scheduler import ALLOCATORS, ASSIGNERS, EPOCH_SECONDS
from slotwise.sources import Source, read_source
from slotwise.terminal import door, errors, finish, print_json, show_plan, stop_once
from slotwise.version import __version__

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="""Share a cluster among many jobs; every result has a proven bound beside it.

    A workload file says what jobs there are: `slotwise plan --help` shows one.""",
)

EXAMPLE = """
A workload file, **jobs.yaml**:

    slotwise: 1
    cluster: {slots: 10}
    jobs:
      - {id: small, phases: [{name: map, work: 40, tasks: 8}]}
      - {id: large, phases: [{name: map, work: 400, tasks: 40, slots_min: 2}]}
"""

File = Annotated[Path, typer.Argument(metavar="FILE", help="A workload file, YAML or JSON.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout and nothing else.")]
SchedulerName = Annotated[str, typer.Option("--scheduler", help=f"{', '.join(ALLOCATORS)}.")]
Slots = Annotated[
    int | None,
    typer.Option(min=1, help="Number of slots, instead of the cluster's or all cores."),
]
Penalty = Annotated[
    str | None,
    typer.Option("--objective", help=f"{', '.join(PENALTIES)}; instead of the workload's."),
]
AggregateName = Annotated[str | None, typer.Option("--aggregate", help="sum or max.")]
AssignerName = Annotated[str, typer.Option("--assigner", help=f"{', '.join(ASSIGNERS)}.")]
Waits = Annotated[
    str | None,
    typer.Option(help="Delay scheduling's waits in seconds, for the rack and for any: 5,10."),
]
Epoch = Annotated[float, typer.Option(help="Seconds between decisions on the allocation.")]
Attempts = Annotated[int, typer.Option(min=1, help="How often a task is tried.")]
Budget = Annotated[
    float | None,
    typer.Option("--budget-seconds", min=0, help="How long flex may search at a decision."),
]
LogPath = Annotated[Path | None, typer.Option("--log", help="Write the log here (JSON Lines).")]
ReportPath = Annotated[Path | None, typer.Option("--report", help="Write a page here (HTML).")]
Overwrite = Annotated[bool, typer.Option(help="Replace outputs that exist.")]
Seed = Annotated[int, typer.Option(min=0, help="Same seed, same truth, same log.")]
Noise = Annotated[
    float, typer.Option(min=0, max=10, help="Spread of true durations around the estimates.")
]
RemoteFactor = Annotated[
    float, typer.Option(min=1, help="How much longer a task takes that reads from afar.")
]
RackFactor = Annotated[
    float | None, typer.Option(min=1, help="The same within a rack [default: as afar].")
]


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        with door():
            print(f"slotwise {__version__}")
        raise typer.Exit()


@app.command(name="plan", epilog=EXAMPLE)
def _plan(
    file: File,
    allocator: Annotated[str, typer.Option(help=f"{', '.join(ALLOCATORS)}.")] = "flex",
    objective: Penalty = None,
    aggregate: AggregateName = None,
    slots: Slots = None,
    budget_seconds: Annotated[
        float | None,
        typer.Option(min=0, help=f"How long flex may search [default: {PLAN_SECONDS}]."),
    ] = None,
    budget_steps: Annotated[
        int | None,
        typer.Option(min=0, help="The same as a number of steps, for the same plan each time."),
    ] = None,
    as_json: Json = False,
) -> None:
    """The malleable schedule of a static problem, its value, bound and gap.

    `slotwise plan jobs.yaml --allocator flex --objective tardiness --aggregate max --json`
    """
    with door():
        source = read_source(file)
        aim = _objective(source, objective, aggregate)
        plan = api.plan(
            source,
            allocator,
            objective=aim,
            slots=slots,
            budget_seconds=budget_seconds,
            budget_steps=budget_steps,
        )
        if as_json:
            print_json(plan.to_plain())
        else:
            show_plan(plan)


@app.command(name="simulate", epilog=EXAMPLE)
def _simulate(
    file: File,
    scheduler: SchedulerName = "flex",
    assigner: AssignerName = "greedy",
    seed: Seed = 0,
    noise: Noise = 0.0,
    remote_factor: RemoteFactor = 1.0,
    rack_factor: RackFactor = None,
    waits: Waits = None,
    budget_seconds: Budget = None,
    epoch: Epoch = EPOCH_SECONDS,
    attempts: Attempts = 4,
    objective: Penalty = None,
    aggregate: AggregateName = None,
    slots: Slots = None,
    log: LogPath = None,
    report: ReportPath = None,
    as_json: Json = False,
) -> None:
    """Task by task on the simulated cluster, the same each time for the same seed.

    `slotwise simulate jobs.yaml --scheduler flex --assigner delay --seed 1 --noise 0.3`
    """
    with door():
        source = read_source(file)
        _check_targets(file, log, report)
        result = api.simulate(
            source,
            scheduler,
            simulation=Simulation(seed, noise, remote_factor, rack_factor),
            slots=slots,
            assigner=assigner,
            waits=_waits(waits),
            budget_seconds=budget_seconds,
            epoch_seconds=epoch,
            attempts_max=attempts,
            objective=_objective(source, objective, aggregate),
            log=log,
        )
        finish([result], as_json, report)


@app.command(name="run")
def _run(
    file: File,
    scheduler: SchedulerName = "flex",
    slots: Slots = None,
    assigner: AssignerName = "greedy",
    waits: Waits = None,
    budget_seconds: Budget = None,
    epoch: Epoch = EPOCH_SECONDS,
    attempts: Attempts = 4,
    objective: Penalty = None,
    aggregate: AggregateName = None,
    overwrite: Overwrite = False,
    log: LogPath = None,
    report: ReportPath = None,
    as_json: Json = False,
) -> None:
    """Really, in worker processes of this machine. Jobs of stated work sleep for it.

    `slotwise run jobs.yaml --scheduler fair --slots 2 --log run.jsonl --report run.html`
    """
    with door():
        source = read_source(file)
        _check_targets(file, log, report)
        aim = _objective(source, objective, aggregate)
        with Progress(errors(), f"{scheduler}, live") as progress:
            result = api.run(
                source.overwriting() if overwrite else source,
                scheduler,
                slots=slots,
                assigner=assigner,
                waits=_waits(waits),
                budget_seconds=budget_seconds,
                epoch_seconds=epoch,
                attempts_max=attempts,
                objective=aim,
                log=log,
                progress=progress,
            )
        finish([result], as_json, report)


@app.command(name="compare")
def _compare(
    file: File,
    schedulers: Annotated[str, typer.Option(help="Their names.")] = "fifo,fair,flex",
    live: Annotated[bool, typer.Option("--live", help="Really, one after the other.")] = False,
    assigner: AssignerName = "greedy",
    seed: Seed = 0,
    noise: Noise = 0.0,
    remote_factor: RemoteFactor = 1.0,
    rack_factor: RackFactor = None,
    waits: Waits = None,
    budget_seconds: Budget = None,
    epoch: Epoch = EPOCH_SECONDS,
    attempts: Attempts = 4,
    objective: Penalty = None,
    aggregate: AggregateName = None,
    slots: Slots = None,
    overwrite: Overwrite = False,
    log: LogPath = None,
    report: ReportPath = None,
    as_json: Json = False,
) -> None:
    """The same workload under several schedulers, side by side, with the bound.

    Live, programs write to OUTPUT-fifo and so on; logs are named alike.

    `slotwise compare jobs.yaml --schedulers fifo,fair,flex --report compare.html`
    """
    with door():
        source = read_source(file)
        names = [name.strip() for name in schedulers.split(",") if name.strip()]
        if not names:
            raise InputError("--schedulers is empty; name some, such as fifo,fair,flex")
        _check_targets(file, log, report)
        aim = _objective(source, objective, aggregate)
        with Progress(errors(), *(f"{name}, live" for name in names)) as progress:
            results = api.compare(
                source.overwriting() if overwrite else source,
                names,
                live=live,
                slots=slots,
                simulation=Simulation(seed, noise, remote_factor, rack_factor),
                assigner=assigner,
                waits=_waits(waits),
                budget_seconds=budget_seconds,
                epoch_seconds=epoch,
                attempts_max=attempts,
                objective=aim,
                log=log,
                progress=progress if live else None,
            )
        finish(results, as_json, report)


@app.command(name="report")
def _report(
    logs: Annotated[list[Path], typer.Argument(metavar="LOG...", help="Logs to show.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The page to write.")],
    pictures: Annotated[bool, typer.Option(help="Also as PNG and SVG, beside it.")] = False,
) -> None:
    """One page that works offline, from the logs of one or several runs.

    `slotwise report fifo.jsonl flex.jsonl -o report.html --pictures`
    """
    with door():
        results = [Result.of_log(read_log(log)) for log in logs]
        for path in api.write_report(results, output, pictures=pictures):
            print(path)


@app.command(name="replay")
def _replay(
    log: Annotated[Path, typer.Argument(metavar="LOG", help="A log that --log has written.")],
    as_json: Json = False,
) -> None:
    """Decide everything in a log again and compare, decision by decision.

    Exit code 1 if a decision differs.

    `slotwise replay run.jsonl`
    """
    with door():
        replay = api.replay(log)
        found = replay.difference
        if as_json:
            print_json(
                {
                    "identical": replay.is_identical,
                    "turns": replay.turns,
                    "decisions": replay.decisions,
                    "difference": None
                    if found is None
                    else {
                        "now": found.now,
                        "turn": found.turn,
                        "recorded": repr(found.recorded),
                        "decided": repr(found.decided),
                    },
                }
            )
        elif found is None:
            print(f"identical: {replay.decisions} decisions in {replay.turns} turns")
        else:
            print(f"first difference in turn {found.turn} at {found.now} s:")
            print(f"  recorded: {found.recorded}\n  decided:  {found.decided}")
        raise typer.Exit(0 if replay.is_identical else 1)


@app.command(name="explain")
def _explain(
    log: Annotated[Path, typer.Argument(metavar="LOG", help="A log that --log has written.")],
    at: Annotated[float, typer.Option("--at", help="The instant, in seconds.")],
    job: Annotated[str, typer.Option("--job", help="The job.")],
    as_json: Json = False,
) -> None:
    """Why a job holds the slots that it holds at an instant of a run.

    Its pools' shares, what it could use, who is served before it and after it.

    `slotwise explain run.jsonl --at 12.5 --job q1`
    """
    with door():
        explanation = explain(read_log(log), job, at)
        if as_json:
            print_json(explanation.to_plain())
        else:
            print("\n".join(explanation_lines(explanation)))


@app.command(name="reproduce")
def _reproduce(
    name: Annotated[
        str | None, typer.Argument(metavar="FIGURE", help=f"{', '.join(FIGURES)}.")
    ] = None,
    runs: Annotated[
        int | None,
        typer.Option(min=1, help="Experiments a point; each figure has its own number."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Another seed draws other jobs.")] = 0,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The folder to write into.")
    ] = Path("out/figures"),
    processes: Annotated[int, typer.Option(min=1, help="Worker processes.")] = 2,
    is_list: Annotated[bool, typer.Option("--list", help="List the figures.")] = False,
    as_json: Json = False,
) -> None:
    """Repeat a figure of a paper: its experiments, a table (CSV) and pictures (PNG, SVG).

    `slotwise reproduce flex-5a -o figures`
    """
    with door():
        if is_list:
            list_figures(as_json)
            return
        if name is None:
            raise InputError(f"FIGURE is missing; name one of {', '.join(FIGURES)}")
        figure_named(name)
        check_folder(output)
        with showing_progress(errors(), name) as told:
            reproduction = reproduce(name, runs, seed, processes, told)
        show_reproduction(reproduction, output, as_json)


def main() -> None:
    """The `slotwise` command."""
    stop_once()
    app()


def _objective(source: Source, penalty: str | None, aggregate: str | None) -> Objective | None:
    """The objective that the options ask for; None if they ask for none.

    A penalty alone means its sum, or the makespan, as in Python.
    """
    if penalty is None and aggregate is None:
        return None
    if aggregate is None and penalty is not None:
        return Objective.named(penalty)
    return Objective(penalty or source.workload.objective.penalty, aggregate)  # type: ignore[arg-type]


def _waits(text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    try:
        rack, any_ = (float(part) for part in text.split(","))
    except ValueError as error:
        raise InputError(
            f"--waits is {text!r}; give two numbers of seconds, as in 5,10"
        ) from error
    return rack, any_


def _check_targets(file: Path, log: Path | None, report: Path | None) -> None:
    """Refuse, before anything begins, to write where it cannot be or over the workload."""
    for option, target in (("--log", log), ("--report", report)):
        if target is not None and file.exists() and target.exists() and target.samefile(file):
            raise InputError(f"{option} is the workload file {str(file)!r}; name another file")
    if report is not None:
        check_report(report)
