"""What joins the scripts of `gate.py` to the code of today.

Real is the gate with all that it calls; Dask's scheduler is fake.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from golden.checked import check_log
from golden.fake_scheduler import FakeScheduler, Script, finished
from slotwise.dask import Gate, GateOptions
from slotwise.dask.status import GateStatus


def _run(script: Script, log: Path | None, folder: Path) -> FakeScheduler:
    """Run a script until its end, with or without a log."""
    scheduler = FakeScheduler(script)
    with scheduler.clock.replaced():

        def install(options: Mapping[str, Any]) -> Callable[[], None]:
            given = folder / "gate.yaml"
            given.write_text(json.dumps({"log": log and str(log), **options}))
            gate = Gate(GateOptions.read(given))

            def start() -> None:
                finished(gate.start(scheduler))
                scheduler.plugins["slotwise"] = gate

            return start

        install(script.get("options", {}))()
        for at, what, *given in script["events"]:
            if what == "install":
                scheduler.clock.at(at, install(*given))
            else:
                scheduler.clock.at(at, partial(scheduler.do, what, *given))
        while scheduler.clock.step(script.get("until", 30.0)):
            pass
        gate = scheduler.plugins.get("slotwise")
        if gate is not None:
            assert gate.is_open == script.get("opens", False), "the gate has failed, or has not"
            finished(gate.close())
    return scheduler


def write_log(script: Script, log: Path) -> None:
    """Run a script, and write the log of its gate, which can be replayed."""
    with TemporaryDirectory() as folder:
        _run(script, log, Path(folder))
    check_log(log, str(Path(folder).resolve()), folder)


def write_answers(script: Script, file: Path) -> None:
    """Run a script, and write what the gate says when it is asked: as JSON and as a table."""
    with TemporaryDirectory() as folder:
        said = _run(script, None, Path(folder)).said
    with file.open("w") as out:
        for at, what, answer in said:
            out.write(json.dumps([at, what, answer]) + "\n")
            if what == "status":
                out.write(f"{GateStatus.of_plain(answer)}\n")
