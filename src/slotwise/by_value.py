"""Pickles for other processes, which cannot import what is in `__main__`: code is sent, too."""

from __future__ import annotations

import functools
import io
import pickle
from collections import ChainMap
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

import cloudpickle

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

PROTOCOL = 5


def pickled_by_value(
    value: object, take: Callable[[pickle.PickleBuffer], object] | None = None
) -> bytes:
    """The pickle of a value by cloudpickle, which gives large buffers to `take`."""
    with io.BytesIO() as body:
        dump_by_value(value, take, body)
        return body.getvalue()


def dump_by_value(
    value: object,
    take: Callable[[pickle.PickleBuffer], object] | None,
    body: SupportsWrite[bytes],
) -> None:
    """Write this pickle to a file, or to what takes the pieces of one."""
    _Pickler(body, protocol=PROTOCOL, buffer_callback=take).dump(value)


def _cached_again(parameters: dict[str, Any], function: Callable[..., Any]) -> object:
    """A function with an empty cache."""
    return functools.lru_cache(**parameters)(function)


def _reduced(cached: functools._lru_cache_wrapper[Any]) -> str | tuple[Any, ...]:
    """How a function with a cache is sent: by name if it can be imported elsewhere.

    cloudpickle sends it by name in any case.
    """
    if cached.__module__ not in {"__main__", *cloudpickle.list_registry_pickle_by_value()}:
        with suppress(pickle.PicklingError, AttributeError):
            pickle.dumps(cached)  # By name, which must lead to this function.
            return cached.__qualname__
    return _cached_again, (cached.cache_parameters(), cached.__wrapped__)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    dispatch_table: ClassVar[Any] = ChainMap(
        {functools._lru_cache_wrapper: _reduced}, cloudpickle.Pickler.dispatch_table
    )
