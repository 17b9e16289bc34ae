"""States as JSON and arrays, by the fields of their dataclasses: one form for all mechanisms.

What a field may hold: numbers, fractions, texts, None, arrays, lists of numbers, lists of arrays (kept as one array),
lists of dictionaries of arrays, dataclasses (or one of several, told apart by their names), whatever has ``pack`` and
``unpack`` of its own (kept once, however often it is there), and lists, tuples and dictionaries of these. Fields marked
by ``UNPACKED`` are left out; whoever unpacks gives them.

Trusted base: kernel (packs private states).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from fractions import Fraction
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts.recipe_options import hints_of
from dpstream.core.contracts.releases import Packed
from dpstream.core.errors import StoreFormatError, unreadable

T = TypeVar("T")
_Arrays = dict[str, NDArray[Any]]
#: ``field(metadata=UNPACKED)``: what follows from the plan, outside a packed state.
UNPACKED: Mapping[str, Any] = {"unpacked": True}
_NUMBERS: Mapping[Any, type[Any]] = {float: np.float64, int: np.int64}


def pack_fields(state: Any) -> Packed:
    """A dataclass as JSON and arrays."""
    writer = _Writer()
    return Packed(writer.write(type(state), state, "state"), writer.arrays)


def unpack_fields(kind: type[T], packed: Packed, **given: Any) -> T:
    """The inverse of ``pack_fields``; arrays are copies.

    Args:
        given: values of the fields that are marked ``UNPACKED``, of whatever dataclass inside.

    Errors:
        StoreFormatError: other fields, as another version has them. StoreDamagedError: values that do not fit them.
    """
    with unreadable("the values of the state do not fit its fields", "state"):
        return cast(T, _Reader(packed.arrays, given, {}).read(kind, packed.meta, "state"))


def _choices(hint: Any) -> list[Any]:
    """The types of which one is there, or None."""
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return [kind for kind in kinds if kind is not NoneType]


def _is_array(hint: Any) -> bool:
    return get_origin(hint) is np.ndarray


class _Writer:
    def __init__(self) -> None:
        self.arrays: _Arrays = {}
        self._places: dict[int, str] = {}

    def write(self, hint: Any, value: Any, path: str) -> Any:
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, float) and not math.isfinite(value):
            return str(value)  # JSON has no such numbers, and a step that has drawn must not fail
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, Fraction):
            return str(value)
        choices = _choices(hint)
        if len(choices) > 1:
            kind = type(value)
            return {"kind": kind.__name__, "value": self.write(kind, value, path)}
        (hint,) = choices
        if _is_array(hint):
            self.arrays[path] = value
            return True
        if hasattr(value, "unpack"):
            return self._object(value, path)
        if is_dataclass(value):
            hints = hints_of(type(value))
            kept = [item.name for item in fields(value) if "unpacked" not in item.metadata]
            return {name: self.write(hints[name], getattr(value, name), f"{path}/{name}") for name in kept}
        inner = get_args(hint)
        if isinstance(value, Mapping):
            return {key: self.write(inner[1], part, f"{path}/{key}") for key, part in value.items()}
        if inner[0] in _NUMBERS:
            self.arrays[path] = np.array(value, dtype=_NUMBERS[inner[0]])
            return True
        if _is_array(inner[0]):
            return self._joined(value, path)
        if (
            value
            and _is_array((get_args(inner[0]) or (None,))[-1])
            and all(part.keys() == value[0].keys() for part in value)
        ):
            return {name: self._joined([part[name] for part in value], f"{path}/{name}") for name in value[0]}
        return [self.write(inner[0], part, f"{path}/{number}") for number, part in enumerate(value)]

    def _object(self, value: Any, path: str) -> Any:
        if id(value) in self._places:
            return {"same": self._places[id(value)]}
        self._places[id(value)] = path
        packed: Packed = value.pack()
        self.arrays.update({f"{path}/{name}": array for name, array in packed.arrays.items()})
        return packed.meta

    def _joined(self, parts: Sequence[NDArray[Any]], path: str) -> list[list[int]]:
        """Several arrays as one, and their shapes."""
        if parts:
            self.arrays[path] = np.concatenate([part.ravel() for part in parts])
        return [list(part.shape) for part in parts]


@dataclass(frozen=True)
class _Reader:
    arrays: Mapping[str, NDArray[Any]]
    given: Mapping[str, Any]
    made: dict[str, Any]

    def read(self, hint: Any, meta: Any, path: str) -> Any:
        choices = _choices(hint)
        if len(choices) > 1:
            if not isinstance(meta, Mapping):
                return meta
            kind = {choice.__name__: choice for choice in choices}[meta["kind"]]
            return self.read(kind, meta["value"], path)
        hint = choices[0]
        if hint is Fraction:
            return Fraction(meta)
        if hint is float and isinstance(meta, str):
            return float(meta)
        if meta is not None and _is_array(hint):
            return self.arrays[path].copy()
        origin, inner = get_origin(hint), get_args(hint)
        if meta is not None and origin in (list, tuple) and inner[0] in _NUMBERS:
            return origin(self.arrays[path].tolist())
        if meta is None or (origin is None and not (is_dataclass(hint) or hasattr(hint, "unpack"))):
            return meta
        if hasattr(hint, "unpack"):
            return self._object(hint, meta, path)
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

    def _object(self, kind: Any, meta: Any, path: str) -> Any:
        if "same" in meta:
            return self.made[meta["same"]]
        prefix = f"{path}/"
        arrays = {k.removeprefix(prefix): v for k, v in self.arrays.items() if k.startswith(prefix)}
        self.made[path] = kind.unpack(Packed(meta, arrays))
        return self.made[path]

    def _dataclass(self, kind: type[Any], meta: Any, path: str) -> Any:
        hints, values = hints_of(kind), {}
        if meta.keys() != {item.name for item in fields(kind) if "unpacked" not in item.metadata}:
            raise StoreFormatError(
                f"another version of dpstream wrote the state: the fields of {kind.__name__} differ",
                where="state",
                allowed="the version that wrote it, or a new stream",
            )
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
