"""Nothing that is printed steers the terminal, and no password in a configuration is read out."""

from __future__ import annotations

import json
import re
import unicodedata
from pathlib import Path
from typing import Any

import click
import pytest
from cli_stream import invoke as run
from cli_stream import make
from hypothesis import given, settings
from hypothesis import strategies as st
from small_configs import rewrite

from dpstream.cli.shared import console, print_json, print_table, seen
from dpstream.core.errors import ConfigError
from dpstream.core.showing import shown
from dpstream.project.keys import SECTIONS, keys_of

KEYS = tuple(key for section in SECTIONS for key in keys_of(section).values())

EVIL = "x\x1b]0;owned\x07\x1b[2J\x9b31m\u202etxt.exe\u2066\x7f\rgone"
PASSWORD = "hun:t/er2"
URLS = [
    f"postgresql://me:{PASSWORD}@host:5432/db",
    f" postgresql://me:{PASSWORD}@host/db",
    f"PostgreSQL+psycopg://me:{PASSWORD}@host",
    f"redis://:{PASSWORD}@host",
    f"postgresql://me:one@two {PASSWORD}@host/db",
    f"host=x user=me password={PASSWORD}",
    f"host=x password = '{PASSWORD} and more' user=me",
    f"postgresql://host/db?user=me&password={PASSWORD}",
    f"postgresql://me@corp:{PASSWORD}@host/db",
    f"postgresql:// me:{PASSWORD}@host/db",
    f"postgresql://me:{PASSWORD}' {PASSWORD}@host/db",
    f'postgresql://me:{PASSWORD}" {PASSWORD}@host/db',
    f"postgresql://me:{PASSWORD}\n{PASSWORD}@host/db",
    # They begin like a port.
    *(f"postgresql://user:{begin} {PASSWORD}@host/db" for begin in ("123", "5432  (", "1\t")),
    f"postgresql://me@corp:5432  ({PASSWORD}@host:5432/db",
]


def steers(text: str) -> list[str]:
    """Characters that a terminal acts on; newlines and tabs are ours."""
    odd = [c for c in text if unicodedata.category(c) in ("Cc", "Cs") and c not in "\n\t"]
    return odd + [
        c for c in text if unicodedata.bidirectional(c) in ("RLO", "LRO", "RLI", "LRI", "RLE", "LRE")
    ]


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(exclude_categories=()), max_size=30))
def test_whatever_is_shown_steers_nothing(text: str) -> None:
    once = shown(text)
    assert steers(once) == []
    assert shown(once) == once
    assert json.loads(shown(json.dumps(text, ensure_ascii=False))) == text or "=" in text or ":" in text
    once.encode()


@pytest.mark.parametrize("url", URLS)
def test_credentials_in_any_text(url: str) -> None:
    for text in (url, repr(url), f"[source] path: there is no file {url!r} (allowed: a@b)", json.dumps(url)):
        assert "hun" not in shown(text), text
        assert "er2" not in shown(text), text


def test_what_is_no_password_stays() -> None:
    for text in (
        "postgresql://me@host:5432/db (allowed: a@b)",
        '{"url": "https://host:80/x", "mail": "a@b"}',
        "https://example.org/a?b=c#d and https://host:8080/x",
        "at https://host:80/x (allowed: a@b)",
        "https://host:80",
    ):
        assert shown(text) == text
    two = {"url": f"postgresql://me:{PASSWORD}@host/db", "mail": "a@b", "more": ["c://d:e", "f@g"]}
    for text in (json.dumps(two), json.dumps(two, indent=1)):
        found = json.loads(shown(text))
        assert found == {**two, "url": "postgresql://me:***@host/db"}


def test_every_way_of_printing(capsys: pytest.CaptureFixture[str]) -> None:
    text = f"{EVIL} {URLS[0]}"
    with seen():
        click.echo(text)
        click.echo(text, err=True)
        print_json({text: text})
        print_table([text], [[text]])
        console().print(text)
        console(err=True).print(text)
        print(text)
    out = capsys.readouterr()
    found = re.sub(r"\s", "", out.out + out.err)
    assert steers(found) == []
    assert PASSWORD not in found
    assert found.count("me:***@host") == 9
    assert steers(str(ConfigError(text, where=text, allowed=text))) == []


def test_numbers_of_a_wide_table_are_not_broken(capsys: pytest.CaptureFixture[str]) -> None:
    cells = [f"{k}23456.789" for k in range(1, 15)]
    print_table(["step", *(f"column {k}" for k in range(14))], [["1", *cells]], right=list(range(15)))
    told = capsys.readouterr().out
    assert [one for one in cells if one not in told] == []
    assert told.count("step") >= 2
    print_table(["name", "hash", "n"], [["x", "f" * 200, "12"]], right=[2])  # texts are, and once
    assert capsys.readouterr().out.count("name") == 1


def toml(value: str) -> str:
    return json.dumps(value).replace("\x7f", "\\u007f")


def places() -> list[tuple[str, str]]:
    """Every key in its section, misspelt there, and words for a database in every section."""
    own = [(key.section, name) for key in KEYS for name in (key.name, f"{key.name}x")]
    return own + [(section, word) for section in SECTIONS for word in ("url", "password", "conninfo")]


def test_a_url_under_any_key_right_or_wrong(tmp_path: Path) -> None:
    config = make(tmp_path, 1)
    sections = config.read_text(encoding="utf-8")
    for number, (section, key) in enumerate(places()):
        value = toml(URLS[number % len(URLS)] + EVIL)
        head = f"[{section}]" if section else ""
        lines = [line for line in sections.splitlines() if not line.startswith(f"{key} =")]
        where = lines.index(head) + 1 if head in lines else 0
        lines[where:where] = [f"{key} = {value}"] if head in lines or not head else [head, f"{key} = {value}"]
        config.write_text("\n".join(lines) + "\n", encoding="utf-8")
        done = run("plan", config)
        assert done.exception is None or isinstance(done.exception, SystemExit), (section, key)
        assert "er2" not in done.output, (section, key)
        assert steers(done.output) == [], (section, key)


def test_names_of_files_headers_and_folders(tmp_path: Path) -> None:
    config = make(tmp_path, 2, every='"files"', time_column=None, end=None)
    folder = tmp_path / "data"
    for number, path in enumerate(sorted(folder.iterdir())):
        path.rename(folder / f"{number}{EVIL}.csv")
    rewrite(config, "[output]\n", f"[output]\ndir = {toml('out' + EVIL)}\n")
    odd = folder / f"9{EVIL}.csv"
    odd.write_text(f"{EVIL},{EVIL}\n1,2\n", encoding="utf-8")
    broken = folder / "broken\udcff.csv"
    broken.write_text("zip\n", encoding="utf-8")
    verbs: list[list[Any]] = [["check"], ["run"], ["status"], ["run", "--json"], ["status", "--json"]]
    for verb in verbs:
        done = run(*verb, config)
        assert done.exception is None or isinstance(done.exception, SystemExit), (verb, done.exception)
        assert steers(done.output) == [], verb
    for words in (["init", odd], ["plan", folder / EVIL]):
        done = run(*words)
        assert done.exit_code in (0, 2), words
        assert steers(done.output) == [], words
