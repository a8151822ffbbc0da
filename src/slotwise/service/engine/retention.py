"""Old jobs are forgotten, with what they printed; old folders of runs are removed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote

from slotwise.backends.attempt_logs import file_name, files_of_job
from slotwise.jobs.transfer import SHARED_MEMORY
from slotwise.jobs.work_folder import sweep, temporary_folder
from slotwise.run_folder import RunFolder
from slotwise.service.engine.engine import Engine
from slotwise.service.store.records import OPEN
from slotwise.service.supervision import supervisor_records

PRUNED_MAX = 10_000
"""The most jobs that are forgotten at once."""


def prune(engine: Engine) -> list[str]:
    """Forget jobs that ended long ago, and those beyond the stated number; their ids."""
    settings = engine.settings
    removed = engine.store.prune(time.time() - settings.keep_days * 86_400, PRUNED_MAX)
    counts = engine.store.counts()
    more = sum(counts.values()) - counts.get(OPEN, 0) - settings.keep_jobs
    if more > 0:
        removed += engine.store.prune(time.time(), min(more, PRUNED_MAX))
    for job in removed:
        forget_output(engine, job)
    _remove_runs(engine)
    return removed


def forget_output(engine: Engine, job: str) -> None:
    """Remove what the tasks of a job have printed."""
    supervisor_records.remove(engine.folder, job)
    for run in engine.folder.glob("runs/*"):
        folder = run / "logs" / file_name(job)
        freed = _remove(file.path for file in files_of_job(folder))
        with suppress(OSError):
            folder.rmdir()
        logs = engine.core.opened.logs
        if freed and logs is not None and logs.folder.parent == run:
            logs.free(freed)


def _remove(paths: Iterable[Path]) -> int:
    """Remove files; the bytes that they had. Those that cannot be removed stay."""
    freed = 0
    for path in list(paths):
        with suppress(OSError):
            size = path.lstat().st_size
            path.unlink()
            freed += size
    return freed


def _remove_runs(engine: Engine) -> None:
    """Remove the folders of earlier starts of the server that hold no output any more."""
    for run in engine.folder.glob("runs/*"):
        if run.name != f"{engine.run:06}" and not any((run / "logs").glob("*")):
            RunFolder(run).remove()


def forget_unknown(engine: Engine) -> None:
    """Remove what jobs that are not in the store have left: the server was killed meanwhile.

    No job may be submitted during this, because its folder is made before it is stored.
    """
    found = supervisor_records.folders(engine.folder)
    for logs in engine.folder.glob("runs/*/logs/"):
        found.update(os.listdir(logs))
    for name in sorted(found.difference(map(file_name, engine.store.ids()) if found else ())):
        forget_output(engine, unquote(name))


def end_left_over(engine: Engine) -> int:
    """End commands of jobs that are over, which a server that was killed has left; how many.

    It also removes what processes that were killed have left.
    It reads the records of all jobs: O(jobs that are kept).
    """
    for root in SHARED_MEMORY, temporary_folder():
        with suppress(OSError):
            sweep(root)
    known = [job.id for job in engine.store.open_jobs()]
    alive = [
        found
        for found in supervisor_records.left_over(engine.folder, known)
        if found.state == "alive" and not engine.is_open(found.job)
    ]
    for found in alive:
        place = supervisor_records.job_folder(engine.folder, found.job)
        supervisor_records.end(found, f"{place}/{found.task}")
    return len(alive)
