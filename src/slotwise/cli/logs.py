"""The commands that read logs: `slotwise report`, `replay` and `explain`."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from slotwise import api
from slotwise.cli.options import Json
from slotwise.cli.terminal import exit_codes, print_json
from slotwise.model.errors import InputError
from slotwise.record.log import RULES, following
from slotwise.report.printable import printable
from slotwise.results import Result

LogPath = Annotated[Path, typer.Argument(metavar="LOG", help="A log that --log has written.")]


def report_logs(
    logs: Annotated[list[Path], typer.Argument(metavar="LOG...", help="Logs to show.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The page to write.")],
    pictures: Annotated[bool, typer.Option(help="Also as PNG and SVG, beside it.")] = False,
) -> None:
    """Write a page that works offline from the logs of one or several runs.

    `slotwise report fifo.jsonl flex.jsonl -o report.html --pictures`
    """
    with exit_codes():
        with ExitStack() as stack:
            read = [stack.enter_context(following(log)) for log in logs]
            results = [Result.of_log(log) for log in read]
            written = api.write_report(results, output, pictures=pictures)
        for path in written:
            print(printable(str(path)))


def replay_log(
    log: LogPath,
    as_json: Json = False,
) -> None:
    """Make all decisions of a log again and compare them one by one.

    Exit code 1 if a decision differs.

    `slotwise replay run.jsonl`
    """
    with exit_codes():
        replay = api.replay(log)
        found = replay.difference
        if as_json:
            print_json(
                {
                    "identical": replay.is_identical,
                    "turns": replay.turns,
                    "decisions": replay.decisions,
                    "rules": replay.rules,
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
            if replay.rules != RULES:
                print(
                    f"the log was decided by rules {replay.rules}, and this slotwise decides by"
                    f" rules {RULES}: that alone may be the difference"
                )
        raise typer.Exit(0 if replay.is_identical else 1)


def explain_log(
    log: LogPath,
    at: Annotated[float | None, typer.Option("--at", help="An instant, in seconds.")] = None,
    job: Annotated[str | None, typer.Option("--job", help="A job.")] = None,
    as_json: Json = False,
) -> None:
    """Explain which jobs waited longest for slots, behind which, and what would have helped.

    With `--job`, the waits of this job. With `--at` as well, why it holds its slots at that
    instant: the shares of its pools, what it could use, which jobs hold the slots, and which
    jobs are served before it and after it.

    `slotwise explain run.jsonl`

    `slotwise explain run.jsonl --at 12.5 --job q1`
    """
    from slotwise.analysis.explanation import explanation_lines
    from slotwise.report.explanation import wait_lines

    with exit_codes():
        if at is None:
            waits = api.explain(log, job)
            if as_json:
                print_json({"waits": [wait.to_plain() for wait in waits]})
            else:
                print("\n".join(map(printable, wait_lines(waits))))
            return
        if job is None:
            raise InputError(f"--at {at:g} is given without --job; name the job, too")
        explanation = api.explain(log, job, at)
        if as_json:
            print_json(explanation.to_plain())
        else:
            print("\n".join(map(printable, explanation_lines(explanation))))
