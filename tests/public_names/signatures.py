"""Python names as lines of text: kind, signature, members; the same under each Python release.

Annotations are resolved and written with bare names, so that it makes no difference where in
the package a class is defined, or by which alias a module names a type.
"""

from __future__ import annotations

import ast
import inspect
import sys
import types
import typing
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache, cached_property
from typing import Any

WIDTH = 96
"""A signature that is longer has a line for each parameter."""

PROTOCOLS = (
    *("__call__", "__len__", "__bool__", "__contains__", "__getitem__", "__iter__", "__next__"),
    *("__enter__", "__exit__", "__aenter__", "__aexit__", "__await__", "__aiter__"),
    "_repr_html_",
)
"""Methods that are public although their names begin with an underscore."""


class Describer:
    """Describes names; remembers in `reached` the classes of the package that they return."""

    def __init__(self) -> None:
        self.reached: dict[str, type] = {}

    def name(self, title: str, value: Any) -> Iterator[str]:
        """The lines of a name of a module."""
        if inspect.isclass(value):
            yield from self._class(title, value)
        elif inspect.isfunction(value):
            yield from self._signature(f"function {title}", value, namespace(value.__module__))
        elif inspect.ismodule(value):
            yield f"module {title}"
        elif isinstance(value, str | int | float | None) and not title.endswith("__version__"):
            yield f"constant {title} = {value!r}"
        elif typing.get_origin(value) is not None or isinstance(value, types.UnionType):
            yield f"type {title} = {self.type(value)}"
        else:
            yield f"{type(value).__name__} {title}"

    def _class(self, title: str, cls: type) -> Iterator[str]:
        bases = [base.__name__ for base in cls.__mro__[1:] if not _is_ours(base)]
        hidden = (
            "object",
            "Generic",
            "Protocol",
            "ABC",
            "Collection",
            "Reversible",
            "BaseModel",
        )
        shown = [name for name in bases if name not in hidden]
        yield f"{_kind(cls)} {title}" + (f", a {shown[0]}" if shown else "")
        for line in self._members(cls):
            yield f"    {line}"

    def _members(self, cls: type) -> Iterator[str]:
        names: dict[str, Any] = {}
        for base in reversed(cls.__mro__):
            names |= namespace(base.__module__) if _is_ours(base) else {}
        hints = _hints(cls, names)
        attributes = dict(_attributes(cls))
        if issubclass(cls, Enum):
            yield from (f"{one.name} = {one.value!r}" for one in cls)
            return
        if is_dataclass(cls):
            given = [one for one in fields(cls) if not one.name.startswith("_")]
            for one in given:
                by_factory = one.default_factory is not MISSING
                default = " = ..." if by_factory else _default(one.default, MISSING)
                notes = ("" if one.init else "  (not in the constructor)") + (
                    "  (keyword only)" if one.kw_only else ""
                )
                yield f"{one.name}: {self.returned(hints.get(one.name))}{default}{notes}"
                attributes.pop(one.name, None)
        elif hasattr(cls, "_field_defaults"):
            for field in cls._fields:  # type: ignore[attr-defined]
                default = _default(cls._field_defaults.get(field, MISSING), MISSING)
                yield f"{field}: {self.returned(hints.get(field))}{default}"
                attributes.pop(field, None)
        elif "__init__" in attributes and not getattr(cls, "_is_protocol", False):
            yield from self._signature("constructor ", attributes["__init__"], names)
        for name in sorted(_assigned(attributes.get("__init__")) - set(attributes)):
            yield f"{name}  (attribute)"
        for name, value in sorted(attributes.items()):
            if name.startswith("_") and name not in PROTOCOLS:
                continue
            if isinstance(value, property | cached_property):
                get = value.func if isinstance(value, cached_property) else value.fget
                settable = ", can be set" if getattr(value, "fset", None) else ""
                found = self.returned(_hints(get, names).get("return"))
                yield f".{name} -> {found}  (property{settable})"
            elif isinstance(value, classmethod | staticmethod):
                kind = type(value).__name__
                yield from self._signature(f"{kind} .{name}", value.__func__, names)
            elif inspect.isfunction(value):
                yield from self._signature(f".{name}", value, names)
            elif inspect.isclass(value):
                yield from self._class(f".{name}", value)
            elif not inspect.ismemberdescriptor(value):
                typed = f": {self.returned(hints[name])}" if name in hints else ""
                yield f".{name}{typed} = {_shown(value)}"

    def _signature(self, title: str, function: Any, names: dict[str, Any]) -> Iterator[str]:
        function = inspect.unwrap(function)
        hints = _hints(function, names)
        found = inspect.signature(function)
        parts: list[str] = []
        kind_before = None
        for one in found.parameters.values():
            if one.name == "self" or (one.name == "cls" and "classmethod" in title):
                continue
            if one.kind is one.KEYWORD_ONLY and kind_before not in (
                one.KEYWORD_ONLY,
                one.VAR_POSITIONAL,
            ):
                parts.append("*")
            if kind_before is one.POSITIONAL_ONLY and one.kind is not one.POSITIONAL_ONLY:
                parts.append("/")
            kind_before = one.kind
            stars = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
            typed = f": {self.type(hints[one.name])}" if one.name in hints else ""
            parts.append(f"{stars}{one.name}{typed}{_default(one.default, one.empty)}")
        if kind_before is inspect.Parameter.POSITIONAL_ONLY:
            parts.append("/")
        result = "" if title == "constructor " else f" -> {self.returned(hints.get('return'))}"
        prefix = "async " if inspect.iscoroutinefunction(function) else ""
        line = f"{prefix}{title}({', '.join(parts)}){result}"
        if len(line) <= WIDTH:
            yield line
        else:
            yield f"{prefix}{title}("
            yield from (f"    {part}," for part in parts)
            yield f"){result}"

    def returned(self, annotation: Any) -> str:
        """The text of a type that users receive: its classes are reached."""
        for cls in _classes(annotation):
            if _is_ours(cls):
                self.reached[cls.__name__] = cls
        return self.type(annotation)

    def type(self, annotation: Any) -> str:
        """The text of a type."""
        if annotation is None or annotation is types.NoneType:
            return "None"
        if isinstance(annotation, str):
            return annotation
        if isinstance(annotation, list | tuple):
            return f"[{', '.join(map(self.type, annotation))}]"
        if annotation is ...:
            return "..."
        origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
        if origin in (typing.Union, types.UnionType):
            # The order may depend on which module was imported first.
            return " | ".join(
                sorted(map(self.type, parts), key=lambda one: (one == "None", one))
            )
        if origin is typing.Literal:
            return f"Literal[{', '.join(map(repr, parts))}]"
        if origin in (typing.ParamSpecArgs, typing.ParamSpecKwargs):
            return str(annotation)
        name = getattr(annotation, "__name__", None) or getattr(annotation, "_name", None)
        if origin is None:
            return name or str(annotation).removeprefix("typing.")
        head = getattr(origin, "__name__", str(origin))
        if head in ("Annotated", "ndarray"):
            return self.type(parts[0]) if head == "Annotated" else head
        return f"{head}[{', '.join(map(self.type, parts))}]" if parts else head


