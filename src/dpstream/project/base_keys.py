"""Keys about what a stream begins with; part of the table in ``keys.py``."""

from __future__ import annotations

from dpstream.core.contracts import Key
from dpstream.core.contracts.recipe_options import COUNT, TEXT, TEXTS

_SHARES = (
    'one label, a list of labels (even shares), or labels with exact shares such as {A = "0.6", B = "0.4"}'
)
_NOTHING = "columns and labels that are called alike are alike"

BASE_KEYS: tuple[Key, ...] = (
    Key(
        "base",
        "releases",
        "the folder of the earlier stream's releases, relative to this file",
        None,
        "",
        "The earlier stream: its public folder. It is read when the stream is started, and not needed afterwards.",
        fragment=TEXT,
    ),
    Key(
        "base",
        "step",
        "the number of its last published step",
        "its last one",
        "what came in a later step would be lost",
        "Which release the stream begins with. Steps after it have to be withdrawn ones.",
        fragment=COUNT,
    ),
    Key(
        "base",
        "rename",
        'columns of this schema with their names there, such as {postcode = "zip"}',
        "none",
        _NOTHING,
        "Columns that had another name.",
        fragment={"type": "object", "additionalProperties": TEXT},
    ),
    Key(
        "base",
        "map",
        f'for a column of this schema: its old labels, each with {_SHARES}; "null" is the null of a column that '
        "declared other and missing and shows both as null",
        "equal labels",
        _NOTHING,
        "`[base.map.COLUMN]`: what becomes of the old values (or bins) that are not called alike: renamed, merged, "
        "or split.",
        fragment={"type": "object"},
    ),
    Key(
        "base",
        "fill",
        f"for a column of this schema: {_SHARES}",
        "none",
        _NOTHING,
        "What the old records get in a new column.",
        fragment={"type": "object"},
    ),
    Key(
        "base",
        "drop",
        "a list of the earlier stream's columns",
        "none",
        "a column does not vanish by mistake",
        "Its columns that this stream does not have any more.",
        fragment=TEXTS,
    ),
    Key(
        "base",
        "config",
        "the earlier stream's configuration file, relative to this one",
        "not set",
        "only an evaluation against the private truth needs it",
        "Tells `dpstream evaluate` where the private records of the earlier period are. When the stream is started, it "
        "is refused while steps of the earlier one wait to be published.",
        fragment=TEXT,
    ),
)
