"""Pools from the allocation file of Hadoop's Fair Scheduler, or from Spark's fairscheduler.xml.

A virtual core, a processor of Spark, and a slot of MapReduce are slots. The most memory and
GPUs are limits of these resources. What has no counterpart, such as access, is named.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple
from xml.parsers import expat

from slotwise.core.cluster import ANY_KIND, MAX_SLOTS
from slotwise.core.errors import InputError, shown
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.pools import EVERY_USER, PoolTree, why_closed
from slotwise.core.resources import GPU, MAX_AMOUNT, MEMORY
from slotwise.workload.file import parse_workload
from slotwise.workload.text import read_text
from slotwise.workload.writer import flow_text

WANTED = "an allocation file of Hadoop's Fair Scheduler, or a fairscheduler.xml of Spark"
MAX_DEPTH = 100
"""The deepest nesting of elements that is read."""


@dataclass(frozen=True, slots=True)
class ImportedPools:
    """Keys of a workload file, and what of the allocation file they do not express.

    missing  an element and its place, for each that has no counterpart
    closed   a pool, and why no task may run in it, for each of them: 0 vcores may be meant so
    """

    keys: Mapping[str, Any]
    missing: tuple[str, ...]
    closed: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The keys as YAML, with a line for each pool."""
        lines: list[str] = []
        for key, value in self.keys.items():
            if key == "pools":
                lines += ["pools:", *(f"  - {flow_text(pool)}" for pool in value)]
            else:
                lines.append(f"{key}: {flow_text(value)}")
        return "".join(f"{line}\n" for line in lines)


def read_allocations(path: str | Path) -> ImportedPools:
    """Read an allocation file. InputError with the line, the value and the remedy."""
    try:
        root = _parse(read_text(path, WANTED))
        if root.tag != "allocations":
            raise InputError(f"{root.place} is not <allocations>; name {WANTED}")
        is_of_spark = _is_of_spark(root)
        reader = _AllocationReader(is_of_spark)
        reader.read(root)
        keys = _of_spark(reader.pools) if is_of_spark else reader.keys()
        imported = ImportedPools(keys, tuple(reader.missing))
        pools = _checked(imported)
    except InputError as error:
        raise InputError(f"{path}: {str(error).removeprefix(f'{path}: ')}") from None
    return replace(imported, closed=tuple(_closed(pools)))


def _closed(pools: PoolTree) -> Iterator[str]:
    for name, pool in pools.items():
        kinds = sorted(pool.kinds) or [ANY_KIND]
        job = Job("any", tuple(Phase(kind, Tasks(1), kind) for kind in kinds), pool=name)
        for reason in islice(why_closed(pool, job, None, pools), 1):
            yield f"pool {name!r}, because its {reason}"


def _checked(imported: ImportedPools) -> PoolTree:
    """The pools, as a workload file has them. InputError for those that it cannot have."""
    pools = imported.keys.get("pools", [{"name": "default"}])
    job = {"id": "any", "pool": pools[-1]["name"], "phases": [{"name": "any", "work": 1}]}
    try:
        text = f"slotwise: 1\n{imported.text}jobs: [{flow_text(job)}]\n"
        return PoolTree(parse_workload(text).pools)
    except InputError as error:
        text = _LINE.sub("", str(error))
        text = _POOL.sub(lambda found: f"pool {pools[int(found[1])]['name']!r}", text)
        raise InputError(f"as keys of a workload file: {text}") from None


_POOL = re.compile(r"pools\[(\d+)\](: pool '[^']*')?")
"""A place in the keys of a workload file, which the caller has not written, and its name."""

_LINE = re.compile(r" \(line \d+\)")


# Elements of XML, without entities: these could expand to any size.


@dataclass(slots=True)
class _Element:
    tag: str
    attributes: Mapping[str, str]
    line: int
    text: str = ""
    children: list[_Element] = field(default_factory=list)

    @property
    def place(self) -> str:
        return f"<{self.tag}> (line {self.line})"

    @property
    def name(self) -> str:
        name = self.attributes.get("name", "").strip()
        if not name:
            raise InputError(f"{self.place} has no name; give it the attribute `name`")
        return name


