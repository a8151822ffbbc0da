"""Input files: found by path or pattern, opened wherever fsspec can."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import fsspec
from fsspec.core import url_to_fs
from fsspec.utils import infer_compression

from slotwise.model.errors import InputError


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file of input and its size as it was found."""

    path: str
    size_bytes: int

    @property
    def is_compressed(self) -> bool:
        """Whether its name says that it is compressed (.gz, .bz2, .xz, ...)."""
        return infer_compression(self.path) is not None


def absolute(path: str, base_dir: str | Path | None = None) -> str:
    """A local path relative to `base_dir`, made absolute; a URL as it is."""
    if "://" in path or "::" in path:
        return path.removeprefix("file://")
    # A "~" that is nobody's home is an ordinary character.
    return str((Path(base_dir or ".") / os.path.expanduser(path)).absolute())


def find_inputs(patterns: Sequence[str], base_dir: str | Path | None = None) -> list[InputFile]:
    """The files of all patterns, each once, sorted by path within a pattern.

    A pattern is a path, a glob, or a directory, which stands for the files in it whose names do
    not begin with "_" or ".". Raises InputError for a pattern without any file.
    """
    found: dict[str, InputFile] = {}
    for pattern in patterns:
        matches = _matches(absolute(pattern, base_dir))
        if not matches:
            raise InputError(
                f"input {pattern!r}: no file matches; give a path, a directory with files, or a"
                " glob such as 'books/*.txt'"
            )
        found.update((file.path, file) for file in matches)
    return list(found.values())


def open_input(path: str) -> IO[bytes]:
    """Open a file of input for reading; a compressed one is read decompressed."""
    if "://" not in path and infer_compression(path) is None:
        return open(path, "rb")
    return cast("IO[bytes]", fsspec.open(path, "rb", compression="infer").open())


def create_output(path: str) -> IO[bytes]:
    """Create a file of output; its directory is there already."""
    if "://" not in path:
        return open(path, "wb")
    return cast("IO[bytes]", fsspec.open(path, "wb").open())


def _matches(path: str) -> list[InputFile]:
    try:
        fs, inner = url_to_fs(path)
    except (ImportError, ValueError) as error:
        raise InputError(f"input {path!r}: {error}") from error
    try:
        infos = [_info(fs, inner)]
    except FileNotFoundError:
        infos = list(fs.glob(inner, detail=True).values())
    if len(infos) == 1 and infos[0]["type"] == "directory":
        infos = [info for info in fs.ls(inner, detail=True) if _is_visible(info)]
    is_url = "://" in path
    return sorted(
        (
            InputFile(
                fs.unstrip_protocol(info["name"]) if is_url else info["name"], info["size"]
            )
            for info in infos
            if info["type"] == "file"
        ),
        key=lambda file: file.path,
    )


def _info(fs: Any, path: str) -> dict[str, Any]:
    return cast("dict[str, Any]", fs.info(path))


def _is_visible(info: dict[str, Any]) -> bool:
    return not info["name"].rstrip("/").rpartition("/")[2].startswith(("_", "."))
