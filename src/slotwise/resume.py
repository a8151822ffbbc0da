"""Resume: what of a workload file must run again, by its record (`done_record.py`).

A job is up to date if nothing of this has changed, its output exists, and the jobs that it
waits for are up to date and did not run after it. Of an array of commands without an output
only the tasks run that are not done, under the same conditions; of a program or a dataflow,
only the stages.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import stat
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from slotwise import __version__
from slotwise.core.codec import encode_job
from slotwise.core.decisions import Decision
from slotwise.core.dependencies import in_order
from slotwise.core.errors import InputError
from slotwise.core.events import (
    Event,
    JobArrived,
    OutputLost,
    TaskFinished,
    TasksDropped,
    launches,
)
from slotwise.core.job import Job
from slotwise.done_record import DoneRecord, JobRecord, KeptJob, MadeFrom
from slotwise.run_folder import warn_of_state
from slotwise.sources import Source, overwriting
from slotwise.workload.workload import (
    CommandJob,
    DataflowJob,
    Described,
    PhasedJob,
    ProgramJob,
    Workload,
    parts_of,
)

SCHEDULING = (
    *("slots_min", "slots_max", "hosts", "slots", "work", "overwrite", "memory_bytes"),
    *("no_retry", "resources"),
)
"""The settings that change how a job runs, and not what it makes."""

CODE, INPUT, MADE = "file", "input", "made"
"""Kinds of files of a job: code and words of commands, data that it reads, what it makes."""

CODE_SUFFIXES = (
    ".py",
    ".sh",
    ".bash",
    ".pl",
    ".rb",
    ".r",
    ".jl",
    ".js",
    ".sql",
    ".awk",
    ".sed",
)
"""Files with these names, and executable files, are code: no job makes them."""

MAX_SHOWN = 60
"""The most characters of a path in a reason."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a job must run, and why: the first of several reasons.

    kept   its tasks that are done and need not run again
    stages  its stages that are done and need not run again
    """

    job: str
    must_run: bool
    why: str
    kept: tuple[int, ...] = ()
    stages: KeptJob | None = None


class DoneRecorder:
    """A record for the loop: writes down which jobs are completed, and from what.

    The files of a job are examined when it begins. A file that a command names, and that is
    another one when the job ends, is a file that the job makes, unless it is code.
    """

    def __init__(
        self,
        record: DoneRecord,
        source: Source,
        known: Mapping[str, JobRecord],
        kept: Mapping[str, Sequence[int]],
        stages: Mapping[str, KeptJob],
    ) -> None:
        """`known` is the record until now; tasks in `kept` and `stages` do not run again."""
        self._record, self._workload, self._known = record, source.workload, known
        self._kept, self._stages, self._has_begun = kept, stages, False
        self._written = _outputs(source.workload.jobs, source.workload)
        self._entries = {
            entry.id: entry
            for entry in source.workload.jobs
            if isinstance(entry, Job | Described)
        }
        self._arrays = {name for name, entry in self._entries.items() if _is_array(entry)}
        self._made: dict[str, dict[str, str]] = {}
        self._read: dict[str, Collection[str]] = {}
        self._left: Counter[str] = Counter()
        self._has_warned = False

    def planned(self, job: str, files: Collection[str]) -> None:
        """A job has been planned; it reads these files, also those that only its app names."""
        self._read[job] = files

    def __call__(
        self, now: float, events: Sequence[Event], decisions: Sequence[Decision]
    ) -> None:
        """Note the jobs that begin and that were completed in this turn.

        The first turn replaces the record, so a run that is refused leaves it as it is.
        """
        if not self._has_begun:
            self._has_begun = True
            jobs = {
                job: one._replace(tasks={*kept}) if (kept := self._kept.get(job)) else one
                for job, one in self._known.items()
                if job in self._entries
            }
            self._write(lambda: self._record.rewrite(jobs, self._stages))
        for event in events:
            if isinstance(event, TaskFinished):
                job = event.phase.job
                self._left[job] -= 1
                if not self._left[job] and job in self._entries:
                    self._append(JobRecord(self._made_by(job)).to_plain(job))
                elif job in self._arrays:
                    self._append({"job": job, "task": event.task})
            elif isinstance(event, JobArrived):
                phases = event.job.phases
                self._left[event.job.id] = sum(phase.tasks.count for phase in phases)
            elif isinstance(event, OutputLost):
                self._left[event.phase.job] += len(event.tasks)
            elif isinstance(event, TasksDropped):
                self._left[event.phase.job] -= len(event.tasks)
        for launch in launches(events, decisions):
            if (job := launch.phase.job) not in self._made:
                self._made[job] = self._made_from(job)
                if not self._kept.get(job):  # Else, it continues.
                    self._append(JobRecord(self._made[job], set()).to_plain(job))

    def _made_by(self, job: str) -> MadeFrom:
        """What a job was made from that has just been completed, and what it has made."""
        entry, before, after = self._entries[job], self._made[job], self._made_from(job)
        if entry.after_each:  # Others may have written its input after it began.
            before = before | {n: one for n, one in after.items() if n.startswith(f"{INPUT} ")}
        made = before | {
            f"{MADE} {path}": version
            for name, version in after.items()
            if before.get(name) != version and (path := _path_of_data(name))
        }
        for name in [name for name in made if f"{MADE} {name.partition(' ')[2]}" in made]:
            if not name.startswith(MADE):
                del made[name]
        return made | {
            f"{MADE} {one}": _version(one) for one in _outputs([entry], self._workload)
        }

    def _append(self, plain: Mapping[str, Any]) -> None:
        self._write(lambda: self._record.append(plain))

    def _write(self, write: Callable[[], None]) -> None:
        try:
            write()
        except OSError as error:
            if not self._has_warned:
                warn_of_state(f"the record of completed jobs is not written: {error.strerror}")
            self._has_warned = True

    def _made_from(self, job: str) -> dict[str, str]:
        made = made_from(self._entries[job], self._workload, self._written)
        read = self._read.get(job, ())
        others = (one for one in read if not any(_is_in(one, to) for to in self._written))
        return made | versions((INPUT, path) for path in others)


def verdicts(
    source: Source,
    known: Mapping[str, JobRecord],
    stages: Mapping[str, KeptJob] | None = None,
) -> list[Verdict]:
    """For each job, whether it must run, each after those that it waits for.

    `stages` are those of jobs that did not complete.
    """
    workload = source.workload
    written = _outputs(workload.jobs, workload)
    found: dict[str, Verdict] = {}
    place = {name: number for number, name in enumerate(known)}
    for entry in in_order([_described(one) for one in workload.jobs]):
        before, record = sorted(entry.predecessors), known.get(entry.id)
        again = [name for name in before if found[name].must_run]
        if record is None:
            found[entry.id] = Verdict(entry.id, True, "not done")
        else:
            why = _why(entry, workload, written, record.made_from)
            later = [one for one in before if place.get(one, -1) > place[entry.id]]
            ran = f"after {later[0]}, which ran again" if later else ""
            if record.tasks is None:
                why = why or (f"after {again[0]}, which runs" if again else ran)
                found[entry.id] = Verdict(entry.id, bool(why), why or "done")
            else:  # It began, and that is all.
                finished = set() if why or later else record.tasks
                kept = _kept(entry, finished, [found[name] for name in before])
                why = f"{len(kept)} of {_count(entry)} tasks are done" if kept else "not done"
                found[entry.id] = Verdict(entry.id, True, why, kept)
        if found[entry.id].must_run and stages and (kept_job := stages.get(entry.id)):
            found[entry.id] = _continued(entry, workload, kept_job, again)
    return list(found.values())


def _kept(
    entry: Job | Described, tasks: set[int], before: Sequence[Verdict]
) -> tuple[int, ...]:
    """The tasks of an unfinished job that need not run again, of those that are done."""
    if not _is_array(entry):
        return ()
    tasks = tasks & {*range(_count(entry))}  # A damaged record may have others.
    for one in before:
        if one.must_run:
            tasks = tasks & {*one.kept} if one.job in entry.after_each else set()
    return tuple(sorted(tasks))[: _count(entry) - 1]  # The end of a task completes the job.


def _continued(
    entry: Job | Described, workload: Workload, kept: KeptJob, again: Sequence[str]
) -> Verdict:
    """The verdict of a job with kept stages, which may not be usable."""
    now = made_from(entry, workload, ())
    why = f"{again[0]} runs" if again else ""
    if not why and kept.made_from.get("slotwise") != __version__:
        why = "another version of slotwise made it"
    before = {name: one for name, one in kept.made_from.items() if name != "slotwise"}
    now = versions(name.partition(" ")[::2] for name in before if " " in name) | now
    many, names = len(kept.stages.stages) > 1, ", ".join(kept.stages.stages)
    if len(names) > MAX_SHOWN:
        names = f"{names[:MAX_SHOWN]}..."
    if why := why or _change(now, before, workload) or kept.stages.damage():
        return Verdict(entry.id, True, f"{names} run{'s' * (not many)} again: {why}")
    tasks = f"{kept.stages.tasks} task{'s' * (kept.stages.tasks != 1)}"
    after = f"resumes after {'stages ' * many}{names} ({tasks} kept)"
    return Verdict(entry.id, True, after, (), kept)


def remaining(
    source: Source, found: Sequence[Verdict], known: Mapping[str, JobRecord]
) -> Source:
    """The source without the jobs that are done; the others replace their earlier output."""
    done = frozenset(one.job for one in found if not one.must_run)
    kept = {one.job: one.kept for one in found if one.kept}
    jobs: list[Any] = []
    for entry in map(_described, source.workload.jobs):
        if entry.id in done:
            continue
        left = replace(entry, after=entry.after - done, after_each=entry.after_each - done)
        if isinstance(left, Described):
            if entry.id in known:  # Else, its output is of another one.
                left = overwriting(left)
            if isinstance(left, CommandJob) and left.id in kept:
                left = replace(left, settings={**left.settings, "done": kept[left.id]})
        jobs.append(left)
    return replace(source, workload=replace(source.workload, jobs=tuple(jobs)))


def made_from(
    entry: Job | Described, workload: Workload, written: Sequence[str]
) -> dict[str, str]:
    """What a job is made from now: its description, and the versions of its files.

    Files in `written`, the outputs of other jobs, are left out. Files that do not exist have an
    empty version.
    """
    found = {"job": _digest(_stated(entry))}
    if isinstance(entry, Job):
        return found
    return found | versions(
        (what, path)
        for what, path in _files(entry, workload)
        if not any(_is_in(path, folder) for folder in written)
    )


def versions(files: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The versions of files, each given with its kind; empty for those that do not exist."""
    return {f"{what} {path}": _version(path) for what, path in files}