def _parse(text: str) -> _Element:
    parser = expat.ParserCreate()
    top = _Element("", {}, 0)
    open_elements = [top]

    def start(tag: str, attributes: dict[str, str]) -> None:
        if len(open_elements) > MAX_DEPTH:
            line = parser.CurrentLineNumber
            raise InputError(f"line {line}: nested too deeply; remove levels")
        element = _Element(tag, attributes, parser.CurrentLineNumber)
        open_elements[-1].children.append(element)
        open_elements.append(element)

    def read(characters: str) -> None:
        open_elements[-1].text += characters

    def refuse(*doctype: object) -> None:
        raise InputError(f"line {parser.CurrentLineNumber}: a document type; remove it")

    parser.buffer_text = True
    parser.StartElementHandler, parser.CharacterDataHandler = start, read
    parser.EndElementHandler = lambda tag: open_elements.pop()
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        raise InputError(f"not XML: {error}; name {WANTED}") from None
    return top.children[0]


# Values of elements.


def _refused(element: _Element, expected: str) -> InputError:
    text = shown(element.text.strip())
    return InputError(f"{element.place} is {text}; expected {expected}")


def _number(element: _Element) -> float | int:
    try:
        number = float(element.text)
    except ValueError:
        raise _refused(element, "a number") from None
    if not isfinite(number):
        raise _refused(element, "a finite number")
    return int(number) if number.is_integer() else number


def _whole(element: _Element) -> int | None:
    """A whole number; None for one so large that it limits nothing."""
    number = _number(element)
    if not isinstance(number, int):
        raise _refused(element, "a whole number")
    return None if number > MAX_SLOTS else number


def _truth(element: _Element) -> bool:
    text = element.text.strip().lower()
    if text not in ("true", "false"):
        raise _refused(element, "true or false")
    return text == "true"


def _policy(element: _Element) -> str | None:
    """The policy of a name or a class: the fair ones share by weight; None for others."""
    name = element.text.strip().lower().rpartition(".")[2]
    if name in ("fifo", "fifopolicy"):
        return "fifo"
    is_fair = name in ("fair", "fairsharepolicy", "drf", "dominantresourcefairnesspolicy")
    return "fair" if is_fair else None


MEMORY_NAMES = ("mb", "memory-mb", "memory")
"""The names of memory in mebibytes."""

GPU_NAMES = ("yarn.io/gpu",)
"""The names of GPUs."""

_OTHER_SIZE = re.compile(r"[kgtp]i?b?|m(ib?)?|b|bytes?")
"""A unit of memory that Hadoop does not take: it refuses the whole file."""

_AMOUNT = re.compile(
    r"\s*(?:(?P<key>[\w./-]+)\s*=\s*)?"
    r"(?P<number>\d+(?:\.\d+)?)\s*(?P<part>%?)\s*(?P<unit>[a-z]*)\s*"
)


def _part(number: str) -> str | int:
    """A part in percent; that of 0 % is nothing."""
    return f"{number}%" if float(number) else 0


class _Amounts(NamedTuple):
    """Amounts of resources: slots, others that have a counterpart, and the rest as text."""

    slots: int | str | None
    others: dict[str, int | str]
    rest: list[str]


def _resources(element: _Element, are_limits: bool) -> _Amounts:
    """The amounts of `4 vcores, 8192 mb`, `50% cpu, 40% memory` or `vcores=4`.

    Only limits may be of others than slots.
    """
    slots: int | str | None = None
    others: dict[str, int | str] = {}
    rest = []
    for text in element.text.split(","):
        found = _AMOUNT.fullmatch(text.lower())
        if found is None:
            raise _refused(element, "resources such as 8192 mb, 4 vcores")
        of = found["key"] or found["unit"]
        if of in (*MEMORY_NAMES, found["unit"]) and _OTHER_SIZE.fullmatch(found["unit"]):
            raise _refused(element, "memory in mebibytes, as in 8192 mb or memory-mb=8192")
        if found["part"] and are_limits:  # Without a name it is a part of all resources.
            named = {MEMORY: MEMORY_NAMES, GPU: GPU_NAMES}
            limited = [one for one, names in named.items() if of in names or not of]
            if float(found["number"]) <= 100:
                others |= dict.fromkeys(limited, _part(found["number"]))
            if limited and of:
                continue
        is_whole = are_limits and not found["part"] and "." not in found["number"]
        if of in MEMORY_NAMES and is_whole and found["unit"] in ("", "mb"):
            if int(found["number"]) << 20 <= MAX_AMOUNT:  # Else it limits nothing.
                others[MEMORY] = f"{int(found['number'])} MiB"
        elif of in GPU_NAMES and is_whole and not (found["key"] and found["unit"]):
            others[GPU] = int(found["number"])
        elif of not in ("vcores", "vcore", "cpu", ""):
            rest.append(text.strip())
        elif found["part"]:
            slots = _part(found["number"]) if float(found["number"]) <= 100 else None
        else:
            slots = min(int(float(found["number"])), MAX_SLOTS)
    return _Amounts(None if slots == MAX_SLOTS else slots, others, rest)


