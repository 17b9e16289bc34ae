"""The seam between a store and its encryption: what happens to a private value on its way to the database."""

from __future__ import annotations

import base64

from dpstream.core.errors import StoreDamagedError

#: What names a row: a step, a file's name, a user's mark.
RowKey = int | str | bytes


class Sealing:
    """Values as they are; ``encryption.Cipher`` encrypts them.

    Attributes:
        name: of the key; None where there is none.
    """

    name: str | None = None

    def seal(self, data: bytes, kind: str, *place: RowKey, least: int = 0) -> bytes:
        """A value as it is stored, for this kind of value in this row; padded to at least ``least`` bytes."""
        return data

    def open(self, data: bytes, kind: str, *place: RowKey) -> bytes:
        """The inverse of ``seal``, for the same kind and row.

        Errors:
            StoreDamagedError: it was not sealed for that place.
        """
        return data

    # Columns that cannot hold bytes.

    def seal_text(self, text: str, kind: str, *place: RowKey, least: int = 0) -> str:
        """``seal`` for a column of texts."""
        if self.name is None:
            return text
        return base64.b64encode(self.seal(text.encode(), kind, *place, least=least)).decode()

    def open_text(self, text: str, kind: str, *place: RowKey) -> str:
        """The inverse of ``seal_text``."""
        if self.name is None:
            return text
        try:
            data = base64.b64decode(text, validate=True)
        except ValueError:
            data = b""
        return self.open(data, kind, *place).decode()

    def seal_count(self, count: int, kind: str, *place: RowKey) -> tuple[int, bytes | None]:
        """``seal`` for a column of numbers, and for the column of bytes beside it."""
        if self.name is None:
            return count, None
        return 0, self.seal(count.to_bytes(8, "little"), kind, *place)

    def open_count(self, count: int, sealed: bytes | None, kind: str, *place: RowKey) -> int:
        """The inverse of ``seal_count``."""
        if (self.name is None) != (sealed is None):
            raise StoreDamagedError(f"a value ({kind}) is encrypted and others are not")
        return count if sealed is None else int.from_bytes(self.open(bytes(sealed), kind, *place), "little")


#: The sealing of stores that are not encrypted.
UNSEALED = Sealing()
