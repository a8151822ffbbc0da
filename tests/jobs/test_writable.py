"""Outputs that no task could write are refused before anything runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.asyn import AsyncFileSystem
from fsspec.implementations.ftp import FTPFileSystem
from fsspec.spec import AbstractFileSystem

import slotwise
from slotwise import InputError
from slotwise.core.cluster import Cluster
from slotwise.jobs import commit
from slotwise.sources import read_source


class Archive(AbstractFileSystem):
    """A file system that can only be read."""

    protocol = "archive-of-tests"

    def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        """It is empty."""
        return []


class Web(AsyncFileSystem):
    """One of those that serve many requests at once, as that for http:// does."""

    protocol = "web-of-tests"

    async def _info(self, path: str, **options: Any) -> dict[str, Any]:
        raise FileNotFoundError(path)


class Bucket(Web):
    """The same, but files can be removed."""

    protocol = "bucket-of-tests"

    async def _rm_file(self, path: str, **options: Any) -> None:
        pass


@pytest.fixture(autouse=True)
def stores() -> None:
    """URLs of the file systems above."""
    for kind in (Archive, Web, Bucket):
        fsspec.register_implementation(kind.protocol, kind, clobber=True)


@pytest.fixture
def nobody() -> Iterator[None]:
    """The test is a user that may not change every folder, also if root runs it."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    yield
    os.seteuid(user)


def refusal(folder: Path, output: str, *, overwrite: bool = False) -> str:
    """Why a job with this output is refused; empty if it is not."""
    (folder / "in.txt").write_text("a b a\n")
    job = slotwise.mapreduce(
        "wordcount", folder / "in.txt", output, id="j", overwrite=overwrite
    )
    try:
        read_source([job]).executions(Cluster.of_slots(1))
    except InputError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("below", ["", "/more/out"])
@pytest.mark.parametrize("target", ["nowhere/at/all", "link"])
def test_a_symbolic_link_that_leads_nowhere(
    tmp_path: Path, target: str, below: str, overwrite: bool
) -> None:
    """Or to itself: the output, or a folder above it."""
    link = tmp_path / "link"
    link.symlink_to(target)
    assert refusal(tmp_path, f"{link}{below}", overwrite=overwrite) == (
        f"job 'j': output '{link}{below}' needs a directory at '{link}', a symbolic link to"
        f" '{target}' that leads to none; correct this, or name another"
    )


def test_a_link_to_a_folder_is_an_output(tmp_path: Path) -> None:
    """It is empty."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert refusal(tmp_path, f"{tmp_path}/link/out") == ""


def test_a_device_is_no_folder() -> None:
    """Neither is a pipe or a socket."""
    assert "needs a directory at '/dev/null', which is not one" in refusal(
        Path("/tmp"), "/dev/null/out"
    )


def test_a_name_is_too_long(tmp_path: Path) -> None:
    """Also if the folder above it does not exist yet; characters may take several bytes."""
    for above in ("", "new/"):
        assert "has a name of 256 bytes" in refusal(tmp_path, f"{tmp_path}/{above}{'é' * 128}")
    assert refusal(tmp_path, f"{tmp_path}/{'x' * 255}") == ""


def test_a_folder_that_the_user_may_not_change(tmp_path: Path, nobody: None) -> None:
    """The message names it."""
    with pytest.raises(InputError, match=r"cannot be written: '/' is not writable"):
        commit.check_writable("a", "/new/out")


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("memory://x/out", "is in the memory of one process, but several processes write it"),
        ("archive-of-tests://x/out", "is in a read-only store; name a directory"),
        ("web-of-tests://x/out", "is in a read-only store; name a directory"),
        ("bucket-of-tests://x/out", ""),
    ],
)
def test_a_store_that_tasks_cannot_write(tmp_path: Path, url: str, reason: str) -> None:
    """It is in the memory of one process, or can only be read."""
    found = refusal(tmp_path, url)
    assert found.startswith(f"job 'j': output '{url}' {reason}" if reason else "")
    assert bool(found) == bool(reason)


def test_a_server_of_files_can_be_written() -> None:
    """Without a connection to it."""
    assert commit._removes_files(FTPFileSystem)
