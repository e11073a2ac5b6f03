"""Error messages for values of a TOML file that do not fit its schema."""

import re
import types
from collections.abc import Mapping
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

_WORDS: dict[Any, str] = {bool: "true or false", int: "a whole number", float: "a number", str: "a text in quotes"}


def misfit(values: Mapping[str, Any], schema: type[msgspec.Struct]) -> str:
    """Describes the first field of `values` that does not fit the schema; returns "" if all fit.

    "world is 'many'; it must be a whole number from 0 to 64".
    """
    hints = get_type_hints(schema, include_extras=True)
    fields = msgspec.structs.fields(schema)
    names = [field.encode_name for field in fields]
    if unknown := [name for name in values if name not in names]:
        return f"unknown key {unknown[0]!r}; there are {', '.join(names)}"
    for field in fields:
        name = field.encode_name
        if name not in values:
            if field.required:
                return f"{name} is missing; it must be {expected(hints[field.name])}"
            continue
        if fault := misfit_of(name, values[name], hints[field.name]):
            return fault
    return ""


def misfit_of(name: str, value: Any, annotation: Any) -> str:
    """Describes why a value does not fit an annotation: as `misfit`; returns "" if it fits."""
    try:
        msgspec.convert(value, annotation)
    except msgspec.ValidationError:
        kind, _ = _unwrapped(annotation)
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and isinstance(value, Mapping):
            return f"{name}: {misfit(value, kind)}"
        if get_origin(kind) in (dict, Mapping) and isinstance(value, Mapping):
            inner = get_args(kind)[1]
            faults = (misfit_of(f"{name}.{key}", item, inner) for key, item in value.items())
            return next(fault for fault in faults if fault)
        if get_origin(kind) is list and isinstance(value, list):
            inner = get_args(kind)[0]
            if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
                faults = (misfit_of(f"{name} {n}", item, inner) for n, item in enumerate(value, 1))
                return next(fault for fault in faults if fault)
        return f"{name} is {_written(value)}; it must be {expected(annotation)}"
    return ""


def expected(annotation: Any) -> str:
    """Describes the values of an annotation: "a whole number from 0 to 64", "a list, each a text in quotes"."""
    kind, meta = _unwrapped(annotation)
    for limits in meta:
        if limits.pattern and re.fullmatch(r"\^\([\w|]+\)\$", limits.pattern):
            return "one of " + ", ".join(limits.pattern[2:-2].split("|"))
    if get_origin(kind) is list:
        return f"a list, each {expected(get_args(kind)[0])}"
    if get_origin(kind) is tuple:
        return f"a list of {len(get_args(kind))} values, each {expected(get_args(kind)[0])}"
    words = _WORDS.get(kind, "a table")
    for limits in meta:
        if limits.ge is not None and limits.le is not None:
            words += f" from {_number(limits.ge)} to {_number(limits.le)}"
        elif limits.ge is not None:
            words += f", {_number(limits.ge)} or more"
        elif limits.min_length:
            words += " that is not empty"
    return words


def _number(limit: float) -> str:
    return str(int(limit)) if limit == int(limit) else str(limit)


def _unwrapped(annotation: Any) -> tuple[Any, list[Meta]]:
    """Returns (the bare type, its Meta limits); None is removed from a union."""
    meta: list[Meta] = []
    while True:
        if get_origin(annotation) is Annotated:
            meta += [part for part in annotation.__metadata__ if isinstance(part, Meta)]
            annotation = annotation.__origin__
        elif get_origin(annotation) in (Union, types.UnionType):
            annotation = next(part for part in get_args(annotation) if part is not types.NoneType)
        else:
            return annotation, meta


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"
