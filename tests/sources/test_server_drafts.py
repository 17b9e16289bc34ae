"""``dpstream init`` from a table of a PostgreSQL server: the draft runs once its owner has filled it in."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cli_stream import dpstream

if TYPE_CHECKING:
    from postgres_server import Cluster

STAYS = (
    "SELECT n AS id, DATE '2026-01-05' + n % 3 AS since, "
    "CASE WHEN n % 4 = 0 THEN 'infinity' WHEN n % 4 > 1 THEN DATE '2026-01-07' + n % 3 END AS until, "
    "'a' || n % 3 AS \"group\", n % 5 AS size FROM generate_series(1, 60) n"
)


@pytest.fixture
def schema(server: Cluster) -> str:
    """Tables of stays, of present records and of events, and one with a name that needs quotes."""
    with server.connect() as db:
        db.execute("DROP SCHEMA IF EXISTS shop CASCADE; CREATE SCHEMA shop")
        db.execute(f"CREATE TABLE shop.stays AS {STAYS}".encode())
        db.execute('CREATE VIEW shop."The ""now"" " AS SELECT id, "group", size FROM shop.stays')
        db.execute('CREATE TABLE shop.events AS SELECT since AS at, "group", size FROM shop.stays')
        db.execute("CREATE TABLE shop.numbers AS SELECT 1 AS step, size FROM shop.stays")
        db.execute("CREATE VIEW shop.bad AS SELECT 1/(size-size) AS x, since FROM shop.stays")
        db.execute(
            "CREATE TABLE shop.feed AS SELECT id, op, since AS at, size FROM shop.stays, "
            "(VALUES ('insert'), ('delete')) o(op) ORDER BY id, op DESC"
        )
    return "shop"


@pytest.mark.parametrize(
    ("table", "more", "shape"),
    [
        ("shop.stays", [], "stays"),
        ('shop.The "now" ', ["--key-column", "id"], "snapshots"),
        ("shop.events", ["--time-column", "at"], None),
    ],
)
def test_a_draft_runs_as_soon_as_its_owner_has_filled_it_in(
    table: str, more: list[str], shape: str | None, server: Cluster, schema: str, tmp_path: Path
) -> None:
    config = tmp_path / "dpstream.toml"
    dpstream("init", server.url, "--table", table, "--public", "*", *more, "--out", config)
    text = config.read_text()
    for key, value in (
        ("start", "2026-01-05"),
        ("end", "2026-01-07"),
        ("epsilon", "1"),
        ("horizon", 3),
    ):
        text = re.sub(rf"^{key} = .*# FILL IN.*", f"{key} = {json.dumps(value)}", text, flags=re.MULTILINE)
    text = text.replace("  # FILL IN", "")
    config.write_text(text.replace('every = "week"', 'every = "day"').replace("= false", "= true"))
    drafted = tomllib.loads(text)
    assert (drafted["source"]["kind"], drafted["source"]["table"]) == ("postgres", table)
    assert drafted["source"].get("shape") == shape
    assert "infinity" not in text
    assert set(drafted["schema"]["columns"]) == {"group", "size"}
    assert "3 steps read: all rows fit the schema" in dpstream("check", config).stdout
    assert "1 new step, 1 in all" in dpstream("run", config, "--steps", 1).stdout


def test_the_url_may_stand_in_the_environment_with_its_password(
    server: Cluster, schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_URL", server.url + "&password=Q7731" if "?" in server.url else server.url)
    config = tmp_path / "dpstream.toml"
    dpstream("init", "--url-env", "SHOP_URL", "--table", "shop.stays", "--public", "*", "--out", config)
    assert tomllib.loads(config.read_text())["source"]["url_env"] == "SHOP_URL"
    assert "Q7731" not in config.read_text()
    assert "url =" not in config.read_text()


def test_what_cannot_be_drafted_is_said(server: Cluster, schema: str, tmp_path: Path) -> None:
    for address, more, what in (
        (server.url, [], "several tables"),
        (server.url, ["--table", "shop.nothing"], "missing table 'nothing'"),
        (server.url, ["--table", "shop.bad"], "unreadable records"),
        (server.url, ["--table", "shop.events"], "nothing says which rows are in a step"),
        (
            server.url,
            ["--table", "shop.numbers", "--time-column", "step"],
            "a PostgreSQL table needs a calendar",
        ),
        (server.url, ["--table", "shop.feed"], "needs an order, which rows of PostgreSQL lack"),
        ("postgresql://reader:Q7731@localhost/shop", [], "the URL holds a password"),
        ("postgresql://reader:Q7731@localhost/shop", [], "the variable that --url-env NAME names"),
        ("postgresql://reader@localhost:1/shop", [], "the server cannot be reached"),
    ):
        said = dpstream("init", address, *more, "--out", tmp_path / "a.toml", code=2).stderr
        assert what in said, said
        assert "Q7731" not in said
        assert not (tmp_path / "a.toml").exists()
    said = dpstream("init", "--url-env", "NOBODY", "--out", tmp_path / "a.toml", code=2).stderr
    assert "NOBODY unset" in said
    dpstream("init", server.url, "--url-env", "X", "--out", tmp_path / "a.toml", code=2)
