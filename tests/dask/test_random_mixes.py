"""Random mixes of graphs share a Dask cluster while workers are killed and join.

`SLOTWISE_MIX_MINUTES=30 pytest --slow -s -k random_mixes tests/dask` runs them for 30 minutes,
and prints the seed of each. `SLOTWISE_MIX_SEED=7` begins with this one.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from cluster_mixes import run_mix


def test_a_short_random_mix(tmp_path: Path) -> None:
    """Results are right, shares are kept, and nothing is left behind."""
    mix = run_mix(1, 2.0, tmp_path)
    assert mix.observer.tasks > 0


@pytest.mark.slow
def test_random_mixes(tmp_path: Path) -> None:
    """The same, for as many seeds as the time allows."""
    ends = time.monotonic() + 60 * float(os.environ.get("SLOTWISE_MIX_MINUTES", "1"))
    seed = int(os.environ.get("SLOTWISE_MIX_SEED", "100"))
    while time.monotonic() < ends:
        print(f"seed {seed}: ", end="", flush=True)
        mix = run_mix(seed, 6.0, tmp_path)
        print(
            f"{mix.options['scheduler']}, ahead {mix.options['ahead']},"
            f" {mix.observer.tasks} tasks, longest lack {mix.observer.longest_lack:.2f} s,"
            f" {dict(mix.counts)}",
            flush=True,
        )
        seed += 1
