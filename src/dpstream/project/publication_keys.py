"""Keys of what the owner says to readers, in statements and reports; part of the table in ``keys.py``."""

from __future__ import annotations

from dpstream.core.contracts import Key
from dpstream.core.contracts.recipe_options import TEXT

#: What a link of a public page or record may lead to: no script, and no file of its reader.
WEB_ADDRESS = r"^(https?://|mailto:)[^\s<>\"{}|\\^`]+$"
#: A licence: the SPDX name of one that is made for data or for texts, or where any other one can be read.
LICENSE = (
    r"^(https://[^\s<>\"{}|\\^`]+|CC0-1\.0|CC-BY(-NC)?(-SA|-ND)?-(3\.0|4\.0)|PDDL-1\.0|ODC-By-1\.0|ODbL-1\.0"
    r"|CDLA-(Permissive-1\.0|Permissive-2\.0|Sharing-1\.0)|DL-DE-(BY|ZERO)-2\.0|etalab-2\.0|NLOD-[12]\.0"
    r"|OGL-(UK-[123]\.0|Canada-2\.0)|MIT|Apache-2\.0)$"
)
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
    Key(
        "statement",
        "license",
        'the SPDX name of a usual licence for data, such as "CC-BY-4.0", or an address in https://',
        "not set",
        _NOT_SET,
        "The licence of the released data.",
        fragment={**TEXT, "pattern": LICENSE},
    ),
    Key(
        "statement",
        "url",
        "an address in http://, https:// or mailto:",
        "not set",
        _NOT_SET,
        "Where the releases can be had.",
        fragment={**TEXT, "pattern": WEB_ADDRESS},
    ),
)
