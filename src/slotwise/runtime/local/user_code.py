"""Code of users that runs in the manager: pickling, and unpickling of results."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import TypeVar

import cloudpickle

from slotwise.by_value.pickling import sent_by_value
from slotwise.runtime.local.worker import pickled, summary

PLAIN = frozenset((type(None), bool, int, float, str, bytes))
"""Types of values whose pickles need no code."""

T = TypeVar("T")


class UserCodeError(Exception):
    """User code that runs in the manager has failed; the text is the error type and message."""


def of_user(call: Callable[[], T]) -> T:
    """The result of a call that runs user code, such as pickling.

    UserCodeError for any exception of that code, even SystemExit. A KeyboardInterrupt is taken
    for that of a signal and is raised, unless a second call raises it again.
    """
    try:
        return call()
    except KeyboardInterrupt as first:
        try:
            call()
        except KeyboardInterrupt as second:
            raise UserCodeError(summary(second)) from None
        except BaseException:
            raise first from None
        raise
    except BaseException as error:
        raise UserCodeError(summary(error)) from None


def pickled_task(value: tuple[str, tuple[object, ...]]) -> bytes:
    """The pickle of a key and of arguments; registered modules are pickled by value."""
    if PLAIN.issuperset(map(type, value[1])):  # Bytes may be a pickle that names `__main__`.
        return pickle.dumps(value, protocol=5)
    if cloudpickle.list_registry_pickle_by_value():
        return sent_by_value(value)
    return pickled(value)
