"""The steady share of pools: what each would get if all could use all slots."""

from __future__ import annotations

from collections import Counter

from slotwise.core.cluster import Cluster
from slotwise.core.pools import PoolTree, ShareKey
from slotwise.policy.allocator import Claims
from slotwise.policy.claims import group_by_shares
from slotwise.policy.fair import share_by_pools


def steady_shares(
    pools: PoolTree, capacity: int, kind: str, cluster: Cluster
) -> dict[ShareKey, float]:
    """The share of each pool if all could use all slots for phases of a kind, under FAIR.

    This is the steady fair share of Hadoop; a number for several kinds counts whole for each.
    """
    paths = [pools.shares(name, kind) for name in pools if name not in pools.inner]
    group, groups = group_by_shares(paths, pools)
    ones, zeros = [1.0] * len(paths), [0.0] * len(paths)
    most = [float(capacity)] * len(paths)
    claims = Claims(capacity, ones, zeros, (), zeros, most, group, groups, (), cluster)
    steady = Counter[ShareKey]()
    for path, share in zip(paths, share_by_pools(claims), strict=True):
        steady.update(dict.fromkeys(path, share))
    return dict(steady)
