"""A stream that begins with the last release of another: renewal and change of schema, by the command."""

from __future__ import annotations

import functools
import itertools
import json
import re
import shlex
import shutil
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from cli_stream import dpstream, status
from small_configs import KIND, PAID, ZIP, rewrite, write_config, write_rows

from dpstream.core import durable
from dpstream.core.privacy import Randomness
from dpstream.io.sinks import read_manifest
from dpstream.io.sinks import read_table as read
from dpstream.project import Config, taken_steps
from dpstream.stream import Account

OLD = ZIP.replace('"a", "b", "c"', '"02138", "02139", "02140"') + PAID + KIND
NEW = (
    '[schema.columns.place]\ntype = "categorical"\nvalues = ["02138A", "02138B", "02139-40", "02141"]\n'
    f'{PAID}[schema.columns.urban]\ntype = "categorical"\nvalues = ["yes", "no", "unknown"]\n'
)
SOURCE = 'path = "data/*.csv"\ntime_column = "step"\nop_column = "op"\nend = 2'
LATER_SOURCE = SOURCE.replace("data", "data/new").replace("end = 2", "start = 3\nend = 4")
#: The rule is the one that the guide shows.
GUIDE = (Path(__file__).resolve().parents[2] / "docs" / "guide" / "evolution.md").read_text(encoding="utf-8")
(BASE,) = re.findall(r"```toml\n(\[base\].*?)```", GUIDE, re.DOTALL)
#: With one joint table and next to no noise, a release is the table itself.
EXACT = {
    "old": 'name = "dpstabs"\nworkload = [["zip", "paid", "kind"]]\nk = 1',
    "new": 'name = "dpstabs"\nworkload = [["place", "paid", "urban"]]\nk = 1',
}
FIRST = ["02138,true,x"] * 40 + ["02138,false,y"] * 10 + ["02139,true,y"] * 20 + ["02140,false,x"] * 5
SECOND = ["02140,true,x"] * 15
LATER = {
    3: ["insert,02141,true,yes"] * 7 + ["delete,02139-40,true,unknown"] * 4,
    4: ["insert,02138A,false,no"] * 3,
}


def make(folder: Path, epsilon: str = "1000", **changes: str) -> tuple[Path, Path]:
    """Both configurations and the data of both periods; the first stream is not run yet."""
    mechanisms, budget = {**EXACT, **changes}, f'epsilon = "{epsilon}"'
    for step, rows in ((1, FIRST), (2, SECOND)):
        write_rows(folder, f"{step}.csv", "step,op,zip,paid,kind", (f"{step},insert,{row}" for row in rows))
    (folder / "data" / "new").mkdir(exist_ok=True)
    for step, rows in LATER.items():
        write_rows(folder, f"new/{step}.csv", "step,op,place,paid,urban", (f"{step},{row}" for row in rows))
    places = '[output]\ndir = "new-releases"\n[state]\ndir = "new-state"\n'
    old = {"source": SOURCE, "columns": OLD, "mechanism": mechanisms["old"], "budget": budget}
    new = {"source": LATER_SOURCE, "columns": NEW, "mechanism": mechanisms["new"], "budget": budget}
    return (
        write_config(folder, file="old.toml", name="old", **old),
        write_config(folder, file="new.toml", name="new", rest=places + BASE, **new),
    )


Ran = Callable[..., tuple[Path, Path]]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """As ``make``, with the first stream run; each budget's is run once and copied."""

    @functools.cache
    def master(epsilon: str) -> Path:
        folder: Path = tmp_path_factory.mktemp("ran")
        dpstream("run", make(folder, epsilon)[0])
        return folder

    def copy(folder: Path, epsilon: str = "1", **changes: str) -> tuple[Path, Path]:
        for name in ("state", "releases"):
            shutil.copytree(master(epsilon) / name, folder / name)
        return make(folder, epsilon, **changes)

    return copy


