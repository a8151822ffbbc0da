"""Who sends a graph, and what the rules, the annotation and Dask's priority make of it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from slotwise.dask.computations import Submitter
from slotwise.dask.options import GateOptions, client_name
from slotwise.model.errors import InputError

logger = logging.getLogger("slotwise.dask")


def submitter_of(
    options: GateOptions,
    client: str,
    annotation: Mapping[str, Any],
    address: str,
    priority: float,
) -> Submitter:
    """The properties of the job of a graph.

    An annotation that is wrong counts as none, with a warning. A `priority` of Dask above 0 is
    "very_high", and one below 0 "very_low", unless the annotation states one.
    """
    submitter = _stated(options, client, annotation, address)
    if priority and submitter.priority == "normal":
        return replace(submitter, priority="very_high" if priority > 0 else "very_low")
    return submitter


def _stated(
    options: GateOptions, client: str, annotation: Mapping[str, Any], address: str
) -> Submitter:
    try:
        return options.submitter(client, annotation, address)
    except InputError as error:
        logger.warning("client %s: %s; it is ignored", client, error)
    try:
        return options.submitter(client, {}, address)
    except InputError:
        return Submitter(client_name(client))
