"""File systems by path or URL, local or remote. Every error of theirs is an OSError here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from traceback import walk_tb
from typing import Any

from fsspec.core import url_to_fs

from slotwise.model.errors import InputError

BUCKETS = frozenset({"abfs", "abfss", "az", "gcs", "gs", "oss", "s3", "s3a"})
"""The protocols of object stores that begin a path with a bucket or container."""


def file_system(path: str, what: str) -> tuple[Any, str]:
    """The file system of fsspec for a path or URL, and the path within it.

    InputError, naming `what` the path is, for an unknown protocol or a missing package.
    """
    with as_os_errors():
        try:
            return url_to_fs(path)  # type: ignore[no-any-return]
        except (ImportError, ValueError) as error:
            package = (getattr(error, "name", None) or "").partition(".")[0]
            remedy = f"; install the package {package}" if package else ""
            raise InputError(f"{what} {path!r}: {error}{remedy}") from error


def missing_bucket(fs: Any, path: str) -> str:
    """The bucket of a path in a store that lacks it: some packages would make the bucket."""
    protocols = [fs.protocol] if isinstance(fs.protocol, str) else fs.protocol
    bucket = path.partition("/")[0]
    return "" if BUCKETS.isdisjoint(protocols) or fs.exists(bucket) else bucket


@contextmanager
def as_os_errors() -> Iterator[None]:
    """A context in which errors of the packages behind fsspec become OSErrors.

    The package for S3, for instance, raises its own exceptions if the store cannot be reached,
    or there are no credentials for it; those that only read raise NotImplementedError. Errors
    that slotwise's own code raises are bugs, and pass.
    """
    try:
        yield
    except (OSError, InputError):
        raise
    except Exception as error:
        if _raised_by(error) == "slotwise":
            raise
        name, text = type(error).__name__, " ".join(str(error).split())
        raise OSError(f"{name}: {text}" if text else name) from error


def reason_of(error: Exception) -> str:
    """What an error says in one line: some packages list all that they have tried."""
    lines = str(getattr(error, "strerror", None) or error).strip().splitlines()
    first = " ".join(lines[0].split()) if lines else type(error).__name__
    return first.rstrip(":;,.") if len(lines) > 1 else first


def _raised_by(error: Exception) -> str:
    """The package whose code raised an error."""
    (frame, _), *_ = reversed(list(walk_tb(error.__traceback__)))
    module: str = frame.f_globals.get("__name__", "")
    return module.partition(".")[0]