@cache
def namespace(module: str) -> dict[str, Any]:
    """The globals of a module, with what it imports for type checkers only."""
    found = dict(vars(sys.modules[module]))
    if not module.startswith("slotwise"):
        return found
    for node in tree_of(module).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for line in node.body:
                with suppress(ImportError):
                    exec(ast.unparse(line), found)
    return found


@cache
def tree_of(module: str) -> ast.Module:
    """The syntax tree of a module."""
    return ast.parse(inspect.getsource(sys.modules[module]))


def defined_in(module: str) -> list[str]:
    """The public names that a module defines, or that its `__all__` lists."""
    listed = getattr(sys.modules[module], "__all__", None)
    if listed is not None:
        return sorted(listed)
    found: set[str] = set()
    for node in tree_of(module).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {one.id for one in node.targets if isinstance(one, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    return sorted(name for name in found if not name.startswith("_"))


def _is_ours(cls: type) -> bool:
    return cls.__module__.partition(".")[0] == "slotwise"


def _kind(cls: type) -> str:
    if is_dataclass(cls):
        frozen = cls.__dataclass_params__.frozen  # type: ignore[attr-defined]
        return "frozen dataclass" if frozen else "dataclass"
    if hasattr(cls, "_field_defaults"):
        return "named tuple"
    if issubclass(cls, Enum):
        return "enum"
    if getattr(cls, "_is_protocol", False):
        return "protocol"
    return "exception" if issubclass(cls, BaseException) else "class"


def _attributes(cls: type) -> Iterator[tuple[str, Any]]:
    """What the classes of the package among the bases define, the class itself last."""
    for base in reversed(cls.__mro__):
        if _is_ours(base):
            yield from vars(base).items()


def _assigned(init: Any) -> set[str]:
    """The public attributes that a constructor assigns."""
    if not inspect.isfunction(init):
        return set()
    try:
        tree = ast.parse(inspect.cleandoc("if 1:\n" + inspect.getsource(init)))
    except (OSError, SyntaxError):
        return set()
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and ast.unparse(node.value) == "self"
        and not node.attr.startswith("_")
    }


def _hints(owner: Any, names: dict[str, Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(owner, names)
    except (NameError, TypeError, AttributeError):
        return dict(getattr(owner, "__annotations__", {}))


def _classes(annotation: Any) -> Iterator[type]:
    if isinstance(annotation, list | tuple):
        for part in annotation:
            yield from _classes(part)
        return
    if inspect.isclass(annotation) and typing.get_origin(annotation) is None:
        yield annotation
    origin = typing.get_origin(annotation)
    if inspect.isclass(origin):
        yield origin
    if origin is not typing.Literal:
        for part in typing.get_args(annotation):
            yield from _classes(part)


def _default(value: Any, nothing: Any) -> str:
    return "" if value is nothing else f" = {_shown(value)}"


def _shown(value: Any) -> str:
    text = repr(value)
    if text == "<factory>":
        return "..."
    if inspect.isfunction(value) or inspect.isclass(value):
        return str(value.__name__)
    return f"<{type(value).__name__}>" if " at 0x" in text else text
