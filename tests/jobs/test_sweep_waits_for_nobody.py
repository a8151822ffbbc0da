"""A sweep of leftovers passes over the folders of others at once."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from slotwise.jobs.work_folder import WorkFolder, sweep, work_folder_name


def test_a_sweep_does_not_wait_for_the_owners_of_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise each session that is open delays the start of the next one."""
    held = WorkFolder(tmp_path / work_folder_name())
    held.open("long")
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    sweep(tmp_path)
    assert (slept, held.path.exists()) == ([], True)
    held.remove()
