"""Bad input for the command, made from what there is: verbs and options from click, files from what was written.

Nothing here lists a verb, so what is added later is attacked as well. A ``Case`` is a command line and what is done to
the folder before it. Values of keys are attacked in ``tests/config/test_config_wrong.py``.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import chdir
from pathlib import Path

import click
import pyarrow as pa
import pyarrow.parquet
from bad_input_judge import ROWS, Case, World, configure

from dpstream.cli import main
from dpstream.cli.types import FilePath, Whole

__all__ = ["damaged_data", "damaged_state", "numbers", "paths"]

SEED = 16

# Verbs and options.

#: Values that a verb needs beside the one that is wrong, so that it gets as far as that one.
GOOD = {
    "name": "evictions",
    "limit": "epsilon=2",
    "reason": "a test",
    "stream_id": "0" * 32,
    "question": "age >= 5",
}


def verbs(
    command: click.Command = main, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every verb that does something, with its words."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from verbs(child, (*path, name))
    else:
        yield path, command


def line(words: tuple[str, ...], verb: click.Command, wrong: click.Parameter, value: str) -> list[str]:
    """A command line that is right but for one value."""
    options, arguments = [], []
    for one in verb.params:
        if one is wrong:
            given = value
        elif one.required or (isinstance(one, click.Argument) and one.default is not None):
            given = usual(one)
        elif isinstance(one, click.Argument) and isinstance(wrong, click.Argument) and one.nargs == 1:
            given = usual(one) if verb.params.index(one) < verb.params.index(wrong) else ""
        else:
            continue
        if isinstance(one, click.Argument):
            arguments += [given] if given or one is wrong else []
        else:
            options.append(f"{one.opts[0]}={given}")
    return [*words, *options, "--", *arguments]


def usual(one: click.Parameter) -> str:
    kind = one.type
    if isinstance(kind, FilePath):
        return {"file": "dpstream.toml", "new": "new.csv", "folder": "new", "any": "data"}[kind.kind]
    if isinstance(kind, click.IntRange):
        return "1"
    return GOOD.get(str(one.name), "x")


def folder_in_the_way(folder: Path) -> None:
    (folder / "bad").mkdir()


def file_in_the_way(folder: Path) -> None:
    (folder / "bad").write_text("x", encoding="utf-8")


def pipe(folder: Path) -> None:
    os.mkfifo(folder / "bad")


def plug(folder: Path) -> None:
    with chdir(folder), socket.socket(socket.AF_UNIX) as made:
        made.bind("bad")


def loop(folder: Path) -> None:
    (folder / "bad").symlink_to("other")
    (folder / "other").symlink_to("bad")


def loose(folder: Path) -> None:
    (folder / "bad").symlink_to("nowhere")


def device(path: Path) -> None:
    """A device of the case's own, for one of the machine might be lost; without the right to make one, a pipe."""
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 7))
    except PermissionError:
        os.mkfifo(path)


def own_device(folder: Path) -> None:
    device(folder / "bad")


def linked_device(folder: Path) -> None:
    device(folder / "full")
    (folder / "bad").symlink_to("full")


ANYWHERE: dict[str, tuple[str, Callable[[Path], object]]] = {
    "a name of 300 letters": ("n" * 300, lambda _: None),
    "a path of 6000 letters": ("long/" * 1200 + "x", lambda _: None),
    "a circle of links": ("bad", loop),
    "a circle of links on the way": ("bad/x", loop),
    "a file on the way": ("bad/x", file_in_the_way),
    "a pipe on the way": ("bad/x", pipe),
    "a NUL": ("a\0b", lambda _: None),
    "nothing": ("", lambda _: None),
    "a lone surrogate": ("a\ud800b", lambda _: None),
    "a named pipe": ("bad", pipe),
    "a device": ("bad", own_device),
    "a link to a device": ("bad", linked_device),
    "a socket": ("bad", plug),
}
BY_KIND: dict[str, dict[str, tuple[str, Callable[[Path], object]]]] = {
    "file": {"a folder": ("bad", folder_in_the_way), "a link to nothing": ("bad", loose)},
    "new": {"a folder": ("bad", folder_in_the_way), "a link to nothing": ("bad", loose)},
    "folder": {"a file": ("bad", file_in_the_way)},
    "any": {"a link to nothing": ("bad", loose)},
}


