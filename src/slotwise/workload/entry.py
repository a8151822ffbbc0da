"""What all entries of a workload file share: the types of values, and strict validation."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from slotwise.model.cluster import MAX_SLOTS
from slotwise.model.typed import MAX_NUMBER, MAX_TIME, MIN_NUMBER


def _not_minute(value: float) -> float:
    if value < MIN_NUMBER:
        raise ValueError(f"give a number >= {MIN_NUMBER}")
    return value


def _source_of_hosts(value: str) -> str:
    if value in ("auto", "moosefs") or value.startswith(("webhdfs://", "swebhdfs://")):
        return value
    raise ValueError(
        "give auto, moosefs, webhdfs://namenode:9870, or lists of hosts by path, in braces { }"
    )


_NO_CONTROLS = r"^[^\x00-\x1f\x7f-\x9f]*$"

Word = Annotated[str, Field(max_length=100_000, pattern=r"^[^\x00]*$")]
Command = Annotated[str, Field(min_length=1, max_length=100_000, pattern=r"^[^\x00]*$")]
Variable = Annotated[str, Field(pattern=r"^[^\x00=]+$")]
Name = Annotated[str, Field(min_length=1, max_length=200, pattern=_NO_CONTROLS)]
Place = Annotated[str, Field(min_length=1, max_length=4096, pattern=_NO_CONTROLS)]
HostsByPath = dict[Place, Annotated[list[Name], Field(min_length=1)]]
InputHosts = HostsByPath | Annotated[Place, AfterValidator(_source_of_hosts)]
Seconds = Annotated[float, Field(ge=0, le=MAX_TIME)]
Cost = Annotated[float, Field(ge=0, le=MAX_NUMBER)]
Positive = Annotated[float, Field(gt=0, le=MAX_NUMBER), AfterValidator(_not_minute)]
Part = Annotated[float, Field(ge=0, le=1)]
Slots = Annotated[int, Field(ge=1, le=MAX_SLOTS)]
Count = Annotated[int, Field(ge=0, le=MAX_SLOTS)]


class Entry(BaseModel):
    """Common base of all parts of the file: unknown keys and type conversions are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)
