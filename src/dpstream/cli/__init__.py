"""The command ``dpstream``: thin verbs over the library. See README.md in this folder."""

from __future__ import annotations

from dpstream.cli.main import main
