"""The function that worker processes call for each group of a dataflow job."""

from __future__ import annotations

import pickle
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from slotwise.core.errors import InputChanged, RecordError, SlotwiseError
from slotwise.core.tracebacks import format_traceback
from slotwise.jobs.channels.carriers import BrokenChannelError
from slotwise.jobs.channels.ring import SharedRing
from slotwise.jobs.dataflow.ends import Ends, in_order, reader_of, records_written
from slotwise.jobs.dataflow.nodes import Channel, Graph, NodeCopy
from slotwise.jobs.dataflow.place import (
    AllWinners,
    DataflowLayout,
    GroupAttempt,
    Rendezvous,
    Ring,
)
from slotwise.jobs.dataflow.process_group import CAUSE_SECONDS, run_together
from slotwise.jobs.dataflow.stages import StagedGraph
from slotwise.jobs.execution import LostInputError, TaskResult, packed_report
from slotwise.jobs.formats.splits import WHERE
from slotwise.jobs.work_folder import named_file_errors
from slotwise.task import Stopped

CHECK_RECORDS = 64
"""The number of records after which a copy checks whether all its readers have left."""


@dataclass(frozen=True)
class GroupRunner:
    """Runs the groups of a job in worker processes; sent once to each.

    The worker process runs the first node copy of a group, and forked children run the others.
    """

    staged: StagedGraph
    layout: DataflowLayout
    memory_bytes: int

    def __call__(
        self, phase: str, task: int, attempt: int, winners: AllWinners, meeting: Rendezvous
    ) -> bytes:
        """Run one group, and return its packed report.

        Raises the first cause of a failure, with the name of its node.

        Raises LostInputError if files of other groups that it reads are missing or incomplete.
        """
        place = GroupAttempt(
            self.staged, self.layout, self.memory_bytes, phase, task, attempt, winners, meeting
        )
        self.layout.make_attempt_dir(phase, task, attempt)
        try:
            results = self._results(place)
        except BaseException:  # Nothing else removes files on this host while the job runs.
            shutil.rmtree(place.folder, ignore_errors=True)
            raise
        records, size = sum(one.records for one in results), sum(one.bytes for one in results)
        return packed_report(TaskResult(records, size, address=self.layout.address))

    def _results(self, place: GroupAttempt) -> list[TaskResult]:
        """Run all nodes of a group."""
        rings = place.rings()
        bodies = {f"node {c}": partial(run_copy, place, c, rings) for c in place.group}
        try:
            if len(bodies) > 1:
                return [one for one in run_together(bodies) if isinstance(one, TaskResult)]
            return [run_copy(place, place.group[0], rings)]
        except BrokenChannelError as error:
            # The cause is in another group of the gang. When its failure or the end of its
            # process is known, this group is stopped.
            time.sleep(CAUSE_SECONDS)
            raise SlotwiseError(error.reason) from None


def _write_all(place: GroupAttempt, copy: NodeCopy, ends: Ends) -> None:
    """Send the records of a node copy."""
    node = place.staged.graph.nodes[copy.node]
    written = records_written(node, copy.copy, ends.inputs)
    if writer := ends.only_writer:
        writer.write_all(record for _, record in written)
        return
    for number, (output, record) in enumerate(written):
        for send in ends.targets[output]:
            send(record)
        if not number % CHECK_RECORDS and not ends.is_wanted:
            break  # Otherwise an infinite stream would never end.


def run_copy(
    place: GroupAttempt, copy: NodeCopy, rings: Mapping[Ring, SharedRing]
) -> TaskResult:
    """Run one node copy: open its channels, send its records, close the channels.

    If it fails, the other ends of its channels get the reason. Errors name the node.
    """
    ends = Ends(place, copy)
    try:
        with named_file_errors(place.layout.folder):
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
    except RecordError as error:  # It names the node already.
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


# Evaluation of a graph in this process, one node copy after another.
#
# It starts no process and uses no channels, so it defines what a graph means: every run of the
# graph writes the same records in the same order. All records are kept in memory.

Records = list[object]


def evaluate(graph: Graph) -> dict[tuple[str, str], list[Records]]:
    """Return the records of each output of each node, by copy: [(node, output)][copy].

    Errors of the user's functions propagate with a note that names the copy of the node.
    """
    found: dict[tuple[str, str], list[Records]] = {}
    for name, node in graph.nodes.items():
        for output in node.outputs:
            found[name, output] = [[] for _ in range(node.copies)]
        streams = [_streams(graph, channel, found) for channel in graph.inputs(name)]
        for copy in range(node.copies):
            try:
                for output, record in records_written(node, copy, [s[copy] for s in streams]):
                    found[name, output][copy].append(record)
            except Exception as error:
                error.add_note(f"in node {NodeCopy(name, copy)}")
                raise
    return found


def _streams(
    graph: Graph, channel: Channel, found: Mapping[tuple[str, str], list[Records]]
) -> list[Records]:
    """Return the records of a channel for each copy of its reader."""
    written = found[channel.writer, channel.output]
    copies = graph.nodes[channel.reader].copies
    streams: list[Records] = [[] for _ in range(copies)]
    for reader in range(copies):
        for writer in graph.writers(channel, reader):
            if channel.route != "hash":
                streams[reader] += written[writer]
    if channel.route == "hash":
        for records in written:
            for record in records:
                streams[reader_of(channel, record, copies)].append(record)
    # Each reader gets copies, as through a channel, so that none sees changes of another.
    return [list(in_order(channel, _copied(channel, records))) for records in streams]


def _copied(channel: Channel, records: Records) -> Records:
    try:
        try:
            body = pickle.dumps(records, protocol=5)
        except Exception:  # As in channels.
            from slotwise.jobs.pickling import pickled_by_value

            body = pickled_by_value(records)
        copies: Records = pickle.loads(body)
    except Exception as error:
        error.add_note(f"in the {channel}; records must be objects that pickle can copy")
        raise
    return copies
