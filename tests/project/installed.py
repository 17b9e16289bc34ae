"""A package as an installer leaves it: a folder of metadata beside the code."""

from __future__ import annotations

from pathlib import Path


def install(folder: Path, package: str, **groups: str) -> None:
    """``groups``: the entry points of ``dpstream.families``, ``sources`` and so on, one a line."""
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    text = "".join(f"[dpstream.{group}]\n{entries}\n" for group, entries in groups.items())
    (info / "entry_points.txt").write_text(text, encoding="utf-8")