def _why(
    entry: Job | Described,
    workload: Workload,
    written: Sequence[str],
    before: MadeFrom,
) -> str:
    """Why a job must run, apart from the jobs that it waits for; empty if it need not."""
    outputs = _outputs([entry], workload)
    for output in outputs:
        if f"{MADE} {output}" in before and "://" not in output and not os.path.isdir(output):
            return f"its output {_short(output, workload)} was removed"
    for output in outputs:
        if before.get(f"{MADE} {output}", _version(output)) != _version(output):
            return f"its output {_short(output, workload)} changed"
    now = made_from(entry, workload, written)
    if isinstance(entry, DataflowJob):  # The record has the files that only its app names.
        names = (name.partition(" ")[::2] for name in before if name.startswith(f"{INPUT} "))
        now = versions(names) | now
    return _change(now, before, workload)


def _change(now: dict[str, str], before: MadeFrom, workload: Workload) -> str:
    """What differs from that from which something was made; empty if nothing does."""
    if now["job"] != before.get("job"):
        return "its description changed"
    for name in sorted(before):
        if name.startswith(MADE):
            path = name.partition(" ")[2]
            now.pop(f"{CODE} {path}", None)
            now[name] = _version(path)
    for name in sorted(now.keys() | before.keys()):
        if now.get(name) != before.get(name):
            what, _, path = name.partition(" ")
            what = "file" if what == MADE else what
            change = "changed" if now.get(name) and before.get(name) else "is new"
            if not now.get(name):
                change = "was removed"
            return f"{what} {_short(path, workload)} {change}"
    return ""


