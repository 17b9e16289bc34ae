"""Keys of what the owner says to readers, in statements and reports; part of the table in ``keys.py``."""

from __future__ import annotations

from dpstream.core.contracts import Key
from dpstream.core.contracts.recipe_options import TEXT

__all__ = ["PUBLICATION_KEYS", "WEB_ADDRESS"]

#: What a link of a public page or record may lead to: no script, and no file of its reader.
WEB_ADDRESS = r"^(https?://|mailto:)[^\s<>\"{}|\\^`]+$"
_NOT_SET = "only the owner knows it"


def _words(key: str, what: str, example: str) -> Key:
    return Key("statement", key, f"a text, such as {example}", "not set", _NOT_SET, what, fragment=TEXT)


PUBLICATION_KEYS: tuple[Key, ...] = (
    _words(
        "title",
        "What the data set is called on its pages and in catalogues; the stream's name if it is not set.",
        '"Evictions"',
    ),
    _words(
        "description",
        "What the data are about, in a sentence or two.",
        '"Eviction notices of a city, weekly"',
    ),
    _words("publisher", "Who publishes the data.", '"Statistics office of Example"'),
    _words("contact", "Whom to ask.", '"data@example.org"'),
    _words(
        "decided_by", "Who decided on epsilon (or rho), and when.", '"Data protection board, 3 March 2026"'
    ),
    _words("reason", "Why this budget and this unit.", '"Counts of districts have to be right to 5 %"'),
    _words("version", "Version of the statement.", '"1.2"'),
    _words("license", "The licence of the released data, as an SPDX name or an address.", '"CC-BY-4.0"'),
    Key(
        "statement",
        "url",
        "an address in http://, https:// or mailto:",
        "not set",
        _NOT_SET,
        "Where the releases can be had.",
        fragment={**TEXT, "pattern": WEB_ADDRESS},
    ),
    Key(
        "report",
        "outline",
        "a GeoJSON file, with coordinates in degrees",
        "not set",
        "no map is known",
        "A public outline (borders, a coast) that is drawn under the maps of points whose coordinates are latitude and "
        "longitude. It has to be public: its lines stand on the page.",
        fragment=TEXT,
    ),
)
