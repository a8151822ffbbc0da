"""The options `--resume` and `--dry-run` of `slotwise run`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from slotwise.cli.application import errors, print_json, show_message
from slotwise.done_record import DoneRecord
from slotwise.insight.report.text import printable
from slotwise.results import RunInterrupted
from slotwise.resume import Verdict, verdicts
from slotwise.sources import Source


class Resumed:
    """Shows what a run of a workload file leaves out, because it is done."""

    def __init__(self, file: Path, *, is_wanted: bool, is_local: bool) -> None:
        """Unless it `is_wanted`, all jobs run. Only local runs keep stages of jobs."""
        self._file, self._is_wanted = file, is_wanted
        self._record = DoneRecord(file)
        self._stages = self._record.stages() if is_wanted and is_local else {}

    def show(self, found: Sequence[Verdict]) -> bool:
        """Say which jobs run, and why; whether there are any."""
        if not self._is_wanted:
            return True
        show_message(f"slotwise: {_summary(found)}")
        left = [one for one in found if one.must_run]
        if 0 < len(left) < len(found) or self._stages:
            errors().print(_table(left))
        return bool(left)

    def show_dry_run(self, source: Source, *, as_json: bool) -> None:
        """Print which jobs would run, and why. Nothing is run or written."""
        done = self._record.read() if self._is_wanted else {}
        found = verdicts(source, done, self._stages)
        if as_json:
            print_json(
                {"jobs": [{"id": v.job, "runs": v.must_run, "why": v.why} for v in found]}
            )
            return
        print(_summary(found))
        Console(soft_wrap=True).print(_table(found))

    @contextmanager
    def showing_kept(self) -> Iterator[None]:
        """Say at the end of a run what it has left for the next one with `--resume`, if any."""
        try:
            yield
        except RunInterrupted as stop:
            if self._is_wanted or stop.result.folder is not None:  # Else, nothing is recorded.
                stop.remedy = (
                    f"to continue: slotwise run {shlex.quote(str(self._file))} --resume"
                )
            raise
        finally:
            self._show_kept()

    def _show_kept(self) -> None:
        kept = self._record.stages()
        if kept:
            size = sum(one.stages.bytes for one in kept.values())
            folders = ", ".join(sorted({printable(s.stages.folder) for s in kept.values()}))
            show_message(
                f"slotwise: kept for --resume: stages of {', '.join(map(printable, kept))}"
                f" ({size / 1e6:.1f} MB in {folders}); a run without --resume removes them"
            )


def _summary(found: Sequence[Verdict]) -> str:
    runs, jobs = sum(one.must_run for one in found), len(found)
    if not runs:
        return f"all {jobs} jobs are done, and nothing has changed"
    return f"{jobs - runs} of {jobs} jobs are done; {runs} run{'s' * (runs == 1)}"


def _table(found: Sequence[Verdict]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("job", "", "why"):
        table.add_column(heading, no_wrap=heading != "why")
    for one in found:
        runs = "runs" if one.must_run else ""
        table.add_row(escape(printable(one.job)), runs, escape(printable(one.why)))
    return table
