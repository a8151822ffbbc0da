"""The stages of a MapReduce job: maps, reduces, and what comes before or between them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from slotwise.model.job import Job
from slotwise.model.observation import Sizes
from slotwise.model.shuffle import COPY_KIND
from slotwise.programs.formats.splits import Split, SplitPiece
from slotwise.programs.loading import known_as
from slotwise.programs.mapreduce.layout import COPY_PHASE
from slotwise.programs.mapreduce.tasks import Runner
from slotwise.programs.shuffle.finished_maps import FinishedMaps
from slotwise.programs.shuffle.sources import AsTheyCome, AtOnce, Copied, InPlace, PairSource
from slotwise.programs.staged import AllDone, winners


class MapReduceStages:
    """The phases sample, map, reduce-copy and reduce; a job has those that it needs."""

    def __init__(
        self,
        job: Job,
        runner: Runner,
        splits: Sequence[Split],
        sample: Sequence[SplitPiece],
        sizes: Mapping[str, Sizes],
    ) -> None:
        self.program = known_as(runner.program)
        self.sizes = sizes
        self._job = job.id
        self._layout = runner.layout
        self._splits = splits
        self._sample = tuple(sample)
        self._writes_parts = "reduce" if runner.reducers else "map"
        self._copies_separately = COPY_PHASE in job.by_name
        self._announces_maps = any(p.slow_start < 1 or p.kind == COPY_KIND for p in job.phases)
        self._in_place: InPlace | None = None
        self._finished_maps: FinishedMaps | None = None

    def begin(self) -> None:
        """Create the file of finished maps, if tasks copy from maps as these finish."""
        if self._announces_maps:
            self._finished_maps = FinishedMaps(self._layout.finished_maps)

    def begins_at(self, phase: str, task: int, attempt: int, address: str) -> None:
        """Tasks tell where they ran by their results."""

    def arguments(
        self, phase: str, task: int, attempt: int, done: AllDone
    ) -> tuple[object, ...]:
        """Phase, task, attempt, and the split of a map, source of a reduce, or the sample."""
        if phase == "map":
            points = done["sample"][0].result if "sample" in done else ()
            return (phase, task, attempt, self._splits[task], points)
        if phase == "sample":
            return (phase, task, attempt, self._sample)
        return (phase, task, attempt, self._source(phase, task, done))

    def describe(self, phase: str, task: int) -> str:
        """A description of the task for messages, with the input of a map task."""
        if phase != "map":
            return f"{phase} task {task} of job {self._job}"
        split = self._splits[task]
        # If there are several inputs, an error names the one that was being read.
        several = f"{len(split)} inputs, {split[0].path} to {split[-1].path}"
        what = several if len(split) > 1 else str(split[0])
        return f"map task {task} of job {self._job} ({what})"

    def parts(self, phase: str, task: int) -> Collection[str]:
        """The part of a reduce, or of a map if there are no reduces."""
        return (self._layout.part_name(phase, task),) if phase == self._writes_parts else ()

    def is_intermediate(self, phase: str) -> bool:
        """Map output, and the copies for reduces."""
        return phase not in (self._writes_parts, "sample")

    def finished(self, phase: str, task: int, attempt: int) -> None:
        """Announce a finished map to the tasks that copy."""
        if phase == "map" and self._finished_maps is not None:
            self._finished_maps.tell(task, attempt)

    def lost(self, phase: str, tasks: Collection[int]) -> None:
        """Withdraw maps that were announced."""
        if phase == "map" and self._finished_maps is not None:
            self._finished_maps.withdraw(tasks)
        self._in_place = None

    def unneeded(self, phase: str, task: int) -> Iterable[tuple[str, int]]:
        """The copies for a reduce, when it is done."""
        is_copied = phase == "reduce" and self._copies_separately
        return ((COPY_PHASE, task),) if is_copied else ()

    def _source(self, phase: str, task: int, done: AllDone) -> PairSource:
        """The source from which an attempt of a reduce or a copy task reads map output."""
        if phase == "reduce" and self._copies_separately:
            copied = done[COPY_PHASE][task]
            return Copied(copied.attempt, copied.address)
        maps = len(self._splits)
        if len(done["map"]) < maps:
            return AsTheyCome(maps, phase)
        if self._in_place is None:  # Created once for all reduces.
            self._in_place = InPlace(winners(done["map"], maps))
        return AtOnce(self._in_place) if phase == COPY_PHASE else self._in_place
