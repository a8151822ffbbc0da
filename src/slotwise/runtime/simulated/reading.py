"""Reading input from other hosts: attempts that wait, in their slots, for their block."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from slotwise.model.cluster import Cluster
from slotwise.model.decision import Launch, Locality
from slotwise.model.job import Block, Phase, PhaseId
from slotwise.model.network import Network
from slotwise.runtime.simulated.host_commands import AttemptKey
from slotwise.runtime.simulated.network import FlowNetwork, Traffic

OUTSIDE = ""
"""The source of a block that no host of the cluster holds."""


class Reading:
    """The attempts that read a block over the network now.

    The whole block is read before the task computes, from the nearest copy: one in the rack of
    the reader if there is one. Among several, the host with the fewest outgoing flows at that
    moment is chosen; ties are broken by the seed and the number of the task. A block is read to
    its end also if the host that it comes from leaves meanwhile.
    """

    def __init__(
        self,
        cluster: Cluster,
        network: Network,
        phases: Mapping[PhaseId, Phase],
        seed: int,
        absent: Collection[str] = (),
    ) -> None:
        """`absent` holds the hosts of the cluster that are not there now; it may change."""
        self._flows: FlowNetwork[AttemptKey] = FlowNetwork(cluster, network)
        self._rack_of = cluster.rack_of
        self._phases, self._seed = phases, seed
        self._absent = absent
        self._launches: dict[AttemptKey, Launch] = {}

    def begin(self, now: float, launch: Launch) -> bool:
        """Begin to read the block of an attempt; False if its host has it, or it has none."""
        blocks = self._phases[launch.phase].tasks.blocks
        if launch.locality is Locality.NODE or not blocks:
            return False
        block = blocks[launch.task]
        if not block.size_bytes or launch.host in block.hosts:
            return False
        key = (launch.phase, launch.task, launch.attempt)
        self._launches[key] = launch
        self._flows.start(now, key, self._copy(block, launch), launch.host, block.size_bytes)
        return True

    def next_end(self) -> float | None:
        """When the next attempt has its block if no other reading begins."""
        coming = self._flows.next_end()
        return None if coming is None else coming[0]

    def ended(self, now: float) -> list[Launch]:
        """The attempts that have their block by now, in order of completion."""
        return [self._launches.pop(key) for key in self._flows.advance(now)]

    def has(self, key: AttemptKey) -> bool:
        """Whether an attempt reads now."""
        return key in self._launches

    def give_up(self, now: float, key: AttemptKey) -> bool:
        """Stop the reading of a killed attempt; whether it was still reading."""
        if self._launches.pop(key, None) is None:
            return False
        self._flows.stop(now, key)
        return True

    def traffic(self) -> Traffic:
        """The traffic so far, including partial blocks of killed attempts."""
        return self._flows.traffic()

    def _copy(self, block: Block, launch: Launch) -> str:
        """The host to read from."""
        rack_of = self._rack_of
        hosts = sorted(
            host for host in block.hosts if host in rack_of and host not in self._absent
        )
        rack = rack_of[launch.host]
        near = [host for host in hosts if rack_of[host] == rack] or hosts
        if not near:
            return OUTSIDE
        first = (self._seed + launch.task) % len(near)
        return min(near[first:] + near[:first], key=self._flows.leaving)