def paths() -> list[Case]:
    """Every option that is a path, with every path that cannot be what it has to be."""
    cases = []
    for words, verb in verbs():
        for one in verb.params:
            if not isinstance(one.type, FilePath):
                continue
            for name, (value, prepare) in {**ANYWHERE, **BY_KIND[one.type.kind]}.items():
                args = line(words, verb, one, value)
                cases.append(Case(f"{' '.join(words)} {one.name}: {name}", args, prepare))
    return cases


WHOLE = ("-1", "1.5", "1e3", "+1", "\u0661", "1_0", " 1", "", "nan", "0x10", "9" * 19, "9" * 5000)
AMOUNTS = (
    *("1e400000000", "+1", "\u0661", "1_0", " 1", "0", "-1", "nan", "inf", "1/0", "", "9" * 5000),
    *("1e-", "x"),
)


def numbers() -> list[Case]:
    """Every option that is a whole number, and every option that is an amount."""
    cases = []
    for words, verb in verbs():
        for one in verb.params:
            if isinstance(one.type, Whole):
                values: tuple[str, ...] = WHOLE
            elif one.name in ("epsilon", "rho", "epsilons", "limit"):
                values = AMOUNTS
            else:
                continue
            for value in values:
                args = line(words, verb, one, f"epsilon={value}" if one.name == "limit" else value)
                # No list of budgets is all of them.
                passes = one.name == "epsilons" and not value
                cases.append(Case(f"{' '.join(words)} {one.name} = {value[:20]!r}", args, may_pass=passes))
    return cases


# Files that are damaged.


def data_files() -> dict[str, bytes]:
    """The private table in every format."""
    text = "step,zip,age\n" + ROWS
    rows = [dict(zip(("step", "zip", "age"), row.split(","), strict=True)) for row in ROWS.split()]
    sink = pa.BufferOutputStream()
    pa.parquet.write_table(pa.Table.from_pylist(rows), sink)
    lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
    return {
        "1.csv": text.encode(),
        "1.csv.gz": gzip.compress(text.encode(), mtime=0),
        "1.parquet": sink.getvalue().to_pybytes(),
        "1.ndjson": lines,
        "1.ndjson.gz": gzip.compress(lines, mtime=0),
    }


DEEP = b"[" * 50_000 + b"]" * 50_000
CONTENTS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "cut in half": lambda data: data[: len(data) // 2],
    "cut by a byte": lambda data: data[:-1],
    "without its beginning": lambda data: data[7:],
    "twice": lambda data: data + data,
    "zeros": lambda data: bytes(len(data)),
    "no UTF-8": lambda data: data.replace(b"a", b"\xff"),
    "a mark of byte order": lambda data: b"\xff\xfe" + data,
    "a NUL inside": lambda data: data.replace(b",", b"\0"),
    "quotes that stay open": lambda data: data.replace(b"a", b'"'),
    "nested without end": lambda data: DEEP,
    "keys nested without end": lambda data: b'{"step":' * 50_000,
    "a number without end": lambda data: data.replace(b"1", b"1e999"),
    "a number of 5000 digits": lambda data: data.replace(b"1", b"9" * 5000, 1),
    "a list": lambda data: b"[1, 2]\n",
    "null": lambda data: b"null\n",
    "a text": lambda data: b'"x"\n',
    "other keys": lambda data: data.replace(b"step", b"Step").replace(b"entry", b"Entry"),
    "negative": lambda data: data.replace(b"1", b"-1"),
    "one flipped bit": lambda data: data[:40] + bytes([data[40] ^ 1]) + data[41:] if len(data) > 40 else data,
}
OTHER_KINDS: dict[str, Callable[[Path], object]] = {
    "a folder": lambda path: path.mkdir(),
    "a named pipe": lambda path: os.mkfifo(path),
    "a circle of links": lambda path: path.symlink_to(path.name),
    "a link to nothing": lambda path: path.symlink_to("nowhere"),
    "a device": device,
    "missing": lambda path: None,
}


