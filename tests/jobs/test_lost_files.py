"""Files between tasks that are missing or cut short: who notices, and what is reported."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import slotwise
from slotwise.core.events import OutputLost, TaskFailed
from slotwise.core.job import Job, Phase, Tasks
from slotwise.jobs import Calls
from slotwise.jobs.blocks import PartitionedReader, PartitionedWriter, is_complete
from slotwise.jobs.calls import Results
from slotwise.jobs.execution import IncompleteFileError, LostInputError
from slotwise.jobs.shuffle.sources import FinishedMaps, finished_maps, finished_so_far
from slotwise.jobs.transfer import exists, get, put
from slotwise.results import Result
from tiers import examples

JOB = Job("j", (Phase("make", Tasks(2)), Phase("join", Tasks(1), after=frozenset({"make"}))))


@given(st.lists(st.binary(max_size=20), max_size=4), st.data())
@settings(max_examples=examples(20, slow=1000))
def test_a_partitioned_file_is_read_whole_or_refused(
    tmp_path_factory: pytest.TempPathFactory, chunks: list[bytes], data: st.DataObject
) -> None:
    """Whatever is cut off its end."""
    path = tmp_path_factory.mktemp("cut") / "pairs"
    with PartitionedWriter(path, 1) as file:
        for chunk in chunks:
            file.append(0, chunk)
    assert is_complete(path)
    assert list(PartitionedReader(path).chunks(0)) == chunks
    content = path.read_bytes()
    path.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
    assert not is_complete(path)
    with pytest.raises(IncompleteFileError):
        PartitionedReader(path)


def test_a_file_that_is_cut_short_while_it_is_read_is_noticed(tmp_path: Path) -> None:
    """Its index is in memory, but a chunk is not there any more."""
    path = tmp_path / "pairs"
    with PartitionedWriter(path, 1) as file:
        file.append(0, b"12345")
    reader = PartitionedReader(path)
    path.write_bytes(b"123")
    with pytest.raises(IncompleteFileError):
        list(reader.chunks(0))


def test_maps_that_are_withdrawn_come_again(tmp_path: Path) -> None:
    """A copier that has copied a map does not copy it again; a later one gets the new one."""
    maps = FinishedMaps(tmp_path / "f")
    maps.announce(0, 1)
    early = finished_maps(tmp_path / "f", 2, lambda seconds: maps.announce(1, 1))
    assert next(early) == (0, 1)
    maps.withdraw([0])
    assert finished_so_far(tmp_path / "f") == {}
    maps.announce(0, 2)
    assert list(early) == [(1, 1)]
    assert list(finished_maps(tmp_path / "f", 2)) == [(0, 2), (1, 1)]
    assert finished_so_far(tmp_path / "f") == {0: 2, 1: 1}


def test_a_copier_waits_for_a_map_that_was_withdrawn(tmp_path: Path) -> None:
    """Until it has finished again."""
    maps = FinishedMaps(tmp_path / "f")
    maps.announce(0, 1)
    maps.withdraw([0])
    assert list(finished_maps(tmp_path / "f", 1, lambda s: maps.announce(0, 2))) == [(0, 2)]


def test_a_large_value_is_loaded_whole_or_refused(tmp_path: Path) -> None:
    """A file that is cut short is noticed before it is mapped."""
    handle = put(bytes(1 << 20), [str(tmp_path)], "value")
    assert exists(handle)
    os.truncate(handle.path, 1 << 19)
    assert not exists(handle)
    with pytest.raises(IncompleteFileError):
        get(handle)
    os.unlink(handle.path)
    assert not exists(handle)
    assert exists(put(7, [str(tmp_path)], "small"))


def made(join: Callable[[int, Results], object]) -> tuple[Calls, Callable[..., object]]:
    """Calls whose first phase is done with large results, and the runner as workers have it."""
    calls = Calls(JOB, {"make": lambda task: bytes(1 << 20), "join": join})
    run: Callable[..., object] = pickle.loads(cloudpickle.dumps(calls.runner))
    for task in (0, 1):
        calls.finished("make", task, 1, run(*calls.arguments("make", task, 1)))
    return calls, run


def careless(task: int, results: Results) -> object:
    """It takes any error for a missing result."""
    try:
        return results["make"][1]
    except BaseException:
        return None


@pytest.mark.parametrize("join", [careless, lambda task, results: results["make"][1]])
def test_a_call_that_misses_results_cannot_hide_it(join: Callable[..., object]) -> None:
    """All that are lost are named, with their attempts, also if the call catches the error."""
    calls, run = made(join)
    for task in (0, 1):
        os.unlink(calls._passed["make"][task].path)
    with pytest.raises(LostInputError) as raised:
        run(*calls.arguments("join", 0, 1))
    assert (raised.value.phase, raised.value.outputs) == ("make", ((0, 1), (1, 1)))
    assert pickle.loads(pickle.dumps(raised.value)).outputs == raised.value.outputs
    calls.close(succeeded=False)


def test_results_in_memory_are_not_lost_with_a_host() -> None:
    """Only those in files are; the others are in the manager."""
    calls, _ = made(lambda task, results: None)
    calls._passed["make"][0] = put("small", (), "")
    assert calls.lose("make", [0, 1]) == [1]
    assert calls.lose("join", [0]) == []
    assert set(calls.results["make"]) == {0}
    calls.close(succeeded=False)


def events_of(result: Result, kind: type) -> list[Any]:
    """All events of a kind."""
    return [
        event for turn in result.log.turns for event in turn.events if isinstance(event, kind)
    ]


def test_the_list_of_all_results_is_written_again() -> None:
    """It is no output of a task, so none is repeated; the call that missed it is."""
    job = Job(
        "j", (Phase("make", Tasks(3)), Phase("join", Tasks(2), after=frozenset({"make"})))
    )
    calls = Calls(
        job, {"make": lambda task: "x" * 200_000, "join": lambda t, r: len(r["make"])}
    )
    arguments, lost = calls.arguments, list[str]()

    def remove(phase: str, task: int, attempt: int) -> tuple[object, ...]:
        given = arguments(phase, task, attempt)
        if phase == "join" and not lost:
            lost.append(calls._given["make"].path)
            os.unlink(lost[0])
        return given

    calls.arguments = remove  # type: ignore[method-assign]
    result = slotwise.run([calls], slots=1)
    assert result.failed == {}
    assert calls.results["join"] == {0: 3, 1: 3}
    assert events_of(result, OutputLost) == []
    (failed,) = events_of(result, TaskFailed)
    assert failed.lost
    assert lost[0] in failed.reason