def expected(until: int) -> dict[tuple[str, str, str], Fraction]:
    """The mapped table, counted by hand: split by its shares, merged, filled; then the events of the new period."""
    found: Counter[tuple[str, str, str]] = Counter()
    split = {"02138": {"02138A": Fraction(3, 5), "02138B": Fraction(2, 5)}}
    for row in FIRST + SECOND:
        zip_code, paid, _ = row.split(",")
        for place, share in split.get(zip_code, {"02139-40": Fraction(1)}).items():
            found[place, paid, "unknown"] += share  # type: ignore[assignment]
    for step, rows in LATER.items():
        for row in rows if step <= until else []:
            op, *cell = row.split(",")
            found[tuple(cell)] += 1 if op == "insert" else -1  # type: ignore[index]
    return dict(found)  # type: ignore[arg-type]


def model(config: Path, step: int) -> dict[tuple[str, ...], float]:
    """The released model's counts by labels."""
    with Config.load(config).open_stream(publish=False) as stream:
        marginal = stream.release(step).marginal(["place", "paid", "urban"])
    cells = itertools.product(*marginal.labels)
    return dict(zip(cells, marginal.values.ravel().tolist(), strict=True))


def test_a_release_is_the_mapped_table_and_what_came_since(ran: Ran, tmp_path: Path) -> None:
    """Unbiased: without noise the split, merged, filled and dropped table is there exactly, deletes of old
    records taken away."""
    _old, new = ran(tmp_path, "1000")
    dpstream("run", new)
    for step in (1, 2):
        wanted, got = expected(step + 2), model(new, step)
        for cell, value in got.items():
            assert value == pytest.approx(float(wanted.get(cell, 0)), abs=0.01), cell  # type: ignore[call-overload]
        # The control: without the base all of it is wrong.
        assert sum(got.values()) > len(FIRST) + len(SECOND)


def test_the_commands_of_the_guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, new = make(tmp_path, epsilon="1")
    edited = new.read_text(encoding="utf-8")
    new.unlink()
    monkeypatch.chdir(tmp_path)
    (shown,) = re.findall(r"```sh\n(.*?)```", GUIDE, re.DOTALL)
    verbs = [shlex.split(line, comments=True)[1:] for line in shown.splitlines()]
    assert [words[0] for words in verbs] == ["run", "init", "plan", "run", "statement"]
    for words in verbs:
        dpstream(*words)
        if words[0] == "init":
            assert "[schema.columns.zip]" in new.read_text(encoding="utf-8")
            new.write_text(edited, encoding="utf-8")
    assert status(new)["steps"] == 2
    assert "the stream 'old'" in (tmp_path / "statement.md").read_text(encoding="utf-8")


def test_what_the_successor_says_of_both_periods(ran: Ran, tmp_path: Path) -> None:
    _old, new = ran(tmp_path)
    dpstream("run", new)
    manifest = read_manifest(tmp_path / "new-releases", 2)
    base = manifest["base"]
    assert (base["stream"], base["step"], base["rule"]["drop"]) == ("old", 2, ["kind"])
    assert base["composition"]["rule"] == "parallel"
    assert base["composition"]["together"] == {"definition": "pure", "epsilon": "1"}
    earlier = read_manifest(tmp_path / "releases", 2)
    assert base["plan_hash"] == earlier["plan_hash"] != manifest["plan_hash"]
    # The number of records carries the noise of both; no count has an error bar over both periods.
    assert manifest["accuracy"]["measured_every_step"]["marginals"] == []
    errors = [m["accuracy"]["total_standard_error"] for m in (earlier, manifest)]
    assert errors[1] > errors[0] > 0
    assert "began with the public release of step 2" in dpstream("statement", new).stdout


