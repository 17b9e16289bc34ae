"""A ledger is read, verified against everything that knows of it, and exported as a file that checks itself."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest
from fault_harness import database
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_stream import batch, run, start

from dpstream.core.errors import ConfigError, StoreDamagedError
from dpstream.core.privacy import PureDP
from dpstream.stream import Account, Limit, read_ledger, verify_ledger
from dpstream.stream.ledger.reading import check_export, export_ledger, write_export

RELEASED = "releases/step-000002/manifest.json"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four published steps, in an account."""
    folder = tmp_path_factory.mktemp("ledger")
    Account.create(folder / "account.jsonl", Limit.parse("epsilon=3"))
    with start(folder, account=folder / "account.jsonl") as stream:
        for step in range(1, 5):
            stream.step(batch(step), f"secret-batch-{step}", period=f"2026-W{step:02d}")
    return folder


def findings(folder: Path) -> list[str]:
    return verify_ledger(folder / "state", releases=folder / "releases", account=folder / "account.jsonl")


def test_what_a_ledger_says(made: Path) -> None:
    ledger = read_ledger(made / "state")
    assert [one.step for one in ledger.spends] == [1, 2, 3, 4]
    assert {one.period for one in ledger.spends} == {f"2026-W0{n}" for n in range(1, 5)}
    for one in ledger.spends:
        assert sum(Fraction(part["total"]) for part in one.parts) == one.spent == 1
        assert [part["name"] for part in one.parts] == ["select", "measure"]
        manifest = made / f"releases/step-{one.step:06d}/manifest.json"
        assert one.manifest_sha256 == hashlib.sha256(manifest.read_bytes()).hexdigest()
        assert one.time is not None
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", one.time)
    assert ledger.total == ledger.planned == PureDP.of(1)  # steps do not add up: each unit is in one
    assert ledger.steps_left is None
    assert ledger.pin is not None
    assert findings(made) == []


def sql(*statements: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        with database(folder) as db:
            for statement in statements:
                db.execute(statement)

    return damage


def without(step: int) -> Callable[[Path], None]:
    return sql(f"DELETE FROM files WHERE step = {step}", f"DELETE FROM steps WHERE step = {step}")


def rewrite(name: str, old: str, new: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        path = folder / name
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new), encoding="utf-8")

    return damage


PLAN = "UPDATE meta SET value = CAST(replace(value, '2/3', '1/3') AS BLOB) WHERE key = 'plan'"
ROLLED_BACK = "the state was rolled back"
DAMAGES: list[tuple[Callable[[Path], None], list[str]]] = [
    (sql("UPDATE steps SET spent = '1/2' WHERE step = 2"), ["the record of step 2 was changed"]),
    (without(3), ["step 3 is missing"]),
    (
        without(4),
        [
            "head.json knows step 4, the store ends at step 3: the store was rolled back",
            "the state is that of step 4, and the ledger ends at step 3",
            f"step 4 is published, but the ledger ends at step 3: {ROLLED_BACK}",
        ],
    ),
    (sql("DELETE FROM latest WHERE name = 'state'"), ["the state is missing"]),
    (
        sql("UPDATE latest SET name = 'stare' WHERE name = 'state'"),
        ["a value has the unknown name 'stare'", "the state is missing"],
    ),
    (sql(PLAN), ["the record of step 1 or the stream's pin was changed"]),
    (lambda folder: (folder / "state/head.json").unlink(), ["head.json is missing"]),
    (
        rewrite("state/head.json", '"step":4', '"step":3'),
        ["head.json belongs to another history (at step 3)"],
    ),
    (rewrite(RELEASED, "W02", "W20"), ["manifest.json of step 2 differs from the committed file"]),
    (
        lambda folder: shutil.rmtree(folder / "releases/step-000003"),
        ["manifest.json of step 3 is missing"],
    ),
    (
        lambda folder: (folder / "releases/step-000007").mkdir(),
        [f"step 7 is published, but the ledger ends at step 4: {ROLLED_BACK}"],
    ),
    (
        rewrite("releases/catalogue.json", '"stream_id": "', '"stream_id": "0'),
        ["releases of another stream"],
    ),
    (rewrite("releases/catalogue.json", "{", "["), ["the releases' catalogue is unreadable"]),
]


@pytest.mark.parametrize(("damage", "said"), DAMAGES)
def test_verify_says_exactly_what_is_wrong(
    made: Path, tmp_path: Path, damage: Callable[[Path], None], said: list[str]
) -> None:
    shutil.copytree(made, tmp_path / "copy")
    damage(tmp_path / "copy")
    found = findings(tmp_path / "copy")
    assert [one for one in found if one in said] == said
    # A lost release breaks its place in the chain of those after it, too; nothing else is blamed.
    assert all(one in said or "the record of step 4" in one for one in found), found


