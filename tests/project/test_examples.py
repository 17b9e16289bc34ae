"""The examples for operators: every command in them parses, and nothing in them is loose."""

from __future__ import annotations

import ast
import configparser
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
import types
from pathlib import Path
from typing import Any

import click
import pytest
from cli_stream import make
from small_configs import rewrite

import dpstream as dp
from dpstream.cli import main

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
SERVICE = EXAMPLES / "systemd" / "dpstream@.service"
WORKER = EXAMPLES / "systemd" / "dpstream-worker@.service"
PAGES = EXAMPLES / "systemd" / "dpstream-pages@.service"
DAG = EXAMPLES / "airflow" / "dpstream_dag.py"
ASSETS = EXAMPLES / "dagster" / "dpstream_assets.py"
CONTAINER = EXAMPLES / "container" / "Containerfile"


def shell_commands(text: str) -> list[list[str]]:
    """Words after every ``dpstream VERB`` of shell text, up to where the shell takes over."""
    text = text.replace("\\\n", " ").replace("$(", " ; ").replace(")", " ; ")
    found = []
    for part in re.split(r"\s2?>|[;&|<\n]", text):
        match = re.search(
            r"(?:^|\s|/)dpstream\s+((?:run|status|simulate|plan|check|warm|up|serve)\b.*)", part
        )
        if match:
            found.append(shlex.split(match[1]))
    return found


def called(path: Path) -> list[list[str]]:
    """What a script passes to its ``call``, with its constants put in."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = {
        target.id: ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and not isinstance(node.value, ast.Call)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "call":
            words: list[str] = []
            for argument in node.args:
                inner = argument.value if isinstance(argument, ast.Starred) else argument
                value = names[inner.id] if isinstance(inner, ast.Name) else ast.literal_eval(inner)
                words += value if isinstance(value, list) else [value]
            found.append(words)
    return found


def service(unit: Path = SERVICE) -> configparser.RawConfigParser:
    parsed = configparser.RawConfigParser(strict=True)
    parsed.optionxform = str  # type: ignore[assignment, method-assign]
    parsed.read_string(unit.read_text(encoding="utf-8"))
    return parsed


def commands() -> list[list[str]]:
    unit = "\n".join(service()["Service"][key] for key in ("ExecStart", "ExecStartPost"))
    unit += "".join(f"\n{service(path)['Service']['ExecStart']}" for path in (WORKER, PAGES))
    cron = (EXAMPLES / "cron" / "dpstream").read_text(encoding="utf-8")
    lines = [line.lstrip("# ") for line in CONTAINER.read_text(encoding="utf-8").splitlines()]
    return [
        *shell_commands(unit),
        *shell_commands(cron),
        *called(DAG),
        *called(ASSETS),
        *shell_commands("\n".join(lines)),
    ]


def test_every_command_parses() -> None:
    found = commands()
    assert len(found) >= 8
    assert {words[0] for words in found} == {"run", "serve", "status", "up", "warm"}
    for verb, *words in found:
        command = main.get_command(click.Context(main), verb)
        assert command is not None
        # click keeps the first help option that a command shows: it has to be the program's.
        command.make_context(verb, words, help_option_names=["-h", "--help"])
        assert "--discard-reserved" not in words
    with pytest.raises(click.UsageError):
        command.make_context("run", ["--nonsense"])


def test_the_service_keeps_secrets() -> None:
    section = service()["Service"]
    wanted = {
        "StateDirectoryMode": "0700", "CacheDirectoryMode": "0700", "ProtectSystem": "strict", "LimitCORE": "0",
        "NoNewPrivileges": "yes", "ProtectHome": "yes", "CapabilityBoundingSet": "", "User": "dpstream",
    }  # fmt: skip
    assert {key: section[key] for key in wanted} == wanted
    assert section["ReadWritePaths"] == "/srv/releases"
    timer = configparser.RawConfigParser(strict=True)
    timer.read_string((EXAMPLES / "systemd" / "dpstream@.timer").read_text(encoding="utf-8"))
    assert timer["Timer"]["Persistent"] == "yes"


def test_the_pages_cannot_see_a_state() -> None:
    worker, pages, single = service(WORKER)["Service"], service(PAGES)["Service"], service()["Service"]
    for key in [
        *("ProtectSystem", "LimitCORE", "NoNewPrivileges"),
        *("ProtectHome", "CapabilityBoundingSet", "User"),
    ]:
        assert worker[key] == pages[key] == single[key]
    assert pages["InaccessiblePaths"] == "/var/lib/dpstream"
    assert "/srv/releases" not in pages["ReadWritePaths"]
    assert worker["StateDirectory"].split()[0] == "dpstream"
    assert pages["IPAddressDeny"] == "any"


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small stream that is ready to run."""
    folder: Path = tmp_path_factory.mktemp("stream")
    rewrite(make(folder, 2, epsilon="2"), 'format = "csv"', 'format = "parquet"')
    return folder


