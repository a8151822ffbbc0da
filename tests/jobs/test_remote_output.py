"""Output on a file system that is not local: stores with errors and caches of their own."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from slotwise.core.errors import InputError
from slotwise.jobs import commit
from slotwise.jobs.commit import (
    Layout,
    OutputDirectory,
    check_output,
    check_overwritten,
    place_of,
)
from slotwise.jobs.formats import files
from slotwise.jobs.formats.files import create_output, find_inputs

WORK = "slotwise-0123456789abcdef"
PARTS = [f"part-r-{number:05}" for number in range(40)]


class StoreError(Exception):
    """An error of the package of a store, which is no OSError."""


class Store:
    """What is patched into the file system in memory: a failing method, a cached listing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch
        self.fs = MemoryFileSystem()

    def fails(self, method: str, path: str = "", raises: type[Exception] = StoreError) -> None:
        """Calls of a method for paths with this end raise an error."""
        real = getattr(MemoryFileSystem, method)

        def failing(fs: Any, first: str, *args: Any, **options: Any) -> Any:
            if first.endswith(path):
                raise raises("no credentials")
            return real(fs, first, *args, **options)

        self._patch.setattr(MemoryFileSystem, method, failing)

    def works(self) -> None:
        """No call fails any more."""
        self._patch.undo()

    def caches(self) -> None:
        """Listings are those of the first time, until the cache is told to be invalid."""
        listed: dict[str, Any] = {}
        real = MemoryFileSystem.ls

        def ls(fs: Any, path: str, detail: bool = True, **options: Any) -> Any:
            if path not in listed:
                listed[path] = real(fs, path, detail=True)
            return listed[path] if detail else [info["name"] for info in listed[path]]

        self._patch.setattr(MemoryFileSystem, "ls", ls)
        self._patch.setattr(
            MemoryFileSystem, "invalidate_cache", lambda fs, path=None: listed.clear()
        )


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """An empty store."""
    made = Store(monkeypatch)
    yield made
    monkeypatch.undo()
    if made.fs.exists("/store"):
        made.fs.rm("/store", recursive=True)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """The paths of a job whose output is in the store."""
    return Layout(str(tmp_path / WORK), "memory://store/out", True)


def opened(layout: Layout, store: Store, *, overwrite: bool = False) -> OutputDirectory:
    """An output with all parts staged."""
    output = OutputDirectory(layout, overwrite, "j", PARTS)
    output.open()
    for name in PARTS:
        store.fs.pipe(layout.staged(name, 0), name.encode())
    return output


def staged(layout: Layout) -> dict[str, str]:
    """The staged file of each part."""
    return {name: layout.staged(name, 0) for name in PARTS}


def names(store: Store) -> list[str]:
    """All files of the store."""
    return sorted(path.removeprefix("/store/out/") for path in store.fs.find("/store"))


@pytest.mark.parametrize("method", ["isfile", "exists", "ls"])
def test_a_store_that_cannot_be_reached_is_bad_input(method: str, store: Store) -> None:
    """It is told with the path, before anything runs."""
    store.fs.pipe("/store/out/x", b"1")
    store.fails(method)
    with pytest.raises(InputError, match=r"'memory://store/out'.*no credentials"):
        check_output("memory://store/out", overwrite=False)
    store.works()
    store.fails("ls")
    with pytest.raises(InputError, match=r"'memory://store/out'.*no credentials"):
        check_overwritten("memory://store/out")
    store.works()
    store.fails("info")
    with pytest.raises(InputError, match=r"'memory://store/in'.*no credentials"):
        find_inputs(["memory://store/in"])


