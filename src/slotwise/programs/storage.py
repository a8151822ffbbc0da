"""File systems by path or URL, local or remote. Every error of theirs is an OSError here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fsspec.core import url_to_fs

from slotwise.model.errors import InputError


def file_system(path: str, what: str) -> tuple[Any, str]:
    """The file system of fsspec for a path or URL, and the path within it.

    InputError, naming `what` the path is, for an unknown protocol or a missing package.
    """
    with as_os_errors():
        try:
            return url_to_fs(path)  # type: ignore[no-any-return]
        except (ImportError, ValueError) as error:
            raise InputError(f"{what} {path!r}: {error}") from error


@contextmanager
def as_os_errors() -> Iterator[None]:
    """A context in which errors of the packages behind fsspec become OSErrors.

    The package for S3, for instance, raises its own exceptions if the store cannot be reached,
    or there are no credentials for it.
    """
    try:
        yield
    except (OSError, InputError):
        raise
    except Exception as error:
        package = type(error).__module__.partition(".")[0]
        if package in ("builtins", "slotwise"):
            raise
        raise OSError(f"{type(error).__name__}: {error}") from error
