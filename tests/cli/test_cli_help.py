"""What the command says before and beside its work: help, errors, values on a terminal, start-up time."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest
from cli_reference import reference
from click.testing import CliRunner

import dpstream
from dpstream.cli import main
from dpstream.tools.simulate import simulate

ROOT = Path(__file__).resolve().parents[2]
VERBS = (
    "store",
    "init", "simulate", "check", "plan", "run", "ask", "status", "sample", "approve", "withdraw",
    "measured", "evaluate", "report", "statement", "audit", "ledger",
)  # fmt: skip


def test_the_reference_page_is_the_help() -> None:
    page = ROOT / "docs/reference/cli.md"
    assert page.read_text(encoding="utf-8") == reference(), (
        "make it again: python docs/cli_reference.py > docs/reference/cli.md"
    )


def test_the_help_names_every_exit_code() -> None:
    page = (ROOT / "docs/reference/exit-codes.md").read_text(encoding="utf-8")
    said = CliRunner().invoke(main, ["--help"]).output.split("Exit codes:")[1].split("Options:")[0]
    assert set(re.findall(r"^\| (\d) \|", page, re.MULTILINE)) == set(re.findall(r"\b\d\b", said))


@pytest.mark.parametrize("verb", [*VERBS, "lab audit", "lab reproduce", "lab compare", "lab datasets"])
def test_every_help_has_an_example_that_parses(verb: str) -> None:
    words = verb.split()
    text = CliRunner().invoke(main, [*words, "--help"]).stdout
    example = re.search(r"Examples?:\n\s+dpstream (.*)\n", text)
    assert example is not None
    command: click.Command | None = main
    for word in words:
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), word)
    assert command is not None
    arguments = shlex.split(example[1])
    assert arguments[: len(words)] == words
    command.make_context(verb, arguments[len(words) :])


def test_the_laboratory_is_asked_for_where_it_is_missing(tmp_path: Path) -> None:
    """And the audit of a configuration needs nothing of it."""
    missing = (
        "import sys, importlib.metadata as found\n"
        "sys.modules['dpstream_lab'] = None\n"
        "every = found.entry_points\n"
        "found.entry_points = lambda **of: () if of == {'group': 'dpstream.commands'} else every(**of)\n"
        "from dpstream.cli import main\n"
        "main(sys.argv[1:])"
    )

    def without(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", missing, *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)

    for words in (("lab",), ("lab", "--help"), ("lab", "audit", "--only", "exact")):
        told = without(*words)
        assert told.returncode == 2
        assert told.stdout == ""
        assert told.stderr == (
            "error: dpstream lab: the distribution dpstream-lab brings it, and is not installed (allowed: pip install "
            "dpstream-lab; in a copy of the repository: pip install ./lab)\n"
        )
    assert "  lab " in without("--help").stdout
    simulate("evictions", 3, tmp_path / "example", rows_per_step=20, seed=1)
    done = without("audit", "example/dpstream.toml", "--only", "transcripts")
    assert done.returncode == 0, done.stderr
    assert "none missed" in done.stdout


def run(*args: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dpstream", *args], capture_output=True, text=True, check=False, **options
    )  # type: ignore[call-overload, no-any-return]


def test_version_and_usage_errors() -> None:
    assert run("--version").stdout == f"dpstream {dpstream.__version__}\n"
    for args in (["frob"], ["run", "--until", "0"], ["sample"], ["plan", "--nonsense"]):
        assert CliRunner().invoke(main, args).exit_code == 2
    told = CliRunner().invoke(main, ["simulate", "evictions", "--steps", "12"])
    assert told.exit_code == 2
    assert "Such as: dpstream simulate evictions --steps 12 --out demo" in told.output


def test_help_imports_nothing_heavy() -> None:
    """What would make it slow; its time is no matter of a test."""
    code = (
        "import sys\n"
        "from dpstream.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'numpy', 'numba', 'pyarrow', 'scipy', 'rich', 'jinja2', 'pandas', 'dpstream_lab'}\n"
        "heavy |= {'importlib.metadata'}\n"
        "heavy &= set(sys.modules)\n"
        "print(sorted(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("verb", ["plan", "run", "check", "status"])
def test_a_missing_configuration_is_one_line(verb: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(main, [verb, str(tmp_path / "none.toml")])
    assert done.exit_code == 2
    assert re.fullmatch(r"error: .*none\.toml: the file cannot be read: .*\n", done.stderr)


def test_a_bug_keeps_its_traceback(tmp_path: Path) -> None:
    config = simulate("census", 1, tmp_path)
    code = (
        "import dpstream.project.planning as d\n"
        "def broken(config, at, until): raise RuntimeError('planted')\n"
        "d.describe = broken\n"
        "from dpstream.cli import main\n"
        f"main(['plan', {str(config)!r}])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "in broken" in done.stderr
    assert re.search("^RuntimeError$", done.stderr, re.MULTILINE)


def test_a_draft_is_secret_checked_confirmed_and_run(tmp_path: Path) -> None:
    simulate("census", 3, tmp_path / "demo", rows_per_step=40)
    draft = tmp_path / "mine.toml"
    args = ["init", str(tmp_path / "demo/data"), "--time-column", "step", "--out", str(draft)]
    assert CliRunner().invoke(main, args).exit_code == 0
    assert draft.stat().st_mode & 0o777 == 0o600
    again = CliRunner().invoke(main, args)
    assert again.exit_code == 2
    assert "already" in again.stderr
    # The steps are numbers, and no days of a calendar.
    text = re.sub(r'\nend = "FILL IN".*', "\nend = 3", draft.read_text(encoding="utf-8"))
    draft.write_text(text, encoding="utf-8")
    refused = CliRunner().invoke(main, ["run", str(draft)])
    assert refused.exit_code == 2
    assert "draft" in refused.stderr
    check = CliRunner().invoke(main, ["check", str(draft), "--json"])
    assert check.exit_code == 2
    assert [p for p in json.loads(check.stdout)["problems"] if "draft" not in p] == []
    draft.write_text(text.replace("confirmed = false", "confirmed = true"), encoding="utf-8")
    assert CliRunner().invoke(main, ["check", str(draft)]).exit_code == 0
    assert CliRunner().invoke(main, ["run", str(draft)]).exit_code == 0


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    (tmp_path / "d.csv").write_text(
        "step,zip,rent\n1,a,5\n2,SECRET,50\n2,a,77\n3,SECRET,\n", encoding="utf-8"
    )
    config = tmp_path / "dpstream.toml"
    config.write_text(
        '[stream]\nname = "odd"\n[source]\npath = "d.csv"\ntime_column = "step"\nend = 3\n'
        '[schema.columns.zip]\ntype = "categorical"\nvalues = ["a"]\n'
        '[schema.columns.rent]\ntype = "real"\nedges = [0, 10]\n[mechanism]\n[budget]\nepsilon = 1\n',
        encoding="utf-8",
    )
    return config


def test_check_names_columns_and_steps_but_no_value(odd: Path) -> None:
    done = CliRunner().invoke(main, ["check", str(odd)])
    assert done.exit_code == 2
    assert "SECRET" not in done.output
    assert "77" not in done.output
    lines = done.stdout.splitlines()
    (zips,) = [line for line in lines if "'zip'" in line]
    assert "at step 2 (step-2), step 3 (step-3) (allowed:" in zips
    rents = [line for line in lines if "'rent'" in line]
    assert len(rents) == 2  # outside at step 2, null at step 3
    assert lines[-1] == "3 steps read: fix the schema or the data"
    assert not (odd.parent / "state").exists()


def test_values_are_shown_on_a_terminal_only(odd: Path) -> None:
    refused = CliRunner().invoke(main, ["check", str(odd), "--show-values"])
    assert refused.exit_code == 2
    assert "terminal only" in refused.stderr
    assert "SECRET" not in refused.output
    master, slave = os.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "dpstream", "check", str(odd), "--show-values"], stdout=slave, stderr=slave
    ) as process:
        assert process.wait(timeout=120) == 2
    os.close(slave)
    shown = os.read(master, 65536).decode()
    os.close(master)
    assert "SECRET" in shown
    assert "77" in shown


def test_a_killed_and_an_interrupted_process_leave_a_clean_state(tmp_path: Path) -> None:
    """A real process on a terminal, with its progress bar."""
    config = simulate("evictions", 400, tmp_path, rows_per_step=5)
    command = [sys.executable, "-m", "dpstream", "run", str(config)]
    codes = []
    for number in (signal.SIGINT, signal.SIGKILL):
        before = steps_there(tmp_path)
        master, slave = os.openpty()
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=slave) as process:
            while steps_there(tmp_path) < before + 2 and process.poll() is None:
                time.sleep(0.01)
            process.send_signal(number)
            os.close(slave)
            said = drain(master)
            codes.append(process.wait(timeout=120))
        os.close(master)
        if number == signal.SIGINT:
            assert "steps/s" in said
            assert "the state is clean" in said
    assert codes == [5, -signal.SIGKILL], said
    until = steps_there(tmp_path) + 2
    assert until < 400
    done = CliRunner().invoke(main, ["run", str(config), "--until", str(until)])
    assert done.exit_code == 0, done.output
    status = json.loads(CliRunner().invoke(main, ["status", str(config), "--json"]).stdout)
    assert status["steps"] == until


def steps_there(folder: Path) -> int:
    return len(list((folder / "releases").glob("step-*"))) if (folder / "releases").exists() else 0


def drain(descriptor: int) -> str:
    """Everything written to the other end until it is closed."""
    parts = []
    while True:
        try:
            part = os.read(descriptor, 65536)
        except OSError:  # the last writer is gone
            break
        if not part:
            break
        parts.append(part)
    return b"".join(parts).decode()


def test_a_closed_pipe_is_no_error(tmp_path: Path) -> None:
    config = simulate("census", 1, tmp_path)
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "dpstream", "plan", str(config)],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writer)
    assert done.returncode == 0
    assert done.stderr == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_installed(shell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SHELL", f"/bin/{shell}")
    done = CliRunner().invoke(main, ["--install-completion"])
    assert done.exit_code == 0, done.output
    (file,) = (path for path in tmp_path.rglob("*dpstream*") if path.is_file())
    assert str(file) in done.output
    assert f"_DPSTREAM_COMPLETE={shell}_complete" in file.read_text()


def test_shells_that_cannot_complete_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SHELL", "/bin/csh")
    done = CliRunner().invoke(main, ["--install-completion"])
    assert done.exit_code == 2
    assert list(tmp_path.iterdir()) == []
