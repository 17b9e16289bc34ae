"""Random successors: what several streams are said to cost one unit together is never less than what their folders show
that they cost; or the sum is refused, or said not to hold."""

from __future__ import annotations

import random
import re
import shutil
from fractions import Fraction
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from small_configs import PAID, ZIP, write_config, write_rows

import dpstream as dp
from dpstream.cli import main
from dpstream.core.errors import DpstreamError
from dpstream.io.sinks import read_catalogue
from dpstream.project import Config

NAMES, STEPS = ("one", "two", "three"), 6
#: Whom a stream protects: what the file says of the stream and of its source, and the column that tells two apart.
UNITS: dict[str, tuple[str, str, str]] = {
    "event": ("", "", "number"),
    "person": ('unit = "user"\nmax_events = 3', 'user_column = "person"', "person"),
    "key": ('unit = "record"', 'key_column = "id"\ninsert_only = true', "id"),
}
Budget = tuple[str, Fraction]


def write(path: Path, unit: str, start: int, budget: Budget, *, more: str = "") -> None:
    """The file of a stream of single days."""
    stream, source, _ = UNITS[unit]
    name = path.stem
    write_config(
        path.parent,
        file=path.name,
        name=name,
        stream=stream,
        source=f'path = "data/*.csv"\ntime_column = "step"\n{source}\nstart = {start}\nend = {start}',
        columns=ZIP + PAID,
        mechanism='name = "baseline"',
        budget=f'{budget[0]} = "{budget[1]}"',
        rest=f'[output]\ndir = "{name}/releases"\n[state]\ndir = "{name}/state"\n{more}',
    )


def write_data(home: Path, unit: str) -> None:
    extra = [] if unit == "event" else [UNITS[unit][2]]
    for step in range(1, STEPS + 4):
        rows = [",".join([str(step), "ab"[i % 2], "true", *(f"{step}-{i}" for _ in extra)]) for i in range(6)]
        write_rows(home, f"{step}.csv", ",".join(["step", "zip", "paid", *extra]), rows)


def amount(budgets: list[Budget], definition: str) -> Fraction:
    """What budgets add up to for somebody who is in all of them; an epsilon is a rho of half its square."""
    if definition == "pure":
        assert all(kind == "epsilon" for kind, _ in budgets)
        return sum((value for _, value in budgets), Fraction())
    return sum((value**2 / 2 if kind == "epsilon" else value for kind, value in budgets), Fraction())


def together(base: dict[str, Any]) -> tuple[str, Fraction]:
    """What the facts about a base say of all streams."""
    budget = base["composition"]["together"]
    return budget["definition"], Fraction(budget.get("epsilon", budget.get("rho")))


def said(*words: object) -> tuple[int, str]:
    """The command's exit code and words."""
    found = CliRunner().invoke(main, [str(word) for word in words])
    return found.exit_code, " ".join(found.output.split())


class Chain:
    """Three streams after one another, and what their folders have shown."""

    def __init__(self, home: Path, rng: random.Random) -> None:
        self.home, self.unit = home, rng.choice(["event", "event", "person", "key"])
        self.budgets: list[Budget] = [
            (rng.choice(["epsilon", "epsilon", "rho"]), Fraction(rng.choice([1, 2, 3]), 2)) for _ in NAMES
        ]
        self.config = rng.random() < 0.8
        #: By stream: the draws of each day when its successor was pinned.
        self.pinned: dict[int, set[tuple[int, str]]] = {}
        write_data(home, self.unit)

    def path(self, i: int) -> Path:
        return self.home / f"{NAMES[i]}.toml"

    def shown(self, i: int) -> set[tuple[int, str]]:
        """Day and hash of each release that the folder lists."""
        folder = self.home / NAMES[i] / "releases"
        if not (folder / "catalogue.json").exists():
            return set()
        (start,) = map(int, re.findall(r"\nstart = (\d+)", self.path(i).read_text(encoding="utf-8")))
        return {(start - 1 + one["step"], one["manifest_sha256"]) for one in read_catalogue(folder)["steps"]}

    def step(self, i: int) -> None:
        """Take the next day; the first one pins what is there of the stream before."""
        days, path = {day for day, _ in self.shown(i)}, self.path(i)
        view = self.shown(i - 1) if i else set()
        last = max(days or {day for day, _ in view}, default=0) + 1
        if last > STEPS or (i and not days and not view):
            return
        if not days:
            self.begin(i, last)
        ends = re.sub(r"(?<=\nend = )\d+", str(last), path.read_text(encoding="utf-8"))
        path.write_text(ends, encoding="utf-8")
        assert len(list(dp.run(path))) == 1
        if i and not days:
            self.pinned[i - 1] = view

    def begin(self, i: int, start: int) -> None:
        config = f'config = "{NAMES[i - 1]}.toml"' if self.config else ""
        base = f'[base]\nreleases = "{NAMES[i - 1]}/releases"\n{config}' if i else ""
        write(self.path(i), self.unit, start, self.budgets[i], more=base)

    def act(self, kind: str, i: int) -> None:
        place, copy = self.home / NAMES[i], self.home / f"copy of {NAMES[i]}"
        if kind == "step":
            self.step(i)
        elif kind == "copy" and place.exists() and not copy.exists():
            shutil.copytree(place, copy)
        elif kind == "restore" and copy.exists():
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(copy, place)
        elif kind == "anew" and place.exists():
            shutil.rmtree(place)
        elif kind == "withdraw" and self.shown(i):
            with Config.load(self.path(i)).open_stream() as stream:
                stream.withdraw(stream.last_step, "a test")

    def true(self, last: int, definition: str) -> Fraction:
        """What somebody may have lost to a stream and all those before it, as far as their folders can show it."""
        draws = {i: self.shown(i) | self.pinned.get(i, set()) for i in range(last)} | {last: self.shown(last)}
        for i in range(last - 1):
            # Without [base] config nobody looks further back for days that were drawn twice, and without the folder of
            # the one between nobody knows what that began with.
            if not self.config:
                draws[i] = {(day, "") for day, _ in draws[i]}
            elif not self.shown(i + 1):
                draws[i] = self.pinned[i]

        def on(day: int) -> list[Budget]:
            return [self.budgets[i] for i, made in draws.items() for one, _ in made if one == day]

        days = range(1, STEPS + 1)
        if self.unit == "event":
            return max(amount(on(day), definition) for day in days)
        most = [max(sum(one == day for one, _ in made) for day in days) for made in draws.values()]
        return amount(
            [self.budgets[i] for i, many in zip(draws, most, strict=True) for _ in range(many)], definition
        )


