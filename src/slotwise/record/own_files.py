"""Protects files that slotwise has not written from being overwritten."""

from __future__ import annotations

from pathlib import Path

from slotwise.model.errors import InputError


def refuse_foreign(path: str | Path, mark: bytes, place: str) -> None:
    """InputError if the file exists, is not empty, and does not begin with our mark.

    Also if it cannot be read. `place` names the file in the message. Devices and pipes are
    accepted: writing to them loses nothing.
    """
    path, head = Path(path), b""
    try:
        if path.is_file():
            with path.open("rb") as file:
                head = file.read(len(mark))
    except OSError as error:
        raise InputError(f"{place}: {error.strerror}; name another file") from error
    if head and head != mark:
        raise InputError(
            f"{place} exists and was not written by slotwise; name another file, or remove it"
        )
