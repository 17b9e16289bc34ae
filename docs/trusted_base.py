"""The trusted base: the modules that see private values, found by their marks, and who may take what from them.

    python docs/trusted_base.py            (prints the sizes)
    python docs/trusted_base.py --write    (makes docs/trusted-base.md and the number in README.md anew)

A module is marked by the last line of its docstring: ``Trusted base: kernel (counts private records).`` Private
records enter through the closed rooms only. ``violations`` holds every other module to that: it imports from a closed
room nothing but the names in ``PUBLIC_NAMES``, and calls none of ``PRIVATE_METHODS``.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "benchmarks"))
from structure import code_lines  # noqa: E402

SOURCE = ROOT / "src" / "dpstream"
PAGE = ROOT / "docs" / "trusted-base.md"
README = ROOT / "README.md"
MARK = re.compile(r"^Trusted base: (?P<kind>\w+) \((?P<reason>[^()]+)\)\.$", re.MULTILINE)
#: The kernel's size in the README.
NUMBER = re.compile(r"(?<=kernel of )[0-9,]+(?= lines)")
#: Lines of code that two people can read in a week.
MAX_KERNEL = 15_000

#: What a mark may say, and what it means.
KINDS = {
    "kernel": "The guarantee rests on it for every stream",
    "store": "Keeps private state and what was spent, one transaction a step: read it for durability, not for noise",
    "source": "Reads private records; the guarantee rests on the sources that a stream uses",
    "spark": "The same for records that stay in Spark",
    "server": "Keeps state in a database server, where it is kept there",
    "encryption": "Seals private state at rest",
    "owner": "Sees private records or state, and shows what it finds to their owner only",
    "invented": "Counts records that it has invented itself",
}
#: Kinds that are neither the kernel nor for the owner's eyes.
BESIDE = ("store", "source", "spark", "server", "encryption")
#: Rooms of the kernel from the outside to the noise, in the order of reading, and what each has to guarantee.
READING = {
    "core/schema": "A record becomes codes by public rules; a value outside them is refused, not bent.",
    "project": "What a source reads goes to the stream, and nowhere else.",
    "stream": "A step is admitted, reserved, computed and committed once; the plan stays the pinned one.",
    "core/tables": "Contributions are bounded before records are counted; counts are exact, and stay inside.",
    "core/contracts": "A mechanism gets what its plan declares that it reads.",
    "core/privacy": "Amounts are exact; noise and selections follow their laws exactly; entropy has one door.",
    "core/counters": "Running sums are measured with the noise that their certificate says.",
    "mechanisms": "What is selected and measured costs what the budget was divided into.",
    "families/tabular": "Each event is in the measurements that its budget pays for.",
    "families/census": "Each stay is in one census of each level, and in one count of departures, at most.",
    "families/panel": "Each person's whole history is paid for together.",
    "families/points": "Each point is in the cells of its path, whose amounts add up to the budget.",
    "families/growing": "Runs and questions on a growing database add up to the budget.",
    "stream/ledger": "What was spent is written before noise is drawn, and is never forgotten.",
}

#: Modules out of which private records come. All other marked modules take them as arguments.
CLOSED = ("core.tables", "io.sources", "spark", "stream.admission", "project.pending", "stream.store")
#: What any module may take from them: public rules, settings and types, and what is public once it is committed.
PUBLIC_NAMES: Mapping[str, frozenset[str]] = {
    module: frozenset(names.split())
    for module, names in {
        # Of tables that are public already.
        "core.tables.counting": "count_marginals check_cells",
        "core.tables.keyed_reading": "KeyRules",
        "core.tables.multiset_hash": "MultisetHash",
        # A relay of a batch that its caller has already.
        "core.tables.undiscovered": "DiscoveringBatch",
        "io.sources.calendar": "CalendarPeriods DayPeriods EVERY Grid MonthPeriods StepNumbers day_number period_grid "
        "CALENDAR_PERIODS period_number",
        "io.sources.file_opening": "UnreadableError",
        # Of public tables: priors and constraints.
        "io.sources.formats": "read_table",
        "io.sources.operations": "BY_KEY Operations WORDS_ALLOWED",
        # A source that nobody has read: its private method is ``steps``.
        "io.sources.source": "ReadOptions Source",
        "io.sources.source_opening": "open_source",
        # Steps taken and counted, without their records.
        "project.pending": "TakenStep check_recheck expected_steps last_wanted taken_steps",
        "spark.sessions": "session shielded_from_spark",
        "spark.tasks": "attempt require_version",
        "stream.inspection": "StreamStatus check_store compare_releases read_status verify_ledger wrong_state",
        # Whole stores, moved and checked without a look inside.
        "stream.store.archive": "archived_plan export_store import_store",
        "stream.store.encryption": "StateKey write_key",
        "stream.store.lock": "STAGED",
        "stream.store.place": "has_store questions_path questions_server viewed",
        "stream.store.postgres": "PostgresDatabase PostgresServer schema_name",
        "stream.store.sealed_history": "outside_heads outside_heads_of_questions stored_plan",
        "stream.store.sqlite": "SQLiteDatabase create_file",
        "stream.store.step_rows": "Step",
        "stream.store.store": "Store publication_states published_files rollback_problems",
        "stream.store.store_database": "NEWEST_OR_NEW Sealing StoreDatabase UNSEALED file_errors",
        "stream.store.upkeep": "rekey_store stored_key",
    }.items()
}
#: Methods that give private values: a source's steps, a batch's records and counts, a mechanism's state.
PRIVATE_METHODS = frozenset({"steps", "grant", "pack_state"})
#: (module, method): why it gives nothing private there.
HARMLESS = {
    ("project.planning", "pack_state"): "the state before the first step holds nothing of anybody",
}


@dataclass(frozen=True)
class Module:
    """A module of the package. ``name`` is without ``dpstream.``; ``kind`` is empty where it is not marked."""

    name: str
    text: str
    tree: ast.Module
    kind: str
    reason: str
    is_package: bool = False

    @classmethod
    def of(cls, name: str, text: str, *, is_package: bool = False) -> Module:
        tree = ast.parse(text)
        mark = MARK.search(ast.get_docstring(tree) or "")
        kind, reason = (mark["kind"], mark["reason"]) if mark else ("", "")
        return cls(name, text, tree, kind, reason, is_package)

    @cached_property
    def lines(self) -> int:
        """Lines of code."""
        return code_lines(self.text)

    @property
    def room(self) -> str:
        return "/".join(self.name.split(".")[:-1])


class Package:
    """The modules below a folder, what they import, and what is wrong with that."""

    def __init__(self, source: Path = SOURCE) -> None:
        self.modules: dict[str, Module] = {}
        for path in sorted(source.rglob("*.py")):
            parts, is_package = path.relative_to(source).with_suffix("").parts, path.name == "__init__.py"
            self.add(
                ".".join(parts[:-1] if is_package else parts),
                path.read_text(encoding="utf-8"),
                is_package=is_package,
            )

    def add(self, name: str, text: str, *, is_package: bool = False) -> None:
        """One more module, or another text for it."""
        self.modules[name] = Module.of(name, text, is_package=is_package)

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Lines of code by kind of mark."""
        sizes: dict[str, int] = defaultdict(int)
        for module in self.modules.values():
            sizes[module.kind] += module.lines
        return dict(sizes)

    def kernel_rooms(self) -> dict[str, list[Module]]:
        """The kernel's modules by room, in the order of reading."""
        rooms: dict[str, list[Module]] = {room: [] for room in READING}
        for module in self.modules.values():
            if module.kind == "kernel":
                rooms.setdefault(module.room, []).append(module)
        return {room: modules for room, modules in rooms.items() if modules}

    def imported(self, module: Module) -> Iterator[tuple[int, str, str]]:
        """Line, module and name ("" for a whole module) of everything of the package that a module imports."""
        package = module.name.split(".")
        package = package if module.is_package else package[:-1]
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.name.startswith("dpstream."):
                        yield node.lineno, alias.name.removeprefix("dpstream."), ""
            elif isinstance(node, ast.ImportFrom):
                base = ".".join(package[: len(package) - node.level + 1]) if node.level else "dpstream"
                if node.level or (node.module or "").split(".")[0] == "dpstream":
                    target = node.module or "" if node.level else (node.module or "").removeprefix("dpstream")
                    home = ".".join(
                        part for part in (base.removeprefix("dpstream"), target.strip(".")) if part
                    )
                    for alias in node.names:
                        yield node.lineno, *self.home_of(home.strip("."), alias.name)

    def home_of(self, home: str, name: str) -> tuple[str, str]:
        """Where a name is defined that a package may only hand on."""
        whole = f"{home}.{name}".strip(".")
        if whole in self.modules:
            return whole, ""
        module = self.modules.get(home)
        if module is not None and module.is_package:
            for node in ast.walk(module.tree):
                if isinstance(node, ast.ImportFrom) and any((a.asname or a.name) == name for a in node.names):
                    return self.home_of((node.module or "").removeprefix("dpstream").strip("."), name)
        return home, name

    def violations(self) -> list[str]:
        """What modules without a mark take from closed rooms, and marks that say nothing, as sentences."""
        problems = [
            f"{module.name}: its mark says {module.kind!r}; write one of {', '.join(KINDS)}"
            for module in self.modules.values()
            if module.kind and module.kind not in KINDS
        ]
        for module in self.modules.values():
            if module.kind or module.is_package:
                continue
            for line, home, name in self.imported(module):
                target = self.modules.get(home)
                if target is None or not target.kind or not is_closed(home, target):
                    continue
                if name not in PUBLIC_NAMES.get(home, ()):
                    problems.append(
                        f"{module.name}:{line}: takes {name or 'all of it'} from {home}, out of which private values "
                        "come: mark the module, or list a public name in docs/trusted_base.py"
                    )
            problems += [
                f"{module.name}:{node.lineno}: calls .{node.func.attr}(), which gives private values"
                for node in ast.walk(module.tree)
                if isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in PRIVATE_METHODS
                and (module.name, node.func.attr) not in HARMLESS
            ]
        return problems


