"""The planning board, held tables beside released ones, and documents made from releases."""

from __future__ import annotations

import dataclasses
import html
import json
import math
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from desks import QUESTIONS, make_service, work
from offices import EVIL, EVIL_VALUE, Office

from dpstream import read
from dpstream.core.errors import ConfigError
from dpstream.project import Config, describe
from dpstream.service.desk import Desk, Held
from dpstream.service.pages import previews
from dpstream.service.pages.board import WantedPlan, draft, plan_board
from dpstream.service.pages.documents import Documents, policy_of
from dpstream.service.pages.previews import Noise, preview, released_noise


def test_the_board_says_what_the_plan_says(released: Path, tmp_path: Path) -> None:
    """With the same numbers in a file, ``dpstream plan`` predicts the same; nothing is written anywhere."""
    path = released / "stream" / "dpstream.toml"
    before = sorted(str(one) for one in released.rglob("*"))
    wanted = WantedPlan("0.5", "6000", "1000", "total within 5 %")
    board = plan_board(path, wanted)
    assert board.has == wanted
    assert [(row.name, row.amount) for row in board.rows] == [
        ("the file's", "1"),
        ("half", "0.25"),
        ("chosen", "0.5"),
        ("twice", "1"),
    ]
    numbers = tomllib.loads(draft(path, wanted))
    written = tomllib.loads(path.read_text(encoding="utf-8"))
    facts = describe(Config.load(path, document={**written, **numbers}))["expected_errors"]
    chosen = board.rows[2]
    assert chosen.total == facts["steps"][-1]["total_share"]
    assert chosen.verdicts == tuple((one["use"], one["word"]) for one in facts["verdicts"])
    assert [row.odds for row in board.rows] == ["73.2", "56.3", "62.3", "73.2"]
    totals = [row.total for row in board.rows[1:]]
    assert totals == sorted(totals, key=lambda share: -(share or 0))
    assert board.smallest is not None
    assert board.smallest["smallest"] is not None
    # The draft holds the numbers and nothing else of the file, such as places of the machine.
    assert numbers == {"budget": {"epsilon": "0.5"}, "expect": {"size": 6000, "records_per_step": 1000}}
    assert "decided" not in draft(path, WantedPlan("2"))
    assert sorted(str(one) for one in released.rglob("*")) == before
    # As it is, there is one row less.
    assert [row.name for row in plan_board(path, WantedPlan()).rows] == ["half", "the file's", "twice"]


@pytest.mark.parametrize(
    "wanted",
    [
        *(WantedPlan(amount) for amount in ("1e9", "1e999999999", "-1", "0", "1/0", "1\n[state]", '1"')),
        *(WantedPlan(size=size) for size in ("x", "0", "9" * 13)),
        WantedPlan(records_per_step="1.5"),
    ],
)
def test_the_board_refuses_what_is_no_number(released: Path, wanted: WantedPlan) -> None:
    path = released / "stream" / "dpstream.toml"
    for call in (plan_board, draft):
        with pytest.raises(Exception, match="allowed") as found:
            call(path, wanted)
        assert type(found.value).__module__ == "dpstream.core.errors"


def test_a_draft_that_nobody_confirmed_is_as_private_as_the_data(released: Path, tmp_path: Path) -> None:
    text = (released / "stream" / "dpstream.toml").read_text(encoding="utf-8")
    file = tmp_path / "dpstream.toml"
    file.write_text(text.replace("confirmed = true", "confirmed = false"), encoding="utf-8")
    with pytest.raises(ConfigError, match="the configuration is an unconfirmed draft"):
        draft(file, WantedPlan())


def _held(office: Office) -> tuple[Held, Config]:
    owner = office.desk.operator("root")
    return office.desk.held(owner, EVIL, 5), office.desk.config(owner, EVIL)


