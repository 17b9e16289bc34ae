"""What the command says before and beside its work: help, errors, values on a terminal, start-up time."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from cli_reference import reference
from cli_stream import dpstream as call
from cli_stream import make, unfolded
from click.testing import CliRunner
from small_configs import RENT, ZIP, write_rows

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
        return subprocess.run(command, capture_output=True, text=True, check=False)

    told = without("lab", "audit", "--only", "exact")
    assert (told.returncode, told.stdout) == (2, "")
    assert told.stderr == (
        "error: dpstream lab: the distribution dpstream-lab is not installed (allowed: pip install "
        "dpstream-lab; in a copy of the repository: pip install ./lab)\n"
    )
    assert "  lab " in without("--help").stdout
    config = make(tmp_path, 1, mechanism='name = "dpstabs"\nk = 2')
    done = without("audit", str(config), "--only", "exact")
    assert done.returncode == 0, done.stderr
    assert "none missed" in done.stdout


def test_version_and_usage_errors() -> None:
    assert CliRunner().invoke(main, ["--version"]).stdout == f"dpstream {dpstream.__version__}\n"
    for args in (["frob"], ["run", "--until", "0"], ["sample"], ["plan", "--nonsense"]):
        assert CliRunner().invoke(main, args).exit_code == 2
    told = CliRunner().invoke(main, ["simulate", "evictions", "--steps", "12"])
    assert told.exit_code == 2
    assert "Such as: dpstream simulate evictions --steps 12 --out demo" in told.output


def on_a_terminal(*words: object) -> tuple[int, str]:
    """The exit code of a process, and what it wrote to its terminal."""
    master, slave = os.openpty()
    command = [sys.executable, "-m", "dpstream", *map(str, words)]
    with subprocess.Popen(command, stdout=slave, stderr=slave) as process:
        os.close(slave)
        parts = [b""]
        with contextlib.suppress(OSError):  # the last writer is gone
            while part := os.read(master, 65536):
                parts.append(part)
        os.close(master)
        return process.wait(timeout=120), b"".join(parts).decode()


def test_check_names_columns_and_steps_and_values_on_a_terminal_only(tmp_path: Path) -> None:
    config = make(tmp_path, 3, columns=ZIP + RENT)
    write_rows(tmp_path, "001.csv", "step,zip,rent", ["1,a,5", "2,SECRET,50", "2,a,7777", "3,SECRET,"])
    for step in (2, 3):
        (tmp_path / "data" / f"00{step}.csv").unlink()
    done = call("check", config, code=2, error=False)
    assert not [value for value in ("SECRET", "7777") if value in done.output]
    lines = unfolded(done.stdout)
    (zips,) = [line for line in lines if "'zip'" in line]
    assert "at step 2 (step-2), step 3 (step-3) (allowed:" in zips
    assert len([line for line in lines if "'rent'" in line]) == 2  # outside at step 2, null at step 3
    assert not (tmp_path / "state").exists()
    refused = call("check", config, "--show-values", code=2)
    assert "terminal only" in refused.stderr
    assert "SECRET" not in refused.output
    code, shown = on_a_terminal("check", config, "--show-values")
    assert (code, "SECRET" in shown, "7777" in shown) == (2, True, True)


def test_a_run_on_a_terminal_shows_how_far_it_is(tmp_path: Path) -> None:
    code, shown = on_a_terminal("run", make(tmp_path, 2))
    assert code == 0
    assert " rows" in shown
    assert "2 new steps, 2 in all" in shown


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


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "csh"])
def test_completion_is_installed(shell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SHELL", f"/bin/{shell}")
    done = CliRunner().invoke(main, ["--install-completion"])
    made = [path for path in tmp_path.rglob("*dpstream*") if path.is_file()]
    if shell == "csh":
        assert (done.exit_code, made) == (2, [])
        return
    assert done.exit_code == 0, done.output
    assert str(made[0]) in done.output
    assert f"_DPSTREAM_COMPLETE={shell}_complete" in made[0].read_text()
