"""``[statement]``: what the owner says to readers. Pinned to nothing: it may change at any time."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields

from dpstream.core.contracts import shown
from dpstream.project.publication_keys import LICENSE, WEB_ADDRESS
from dpstream.project.reader import Section


@dataclass(frozen=True)
class Publication:
    """The section as values; None where the file does not say it.

    Attributes:
        title, description, publisher, contact, decided_by, reason, version, license, url: texts of ``[statement]``.
    """

    title: str | None = None
    description: str | None = None
    publisher: str | None = None
    contact: str | None = None
    decided_by: str | None = None
    reason: str | None = None
    version: str | None = None
    license: str | None = None
    url: str | None = None


def read_publication(statement: Section) -> Publication:
    """The section.

    Errors:
        ConfigError: a value that is no text, or an address that may not stand in a link.
    """
    texts = {one.name: statement.text(one.name) for one in fields(Publication) if statement.has(one.name)}
    if "url" in texts and not re.fullmatch(WEB_ADDRESS, texts["url"]):
        raise statement.wrong("url", f"{shown(texts['url'])} is no address that a public page may link to")
    if "license" in texts and not re.fullmatch(LICENSE, texts["license"]):
        raise statement.wrong("license", f"{shown(texts['license'])} is not the name or address of a licence")
    return Publication(**texts)
