"""Reading a report back: its elements, its data block, its bars."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from cli_stream import dpstream
from small_configs import KIND, PAID, PUBLIC, write_config, write_rows

KINDS = PAID.replace("paid", "late") + KIND.replace('"y"', '"y</script>"')


def classifier(folder: Path) -> Path:
    """The configuration of a small stream of classifiers, with its data; one label does its worst."""
    for file in (1, 2, 3):
        rows = (f"{str(i % 3 == 0).lower()},{'x' if i % 2 else 'y</script>'}" for i in range(200))
        write_rows(folder, f"{file}.csv", "late,kind", rows)
    return write_config(
        folder,
        stream=PUBLIC,
        source='path = "data/*.csv"\nevery = "files"',
        columns=KINDS,
        mechanism='name = "scheduler"\nblack_box = "erm"\ntarget = "late"\nfirst_run = 200\ngamma = "1/2"',
        budget='epsilon = "0.02"',
    )


def simulated(folder: Path, name: str, *options: object) -> Path:
    """The configuration of a simulated stream."""
    dpstream("simulate", name, *options, "--out", folder / name)
    return folder / name / "dpstream.toml"


VOID = ("meta", "br", "hr", "input")


@dataclass
class Page(HTMLParser):
    """A page as a browser's parser sees it, as far as the tests ask."""

    path: Path
    text: str = ""
    attributes: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)
    words: str = ""
    bars: dict[str, dict[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__()
        self._open: list[str] = []
        self._caption = self._label = ""
        self.text = self.path.read_text(encoding="utf-8")
        self.feed(self.text)
        self.close()
        assert self._open == [], "every element is closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes.append((tag, dict(attrs)))
        if tag not in VOID and tag != "path":
            self._open.append(tag)
        if tag == "table":
            self._caption = ""
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("path",) and tag not in VOID:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        inside = self._open
        if "script" in inside:
            self.scripts[-1] += data
            return
        if "style" in inside:
            return
        self.words += f"{data} "
        if inside[-2:] == ["caption", "bdi"]:
            self._caption = data
        elif inside[-2:] == ["th", "bdi"]:
            self._label = data
        elif inside[-1:] == ["td"] and self._caption and "tbody" in inside:
            self.bars.setdefault(self._caption, {})[self._label] = data

    @property
    def data(self) -> dict[str, Any]:
        """The data block."""
        block: dict[str, Any] = json.loads(self.scripts[0])
        return block

    def spec(self, title: str) -> dict[str, Any]:
        """The data of the chart of a title."""
        for _, attributes in self.attributes:
            if attributes.get("data-title") == title:
                spec: dict[str, Any] = self.data["charts"][int(str(attributes["data-chart"]))]
                return spec
        raise AssertionError(f"no chart {title!r}")

    def chart(self, title: str) -> dict[str, Any]:
        """What is drawn under a title: x and the values of each line."""
        spec = self.spec(title)
        return {"x": spec["x"], **{line["label"]: line["values"] for line in spec["lines"]}}
