"""Resume: the record of the completed jobs of a workload file, and what must run again.

The record of each workload file is a file in `done` in the state directory (`run_folder.py`),
with a line for each job that was completed, and what it was made from. A job is up to date if
nothing of this has changed, its output exists, and the jobs that it waits for are up to date.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slotwise import __version__
from slotwise.core.codec import encode_job
from slotwise.core.decisions import Decision, Launch
from slotwise.core.dependencies import in_order
from slotwise.core.errors import InputError
from slotwise.core.events import Event, JobArrived, OutputLost, TaskFinished
from slotwise.core.job import Job
from slotwise.jobs.work_folder import remove_kept
from slotwise.run_folder import state_folder, warn_of_state
from slotwise.sources import Source
from slotwise.workload.workload import CommandJob, Described, ProgramJob, Workload

if TYPE_CHECKING:
    from slotwise.jobs.mapreduce.kept import KeptMaps

MadeFrom = Mapping[str, str]
"""What a job was made from: the digest of its command, and the version of each file."""

SCHEDULING = (
    *("slots_min", "slots_max", "slots", "work", "overwrite", "memory_bytes"),
    "no_retry",
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
    """Whether a job must run, and why: the first of several reasons."""

    job: str
    must_run: bool
    why: str
    kept: KeptStage | None = None
    """What is not done again of a job that runs."""


@dataclass(frozen=True, slots=True)
class KeptStage:
    """The maps of a job that did not complete, and what they were made from."""

    made_from: MadeFrom
    maps: KeptMaps


class DoneRecord:
    """The record of a workload file. Writing it is best effort, like the folder of a run."""

    def __init__(self, file: str | Path) -> None:
        self._file = os.path.realpath(file)
        name = hashlib.sha256(os.fsencode(self._file)).hexdigest()[:32]
        self.path = state_folder() / "done" / f"{name}.jsonl"

    def read(self) -> dict[str, MadeFrom]:
        """What each completed job was made from. Lines that are damaged are left out."""
        found: dict[str, MadeFrom] = {}
        with suppress(OSError), self.path.open(encoding="utf-8") as lines:
            for line in lines:
                with suppress(ValueError, TypeError, KeyError):
                    plain = json.loads(line)
                    made = plain["made_from"]
                    found[plain["job"]] = {str(key): str(made[key]) for key in made}
        return found

    def kept(self) -> dict[str, KeptStage]:
        """The maps of each job that did not complete. Damaged lines are left out."""
        found: dict[str, KeptStage] = {}
        with suppress(OSError), self.path.open(encoding="utf-8") as lines:
            for line in lines:
                with suppress(ValueError, TypeError, KeyError, AttributeError):
                    plain = json.loads(line)
                    if "kept" not in plain:
                        if plain["made_from"] is not None:  # It was completed.
                            found.pop(plain["job"], None)
                        continue
                    from slotwise.jobs.mapreduce.kept import KeptMaps  # Slow to load.

                    made = {str(key): str(one) for key, one in plain["from"].items()}
                    found[str(plain["kept"])] = KeptStage(made, KeptMaps.of(plain["maps"]))
        return found

    def rewrite(
        self, jobs: Mapping[str, MadeFrom], kept: Mapping[str, KeptStage] | None = None
    ) -> None:
        """Replace the record by these completed jobs and kept stages; remove other stages."""
        kept = kept or {}
        stay = {stage.maps.folder for stage in kept.values()}
        for stage in self.kept().values():
            if stage.maps.folder not in stay:
                remove_kept(stage.maps.folder)
        lines = [_line(job, made) for job, made in jobs.items()]
        lines += [_kept_line(job, stage) for job, stage in kept.items()]
        partial = self.path.with_suffix(f".{os.getpid()}")
        try:
            self.path.parent.mkdir(0o700, parents=True, exist_ok=True)
            partial.write_text("".join(lines), "utf-8")
            os.replace(partial, self.path)
        except OSError as error:
            warn_of_state(f"the record of completed jobs is not written: {error.strerror}")

    def append(self, job: str, made: MadeFrom) -> None:
        """Add that a job was completed. Raises OSError."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(_line(job, made))

    def keep(self, job: str, stage: KeptStage) -> None:
        """Add that the maps of a job are done. Raises OSError."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(_kept_line(job, stage))


class DoneRecorder:
    """A record for the loop: writes down which jobs are completed, and from what.

    The files of a job are examined when it begins. A file that a command names, and that is
    another one when the job ends, is a file that the job makes, unless it is code.
    """

    def __init__(
        self,
        record: DoneRecord,
        source: Source,
        done: Mapping[str, MadeFrom],
        kept: Mapping[str, KeptStage],
    ) -> None:
        """`done` are the jobs that do not run now; `kept` has the stages that do not."""
        self._done, self._kept, self._has_begun = done, kept, False
        self._record, self._workload = record, source.workload
        self._written = _outputs(source.workload)
        self._entries = {
            entry.id: entry
            for entry in source.workload.jobs
            if isinstance(entry, Job | Described)
        }
        self._made: dict[str, dict[str, str]] = {}
        self._left: Counter[str] = Counter()
        self._has_failed = False

    def __call__(
        self, now: float, events: Sequence[Event], decisions: Sequence[Decision]
    ) -> None:
        """Note the jobs that begin and that were completed in this turn.

        The first turn replaces the record, so a run that is refused leaves it as it is.
        """
        if not self._has_begun:
            self._has_begun = True
            self._record.rewrite(self._done, self._kept)
        for decision in decisions:
            if isinstance(decision, Launch) and decision.phase.job not in self._made:
                self._made[decision.phase.job] = self._made_from(decision.phase.job)
        for event in events:
            if isinstance(event, TaskFinished):
                job = event.phase.job
                self._left[job] -= 1
                if not self._left[job] and job in self._entries:
                    self._append(job)
            elif isinstance(event, JobArrived):
                phases = event.job.phases
                self._left[event.job.id] = sum(phase.tasks.count for phase in phases)
            elif isinstance(event, OutputLost):
                self._left[event.phase.job] += len(event.tasks)

    def _append(self, job: str) -> None:
        if self._has_failed:
            return
        before, after = self._made[job], self._made_from(job)
        made = before | {
            f"{MADE} {path}": version
            for name, version in after.items()
            if before.get(name) != version and (path := _path_of_data(name))
        }
        for name in [name for name in made if f"{MADE} {name.partition(' ')[2]}" in made]:
            if not name.startswith(MADE):
                del made[name]
        try:
            self._record.append(job, made)
        except OSError as error:
            self._has_failed = True  # One warning is enough.
            warn_of_state(f"the record of completed jobs is not written: {error.strerror}")

    def _made_from(self, job: str) -> dict[str, str]:
        return made_from(self._entries[job], self._workload, self._written)


def verdicts(
    source: Source, done: Mapping[str, MadeFrom], kept: Mapping[str, KeptStage] | None = None
) -> list[Verdict]:
    """For each job, whether it must run, each after those that it waits for.

    `kept` are the stages of jobs that did not complete.
    """
    workload = source.workload
    written = _outputs(workload)
    found: dict[str, Verdict] = {}
    for entry in in_order([_described(one) for one in workload.jobs]):
        again = [name for name in sorted(entry.predecessors) if found[name].must_run]
        why = _why(entry, workload, written, done.get(entry.id))
        if not why and again:
            why = f"after {again[0]}, which runs"
        found[entry.id] = Verdict(entry.id, bool(why), why or "done")
        if why and kept and (stage := kept.get(entry.id)):
            found[entry.id] = _continued(entry, workload, stage, again)
    return list(found.values())


def _continued(
    entry: Job | Described, workload: Workload, stage: KeptStage, again: Sequence[str]
) -> Verdict:
    """The verdict of a job with a kept stage, which may not be usable."""
    now = made_from(entry, workload, ())
    why = f"{again[0]} runs" if again else ""
    if not why and stage.made_from.get("slotwise") != __version__:
        why = "another version of slotwise made it"
    before = {name: one for name, one in stage.made_from.items() if name != "slotwise"}
    if why := why or _change(now, before, workload) or stage.maps.damage():
        return Verdict(entry.id, True, f"map runs again: {why}")
    count = len(stage.maps.maps)
    tasks = f"{count} task{'s' * (count != 1)}"
    return Verdict(entry.id, True, f"resumes after map ({tasks} kept)", stage)


def remaining(source: Source, found: Sequence[Verdict]) -> Source:
    """The source without the jobs that are done; the others replace their earlier output."""
    done = frozenset(one.job for one in found if not one.must_run)
    jobs: list[Any] = []
    for entry in map(_described, source.workload.jobs):
        if entry.id in done:
            continue
        left = replace(entry, after=entry.after - done, after_each=entry.after_each - done)
        if isinstance(left, Described) and left.output:
            left = replace(left, settings={**left.settings, "overwrite": True})
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
    for what, path in _files(entry, workload):
        if not any(_is_in(path, folder) for folder in written):
            found[f"{what} {path}"] = _version(path)
    return found


def _why(
    entry: Job | Described,
    workload: Workload,
    written: Sequence[str],
    before: MadeFrom | None,
) -> str:
    """Why a job must run, apart from the jobs that it waits for; empty if it need not."""
    if before is None:
        return "not done"
    now = made_from(entry, workload, written)
    if why := _change(now, before, workload):
        return why
    output = _output(entry, workload)
    if output and "://" not in output and not os.path.isdir(output):
        return f"its output {_short(output, workload)} was removed"
    return ""


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


def _described(entry: Any) -> Job | Described:
    if isinstance(entry, Job | Described):
        return entry
    raise InputError(f"job {entry.job.id!r} is given as an object, which cannot be resumed")


def _stated(entry: Job | Described) -> Any:
    """What a description states of the work, as plain data."""
    if isinstance(entry, Job):
        return encode_job(entry)["phases"]
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
    try:
        return shlex.split(command, comments=True)
    except ValueError:
        return command.split()


def _modules(place: Any, folder: Path) -> Iterator[tuple[str, str]]:
    """The file of a place such as "path/file.py:name", and the modules beside it."""
    if isinstance(place, str) and ".py" in place:
        path = os.path.abspath(os.path.join(folder, place.partition(".py")[0] + ".py"))
        beside = {str(one) for one in Path(path).parent.glob("*.py")}
        yield from ((CODE, one) for one in sorted(beside | {path}))


def _version(path: str) -> str:
    """The size and the time of change of a file; empty if there is none."""
    if "://" in path:
        return path
    with suppress(OSError):
        status = os.stat(path)
        return f"{status.st_size} {status.st_mtime_ns}"
    return ""


def _outputs(workload: Workload) -> list[str]:
    """The folders that the jobs write to."""
    found = [_output(entry, workload) for entry in workload.jobs]
    return [folder for folder in found if folder]


def _output(entry: Any, workload: Workload) -> str:
    output = entry.output if isinstance(entry, Described) else ""
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


def _kept_line(job: str, stage: KeptStage) -> str:
    plain = {"kept": job, "from": stage.made_from, "maps": stage.maps.plain()}
    return json.dumps(plain, separators=(",", ":")) + "\n"


def _line(job: str, made: MadeFrom) -> str:
    return json.dumps({"job": job, "made_from": made}, separators=(",", ":")) + "\n"
