"""Random mixes of graphs share a Dask cluster while workers are killed and join.

`SLOTWISE_MIX_MINUTES=30 pytest --slow -s -k random_mixes tests/dask` runs them for 30 minutes,
and prints the seed of each. `SLOTWISE_MIX_SEED=7` begins with this one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cluster_mixes import run_mix

TESTS = Path(__file__).parents[1]

MAX_SECONDS = 400
"""How long one mix may take on a busy machine."""


@pytest.mark.slow
def test_a_short_random_mix(tmp_path: Path) -> None:
    """Results are right, shares are kept, and nothing is left behind."""
    mix = run_mix(1, 2.0, tmp_path)
    assert mix.observer.tasks > 0


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """Run one mix in a process of its own."""
    command = [sys.executable, "-m", "cluster_mixes", *words]
    return subprocess.run(
        command, cwd=TESTS, timeout=MAX_SECONDS, check=False, capture_output=True, text=True
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("share", "told"), [("slots_min", "has lacked slots"), ("slots_max", "of at most 2")]
)
def test_mixes_notice_a_gate_that_is_not_told_shares(share: str, told: str) -> None:
    """Otherwise they would show nothing."""
    ended = run("504", share)
    assert ended.returncode == 1
    assert told in ended.stderr


@pytest.mark.slow
def test_random_mixes() -> None:
    """The same, for as many seeds as the time allows, each in a process of its own."""
    ends = time.monotonic() + 60 * float(os.environ.get("SLOTWISE_MIX_MINUTES", "1"))
    seed = int(os.environ.get("SLOTWISE_MIX_SEED", "100"))
    while time.monotonic() < ends:
        ended = run(str(seed))
        assert ended.returncode == 0, f"seed {seed}:\n{ended.stdout}\n{_told(ended.stderr)}"
        print(f"seed {seed}: {ended.stdout}", end="", flush=True)
        seed += 1


def _told(text: str) -> str:
    """The end of what a mix said, without what Dask tells at any time."""
    return "\n".join(line for line in text.splitlines() if " - INFO - " not in line)[-20_000:]