class Again(Exception):
    """Trying again may help."""

    def __init__(self, *_: object, **__: object) -> None:
        super().__init__()


class Final(Again):
    """It does not."""


@pytest.mark.parametrize("script", [DAG, ASSETS], ids=["airflow", "dagster"])
def test_what_orchestrators_call_runs(script: Path, stream: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scripts' own ``call`` with the real command. Airflow and Dagster are too large for the tests: only the
    exceptions that it raises stand in for theirs."""
    tree = ast.parse(script.read_text(encoding="utf-8"))
    wanted = [
        node
        for node in tree.body
        if (isinstance(node, ast.FunctionDef) and node.name == "call")
        or (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "PASSING")
    ]
    dagster = types.SimpleNamespace(RetryRequested=Again, Failure=Final)
    names: dict[str, Any] = {"AirflowException": Again, "AirflowFailException": Final, "dagster": dagster}
    names |= {"subprocess": subprocess, "shlex": shlex}
    exec(compile(ast.Module(wanted, []), str(script), "exec"), names)
    assert names["PASSING"] == (4, 5), (
        "locked, full or interrupted; wrong input and a spent budget do not pass"
    )
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    config = str(stream / "dpstream.toml")
    names["call"]("run", config)
    said = names["call"]("status", config, "--json")
    assert said is None or json.loads(said)["steps"] == 2
    with pytest.raises(Final):
        names["call"]("run", str(stream / "nothing.toml"))


def test_the_dbt_project_reads_the_newest_release(stream: Path) -> None:
    """Its models, rendered with what they use of dbt, on DuckDB."""
    import duckdb
    import jinja2

    config = str(stream / "dpstream.toml")
    subprocess.run([sys.executable, "-m", "dpstream", "run", config], check=True, capture_output=True)
    with duckdb.connect() as database:

        def run_query(text: str) -> Any:
            (row,) = database.execute(text).fetchall()
            return types.SimpleNamespace(columns=[types.SimpleNamespace(values=lambda: row)])

        place = {"releases": str(stream / "releases")}
        given = {"config": lambda **_: "", "var": place.get, "ref": str, "execute": True}
        for name in ("newest", "sizes"):
            text = (EXAMPLES / "dbt" / "models" / f"{name}.sql").read_text(encoding="utf-8")
            query = (
                jinja2.Environment(autoescape=False).from_string(text).render(**given, run_query=run_query)
            )
            database.execute(f"CREATE TABLE {name} AS {query}")
        found = database.execute("SELECT step, records FROM sizes").fetchall()
    assert found == [(2, dp.read(stream / "releases").table(2).num_rows)]
    assert "releases" in (EXAMPLES / "dbt" / "dbt_project.yml").read_text(encoding="utf-8")


def test_the_image_is_pinned_and_runs_as_nobody() -> None:
    text = CONTAINER.read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    images = [line.split()[1] for line in lines if line.startswith("FROM")]
    # Plain names: no registry's host.
    assert len(images) == 2
    assert all(re.fullmatch(r"[a-z]+:[\w.-]+", image) for image in images)
    assert [line.split()[1] for line in lines if line.startswith("USER")] == ["10001:10001"]
    last = max(number for number, line in enumerate(lines) if line.startswith("FROM"))
    assert lines.index("USER 10001:10001") > last
    installs = [line for line in lines if "pip install" in line]
    assert all("--require-hashes" in line or "--no-deps --no-build-isolation" in line for line in installs)
    for line in lines:
        assert not line.startswith("ADD")
        assert "://" not in line
        if line.startswith("COPY") and "--from" not in line:
            assert all((ROOT / name).exists() for name in line.split()[1:-1]), line
    (volumes,) = [json.loads(line.split(" ", 1)[1]) for line in lines if line.startswith("VOLUME")]
    assert volumes == ["/service", "/state", "/releases", "/cache"]


def test_examples_are_in_the_sdist_and_not_in_the_wheel() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    targets = project["tool"]["hatch"]["build"]["targets"]
    assert "/examples" in targets["sdist"]["include"]
    assert targets["wheel"]["packages"] == ["src/dpstream"]
    listed = set(re.findall(r"`([\w@./-]+)`", (EXAMPLES / "README.md").read_text(encoding="utf-8")))
    paths = (path for path in EXAMPLES.rglob("*") if "__pycache__" not in path.parts)
    files = {str(path.relative_to(EXAMPLES)) for path in paths if path.is_file()}
    assert files - {"README.md"} <= listed