Key = tuple[str, ...]
"""The path of a key within the keys of a pool."""

VALUES: Mapping[str, tuple[Key, Callable[[_Element], Any]]] = {
    "weight": (("weight",), _number),
    "maxRunningApps": (("jobs_max",), _whole),
    "maxRunningJobs": (("jobs_max",), _whole),
    "schedulingPolicy": (("policy",), _policy),
    "schedulingMode": (("policy",), _policy),
    "minShare": (("slots_min",), _whole),
    "minMaps": (("slots_min", "map"), _whole),
    "minReduces": (("slots_min", "reduce"), _whole),
    "maxMaps": (("slots_max", "map"), _whole),
    "maxReduces": (("slots_max", "reduce"), _whole),
    "minSharePreemptionTimeout": (("preemption", "least_after"), _number),
    "fairSharePreemptionTimeout": (("preemption", "fair_after"), _number),
    "fairSharePreemptionThreshold": (("preemption", "fraction"), _number),
    "allowPreemptionFrom": (("preemptible",), _truth),
}
"""The elements of a queue, or of a pool of MapReduce."""

RESOURCES: Mapping[str, Key] = {
    "minResources": ("slots_min",),
    "maxResources": ("slots_max",),
    "maxChildResources": ("child_defaults", "slots_max"),
}

AT_THE_TOP: Mapping[str, tuple[Key, Callable[[_Element], Any]]] = {
    "userMaxAppsDefault": (("users", EVERY_USER), _whole),
    "userMaxJobsDefault": (("users", EVERY_USER), _whole),
    "queueMaxAppsDefault": (("pool_defaults", "jobs_max"), _whole),
    "poolMaxJobsDefault": (("pool_defaults", "jobs_max"), _whole),
    "defaultQueueSchedulingPolicy": (("pool_defaults", "policy"), _policy),
    "defaultPoolSchedulingMode": (("pool_defaults", "policy"), _policy),
    "defaultMinSharePreemptionTimeout": (("preemption", "least_after"), _number),
    "fairSharePreemptionTimeout": (("preemption", "fair_after"), _number),
    "defaultFairSharePreemptionTimeout": (("preemption", "fair_after"), _number),
    "defaultFairSharePreemptionThreshold": (("preemption", "fraction"), _number),
}


def _put(keys: dict[str, Any], path: Key, value: Any) -> None:
    """Set a value below nested keys."""
    for key in path[:-1]:
        keys = keys.setdefault(key, {})
    keys[path[-1]] = value


# The whole file.


