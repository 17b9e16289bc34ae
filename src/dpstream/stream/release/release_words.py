"""What a release says about itself to a person, from its manifest alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpstream.core.privacy import ZCDP, Budget, PureDP
from dpstream.core.showing import notebook_page
from dpstream.stream.predecessor_cost import own_budget

_ROWS = 10
#: Joins what the manifest says of released counts with the lines that a picture draws.
_MEASURED = (
    "Noisy counts that are published beside the tables have exact errors (measured, plot); a released count is made "
    "of more than one of them, and may lie outside their intervals."
)


def spent_of(manifest: Mapping[str, Any]) -> Budget:
    """What all releases up to and including this one cost one unit of protection."""
    kind = PureDP if own_budget(manifest)["definition"] == "pure" else ZCDP
    return kind(manifest["spent"]["total"])


def release_html(manifest: Mapping[str, Any], table: Any | None) -> str:
    """A release as a notebook shows it; ``table`` is the released one as a pyarrow Table, or None."""
    errors = manifest["accuracy"].get("words")
    if errors and "No other released count has an error bar" in errors:
        errors = f"{errors} {_MEASURED}"
    facts = {
        "stream": manifest["stream"],
        "made from": manifest["holds"],
        "guarantee": manifest["guarantee"]["words"],
        "spent": spent_of(manifest),
        "errors": errors,
    }
    known = {key: value for key, value in facts.items() if value is not None}
    title = f"Release of step {manifest['step']}"
    if table is None:
        return notebook_page(title, known, below="Its table is not here.")
    rows = [tuple(row.values()) for row in table.slice(0, _ROWS).to_pylist()]
    below = f"The first {len(rows)} of {table.num_rows} synthetic rows." if len(rows) < table.num_rows else ""
    return notebook_page(title, known, table.column_names, rows, below)


def estimate_html(columns: Sequence[str], cells: Any, ends: tuple[Any, Any] | None) -> str:
    """Estimated numbers of records as a notebook shows them.

    Args:
        cells: a pyarrow Table with ``columns`` and ``estimate``.
        ends: of the 95 % intervals; None where there are none.
    """
    head = [*columns, "estimate", *(() if ends is None else ("95 % from", "to"))]
    rows = [tuple(row.values()) for row in cells.slice(0, _ROWS).to_pylist()]
    shown = [(*row[:-1], f"{row[-1]:,.1f}") for row in rows]
    if ends is not None:
        low, high = (end.ravel() for end in ends)
        shown = [(*row, f"{low[i]:,.1f}", f"{high[i]:,.1f}") for i, row in enumerate(shown)]
    below = f"The first {len(rows)} of {cells.num_rows} cells." if len(rows) < cells.num_rows else ""
    return notebook_page(" x ".join(columns), {}, head, shown, below)