def _is_array(entry: Job | Described) -> bool:
    """Whether done tasks of a job need not run again: its commands print to no output."""
    return isinstance(entry, CommandJob) and not entry.output and _count(entry) > 1


def _count(entry: Job | Described) -> int:
    """The number of tasks of a job of commands; 1 for others."""
    return (entry.settings.get("tasks") or 1) if isinstance(entry, CommandJob) else 1


def _described(entry: Any) -> Job | Described:
    if isinstance(entry, Job | Described):
        return entry
    raise InputError(f"job {entry.job.id!r} is given as an object, which cannot be resumed")


def _stated(entry: Job | Described) -> Any:
    """What a description states of the work, as plain data."""
    if isinstance(entry, Job):
        return encode_job(entry)["phases"]
    if isinstance(entry, PhasedJob):
        return [[one.id, sorted(one.after), _stated(one)] for one in entry.phases]
    settings = {
        name: value
        for name, value in entry.settings.items()
        if name not in SCHEDULING and value not in (None, "")
    }
    if settings.get("tasks") == 1:
        del settings["tasks"]
    what: Any
    if isinstance(entry, CommandJob):
        what = entry.command
    elif isinstance(entry, ProgramJob):
        what = [_name(entry.program), list(entry.inputs)]
    else:
        what = _name(entry.flow)
    return [type(entry).__name__, what, str(entry.output or ""), settings]


