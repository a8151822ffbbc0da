"""Pickles for other processes, which cannot import what is in `__main__`: code is sent, too."""

from __future__ import annotations

import functools
import io
import pickle
from collections import ChainMap
from collections.abc import Callable
from typing import Any, ClassVar

import cloudpickle

PROTOCOL = 5


def pickled_by_value(
    value: object, take: Callable[[pickle.PickleBuffer], object] | None = None
) -> bytes:
    """The pickle of a value by cloudpickle, which gives large buffers to `take`."""
    with io.BytesIO() as body:
        _Pickler(body, protocol=PROTOCOL, buffer_callback=take).dump(value)
        return body.getvalue()


def _cached_again(parameters: dict[str, Any], function: Callable[..., Any]) -> object:
    """A function with an empty cache."""
    return functools.lru_cache(**parameters)(function)


def _reduced(cached: functools._lru_cache_wrapper[Any]) -> str | tuple[Any, ...]:
    """How a function with a cache is sent: by name if it can be imported elsewhere.

    cloudpickle sends it by name in any case.
    """
    by_value = {"__main__", *cloudpickle.list_registry_pickle_by_value()}
    if cached.__module__ not in by_value and "<locals>" not in cached.__qualname__:
        return cached.__qualname__
    return _cached_again, (cached.cache_parameters(), cached.__wrapped__)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    dispatch_table: ClassVar[Any] = ChainMap(
        {functools._lru_cache_wrapper: _reduced}, cloudpickle.Pickler.dispatch_table
    )
