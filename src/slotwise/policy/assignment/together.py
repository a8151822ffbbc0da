"""Where the tasks of a gang start together: near their input first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from slotwise.core.decisions import Launch, Locality
from slotwise.core.phase_state import PhaseState
from slotwise.core.snapshot import Snapshot

Together = Callable[[Snapshot, PhaseState, Mapping[str, int], Locality], Sequence[Launch]]
"""Launches all tasks of a gang on hosts with these free slots, or none.

No task with input on hosts runs farther from it than the given locality.
"""


def near_first(
    snapshot: Snapshot, phase: PhaseState, free: Mapping[str, int], farthest: Locality
) -> Sequence[Launch]:
    """Tasks with few homes choose first; what is left fills the hosts with most free slots.

    Ties are broken by the number of the task and the order of the cluster. Not always as near
    as possible; `Flow` finds that. O(tasks + copies of their input + hosts log hosts).
    """
    position, width = snapshot.cluster.position, phase.width
    hosts = sorted(free, key=lambda host: (-free[host], position[host]))
    room = {host: free[host] // width for host in hosts if free[host] >= width}
    placed: dict[int, tuple[str, Locality]] = {}
    tasks = phase.pending_tasks()
    if phase.has_homes:
        homes = _homes(phase, position)
        tasks = sorted(tasks, key=lambda task: (len(homes.get(task, ())), task))
        for task in tasks:
            near = [host for host in homes.get(task, ()) if room.get(host)]
            if near:
                placed[task] = _take(room, min(near, key=position.__getitem__)), Locality.NODE
        if farthest >= Locality.RACK:
            _place_in_racks(snapshot, tasks, homes, room, placed)
        if farthest < Locality.ANY and any(t not in placed and t in homes for t in tasks):
            return ()
    places = (host for host, count in room.items() for _ in range(count))
    for task in tasks:
        if task not in placed:
            host = next(places, None)
            if host is None:
                return ()
            placed[task] = host, phase.locality(task, host)
    return launches(phase, placed)


def launches(phase: PhaseState, placed: Mapping[int, tuple[str, Locality]]) -> Sequence[Launch]:
    """The launches of tasks on hosts, by number."""
    return [
        Launch(phase.id, task, phase.attempt_of(task), *placed[task]) for task in sorted(placed)
    ]


def _homes(phase: PhaseState, known: Mapping[str, int]) -> dict[int, list[str]]:
    """The hosts of the cluster that hold the input of each pending task, if there are some."""
    names, tasks, hosts = phase.homes.copies()
    homes: dict[int, list[str]] = {}
    for task, host in zip(tasks.tolist(), hosts.tolist(), strict=True):
        if names[host] in known:
            homes.setdefault(task, []).append(names[host])
    return homes


def _place_in_racks(
    snapshot: Snapshot,
    tasks: Sequence[int],
    homes: Mapping[int, Sequence[str]],
    room: dict[str, int],
    placed: dict[int, tuple[str, Locality]],
) -> None:
    """Place tasks that have no room on a home in the rack of one."""
    rack_of = snapshot.cluster.rack_of
    in_rack: dict[str, Iterator[str]] = {}
    for rack in {rack_of[host] for host in room}:
        hosts = [host for host in room if rack_of[host] == rack]
        in_rack[rack] = iter([host for host in hosts for _ in range(room[host])])
    for task in tasks:
        if task not in placed:
            racks = sorted({rack_of[home] for home in homes.get(task, ()) if home in rack_of})
            found = (host for rack in racks for host in in_rack.get(rack, ()))
            if (host := next(found, None)) is not None:
                placed[task] = _take(room, host), Locality.RACK


def _take(room: dict[str, int], host: str) -> str:
    room[host] -= 1
    return host