def _name(value: Any) -> Any:
    """A program or a dataflow as stated; of an object in Python, only its class."""
    return value if isinstance(value, str | Mapping) else type(value).__qualname__


def _digest(plain: Any) -> str:
    text = json.dumps(plain, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:16]


def _files(entry: Described, workload: Workload) -> Iterator[tuple[str, str]]:
    """The files that a job is made from, each with its kind."""
    folder = workload.folder
    if isinstance(entry, PhasedJob):
        for part in entry.phases:
            yield from _files(part, workload)
        return
    if isinstance(entry, CommandJob):
        cwd = os.path.join(folder, entry.settings.get("cwd") or "")
        for word in _words(entry.command):
            path = os.path.abspath(os.path.join(cwd, word))
            if os.path.isfile(path):
                yield CODE, path
        patterns = entry.settings.get("inputs") or ()
    elif isinstance(entry, ProgramJob):
        yield from _modules(entry.program, folder)
        patterns = entry.inputs
    else:
        flow = entry.flow if isinstance(entry.flow, Mapping) else {"app": entry.flow}
        nodes = flow.get("nodes") or ()
        for code in (flow.get("app"), *(node.get("function") for node in nodes)):
            yield from _modules(code, folder)
        patterns = [one for node in nodes for one in _listed(node.get("inputs"))]
    from slotwise.jobs.formats.files import absolute, find_inputs

    for pattern in _listed(patterns):
        try:
            yield from ((INPUT, file.path) for file in find_inputs([pattern], folder))
        except InputError:
            yield INPUT, absolute(pattern, folder)


def _path_of_data(name: str) -> str:
    """The path of a file that a command names and may have made; empty for others."""
    what, _, path = name.partition(" ")
    is_code = path.lower().endswith(CODE_SUFFIXES) or os.access(path, os.X_OK)
    return path if what == CODE and not is_code else ""


def _listed(patterns: Any) -> Sequence[str]:
    return [patterns] if isinstance(patterns, str) else list(patterns or ())


def _words(command: Any) -> Sequence[str]:
    """The words of a command; those of a string as the shell would split it, if it can be."""
    if not isinstance(command, str):
        return [word for word in command if isinstance(word, str)]
    words = shlex.shlex(command, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    try:
        return list(words)
    except ValueError:
        return command.split()


def _modules(place: Any, folder: Path) -> Iterator[tuple[str, str]]:
    """The file of a place such as "path/file.py:name", and the modules beside it."""
    if isinstance(place, str) and ".py" in place:
        path = os.path.abspath(os.path.join(folder, place.partition(".py")[0] + ".py"))
        beside = {str(one) for one in Path(path).parent.glob("*.py")}
        yield from ((CODE, one) for one in sorted(beside | {path}))


def _version(path: str) -> str:
    """The size and the time of change of a file or of those in a folder; empty without any."""
    if "://" in path:
        return path
    with suppress(OSError):
        status = os.stat(path)
        if not stat.S_ISDIR(status.st_mode):
            return f"{status.st_size} {status.st_mtime_ns}"
        with os.scandir(path) as entries:
            found = sorted(
                (one.name, one.stat().st_size, one.stat().st_mtime_ns) for one in entries
            )
        return _digest(found) if found else ""
    return ""


def _outputs(jobs: Iterable[Any], workload: Workload) -> list[str]:
    """The folders that these jobs write to."""
    parts = (one for entry in jobs if isinstance(entry, Described) for one in parts_of(entry))
    return [folder for one in parts if (folder := _output(one.output, workload))]


def _output(output: object, workload: Workload) -> str:
    if not output or "://" in str(output):
        return str(output or "")
    return os.path.abspath(os.path.join(workload.folder, os.path.expanduser(str(output))))


def _is_in(path: str, folder: str) -> bool:
    return f"{path}/".startswith(f"{folder}/")


def _short(path: str, workload: Workload) -> str:
    """A path relative to the folder of the workload file, if it is in it."""
    folder = os.path.abspath(workload.folder)
    shown = os.path.relpath(path, folder) if _is_in(path, folder) else path
    return shown if len(shown) <= MAX_SHOWN else f"...{shown[-MAX_SHOWN:]}"