def damage(path: Path, name: str) -> None:
    if name in CONTENTS:
        path.write_bytes(CONTENTS[name](path.read_bytes()))
        return
    path.unlink()
    OTHER_KINDS[name](path)


def damaged_data() -> list[Case]:
    """The private table, damaged in every way, under every verb that reads it (two of them each)."""
    chance, cases = random.Random(SEED), []
    for file, data in data_files().items():
        for name in (*CONTENTS, *OTHER_KINDS):

            def prepare(folder: Path, file: str = file, data: bytes = data, name: str = name) -> None:
                (folder / "fresh").mkdir()
                (folder / "fresh" / file).write_bytes(data)
                damage(folder / "fresh" / file, name)
                configure(folder, "fresh.toml", "fresh/*", 'dir = "fresh-out"\n[state]\ndir = "fresh-state"')

            place = f"fresh/{file}"
            lines = [
                ["check", "fresh.toml"],
                ["run", "fresh.toml"],
                ["init", place, "--out", "draft.toml"],
                ["init", place, "--time-column", "step", "--out", "draft.toml"],
            ]
            cases += [
                Case(f"{' '.join(args)}: {file} is {name}", args, prepare, may_pass=True)
                for args in chance.sample(lines, 2)
            ]
    return cases


#: Files of the world (the first of its kind by name) and verbs that read them.
STORED: dict[str, tuple[str, ...]] = {
    "state/head.json": ("run", "status", "ledger verify", "sample --step 1 --out s.csv", "store check"),
    "state/*.sqlite": ("run", "status --health", "ledger show", "store check", "store compact"),
    "releases/catalogue.json": ("run", "status", "report releases", "ledger verify", "statement"),
    "releases/codebook.json": ("report releases", "status", "run"),
    "releases/step-000001/manifest.json": (
        "report releases",
        "ledger verify",
        "run",
        "withdraw --step 1 --reason x",
    ),
    "releases/step-000002/table.csv": ("report releases", "ledger verify", "status"),
    "an.account": (
        "ledger account show {}",
        "ledger account charge {}",
        "ledger account verify {} dpstream.toml",
    ),
    "an.account.head": ("ledger account show an.account", "ledger account charge an.account"),
    "ledger.jsonl": ("ledger verify {}", "ledger verify {} --releases releases"),
    "copy.dpstore": ("store import --state elsewhere --from {}",),
    "a.key": ("store rekey --to {}",),
    "questions.txt": ("ask --file {}",),
    "dpstream.toml": ("plan", "run", "report", "check", "init --after {} --out new.toml"),
}
VERBS_OF_A_DAMAGE = 2


def damaged_state(world: World) -> list[Case]:
    """Everything that the program wrote itself, damaged in every way, under verbs that read it."""
    chance, cases = random.Random(SEED), []
    for pattern, lines in STORED.items():
        found = sorted(world.model.glob(pattern))
        assert found, f"the model has no {pattern}"
        file = str(found[0].relative_to(world.model))
        for name in (*CONTENTS, *OTHER_KINDS):
            for text in chance.sample(lines, min(VERBS_OF_A_DAMAGE, len(lines))):
                args = text.format(file).split()
                cases.append(
                    Case(
                        f"{text}: {file} is {name}",
                        args,
                        lambda folder, file=file, name=name: damage(folder / file, name),  # type: ignore[misc]
                        may_pass=True,
                    )
                )
    return cases
