"""What each verb prints, on both streams and piped: 24 lines of 100 columns, compared with golden files.

Numbers are replaced by ``#``, runs of blanks by one. DPSTREAM_SCREENS=1 writes the files anew: read them then.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from small_configs import PUBLIC, write_config, write_rows

from dpstream.cli import main
from dpstream.cli.main import BROUGHT
from dpstream.cli.progress import StepProgress
from dpstream.tools.audit import AuditFinding
from dpstream.tools.simulate import Stock, simulate

GOLDEN = Path(__file__).with_name("screens")
LINES, COLUMNS = 24, 100
#: Of each family before the run, after it, when a step is gone, and with the whole budget spent.
RUN = """
    check
    plan --quick
    plan --compare --seconds 600 --runs 1 --steps 2
    status
    run --test-seed 1
    status
    status --health
    sample --step 3 --rows 5 --out more.csv
    ledger show
    ledger verify
    evaluate
    errors --runs 2
    measured releases
    report dpstream.toml
    statement --out statement.html
    store check
    store compact
    advisory check releases
    withdraw --step 2 --reason wrong
    status
    run
"""
#: Of a stream whose steps are held, with an account; another file has another plan.
HELD = """
    init data --time-column file_date --out drafted.toml
    check drafted.toml
    plan drafted.toml --quick
    run drafted.toml
    ledger account create account.jsonl --limit epsilon=2
    run
    status
    status --health
    approve --step 1
    approve --all
    ledger show
    ledger account show account.jsonl
    ledger account verify account.jsonl dpstream.toml
    ledger account charge account.jsonl dpstream.toml
    ledger account raise account.jsonl --limit epsilon=3
    ledger export --out ledger.jsonl
    run other.toml
    plan --compare-epsilon 0.5,1,2
    plan --want "total within 20 %"
    store key --out new.key
    store export --out moved.tar --move
    run
    store import --from moved.tar
    ledger account close-stream account.jsonl STREAM
    run
    store rekey --to new.key
    status
"""
#: Of data that do not fit; the stream stops at the second step.
FAILED = """
    check
    check --all
    run
    status
    status --health
    audit dpstream.toml
"""
#: Of a panel whose last period was released.
ENDED = """
    run
    status
    status --health
    ledger show
    run
"""
GROWING = """
    check
    plan --quick
    run
    status
    ask dpstream.toml --list
    ask dpstream.toml "age >= 65 and smoker"
    ask dpstream.toml --list
    status
    ledger show
    measured releases
    report dpstream.toml
"""
#: Of each other family in the middle: two steps held, then approved, and the last one does not fit.
LIFE = """
    run --until 2
    status
    approve --all
    run
    status
"""
ROUND = """
    simulate evictions --steps 2 --out example
    demo --steps 2 --out look
    sample look/releases --where "non_payment and rent >= 1000" --rows 5 --out part.csv
    up --init desk example/dpstream.toml
    serve people add desk mia --role owner
    serve people add desk anna --role approver
    serve people list desk
    serve people roles desk anna --role analyst
    serve people sign-out desk anna
    serve people token desk anna
    serve people remove desk anna
    serve decisions desk
    serve token tokens.txt reader
    warm
