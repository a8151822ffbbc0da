"""The function that worker processes call for each group of a dataflow job."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from slotwise.model.errors import InputChanged, RecordError, SlotwiseError
from slotwise.programs.channels.broken import BrokenChannelError
from slotwise.programs.channels.ring import SharedRing
from slotwise.programs.dataflow.body import records_written
from slotwise.programs.dataflow.ends import Ends
from slotwise.programs.dataflow.layout import DataflowLayout
from slotwise.programs.dataflow.nodes import NodeCopy
from slotwise.programs.dataflow.place import AllWinners, GroupAttempt, Rendezvous, Ring
from slotwise.programs.dataflow.stages import StagedGraph
from slotwise.programs.dataflow.together import CAUSE_SECONDS, run_together
from slotwise.programs.formats.places import WHERE
from slotwise.programs.lost_input import LostInputError
from slotwise.programs.task_result import TaskResult
from slotwise.programs.work_folder import finding
from slotwise.story import format_traceback
from slotwise.task import Stopped

LOOK_RECORDS = 64
"""After so many records a copy looks whether all of its readers have left."""


@dataclass(frozen=True)
class GroupRunner:
    """Runs the groups of a job in worker processes; sent once to each.

    The worker process runs the first node copy of a group, and forked children the others.
    """

    staged: StagedGraph
    layout: DataflowLayout
    memory_bytes: int

    def __call__(
        self, phase: str, task: int, attempt: int, winners: AllWinners, meeting: Rendezvous
    ) -> TaskResult:
        """Run one group; the first cause of a failure is raised, with the name of its node.

        LostInputError if files of other groups that it reads are missing or incomplete.
        """
        place = GroupAttempt(
            self.staged, self.layout, self.memory_bytes, phase, task, attempt, winners, meeting
        )
        self.layout.make_attempt_dir(phase, task, attempt)
        try:
            results = self._results(place)
        except BaseException:  # Nobody else removes files on this host while the job runs.
            shutil.rmtree(place.folder, ignore_errors=True)
            raise
        return TaskResult(
            sum(result.records for result in results),
            sum(result.bytes for result in results),
            address=self.layout.address,
        )

    def _results(self, place: GroupAttempt) -> list[TaskResult]:
        """Run all nodes of a group."""
        rings = place.rings()
        bodies = {f"node {c}": partial(run_copy, place, c, rings) for c in place.group}
        try:
            if len(bodies) > 1:
                return [one for one in run_together(bodies) if isinstance(one, TaskResult)]
            return [run_copy(place, place.group[0], rings)]
        except BrokenChannelError as error:
            # The cause is in another group of the gang. What is known of it first, its failure
            # or the end of its process, stops this one.
            time.sleep(CAUSE_SECONDS)
            raise SlotwiseError(error.reason) from None


def _write_all(place: GroupAttempt, copy: NodeCopy, ends: Ends) -> None:
    """Send what a node copy writes."""
    node = place.staged.graph.nodes[copy.node]
    written = records_written(node, copy.copy, ends.inputs)
    if writer := ends.only_writer:
        writer.write_all(record for _, record in written)
        return
    for number, (output, record) in enumerate(written):
        for send in ends.targets[output]:
            send(record)
        if not number % LOOK_RECORDS and not ends.is_wanted:
            break  # Or a stream without an end would never end.


def run_copy(
    place: GroupAttempt, copy: NodeCopy, rings: Mapping[Ring, SharedRing]
) -> TaskResult:
    """Run one node copy: open its channels, send what it writes, close them.

    If it fails, the other ends of its channels get the reason, and errors name the node.
    """
    ends = Ends(place, copy)
    try:
        with finding(place.layout.folder):
            ends.open(rings)
            _write_all(place, copy, ends)
            ends.close()
    except BrokenChannelError as error:
        ends.fail(error.reason)
        raise
    except (LostInputError, Stopped) as error:
        ends.fail(f"node {copy}: {error}")
        raise
    except SystemExit as error:
        reason = f"node {copy} has called sys.exit({error.code!r}); return from it instead"
        ends.fail(reason)
        raise SlotwiseError(reason) from None
    except RecordError as error:  # It names the node.
        ends.fail(str(error))
        raise
    except SlotwiseError as error:
        ends.fail(f"node {copy}: {error}")
        is_final = type(error) is InputChanged
        raise (InputChanged if is_final else SlotwiseError)(f"node {copy}: {error}") from None
    except BaseException as error:
        known = vars(error)
        known[WHERE] = f"node {copy}, {known[WHERE]}" if WHERE in known else f"node {copy}"
        ends.fail(format_traceback(error))
        raise
    return TaskResult(
        sum(part.rows for part in ends.parts), sum(file.bytes for file in ends.files)
    )
