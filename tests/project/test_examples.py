"""The examples for operators: every command in them parses, and nothing in them is loose."""

from __future__ import annotations

import ast
import configparser
import json
import re
import shlex
import tomllib
from pathlib import Path

import click
import pytest

from dpstream.cli import main

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
SERVICE = EXAMPLES / "systemd" / "dpstream@.service"
DAG = EXAMPLES / "airflow" / "dpstream_dag.py"
CONTAINER = EXAMPLES / "container" / "Containerfile"


def shell_commands(text: str) -> list[list[str]]:
    """Words after every ``dpstream VERB`` of shell text, up to where the shell takes over."""
    text = text.replace("\\\n", " ").replace("$(", " ; ").replace(")", " ; ")
    found = []
    for part in re.split(r"\s2?>|[;&|<\n]", text):
        match = re.search(r"(?:^|\s|/)dpstream\s+((?:run|status|simulate|plan|check|warm)\b.*)", part)
        if match:
            found.append(shlex.split(match[1]))
    return found


def dag_commands() -> list[list[str]]:
    """What the DAG passes to ``call``, with its constants put in."""
    tree = ast.parse(DAG.read_text(encoding="utf-8"))
    names = {
        target.id: ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign)
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


def service() -> configparser.RawConfigParser:
    parsed = configparser.RawConfigParser(strict=True)
    parsed.optionxform = str  # type: ignore[assignment, method-assign]
    parsed.read_string(SERVICE.read_text(encoding="utf-8"))
    return parsed


def commands() -> list[list[str]]:
    unit = "\n".join(service()["Service"][key] for key in ("ExecStart", "ExecStartPost"))
    cron = (EXAMPLES / "cron" / "dpstream").read_text(encoding="utf-8")
    lines = [line.lstrip("# ") for line in CONTAINER.read_text(encoding="utf-8").splitlines()]
    return [*shell_commands(unit), *shell_commands(cron), *dag_commands(), *shell_commands("\n".join(lines))]


def test_every_command_parses() -> None:
    found = commands()
    assert len(found) >= 8
    assert {words[0] for words in found} == {"run", "status", "warm"}
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


def test_the_dag_retries_what_may_pass_only() -> None:
    """Locked, full or interrupted may pass; wrong input and a spent budget do not."""
    tree = ast.parse(DAG.read_text(encoding="utf-8"))
    (passing,) = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "PASSING"
    ]
    assert passing == (4, 5)
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported == {"__future__", "airflow.exceptions", "airflow.sdk"}


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
    assert volumes == ["/state", "/releases", "/cache"]


def test_examples_are_in_the_sdist_and_not_in_the_wheel() -> None:
    targets = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"][
        "targets"
    ]
    assert "/examples" in targets["sdist"]["include"]
    assert targets["wheel"]["packages"] == ["src/dpstream"]
    listed = set(re.findall(r"`([\w@./]+)`", (EXAMPLES / "README.md").read_text(encoding="utf-8")))
    files = {
        str(p.relative_to(EXAMPLES))
        for p in EXAMPLES.rglob("*")
        if p.is_file() and "__pycache__" not in p.parts
    }
    assert files - {"README.md"} <= listed