def test_once_started_nothing_depends_on_the_old_folder(ran: Ran, tmp_path: Path) -> None:
    _, new = ran(tmp_path)
    shutil.copytree(tmp_path, tmp_path / "other")
    dpstream("run", new, "--until", 1)
    moved = tmp_path / "other"
    dpstream("run", moved / "new.toml", "--until", 1)
    # One loses the folder, the other one's is changed.
    shutil.rmtree(tmp_path / "releases")
    (moved / "releases" / "step-000002" / "table.parquet").write_bytes(b"x")
    for folder in (tmp_path, moved):
        dpstream("run", folder / "new.toml")
        assert status(folder / "new.toml")["steps"] == 2
        assert status(folder / "new.toml")["same_plan"]
    # Elsewhere than the file says, and without any release: the state is enough.
    (tmp_path / "new-state").rename(tmp_path / "elsewhere")
    (tmp_path / "new-releases").rename(tmp_path / "out")
    elsewhere = (tmp_path / "new.toml", "--state", tmp_path / "elsewhere")
    assert json.loads(dpstream("status", *elsewhere, "--json").stdout)["same_plan"]
    dpstream("store", "compact", *elsewhere, "--out", tmp_path / "out")
    (tmp_path / "elsewhere").rename(tmp_path / "new-state")
    for folder in (tmp_path, moved):
        dpstream("plan", folder / "new.toml")


def test_a_changed_rule_or_table_is_refused(ran: Ran, tmp_path: Path) -> None:
    _, new = ran(tmp_path)
    dpstream("run", new, "--until", 1)
    text = new.read_text(encoding="utf-8")
    new.write_text(text.replace('"0.6"', '"0.5"').replace('"0.4"', '"0.5"'), encoding="utf-8")
    told = dpstream("run", new, code=2).stderr
    assert "another plan" in told
    assert "base.rule.map.place.02138" in told
    new.write_text(text, encoding="utf-8")
    # Before the start, a table that is not the published one stops everything.
    for name in ("new-state", "new-releases"):
        shutil.rmtree(tmp_path / name)
    table = tmp_path / "releases" / "step-000002" / "table.parquet"
    table.write_bytes(table.read_bytes()[:-1] + b"x")
    assert "differs from its published hash" in dpstream("run", new, code=4).stderr
    assert "differs from its published hash" in dpstream("run", new, "--dry-run", code=4).stderr


def run(config: Path, randomness: Randomness | None = None) -> None:
    loaded = Config.load(config)
    with loaded.open_stream(randomness=randomness) as stream:
        for _ in taken_steps(loaded, stream, loaded.source()):
            pass


