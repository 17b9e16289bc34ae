"""Make the pictures of the gallery: every kind of page, light, dark and on a phone. ``make gallery``

It simulates streams, runs them, writes their reports, a statement and an evaluation, and lets Chromium (``make
browser``) take pictures. The data are invented; the noise is real, so pictures differ a little each time. 3 minutes.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

OUT = Path(__file__).parent / "images" / "gallery"
#: Width and height of the window, and width of the picture; of the demo only the curves are shown.
VIEWS = {"light": (1100, 1900, 760), "dark": (1100, 1900, 760), "phone": (390, 1500, 390)}
CURVES = {"curves": (1150, 720, 860)}
#: No picture is larger.
MAX_BYTES = 58_000
STATEMENT = """
[statement]
title = "Eviction notices"
description = "Invented notices of a city, week by week."
publisher = "Statistics office of Example"
contact = "data@example.org"
decided_by = "the data protection board, on 3 March 2026"
reason = "counts of districts have to be right to 5 %"
version = "1.2"
"""
CLASSIFIER = """format = 1
[stream]
name = "loans"
total = "public"
[source]
path = "data/*.csv"
every = "files"
[schema.columns.late]
type = "boolean"
[schema.columns.kind]
type = "categorical"
values = ["guest", "member", "staff"]
[schema.columns.age]
type = "integer"
edges = [0, 30, 60, 90]
[mechanism]
name = "scheduler"
black_box = "erm"
target = "late"
numbers = ["age"]
first_run = 4000
gamma = "1/2"
[budget]
epsilon = "1"
delta = "1e-6"
"""


def dpstream(*words: object) -> None:
    program = Path(sys.executable).with_name("dpstream")
    subprocess.run([program, *map(str, words)], check=True, stdout=subprocess.DEVNULL)


def streams(folder: Path) -> dict[str, Path]:
    """The configurations of finished runs, by the names of their pictures."""
    for name, kind, *size in (
        ("table", "evictions", "--steps", 60),
        ("panel", "panel", "--steps", 12, "--rows-per-step", 3000),
        ("points", "points", "--steps", 30, "--rows-per-step", 600),
        ("turnover", "stock", "--steps", 30, "--records", 3000, "--columns", 6),
    ):
        dpstream("simulate", kind, *size, "--out", folder / name)
    with (folder / "table" / "dpstream.toml").open("a", encoding="utf-8") as file:
        file.write(STATEMENT)
    data, generator = folder / "classifier" / "data", random.Random(1)
    data.mkdir(parents=True)
    (data.parent / "dpstream.toml").write_text(CLASSIFIER)
    for month in range(1, 9):
        ages = [generator.randrange(90) for _ in range(4000)]
        kinds = generator.choices(["guest", "member", "staff"], [5, 3, 1], k=4000)
        late = [str(generator.random() < (0.5 if age < 30 else 0.2)).lower() for age in ages]
        rows = map(",".join, zip(late, kinds, map(str, ages), strict=True))
        (data / f"2026-{month:02d}.csv").write_text("\n".join(["late,kind,age", *rows, ""]))
    configs = {
        name: folder / name / "dpstream.toml"
        for name in ("table", "panel", "points", "turnover", "classifier")
    }
    for config in configs.values():
        dpstream("run", config)
    # One page shows errors by simulation, the others what is known without.
    dpstream("errors", configs["turnover"], "--runs", 5)
    return configs


def picture(page: Path, out: Path, view: str, part: str = "") -> None:
    """A page from its top, or from one of its parts, on white paper, dark or on a phone."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    wide, high, shown = {**VIEWS, **CURVES}[view]
    with tempfile.TemporaryDirectory() as scratch:
        shot = Path(scratch) / "shot.png"
        # Windows are not narrower than 500 pixels: a phone is a frame.
        frame = Path(scratch) / "frame.html"
        frame.write_text(
            f'<body style="margin:0"><iframe src="{page.as_uri()}{part}" width="{wide}" height="{high}" '
            'style="border:0">'
        )
        subprocess.run(
            [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             f"--user-data-dir={scratch}/profile",
             f"--blink-settings=preferredColorScheme={0 if view == 'dark' else 1}",
             f"--window-size={max(500, wide)},{high}", "--virtual-time-budget=4000", f"--screenshot={shot}",
             frame.as_uri()],
            check=True, capture_output=True, timeout=120,
        )  # fmt: skip
        image = Image.open(shot).convert("RGB").crop((0, 0, wide, high))
    image = image.resize((shown, round(high * shown / wide)), Image.Resampling.LANCZOS)
    for quality in range(80, 10, -10):
        image.save(out, "WEBP", quality=quality, method=6)
        if out.stat().st_size < MAX_BYTES:
            return


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        configs = streams(folder)
        pages = {name: folder / f"{name}.html" for name in (*configs, "statement")}
        for name, config in configs.items():
            dpstream("report", config, "--out", pages[name])
        dpstream("statement", configs["table"], "--out", pages["statement"])
        dpstream("evaluate", configs["table"], "--out", folder / "evaluation")
        pages["evaluation"] = folder / "evaluation" / "evaluation.html"
        dpstream("demo", "--out", folder / "demo")
        picture(folder / "demo" / "evaluation" / "evaluation.html", OUT / "demo.webp", "curves", "#changes")
        for name, page in pages.items():
            for view in VIEWS:
                picture(page, OUT / f"{name}-{view}.webp", view)


if __name__ == "__main__":
    main()