"""
#: Verbs that go on until somebody stops them, and those of another distribution.
WITHOUT = {"serve releases", "serve pages", *BROUGHT}


#: Findings of an audit that nobody should see: of many mechanisms that lose more than they claim, long names too.
EXCEEDING = [
    AuditFinding(
        f"configured {'many words and ' * 5}{at}", "exact", 1.0, 1.5, None, None, False, "at step 1", 0.1
    )
    for at in range(20)
]
CASES = dict.fromkeys(("evictions", "stock", "panel", "points", "census"), RUN)
CASES |= {"held": HELD, "failed": FAILED, "ended": ENDED, "growing": GROWING, "round": ROUND}
CASES |= {f"{kind}-life": LIFE for kind in ("stock", "panel", "points", "growing")}


def test_every_screen_has_its_sentence() -> None:
    told = dict[str, list[str]]()
    for section in (GOLDEN / "README.md").read_text(encoding="utf-8").split("\n## ")[1:]:
        heading, _, rows = section.partition("\n")
        screens = re.findall(r"^\|(.+)\|\S.*\.\|$", rows, re.MULTILINE)
        told |= dict.fromkeys(heading.split(", "), screens)
    assert told == {name: [line.strip() for line in case.strip().split("\n")] for name, case in CASES.items()}


def write_case(folder: Path, name: str) -> None:
    """The stream of a case."""
    if name == "round":
        return
    if name.endswith("-life"):
        write_case(folder, name.removesuffix("-life"))
        path, file = folder / "dpstream.toml", max(folder.glob("[cd]*a*/*.csv"))
        text = path.read_text("utf-8")
        text += "" if "[output]" in text else "[output]\n"
        path.write_text(text.replace("[output]", "[output]\napprove = true"), encoding="utf-8")
        text = file.read_text("utf-8").rstrip("\n")
        if name == "growing-life":
            for at in (2, 3):
                file = file.with_name(f"{at}.csv")
                file.write_text(text, encoding="utf-8")
        file.write_text(re.sub(r",[^,]*$", ",?", text), encoding="utf-8")
        return
    if name == "growing":
        columns = '[schema.columns.smoker]\ntype = "boolean"\n'
        columns += '[schema.columns.age]\ntype = "integer"\nedges = [0, 18, 65, 120]\n'
        mechanism = 'name = "pmwg"\nalpha = "0.05"\nstart = 100\nhard_questions = 20'
        source = 'path = "data/*.csv"\nevery = "files"'
        made = write_config(folder, stream=PUBLIC, source=source, columns=columns, mechanism=mechanism)
        made.rename(folder / "dpstream.toml")
        write_rows(folder, "1.csv", "smoker,age", (f"true,{at % 90}" for at in range(5000)))
        return
    if name == "stock":
        simulate(name, 4, folder, stock=Stock(records=100, columns=4))
        return
    kind = {"held": "evictions", "failed": "evictions", "ended": "panel"}.get(name, name)
    simulate(kind, {"held": 2, "ended": 12}.get(name, 4), folder, rows_per_step=100)
    path = folder / "dpstream.toml"
    text = path.read_text(encoding="utf-8")
    if name == "held":
        text = text.replace("[output]", "[output]\napprove = true")
        path.write_text(text.replace("[budget]", '[budget]\naccount = "account.jsonl"'), encoding="utf-8")
        other = path.read_text(encoding="utf-8").replace('epsilon = "1"', 'epsilon = "2"')
        path.with_name("other.toml").write_text(other, encoding="utf-8")
    if name == "failed":
        (file,) = (folder / "data").iterdir()
        first, *rows = file.read_text(encoding="utf-8").split("\n")
        kept, bad = rows[:-9], [re.sub(r"(,[^,]*){8}$", ",?" * 8, row) for row in rows[-9:]]
        file.write_text("\n".join([first, *kept, *bad]), encoding="utf-8")


def verbs(group: click.Command, name: str = "") -> Iterator[str]:
    """All verbs of the program, groups by their members."""
    if isinstance(group, click.Group) and name not in BROUGHT:
        context = click.Context(group)
        for member in group.list_commands(context):
            made = group.get_command(context, member)
            assert made is not None
            yield from verbs(made, f"{name} {member}".strip())
    else:
        yield name


def test_every_verb_that_ends_has_a_screen() -> None:
    shown = "".join(f"{line.strip()} \n" for case in CASES.values() for line in case.split("\n"))
    without = {verb for verb in verbs(main) if not re.search(f"^{verb} ", shown, re.MULTILINE)}
    assert without == WITHOUT


@pytest.mark.parametrize("name", CASES)
def test_screens_are_short_and_as_they_were_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    folder = tmp_path / name
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("LOGNAME", "mia")
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    monkeypatch.setattr("dpstream.tools.audit.audit_file", lambda *_, **__: EXCEEDING)
    write_case(folder, name)
    parts = []
    for words in CASES[name].strip().split("\n"):
        if "STREAM" in words:
            (stream,) = set(re.findall(r'"stream_id": ?"(\w+)"', Path("account.jsonl").read_text("utf-8")))
            words = words.replace("STREAM", stream)
        done = CliRunner().invoke(main, shlex.split(words))
        text = re.sub(r"(and kept in) \S+", r"\1 CACHE", done.output.replace(str(folder), "FOLDER"))
        assert done.exit_code in (0, 2, 3, 4, 6, 7), (words, text)
        lines = text.rstrip("\n").split("\n")
        # An error is one line, which logs keep together and a terminal breaks.
        broken = [
            part for line in lines for part in (textwrap.wrap(line, COLUMNS) if "error: " in line else [line])
        ]
        assert len(broken) <= LINES, (words, text)
        assert not [line for line in broken if len(line) > COLUMNS], (words, text)
        text = re.sub(r"^[\w-]{43}$", "TOKEN", text, flags=re.MULTILINE)
        text = re.sub(r"[0-9a-f]{12,}|[-+]?\d[\d,.]*(e[-+]?\d+)?", "#", text)
        parts += [f"$ dpstream {re.sub('[0-9a-f]{12,}', 'ID', words.strip())}", text]
    text = re.sub(r"[ ─]{2,}", "  ", "\n".join(parts))
    golden = GOLDEN / f"{name}.txt"
    if os.environ.get("DPSTREAM_SCREENS"):
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


def test_progress_on_a_terminal_is_one_line_that_is_rewritten(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    progress = StepProgress()
    progress.expect(2)
    for step in (1, 2):
        progress.step(step, f"2024-W0{step}", 1000 * step, released=False)
    progress.close()
    line, after = terminal.getvalue().split("\n")
    seen = re.sub(r"\x1b\[[\d;?]*\w|[━╸╺]", "", line.rsplit("\r", 1)[-1])
    assert seen.split() == ["step", "2", "(2024-W02)", "2,000", "rows", "0:00:00"]
    assert after.endswith("\x1b[1A\x1b[2K"), "it stays"
