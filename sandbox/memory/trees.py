"""Flattens a solution's result to tensors in a fixed order and a text of its structure."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

Leaves = list[tuple[str, torch.Tensor]]
"""(name, tensor) pairs."""
Output = tuple[str, Leaves]
"""A flattened output: the structure text, and its leaves."""

_NUMBERS = ((bool, torch.bool), (int, torch.int64), (float, torch.float64))
"""The types of numbers, with the dtype of their leaves. They are compared by identity: a metaclass could compute in `==`."""


class NotATree(TypeError):
    """The value holds something that is neither a tensor, a number, None nor a plain container."""


def flatten(value: Any) -> Output:
    """Flattens an output to its structure text and (name, tensor) leaves.

    Names are paths such as "0" or "1.depth"; a single tensor is named "out". Numbers become 0-dim tensors, so that their
    type is part of the comparison. Only exact types are accepted: a subclass of Tensor could compute after the clock stopped.

    Raises:
        NotATree: it contains anything else.
    """
    leaves: Leaves = []
    return _walk(value, "", leaves), leaves


def _walk(node: Any, path: str, leaves: Leaves) -> str:
    """The structure of one node, whose leaves are appended.

    It is not nested in another function. A nested function would refer to itself, and keep the leaves' memory until
    garbage is collected.
    """
    kind = type(node)
    if kind is torch.Tensor or kind is torch.nn.Parameter:
        leaves.append((path or "out", torch.Tensor.detach(node)))
        return "T"
    if node is None:
        return "None"
    for number, dtype in _NUMBERS:
        if kind is number:
            leaves.append((path or "out", torch.tensor(node, dtype=dtype, device="cpu")))
            return number.__name__
    # A torch.Size is equal to a tuple of ints, and a named tuple counts as a tuple.
    is_tuple = kind is tuple or kind is torch.Size or (isinstance(node, tuple) and hasattr(node, "_fields"))
    if is_tuple or kind is list:
        inner = ",".join(
            _walk(item, f"{path}.{index}" if path else str(index), leaves) for index, item in enumerate(node)
        )
        return f"({inner})" if is_tuple else f"[{inner}]"
    if kind is dict and all(type(key) is str for key in node):
        inner = ",".join(f"{key}:{_walk(node[key], f'{path}.{key}' if path else key, leaves)}" for key in sorted(node))
        return f"{{{inner}}}"
    place = f" as element {path}" if path else ""
    raise NotATree(f"a {kind.__qualname__}{place}; a result is made of tensors, numbers, None, tuples, lists and dicts")


def unflatten(structure: str, tensors: Iterable[Any], number: Callable[[Any], Any] = lambda tensor: tensor) -> Any:
    """The containers that a structure text describes, filled with these tensors.

    number: converts the 0-dim tensor of a number.
    """
    return _node(structure, 0, iter(tensors), number)[0]


def _node(structure: str, position: int, remaining: Iterator[Any], number: Callable[[Any], Any]) -> tuple[Any, int]:
    """The containers of a node that begins at a position, and the position behind it.

    It is not nested in another function, as `_walk`.
    """
    for word in ("T", "None", "bool", "int", "float"):
        if structure.startswith(word, position):
            found = None if word == "None" else next(remaining)
            return number(found) if word in ("bool", "int", "float") else found, position + len(word)
    opening = structure[position]
    closing = {"(": ")", "[": "]", "{": "}"}[opening]
    position += 1
    items: list[Any] = []
    keys: list[str] = []
    while structure[position] != closing:
        if structure[position] == ",":
            position += 1
        if opening == "{":
            end = structure.index(":", position)
            keys.append(structure[position:end])
            position = end + 1
        item, position = _node(structure, position, remaining, number)
        items.append(item)
    position += 1
    if opening == "{":
        return dict(zip(keys, items, strict=True)), position
    return tuple(items) if opening == "(" else items, position