class _AllocationReader:
    """Reads queues of Hadoop, or pools: a tree below `root`.

    pools    the keys of each, each after the one that contains it
    missing  what has no counterpart
    """

    def __init__(self, is_of_spark: bool) -> None:
        self._is_of_spark = is_of_spark
        self.pools: list[dict[str, Any]] = []
        self.missing: list[str] = []
        self._top: dict[str, Any] = {}
        self._root: dict[str, Any] = {}

    def read(self, allocations: _Element) -> None:
        """Read all elements."""
        for element in allocations.children:
            if element.tag in ("queue", "pool") and element.name == "root":
                self._queue(element, "", self._root)
            elif element.tag in ("queue", "pool"):
                self._add(element, "")
            elif element.tag == "user":
                self._user(element)
            elif element.tag == "queueMaxResourcesDefault":
                self._resources(element, ("pool_defaults", "slots_max"), self._top, "")
            elif element.tag in AT_THE_TOP:
                self._value(element, *AT_THE_TOP[element.tag], self._top, "")
            else:
                self._miss(element, "")

    def keys(self) -> dict[str, Any]:
        """The keys of a workload file.

        `root` is a pool only if it has limits, or users have: they count in all pools.
        """
        pools, root = self.pools, self._root
        self._state_max_shares()
        if users := self._top.pop("users", {}):
            root["jobs_max_per_user"] = users
        if root:
            if all(pool["name"] != "default" for pool in pools):
                pools = [*pools, {"name": "default"}]
            for key, none in ("jobs_max", None), ("slots_max", {}), ("resources_max", {}):
                if key in self._top.get("pool_defaults", {}):
                    root.setdefault(key, none)  # The defaults are for the queues in it.
            inside = (pool if "parent" in pool else pool | {"parent": "root"} for pool in pools)
            pools = [{"name": "root", **root}, *inside]
        return {**self._top, **({"pools": pools} if pools else {})}

    def _state_max_shares(self) -> None:
        """State the default max share of queues whose parent has another for new queues.

        In Hadoop, `maxChildResources` is only for queues that are created while it runs.
        """
        default = self._top.get("pool_defaults", {})
        by_name = {pool["name"]: pool for pool in self.pools}
        for pool in self.pools:
            above = by_name.get(pool.get("parent", ""), self._root)
            for key in above.get("child_defaults", {}):
                pool.setdefault(key, default.get(key, {}))
        if "resources_max" not in default and not any(
            "resources_max" in pool.get("child_defaults", {}) for pool in self.pools
        ):
            for keys in (self._root, *self.pools):
                if keys.get("resources_max") == {}:
                    del keys["resources_max"]  # There is no default that it would replace.

    def _add(self, element: _Element, parent: str) -> None:
        name = f"{parent}.{element.name}" if parent else element.name
        keys: dict[str, Any] = {"name": name}
        if parent:
            keys["parent"] = parent
        self.pools.append(keys)
        self._queue(element, name, keys)

    def _queue(self, element: _Element, name: str, keys: dict[str, Any]) -> None:
        for child in element.children:
            if child.tag in ("queue", "pool"):
                self._add(child, name)
            elif child.tag in RESOURCES:
                self._resources(child, RESOURCES[child.tag], keys, element.name)
            elif child.tag in VALUES:
                self._value(child, *VALUES[child.tag], keys, element.name)
            else:
                self._miss(child, element.name)

    def _user(self, element: _Element) -> None:
        for child in element.children:
            if child.tag in ("maxRunningApps", "maxRunningJobs"):
                self._value(child, ("users", element.name), _whole, self._top, element.name)
            else:
                self._miss(child, element.name)

    def _value(
        self,
        element: _Element,
        path: Key,
        read: Callable[[_Element], Any],
        keys: dict[str, Any],
        of: str,
    ) -> None:
        try:
            value = read(element)
        except InputError:
            if not self._is_of_spark:
                raise
            self._miss(element, of, element.text.strip())  # Spark uses the default.
            return
        if value is not None or path[-1] == "jobs_max":  # None: no limit, against a default.
            _put(keys, path, value)
        elif read is _policy:
            self._miss(element, of, element.text.strip())

    def _resources(self, element: _Element, path: Key, keys: dict[str, Any], of: str) -> None:
        found = _resources(element, are_limits=path[-1] == "slots_max")
        if found.slots is not None:
            _put(keys, path, found.slots)
        if path[-1] == "slots_max" and (found.others or path[0] == "slots_max"):
            _put(keys, (*path[:-1], "resources_max"), found.others)
        for text in found.rest:
            self._miss(element, of, text)

    def _miss(self, element: _Element, of: str, value: str = "") -> None:
        what = f"{element.tag} {value}".strip() + (f" of {of}" if of else "")
        self.missing.append(f"{what} (line {element.line})")


# Spark.

OF_SPARK = {"schedulingMode", "weight", "minShare"}
"""All elements of a pool of Spark."""


def _is_of_spark(allocations: _Element) -> bool:
    """Whether there are only pools that have only what those of Spark have."""
    pools = allocations.children
    tags = {child.tag for pool in pools for child in pool.children}
    return bool(pools) and {pool.tag for pool in pools} == {"pool"} and tags <= OF_SPARK


def _of_spark(pools: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The pools of Spark, of which those that state no mode are FIFO, also `default`."""
    found = [{**pool, "policy": pool.get("policy", "fifo")} for pool in pools]
    if all(pool["name"] != "default" for pool in found):
        found.append({"name": "default", "policy": "fifo"})
    return {"pools": found}