def is_closed(name: str, module: Module) -> bool:
    """Whether private records come out of a module: it lies in a closed room, or shows them to their owner."""
    return module.kind == "source" or any(f"{name}.".startswith(f"{room}.") for room in CLOSED)


def page(package: Package) -> str:
    """``docs/trusted-base.md``."""
    sizes, rooms = package.sizes, package.kernel_rooms()
    total = sum(sizes.values())
    text = [
        "<!-- Made by docs/trusted_base.py. -->",
        "# The trusted base",
        "",
        f"The guarantee rests on **{sizes['kernel']:,} lines of code** of {total:,}, the store, and the source that "
        "the stream uses. A test holds all other modules to public values.",
        "",
        "A module belongs to the kernel if it encodes, admits, bounds or counts private records, draws noise, "
        "divides or spends a budget, or decides what a step writes of it. The last line of its docstring says so. "
        "Moving a mark needs a [decision record](decisions/0046-the-trusted-base-is-marked.md).",
        "",
        "|part|modules|lines of code||",
        "|---|---:|---:|---|",
    ]
    for kind, meaning in KINDS.items():
        count = sum(module.kind == kind for module in package.modules.values())
        text.append(f"|{kind}|{count}|{sizes.get(kind, 0):,}|{meaning}.|")
    count = sum(not module.kind for module in package.modules.values())
    text += [
        f"|all else|{count}|{sizes['']:,}|Sees public values only.|",
        "",
        "## The kernel, in the order of reading",
        "",
        "From the outside to the noise, then what is kept. Read each room against the sentence beside it.",
        "",
        "|room|lines|guarantees|",
        "|---|---:|---|",
    ]
    for room, modules in rooms.items():
        text.append(f"|[`{room}`](#{anchor(room)})|{sum(m.lines for m in modules):,}|{READING[room]}|")
    for room, modules in rooms.items():
        text += ["", f"### {room}", "", *table(modules, "does")]
    beside = [m for kind in BESIDE for m in package.modules.values() if m.kind == kind]
    text += [
        "",
        "## Beside the kernel",
        "",
        "These parts never draw noise. The store keeps what the kernel computes; a stream needs those that it uses.",
        "",
        "|part|modules|",
        "|---|---|",
        *(f"|{kind}|{', '.join(f'`{m.name}`' for m in beside if m.kind == kind)}|" for kind in BESIDE),
        "",
        "## What the owner sees",
        "",
        "These modules show private records or state to the owner only. Nothing of it is released.",
        "",
        *table([m for m in package.modules.values() if m.kind == "owner"], "does", whole=True),
        "",
        "## How the rest is held to public values",
        "",
        f"Private records come out of these rooms only: {', '.join(f'`{room}`' for room in CLOSED)}. "
        "A module without a mark may import from them the names that are listed in `docs/trusted_base.py`, and calls "
        "none of "
        f"{', '.join(f'`.{name}()`' for name in sorted(PRIVATE_METHODS))}. "
        "`tests/project/test_trusted_base.py` checks that, with planted faults.",
        "",
        "The check reads imports and calls, and follows no value. That marked modules hand on public values only is "
        "tested by the [audit](audit.md) of exact transcripts: a release that depends on more than noisy counts has "
        "an infinite loss. What a stop shows is in the [threat model](threat-model.md).",
        "",
    ]
    return "\n".join(text)


def table(modules: Iterable[Module], reason: str, *, whole: bool = False) -> list[str]:
    """A line a reason to see private values: the modules that have it, whole or by their name within the room."""
    named: dict[str, list[str]] = defaultdict(list)
    for module in modules:
        named[module.reason].append(f"`{module.name if whole else module.name.split('.')[-1]}`")
    return [
        f"|{reason}|modules|",
        "|---|---|",
        *(f"|{why}|{', '.join(names)}|" for why, names in named.items()),
    ]


def anchor(room: str) -> str:
    return room.replace("/", "")


def with_number(readme: str, package: Package) -> str:
    """The README with the kernel's size."""
    return NUMBER.sub(f"{package.sizes['kernel']:,}", readme)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--write", action="store_true", help="make the page and the number in the README anew"
    )
    options = parser.parse_args()
    package = Package()
    for kind in (*KINDS, ""):
        print(f"{kind or 'all else'}: {package.sizes.get(kind, 0):,}")
    if options.write:
        PAGE.write_text(page(package), encoding="utf-8")
        README.write_text(with_number(README.read_text(encoding="utf-8"), package), encoding="utf-8")
    problems = package.violations()
    print("\n".join(problems), file=sys.stderr)
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