def test_many_parts_move_at_once(
    layout: Layout, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a file system that serves many requests at once. All are there, and nothing else."""
    monkeypatch.setattr(MemoryFileSystem, "async_impl", True)
    for overwrite in (False, True):
        opened(layout, store, overwrite=overwrite).commit(staged(layout))
        assert names(store) == sorted([commit.SUCCESS, *PARTS])
        assert store.fs.cat("/store/out/part-r-00007") == b"part-r-00007"


@pytest.mark.parametrize("at_once", [False, True])
def test_a_commit_that_the_store_interrupts_is_tried_again(
    at_once: bool, layout: Layout, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no _SUCCESS before; the error is an OSError, as those of disks are."""
    output = opened(layout, store)
    store.fails("mv", "part-r-00031")
    monkeypatch.setattr(MemoryFileSystem, "async_impl", at_once)
    with pytest.raises(OSError, match="no credentials"):
        output.commit(staged(layout))
    assert commit.SUCCESS not in names(store)
    store.works()
    output.commit(staged(layout))
    assert names(store) == sorted([commit.SUCCESS, *PARTS])


def test_a_commit_succeeds_though_staged_files_cannot_be_removed(
    layout: Layout, store: Store
) -> None:
    """The next job with this output removes them."""
    output = opened(layout, store)
    store.fails("rm", WORK)
    store.fails("rmdir")
    late = layout.staged(PARTS[0], 1)
    store.fs.pipe(late, b"of an attempt that lost")
    output.commit(staged(layout))
    assert {commit.SUCCESS, *PARTS} < set(names(store))
    store.works()
    opened(layout, store, overwrite=True).commit(staged(layout))
    assert names(store) == sorted([commit.SUCCESS, *PARTS])


def test_an_abort_ends_though_the_store_is_gone(layout: Layout, store: Store) -> None:
    """Other jobs go on; the next job with this output needs no `overwrite`."""
    output = opened(layout, store)
    for method in ("ls", "rm", "rmdir", "rm_file", "exists"):
        store.fails(method)
    output.abort()
    store.works()
    opened(layout, store).commit(staged(layout))
    assert names(store) == sorted([commit.SUCCESS, *PARTS])


def test_files_that_others_write_meanwhile_are_seen(layout: Layout, store: Store) -> None:
    """Although the file system remembers listings: it is the same for all jobs of a process."""
    store.caches()
    store.fs.pipe("/store/else/x", b"1")
    with pytest.raises(FileNotFoundError):
        store.fs.ls("/store/out")
    check_output("memory://store/out", overwrite=False)
    output = opened(layout, store)
    assert store.fs.ls("/store/out", detail=False) == ["/store/out/_temporary"]
    store.fs.pipe("/store/out/part-r-00003", b"mine")
    with pytest.raises(FileExistsError, match="slotwise did not write"):
        output.commit(staged(layout))
    output.abort()
    assert store.fs.cat("/store/out/part-r-00003") == b"mine"


def test_a_store_that_can_only_be_read_fails_the_job(layout: Layout, store: Store) -> None:
    """Its package raises NotImplementedError; other jobs go on."""
    output = opened(layout, store)
    for method in ("mv", "rm", "rm_file", "rmdir"):
        store.fails(method, raises=NotImplementedError)
    with pytest.raises(OSError, match="NotImplementedError"):
        output.commit(staged(layout))
    output.abort()


def test_a_bug_of_slotwise_is_no_error_of_a_store() -> None:
    """It ends the run with its own type."""
    with pytest.raises(AttributeError), files.as_os_errors():
        commit._folders([None])  # type: ignore[list-item]


def test_a_url_of_which_a_package_cannot_make_sense_is_bad_input() -> None:
    """Whatever the package raises; here a TypeError."""
    url = "github://a/b"
    with pytest.raises(InputError, match=f"output '{url}'"):
        check_output(url, overwrite=False)
    with pytest.raises(InputError, match=f"input '{url}'"):
        find_inputs([url])


@pytest.mark.parametrize("output", ["/", "///", "s3://", "memory:///", "://"])
def test_the_root_of_a_file_system_is_no_output(output: str) -> None:
    """Without its slashes it would be a path in the current folder."""
    with pytest.raises(InputError, match="is the root of a file system"):
        place_of(output, "/base")


@pytest.mark.parametrize("output", ["a::b", "simplecache::s3://bucket/out"])
def test_a_chain_of_urls_is_no_output(output: str) -> None:
    """Paths in it cannot be made by appending names."""
    with pytest.raises(InputError, match="joins URLs by '::'"):
        place_of(output, "/base")


def test_a_url_of_the_local_file_system_is_an_output(tmp_path: Path) -> None:
    """`local://` means the same as `file://`."""
    layout = Layout(str(tmp_path / WORK), f"local://{tmp_path}/out", True)
    output = OutputDirectory(layout, False, "j", PARTS[:1])
    output.open()
    with create_output(layout.staged(PARTS[0], 0)) as file:
        file.write(b"1")
    output.commit({PARTS[0]: layout.staged(PARTS[0], 0)})
    assert sorted(os.listdir(tmp_path / "out")) == [commit.SUCCESS, PARTS[0]]


@pytest.mark.parametrize("overwrite", [False, True])
def test_an_output_below_a_file_is_bad_input(
    overwrite: bool, store: Store, tmp_path: Path
) -> None:
    """A disk cannot hold it; a store can, but then lists the file as a folder."""
    store.fs.pipe("/store/in.txt", b"1")
    (tmp_path / "in.txt").write_text("1")
    for place in ("memory://store", str(tmp_path)):
        with pytest.raises(InputError, match=r"is below the file '.*/in\.txt'"):
            check_output(f"{place}/in.txt/more/out", overwrite=overwrite)


def test_what_a_package_says_in_several_lines_is_one_sentence() -> None:
    """An error is told in one line."""
    told = r"^StoreError: Invalid name: too long$"
    with pytest.raises(OSError, match=told), files.as_os_errors():
        exec("raise error('Invalid name:\\n  too long')", {"error": StoreError})


@pytest.mark.parametrize("output", ["x\0y", "s3://bucket/x\0y"])
def test_an_output_with_a_null_character_is_bad_input(output: str) -> None:
    """No file system can hold it."""
    with pytest.raises(InputError, match="has a null character; remove it"):
        place_of(output, "/base")


def test_a_package_that_a_protocol_needs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """fsspec names some of them; others are missing modules."""
    for module in ("pyarrow", "pyarrow.fs"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=r"input 'hdfs://host/a'.*; install .* pyarrow$"):
        files.file_system("hdfs://host/a", "input")


def test_an_error_of_many_lines_is_told_by_its_first_one() -> None:
    """Such as that of HDFS, which lists every place where it has looked for Java."""
    error = OSError("Unable to load libjvm: \nhere: no such file\nthere: no such file\n")
    assert files.reason_of(error) == "Unable to load libjvm"
    assert files.reason_of(OSError(2, "No such file")) == "No such file"
    assert files.reason_of(OSError()) == "OSError"