def test_new_values_stand_on_the_page_of_a_held_step(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever approves publishes them."""
    held, _ = _held(office)
    found = {"paid": [{"value": EVIL_VALUE, "from_step": 6, "noisy_count": 9371}]}
    with_values = dataclasses.replace(held, manifest={**held.manifest, "discovered": found})
    monkeypatch.setattr(Desk, "held", lambda *_: with_values)
    page = office.client("Anna").get("/held", stream=EVIL, step=5).text
    assert "(9,371)</li>" in page
    assert "<svg" not in page


def test_noise_is_that_of_both_tables_or_not_known(office: Office) -> None:
    """The released table's as whoever reads it is told; a held one whose errors nobody knows is not judged."""
    held, config = _held(office)
    release = read(config.output.dir)
    noise = released_noise(config.output.dir, 4, config.schema())
    assert noise is not None
    assert noise.cells["paid"] == release.answer("paid").standard_error
    share = (noise.cells["paid"] + 0.5 * noise.total) / release.manifest()["rows"]
    assert noise.error("paid", 0.5) == pytest.approx(share)
    # The held one's as it will be read once it is released: the columns are measured, though not at every step.
    now = 0.0
    for one in preview(held, config.schema(), config.output.dir).first:
        was = noise.error(one.column, one.then or 0.0)
        rows, total = held.manifest["rows"], held.manifest["accuracy"]["total_standard_error"]
        now = (held.errors[one.column] + one.now * total) / rows
        assert one.error == pytest.approx(math.hypot(was or math.nan, now))
    assert now > 0
    assert held.errors.keys() == {EVIL_VALUE, "paid"}
    page = office.client("Anna").get("/held", stream=EVIL, step=5).text
    assert "Noise explains every difference" in page or "beyond noise" in page
    assert "not known" not in page[: page.index("What it would be fit for")]
    silent = dataclasses.replace(held, errors={})
    made = preview(silent, config.schema(), config.output.dir)
    assert {one.error for one in made.first} == {None}
    assert not any(one.matters for one in made.first)
    # Rows that are drawn to be looked at have an error of their own.
    drawn = dataclasses.replace(noise, drawn=100)
    assert (drawn.error("paid", 0.5) or 0) ** 2 == pytest.approx(share**2 + 0.0025)


def test_what_is_beyond_noise_comes_first(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted shift of one value stands on top; its control, the same shares, has nothing beyond noise."""
    held, config = _held(office)
    older = Noise(8000, 20.0, {EVIL_VALUE: 20.0, "paid": 20.0})
    monkeypatch.setattr(previews, "released_noise", lambda *_: older)
    draws = np.random.default_rng(1).permutation(8000)
    paid, names = draws % 2 == 0, np.array(["a", EVIL_VALUE, "c"])[draws % 3]

    def table(values: Any, truth: Any) -> pa.Table:
        return pa.table({EVIL_VALUE: pa.array(values.tolist()), "paid": pa.array(truth.tolist())})

    told = {
        "total_standard_error": 20.0,
        "measured_every_step": {"standard_error": 20.0, "marginals": [[EVIL_VALUE], ["paid"]]},
        "words": "noise",
        "verdicts": [],
    }
    manifest = {**held.manifest, "rows": 8000, "rows_in_table": 8000, "accuracy": told}
    same = dataclasses.replace(held, manifest=manifest, table=table(names, paid), last=table(names, paid))
    made = preview(same, config.schema(), config.output.dir)
    assert not any(one.matters for one in made.first)
    assert made.unfit is None
    names = names.copy()
    names[:400] = "c"
    shifted = dataclasses.replace(same, table=table(names, paid))
    made = preview(shifted, config.schema(), config.output.dir)
    assert (made.first[0].column, made.first[0].value, made.first[0].matters) == (EVIL_VALUE, "c", True)
    assert sum(one.now for one in made.columns[EVIL_VALUE]) == pytest.approx(1)
    # The same shift beside an older table with much noise of its own, or with noise that nobody knows.
    noisy = dataclasses.replace(older, cells={EVIL_VALUE: 300.0, "paid": 300.0})
    for other in (noisy, None):
        monkeypatch.setattr(previews, "released_noise", lambda *_, other=other: other)
        made = preview(shifted, config.schema(), config.output.dir)
        assert not any(one.matters for one in made.first)
    # A first step has nothing beside it; other columns are said to be others.
    first = preview(dataclasses.replace(same, last=None), config.schema(), config.output.dir)
    assert (first.first, first.last_rows) == ((), None)
    other = dataclasses.replace(same, table=pa.table({"x": [1]}))
    assert "differ from the configuration" in preview(other, config.schema(), config.output.dir).why_not
    bad = {**manifest, "rows": 30, "rows_in_table": 30}
    unfit = preview(dataclasses.replace(same, manifest=bad), config.schema(), config.output.dir).unfit
    assert "noise alone" in str(unfit)


def test_documents_are_made_once_from_releases(office: Office) -> None:
    """The state is elsewhere, and what changes the releases changes the page."""
    _, config = _held(office)
    documents = Documents()
    statement, report = documents.statement(config), documents.report(config)
    assert "4 tables are published" in statement
    for page in (statement, report):
        assert "sandbox allow-scripts" in policy_of(page)
    assert documents.report(config) is report
    assert documents.statement(config) is statement
    releases = config.output.dir
    catalogue = json.loads((releases / "catalogue.json").read_text(encoding="utf-8"))
    (releases / "catalogue.json").write_text(json.dumps({**catalogue, "steps": catalogue["steps"][:3]}))
    assert "3 tables are published" in documents.statement(config)
    other = dataclasses.replace(config, name="another")
    with pytest.raises(ConfigError, match="another plan"):
        Documents().statement(other)
    shutil.rmtree(releases)
    with pytest.raises(ConfigError, match="nothing is released yet"):
        documents.report(config)


# Questions


def test_a_question_tells_its_price_and_its_answer_in_words(tmp_path: Path) -> None:
    """What is left for questions; decimals; the same question again is free; and what an easy answer is."""
    public = 'total = "public"'
    folder = make_service(
        tmp_path / "asked", steps=1, approve=False, mechanism=QUESTIONS, times=6, stream=public
    )
    desk = Desk.open(folder)
    desk.add_person(desk.operator("root"), "Ada", ["analyst"])
    work(desk)
    office = Office.served(folder)
    try:
        ada, question = office.client("Ada"), "zip = 'a'"
        for place in ("/", "/stream?stream=test"):
            page = ada.get(place).text
            assert re.search(r"questions have spent 0 of 1; [0-9]+ hard questions? left", page)
            assert 'class="spent" width="0.0"' in page
        page = ada.get("/ask", stream="test", question=question).text
        assert re.search(r"this question: at most [0-9.]+ more", page)
        assert re.search(r"[0-9]/[0-9]", html.unescape(re.sub("<[^>]*>", "", page))) is None
        assert ada.post("/ask", stream="test", question=question).status_code == 303
        work(desk)
        page = ada.get("/ask", stream="test", question=question).text
        assert "Asked already: free." in page
        assert re.search(r"[0-9.]+ % of the records", page)
        assert "Hard questions left: " in page
        assert "theory" not in page
        (done,) = desk.tasks(desk.operator("root"), "test")
        assert (done.state, done.why) == ("done", None)
        # The board tells what was spent, and a further question is priced anew.
        assert desk.price(desk.operator("root"), "test", "zip = 'b'").spent != "0"
    finally:
        office.close()