def base_goes_on(home: Path, rng: random.Random) -> tuple[bool, list[str]]:
    """Three streams are run, copied, restored, begun anew and withdrawn from, in any order."""
    chain, acts, broken = Chain(home, rng), list[tuple[str, int]](), False
    kinds = ["step"] * 4 + ["copy", "restore", "withdraw"] + ["anew"] * (rng.random() < 0.2)
    drawn = [
        (kind, 0) for kind in ("step", "copy", "step", "withdraw") if kind == "step" or rng.random() < 0.4
    ]
    drawn += [("step", 1), *[("step", 2)] * (rng.random() < 0.5)]
    drawn += [(rng.choice(kinds), rng.choice([0, 0, 1])) for _ in range(rng.randrange(1, 7))] + [("step", 0)]
    for planned in drawn:
        acts.append(planned)
        try:
            chain.act(*acts[-1])
        except DpstreamError as error:
            acts[-1] = (f"{acts[-1][0]} (refused: {str(error)[:60]})", acts[-1][1])
    found = list[str]()
    for i in range(1, len(NAMES)):
        path = chain.path(i)
        if not chain.shown(i):
            continue
        base = Config.load(path).base()
        definition, promised = together(base.facts)
        true = chain.true(i, definition)
        if true > promised:
            broken = True
            found += [f"stream {NAMES[i]}, promised {promised}, true {true}: {who}" for who in silent(path)]
        # Whoever begins now is not promised too little either.
        draft, last = home / "last.toml", max(day for day, _ in chain.shown(i))
        base_text = f'[base]\nreleases = "{NAMES[i]}/releases"\nconfig = "{NAMES[i]}.toml"'
        write(draft, chain.unit, last + 1, ("rho", Fraction(1, 1000)), more=base_text)
        try:
            pinned = together(Config.load(draft).facts()["base"])
        except DpstreamError:
            continue
        if pinned[1] < (least := chain.true(i, pinned[0])):
            found.append(f"a stream after {NAMES[i]} is promised {pinned[1]}, and {least} is true")
    facts = f"{chain.unit}, config {chain.config}, {[(kind, str(value)) for kind, value in chain.budgets]}, {acts}"
    return broken, [*(f"base_goes_on: {text}" for text in found), *([facts] if found else [])]


def silent(path: Path) -> list[str]:
    """Who goes on or asserts the sum, though it does not hold (``test_cli_evolution_later`` asks everybody)."""
    found = list[str]()
    code, page = said("statement", path)
    if code == 0 and "THE PUBLISHED GUARANTEE DOES NOT HOLD" not in page:
        found.append("the statement asserts the sum")
    if said("ledger", "verify", path)[0] == 0:
        found.append("ledger verify asserts the sum")
    path.write_text(path.read_text().replace("\nend = ", "\nend = 1"), encoding="utf-8")
    if said("run", path)[0] == 0:
        found.append("run goes on")
    return found


BORDERS = {"base_goes_on": base_goes_on}