@pytest.mark.parametrize("at", range(1, 7, 2))
def test_a_stop_before_any_commit_of_the_first_steps(
    ran: Ran, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    class Stop(BaseException):
        pass

    _, new = ran(tmp_path, "1000")
    commit, seen = durable.commit, itertools.count(1)

    def stopping(*args: Any) -> Any:
        if next(seen) == at:
            raise Stop
        return commit(*args)

    monkeypatch.setattr(durable, "commit", stopping)
    with pytest.raises(Stop):
        run(new)
    monkeypatch.undo()
    if status(new)["started"]:
        shutil.rmtree(tmp_path / "releases")  # the state holds the base from its first commit on
    run(new)
    wanted = expected(4)
    for cell, value in model(new, 2).items():
        assert value == pytest.approx(float(wanted.get(cell, 0)), abs=0.01), cell  # type: ignore[call-overload]


def test_a_base_with_predictable_noise_is_said(tmp_path: Path) -> None:
    old, new = make(tmp_path, epsilon="1")
    run(old, Randomness.seeded("x"))
    dpstream("run", new)
    manifest = read_manifest(tmp_path / "new-releases", 1)
    assert manifest["made_with_test_seed"]
    assert manifest["guarantee"]["words"].startswith("NO GUARANTEE")
    assert "HAS NO GUARANTEE" in dpstream("statement", new).stdout


def test_what_does_not_fit_is_refused_before_anything_is_read(ran: Ran, tmp_path: Path) -> None:
    _, new = ran(tmp_path)
    text = new.read_text(encoding="utf-8")
    shutil.rmtree(tmp_path / "data" / "new")  # no private record is needed to say so
    for old, changed, words, code in (
        ('"02140" = "02139-40"\n', "", "what becomes of '02140'", 2),
        ('"0.4"', '"0.3"', "add up to 9/10", 2),
        ('drop = ["kind"]', "", "column 'kind' goes nowhere", 2),
        ('drop = ["kind"]', 'step = 1\ndrop = ["kind"]', "would be lost", 2),
        ("start = 3", "start = 4", "its predecessor ends before", 2),
        ('name = "new"', 'name = "new"\nunit = "event-replace"', "protects the unit 'event'", 3),
    ):
        rewrite(new, old, changed)
        assert words in " ".join(dpstream("plan", new, code=code).stderr.split())
        new.write_text(text, encoding="utf-8")
    assert not (tmp_path / "new-state").exists()


def test_held_and_withdrawn_releases_are_no_base(tmp_path: Path) -> None:
    old, new = make(tmp_path, epsilon="1")
    rewrite(old, "[budget]", "[output]\napprove = true\n[budget]")
    dpstream("run", old)
    assert "no release was found in" in dpstream("plan", new, code=2).stderr
    dpstream("approve", old, "--step", 1)
    # The next one may still be approved: public files do not show it, the old state does.
    early = new.read_text(encoding="utf-8").replace("start = 3", "start = 2")
    new.write_text(early.replace("[base]\n", '[base]\nconfig = "old.toml"\n'), encoding="utf-8")
    dpstream("plan", new)
    for verb in (("run", new), ("init", "--after", old, "--out", tmp_path / "next.toml")):
        assert "step 2 of 'old' is not published yet" in dpstream(*verb, code=2).stderr
    new.write_text(early.replace("start = 2", "start = 3"), encoding="utf-8")
    dpstream("approve", old, "--all")
    dpstream("withdraw", old, "--step", 2, "--reason", "wrong")
    text = new.read_text(encoding="utf-8")
    new.write_text(text.replace('drop = ["kind"]', 'step = 2\ndrop = ["kind"]'), encoding="utf-8")
    assert "was withdrawn" in dpstream("plan", new, code=2).stderr
    # The one before it can be taken; the border stays where the withdrawn step ended, and what is lost is told.
    new.write_text(text, encoding="utf-8")
    told = " ".join(dpstream("plan", new, "--all", "--quick").stdout.split())
    assert "step 2 was withdrawn" in told
    facts = json.loads(dpstream("plan", new, "--json").stdout)["base"]
    assert (facts["step"], facts["withdrawn_since"]) == (1, [2])


def test_what_is_predicted_has_the_error_of_the_table_before(ran: Ran, tmp_path: Path) -> None:
    _, new = ran(tmp_path)
    text = new.read_text(encoding="utf-8").replace("[budget]", "[expect]\nsize = 100\n[budget]\nhorizon = 2")
    error = read_manifest(tmp_path / "releases", 2)["accuracy"]["total_standard_error"]
    new.write_text(text, encoding="utf-8")
    facts = json.loads(dpstream("plan", new, "--json").stdout)["expected_errors"]
    for one in facts["steps"]:
        assert one["total"] > error
        assert one["marginals"] == []
    assert all(one["word"] in ("unfit", "not known", "poor") for one in facts["verdicts"])
    # No budget of this stream makes the earlier one's error smaller.
    share = 100 * error / facts["steps"][-1]["size"]
    for wanted, there in ((0.9 * share, False), (3 * share, True)):
        said = dpstream("plan", new, "--want", f"total within {wanted:.1f} %", "--json").stdout
        assert (json.loads(said)["wanted"]["smallest"] is not None) == there


def test_an_account_adds_both_up_and_remembers_which_came_first(tmp_path: Path) -> None:
    old, new = make(tmp_path, epsilon="1")
    account = tmp_path / "account"
    dpstream("ledger", "account", "create", account, "--limit", "epsilon=2")
    for path in (old, new):
        dpstream("run", rewrite(path, 'epsilon = "1"', 'epsilon = "1"\naccount = "account"'))
    state = Account(account).read()
    assert state.total.epsilon == 2
    first, second = state.charges
    entries = [json.loads(line) for line in account.read_text(encoding="utf-8").splitlines()]
    assert "begins_with" not in entries[first.entry - 1]
    assert entries[second.entry - 1]["begins_with"] == first.stream_id
    assert "is sound" in dpstream("ledger", "verify", new).stdout


CERTAIN = ('{"02138A" = "0.6", "02138B" = "0.4"}', '"02138A"')


def test_an_evaluation_begins_with_the_old_records(ran: Ran, tmp_path: Path) -> None:
    """Without noise and with a rule that names one value for each, the releases are the truth."""
    _old, new = ran(tmp_path, "1000")
    text = new.read_text(encoding="utf-8").replace(*CERTAIN)
    new.write_text(text, encoding="utf-8")
    dpstream("run", new)
    assert "earlier private records are missing" in dpstream("evaluate", new, code=2).stderr
    new.write_text(text.replace("[base]\n", '[base]\nconfig = "old.toml"\n'), encoding="utf-8")
    facts = json.loads(dpstream("evaluate", new, "--json", "--out", tmp_path / "found").stdout)
    assert facts["last"]["true_records"] == len(FIRST) + len(SECOND) + 7 - 4 + 3
    assert facts["evaluated_steps"] == [1, 2]
    assert facts["mean_of_last_ten"]["MaxL1"] == 0.0
    assert any("earlier stream's records" in note for note in facts["notes"])


@pytest.mark.parametrize("late", ["error", "next-step", "drop-and-count-nothing"])
def test_a_record_from_before_the_border_is_counted_once(tmp_path: Path, late: str) -> None:
    """The draft reads the files of the old stream, too."""
    old, _ = make(tmp_path)
    old.write_text(old.read_text().replace("end = 2", f'end = 2\nlate = "{late}"'))
    dpstream("run", old)
    draft = tmp_path / "next.toml"
    dpstream("init", "--after", old, "--out", draft)
    for step in (3, 4):
        write_rows(tmp_path, f"{step}.csv", "step,op,zip,paid,kind", [f"{step},insert,02138,true,x"])
    dpstream("run", draft)
    base = json.loads(dpstream("plan", draft, "--json").stdout)["base"]
    assert (base["composition"]["rule"], base["composition"]["border"]) == ("parallel", "3")
    (folder,) = tmp_path.glob("old-next-releases")
    assert read(folder, 2).num_rows == len(FIRST) + len(SECOND) + 2
    for arguments in ((), ("data", "--after", old), ("--after", old, "--time-column", "t")):
        assert "expected one thing" in dpstream("init", *arguments, "--out", "x.toml", code=2).stderr


@pytest.mark.parametrize("zoned", [False, True])
def test_times_of_another_form_than_the_predecessors_are_refused(tmp_path: Path, zoned: bool) -> None:
    """The same record, on the last day of the one as it stands and on the first day of the other in UTC."""
    forms = ["2026-01-11T23:30:00", "2026-01-11T23:30:00-02:00"]
    first, second = forms[zoned], forms[not zoned]
    write_rows(tmp_path, "1.csv", "step,op,zip,paid,kind", [f"{first},insert,02138,true,x"])
    draft = tmp_path / "next.toml"
    key = f'every = "week"\nstart = "2026-01-05"\noffsets = {str(zoned).lower()}\nend = "2026-01-{11 + 7 * zoned}"'
    old = write_config(
        tmp_path, file="old.toml", name="old", source=SOURCE.replace("end = 2", key), columns=OLD
    )
    dpstream("run", old)
    dpstream("init", "--after", old, "--out", draft)
    write_rows(tmp_path, "2.csv", "step,op,zip,paid,kind", [f"{second},insert,02138,true,x"])
    said = "a time lacks an offset" if zoned else "a time has an offset"
    assert said in dpstream("run", draft, code=2).stderr
    assert status(draft)["steps"] == 0
    keys = [f"offsets = {str(one).lower()}" for one in (zoned, not zoned)]
    draft.write_text(draft.read_text().replace(*keys))
    wrong = dpstream("run", draft, code=2).stderr
    read_so, was_so = ("without", "with") if zoned else ("with", "without")
    assert f"times are read {read_so} an offset, and those of the stream 'old' {was_so} an offset" in wrong
    assert f"[source] {keys[0]}" in wrong
    assert not list(tmp_path.glob("old-next-releases/*"))