def test_verify_looks_at_the_account(made: Path, tmp_path: Path) -> None:
    missing = verify_ledger(made / "state", releases=made / "releases")
    assert missing == ["the stream's account is not given"]
    Account.create(tmp_path / "other.sqlite", Limit.parse("epsilon=3"))
    (found,) = verify_ledger(made / "state", account=tmp_path / "other.sqlite")
    assert "lacks the stream's charge" in found
    with pytest.raises(ConfigError, match="the stream is missing"):
        verify_ledger(tmp_path / "nothing")


def test_a_store_whose_seals_do_not_hold_is_not_shown(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "state", tmp_path / "state")
    DAMAGES[0][0](tmp_path)
    with pytest.raises(StoreDamagedError, match="step 2"):
        read_ledger(tmp_path / "state")


def test_an_export_is_public_and_checks_itself(made: Path, tmp_path: Path) -> None:
    ledger = read_ledger(made / "state")
    data = export_ledger(ledger)
    lines = [json.loads(line) for line in data.splitlines()]
    assert [line.get("step") for line in lines] == [None, 1, 2, 3, 4, None]
    for before, line in zip(data.splitlines(), lines[1:], strict=False):
        assert line["previous"] == hashlib.sha256(before).hexdigest()
    checked = check_export(data, made / "releases")
    assert checked.findings == ()
    assert (checked.steps, checked.total, checked.planned) == (4, "epsilon = 1", "epsilon = 1")
    # Nothing of the owner's own: no batch id, no time, no keyed hash of records.
    with database(made) as db:
        hashes = [content.hex() for (content,) in db.execute("SELECT content FROM steps")]
    for private in ("secret-batch", *hashes, *(one.time for one in ledger.spends)):
        assert str(private).encode() not in data
    write_export(tmp_path / "public", data)
    assert (tmp_path / "public").read_bytes() == data


def test_a_later_export_goes_on_where_an_earlier_one_ended(tmp_path: Path) -> None:
    run(tmp_path, 2)
    first = export_ledger(read_ledger(tmp_path / "state"))
    run(tmp_path, 3)
    second = export_ledger(read_ledger(tmp_path / "state"))
    assert second.splitlines()[:3] == first.splitlines()[:3]
    head = check_export(first).head
    assert head == json.loads(second.splitlines()[3])["previous"]
    assert check_export(first, tmp_path / "releases").findings == ()  # the releases may be ahead
    (tmp_path / RELEASED).write_text("{}", encoding="utf-8")
    (changed,) = check_export(first, tmp_path / "releases").findings
    assert changed == "manifest.json of step 2 differs from the committed file"


def test_steps_that_were_never_released_are_not_missed(tmp_path: Path) -> None:
    run(tmp_path, 1, publish=False)
    with start(tmp_path) as stream:
        stream.step(batch(2), "b2")
    assert verify_ledger(tmp_path / "state", releases=tmp_path / "releases") == []
    data = export_ledger(read_ledger(tmp_path / "state"))
    assert check_export(data, tmp_path / "releases").findings == ()


@settings(deadline=None)
@given(
    where=st.floats(0, 1, exclude_max=True), what=st.sampled_from(["flip", "cut", "drop", "swap", "twice"])
)
def test_every_edit_of_an_export_shows(made: Path, where: float, what: str) -> None:
    data = export_ledger(read_ledger(made / "state"))
    lines = data.splitlines(keepends=True)
    line, place = int(where * (len(lines) - (what == "swap"))), int(where * len(data))
    edited = {
        "flip": data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :],
        "cut": data[:place],
        "drop": b"".join(lines[:line] + lines[line + 1 :]),
        "twice": b"".join(lines[: line + 1] + lines[line:]),
        "swap": b"".join([*lines[:line], *lines[line : line + 2][::-1], *lines[line + 2 :]]),
    }
    assert check_export(edited[what]).findings != ()


def test_sums_are_checked_behind_an_honest_chain(made: Path) -> None:
    """Somebody who makes the chain anew still has to make the sums fit."""
    original = [json.loads(line) for line in export_ledger(read_ledger(made / "state")).splitlines()]
    for number, key, value, said in [
        (2, "spent", "1/2", "and 1/2 is booked"),
        (2, "total", "2", "not the largest cost"),
        (2, "step", 5, "stands where step 2 belongs"),
        (2, "definition", "zCDP", "and the plan says"),
        (0, "horizon", 3, "the plan pays for 3"),
        (5, "steps", 9, "the last line contradicts"),
        (0, "kind", "other", "not an exported ledger"),
        (0, "format", 9, "format 9 is unknown"),
        (2, "parts", None, "lacks a field"),
    ]:
        lines, previous = [], None
        for index, line in enumerate(original):
            changed = {**line, **({key: value} if index == number else {})}
            changed["previous"] = None if previous is None else hashlib.sha256(previous).hexdigest()
            previous = json.dumps(changed).encode()
            lines.append(previous + b"\n")
        found = check_export(b"".join(lines)).findings
        assert any(said in one for one in found), (key, found)
        assert not any("does not follow" in one for one in found)
