"""States as JSON and arrays, by the fields of their dataclasses: one form for all mechanisms.

What a field may hold: numbers, texts, None, arrays, lists of numbers, lists of arrays (kept as one array), lists of
dictionaries of arrays with the same keys, dataclasses, whatever has ``pack`` and ``unpack`` of its own, and lists,
tuples and dictionaries of these. Fields marked by ``UNPACKED`` are left out; whoever unpacks gives them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts.recipe_options import hints_of
from dpstream.core.contracts.releases import Packed
from dpstream.core.errors import StoreDamagedError

T = TypeVar("T")
_Arrays = dict[str, NDArray[Any]]
#: ``field(metadata=UNPACKED)``: what follows from the plan, and is no part of a packed state.
UNPACKED: Mapping[str, Any] = {"unpacked": True}
_NUMBERS: Mapping[Any, type[Any]] = {float: np.float64, int: np.int64}


def pack_fields(state: Any) -> Packed:
    """A dataclass as JSON and arrays."""
    arrays: _Arrays = {}
    return Packed(_pack(type(state), state, "state", arrays), arrays)


def unpack_fields(kind: type[T], packed: Packed, **given: Any) -> T:
    """The inverse of ``pack_fields``; arrays are copies.

    Args:
        given: values of the fields that are marked ``UNPACKED``, of whatever dataclass inside.

    Errors:
        StoreDamagedError: a field or an array is missing, or does not fit.
    """
    try:
        return cast(T, _Reader(packed.arrays, given).read(kind, packed.meta, "state"))
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):
        raise StoreDamagedError("the state does not have the fields of its kind", where="state") from None


def _plain(hint: Any) -> Any:
    """The type without None."""
    if get_origin(hint) in (Union, UnionType):
        return next(kind for kind in get_args(hint) if kind is not NoneType)
    return hint


def _is_array(hint: Any) -> bool:
    return get_origin(hint) is np.ndarray


def _pack(hint: Any, value: Any, path: str, arrays: _Arrays) -> Any:
    hint = _plain(hint)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if _is_array(hint):
        arrays[path] = value
        return None
    if hasattr(value, "unpack"):
        packed: Packed = value.pack()
        arrays.update({f"{path}/{name}": array for name, array in packed.arrays.items()})
        return packed.meta
    if is_dataclass(value):
        hints = hints_of(type(value))
        kept = [item.name for item in fields(value) if "unpacked" not in item.metadata]
        return {name: _pack(hints[name], getattr(value, name), f"{path}/{name}", arrays) for name in kept}
    inner = get_args(hint)
    if isinstance(value, Mapping):
        return {key: _pack(inner[1], part, f"{path}/{key}", arrays) for key, part in value.items()}
    if inner[0] in _NUMBERS:
        arrays[path] = np.array(value, dtype=_NUMBERS[inner[0]])
        return None
    if _is_array(inner[0]):
        return _joined(value, path, arrays)
    if value and _is_array((get_args(inner[0]) or (None,))[-1]):
        return {name: _joined([part[name] for part in value], f"{path}/{name}", arrays) for name in value[0]}
    return [_pack(inner[0], part, f"{path}/{number}", arrays) for number, part in enumerate(value)]


def _joined(parts: Sequence[NDArray[Any]], path: str, arrays: _Arrays) -> list[list[int]]:
    """Several arrays as one, and their shapes."""
    if parts:
        arrays[path] = np.concatenate([part.ravel() for part in parts])
    return [list(part.shape) for part in parts]


@dataclass(frozen=True)
class _Reader:
    arrays: Mapping[str, NDArray[Any]]
    given: Mapping[str, Any]

    def read(self, hint: Any, meta: Any, path: str) -> Any:
        hint = _plain(hint)
        if _is_array(hint):
            return self.arrays[path].copy()
        origin, inner = get_origin(hint), get_args(hint)
        if origin in (list, tuple) and inner[0] in _NUMBERS:
            return origin(self.arrays[path].tolist())
        if meta is None or (origin is None and not (is_dataclass(hint) or hasattr(hint, "unpack"))):
            return meta
        if hasattr(hint, "unpack"):
            prefix = f"{path}/"
            own = {k.removeprefix(prefix): v for k, v in self.arrays.items() if k.startswith(prefix)}
            return hint.unpack(Packed(meta, own))
        if is_dataclass(hint):
            return self._dataclass(cast(type[Any], hint), meta, path)
        if origin is dict:
            return {key: self.read(inner[1], part, f"{path}/{key}") for key, part in meta.items()}
        if _is_array(inner[0]):
            return origin(self._split(path, meta))
        if isinstance(meta, Mapping):
            columns = {name: self._split(f"{path}/{name}", shapes) for name, shapes in meta.items()}
            rows = zip(*columns.values(), strict=True)
            return origin(dict(zip(columns, row, strict=True)) for row in rows)
        return origin(self.read(inner[0], part, f"{path}/{number}") for number, part in enumerate(meta))

    def _dataclass(self, kind: type[Any], meta: Any, path: str) -> Any:
        hints, values = hints_of(kind), {}
        for item in fields(kind):
            if "unpacked" not in item.metadata:
                values[item.name] = self.read(hints[item.name], meta[item.name], f"{path}/{item.name}")
            elif item.name in self.given:
                values[item.name] = self.given[item.name]
        return kind(**values)

    def _split(self, path: str, shapes: Sequence[Sequence[int]]) -> list[NDArray[Any]]:
        ends = np.cumsum([int(np.prod(shape, dtype=np.int64)) for shape in shapes])
        parts = np.split(self.arrays[path], ends[:-1]) if len(shapes) else []
        return [part.reshape(shape).copy() for part, shape in zip(parts, shapes, strict=True)]
