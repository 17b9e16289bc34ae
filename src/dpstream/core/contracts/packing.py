"""Dataclasses as JSON and arrays, and back, by the types of their fields: for states and releases."""

from __future__ import annotations

import types
from collections.abc import Collection, Mapping
from dataclasses import fields, is_dataclass
from fractions import Fraction
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts.releases import Packed
from dpstream.core.errors import StoreDamagedError

T = TypeVar("T")
#: Stands where an array was, whose name is its path.
_ARRAY = "array"
_SCALARS = (bool, int, float, str, type(None))


def pack_fields(value: object, leave_out: Collection[str] = ()) -> Packed:
    """A dataclass as JSON and arrays.

    Its fields are numbers, text, fractions, None, arrays, dataclasses, objects with ``pack`` and ``unpack``, and lists,
    tuples and dictionaries of these. Lists of numbers become arrays: their size tells nothing of the numbers. An object
    with ``pack`` that is there several times is kept once.

    Args:
        leave_out: names of fields, wherever they are, which ``unpack_fields`` is given: public facts of the plan.
    """
    writer = _Writer(leave_out)
    return Packed({"fields": writer.write(value, ""), "objects": writer.objects}, writer.arrays)


def unpack_fields(kind: type[T], packed: Packed, given: Mapping[str, Any] | None = None) -> T:
    """The inverse of ``pack_fields``; arrays are fresh copies.

    Args:
        given: the values of the fields that were left out.

    Errors:
        StoreDamagedError: a part is missing, or of another type.
    """
    try:
        value: T = _Reader(packed, given or {}).read(kind, packed.meta["fields"], "")
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):
        raise StoreDamagedError("the stored state cannot be read", where="state") from None
    return value


def _below(path: str, name: object) -> str:
    return f"{path}/{name}" if path else str(name)


class _Writer:
    def __init__(self, leave_out: Collection[str]) -> None:
        self._leave_out = leave_out
        self._places: dict[int, int] = {}
        self.objects: list[Any] = []
        self.arrays: dict[str, NDArray[Any]] = {}

    def write(self, value: Any, path: str) -> Any:
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, list | tuple) and value and all(type(item) in (int, float) for item in value):
            value = np.array(value, np.int64 if all(type(item) is int for item in value) else np.float64)
        if isinstance(value, np.ndarray):
            self.arrays[path] = value
            return _ARRAY
        if isinstance(value, _SCALARS):
            return value
        if isinstance(value, Fraction):
            return str(value)
        if hasattr(value, "pack"):
            return self._object(value)
        if is_dataclass(value):
            names = [
                field.name for field in fields(value) if field.init and field.name not in self._leave_out
            ]
            return {name: self.write(getattr(value, name), _below(path, name)) for name in names}
        if isinstance(value, Mapping):
            return {str(key): self.write(item, _below(path, key)) for key, item in value.items()}
        return [self.write(item, _below(path, number)) for number, item in enumerate(value)]

    def _object(self, value: Any) -> int:
        if id(value) not in self._places:
            place = self._places[id(value)] = len(self.objects)
            packed = value.pack()
            self.objects.append(packed.meta)
            self.arrays |= {f"object/{place}/{name}": array for name, array in packed.arrays.items()}
        return self._places[id(value)]


class _Reader:
    def __init__(self, packed: Packed, given: Mapping[str, Any]) -> None:
        self._objects, self._arrays, self._given = packed.meta["objects"], packed.arrays, given
        self._made: dict[int, Any] = {}

    def read(self, hint: Any, stored: Any, path: str) -> Any:
        origin, args = get_origin(hint), get_args(hint)
        if origin in (Union, types.UnionType):
            if stored is None:
                return None
            (hint,) = (one for one in args if one is not type(None))
            return self.read(hint, stored, path)
        if origin is np.ndarray:
            return self._array(path, get_args(args[1])[0])
        if origin in (list, tuple):
            return self._sequence(origin, args, stored, path)
        if origin is dict:
            return {args[0](key): self.read(args[1], item, _below(path, key)) for key, item in stored.items()}
        if hint is Fraction:
            return Fraction(stored)
        if hasattr(hint, "unpack"):
            return self._object(hint, stored)
        if is_dataclass(hint):
            return self._dataclass(hint, stored, path)
        if not isinstance(stored, (int, float) if hint is float else hint):
            raise TypeError
        return hint(stored)

    def _dataclass(self, kind: Any, stored: Any, path: str) -> Any:
        hints, values = get_type_hints(kind), dict(self._given)
        names = [field.name for field in fields(kind) if field.init]
        for name in names:
            if name not in self._given:
                values[name] = self.read(hints[name], stored[name], _below(path, name))
        return kind(**{name: values[name] for name in names})

    def _sequence(self, origin: type[Any], args: tuple[Any, ...], stored: Any, path: str) -> Any:
        if stored == _ARRAY:
            return origin(self._array(path, np.int64 if args[0] is int else np.float64).tolist())
        hints = args if origin is tuple and args[-1] is not Ellipsis else [args[0]] * len(stored)
        pairs = enumerate(zip(hints, stored, strict=True))
        return origin(self.read(hint, item, _below(path, number)) for number, (hint, item) in pairs)

    def _array(self, path: str, kind: Any) -> NDArray[Any]:
        return self._arrays[path].astype(kind, casting="safe")

    def _object(self, kind: Any, place: int) -> Any:
        if place not in self._made:
            prefix = f"object/{place}/"
            arrays = {n.removeprefix(prefix): a for n, a in self._arrays.items() if n.startswith(prefix)}
            self._made[place] = kind.unpack(Packed(self._objects[place], arrays))
        return self._made[place]
