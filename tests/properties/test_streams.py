"""A log that is read line by line gives the same results as its turns in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings

import slotwise
from properties.test_runs import Case, cases, reread
from slotwise.core.log import Log, LogFile, read_log
from slotwise.insight.metrics import MetricsCollector
from slotwise.insight.timeline import timeline_of
from tiers import examples


@given(cases())
@settings(max_examples=examples(8, slow=500))
def test_a_streamed_log_gives_the_same_results(
    run_case: Callable[[Case], object], case: Case
) -> None:
    """Metrics, lower bound, timeline, waits, explanations and replay."""
    log: Log = run_case(case).log
    with TemporaryDirectory() as folder:
        path = Path(folder, "log.jsonl")
        with LogFile(path, log.header) as write:
            for turn in log.turns:
                write(turn.now, turn.events, turn.decisions)
        streamed, kept = read_log(path), reread(log)
        assert (
            MetricsCollector.of_log(streamed).outcome()
            == MetricsCollector.of_log(kept).outcome()
        )
        assert timeline_of(streamed) == timeline_of(kept)
        assert slotwise.explain(path) == slotwise.explain(kept)
        assert slotwise.replay(path) == slotwise.replay(kept)
        middle = kept.turns[len(kept.turns) // 2].now
        for job in case.jobs:
            assert slotwise.explain(path, job.id, middle) == slotwise.explain(
                kept, job.id, middle
            )
