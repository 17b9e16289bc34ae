"""What the feed gives, and when it gives nothing."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pyarrow.csv
import pyarrow.parquet
import pytest
from cli_stream import dpstream
from feed_server import BASE, LAST, make_stream, opened, served

from dpstream.core.errors import ConfigError
from dpstream.io.sinks import catalogue, read_catalogue, read_changes, read_table
from dpstream.io.sinks.change_tables import apply_changes
from dpstream.service.releases import answering, find_places, forms
from dpstream.stream.public_release import PublicRelease


@pytest.fixture(scope="module")
def feed(made: Path) -> Iterator[httpx.Client]:
    with served(made / "releases") as client:
        yield client


def problem(answer: httpx.Response, status: int) -> dict[str, Any]:
    """What a refusal says."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    told: dict[str, Any] = answer.json()
    assert told["status"] == status
    return told


def test_the_catalogue_is_the_only_list(made: Path, feed: httpx.Client) -> None:
    listed = read_catalogue(made / "releases")["steps"]
    told = feed.get(f"{BASE}/steps", params={"after": 1, "limit": 2}).json()
    assert [{k: v for k, v in one.items() if k != "readable"} for one in told["steps"]] == listed[1:3]
    assert told["next"] == 3
    assert feed.get(f"{BASE}/steps", params={"after": 3}).json()["next"] is None
    (about,) = feed.get("/v1/streams").json()["streams"]
    assert (about["name"], about["last_step"], about["last_table"]) == ("invented", LAST, LAST)
    assert about == feed.get(BASE).json()


def test_a_file_of_the_folder_is_given_byte_for_byte(made: Path, feed: httpx.Client) -> None:
    files = [one for one in (made / "releases").rglob("*") if one.is_file() and one.name != ".head.json"]
    assert len(files) > 10
    for file in files:
        answer = feed.get(f"{BASE}/{file.relative_to(made / 'releases')}")
        assert answer.content == file.read_bytes()
        assert answer.headers["x-content-type-options"] == "nosniff"
    table = (made / "releases/step-000001/table.parquet").read_bytes()
    assert feed.get(f"{BASE}/steps/1/table.parquet").content == table


@pytest.mark.parametrize("path", ["steps/1/table.parquet", "steps/3/table.parquet", "steps/3/table.csv"])
def test_parts_of_a_file_fit_together(feed: httpx.Client, path: str) -> None:
    """As readers of Parquet ask for them: the length, the end, the rest."""
    whole = feed.get(f"{BASE}/{path}")
    size, tag = len(whole.content), whole.headers["etag"]
    head = feed.head(f"{BASE}/{path}")
    assert (head.status_code, int(head.headers["content-length"]), head.content) == (200, size, b"")
    assert head.headers["accept-ranges"] == "bytes"

    def part(asked: str, **more: str) -> tuple[int, bytes, str | None]:
        answer = feed.get(f"{BASE}/{path}", headers={"Range": asked, **more})
        return answer.status_code, answer.content, answer.headers.get("content-range")

    assert part("bytes=-8") == (206, whole.content[-8:], f"bytes {size - 8}-{size - 1}/{size}")
    assert part("bytes=0-3") == (206, whole.content[:4], f"bytes 0-3/{size}")
    assert part("bytes=4-") == (206, whole.content[4:], f"bytes 4-{size - 1}/{size}")
    assert part(f"bytes=1-{size + 99}")[1] == whole.content[1:]
    assert part("bytes=0-3", **{"If-Range": tag})[0] == 206
    assert part("bytes=0-3", **{"If-Range": '"another"'})[:2] == (200, whole.content)
    several = part("bytes=0-1,4-5")
    assert several[0] == 206
    assert whole.content[:2] in several[1]
    assert whole.content[4:6] in several[1]
    assert [part(wrong)[0] for wrong in ("bytes=5-2", "bytes=-", "lines=1-2")] == [400] * 3
    assert part(f"bytes={size}-")[::2] == (416, f"bytes */{size}")


def test_the_entity_tag_is_the_hash_of_the_manifest(made: Path, feed: httpx.Client) -> None:
    data = (made / "releases/step-000003/manifest.json").read_bytes()
    tag = f'"{hashlib.sha256(data).hexdigest()}"'
    for path in ("manifest", "table.parquet", "table.csv", "changes.ndjson", "measurements", ""):
        at = f"{BASE}/steps/3/{path}".rstrip("/")
        assert feed.get(at).headers["etag"] == tag
        for known in (tag, f"W/{tag}", f'"x", {tag}', "*"):
            same = feed.get(at, headers={"If-None-Match": known})
            assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
        assert feed.get(at, headers={"If-None-Match": '"x"'}).status_code == 200
        assert "no-cache" in feed.get(at).headers["cache-control"]
    with served(made / "releases") as another:
        for path in ("steps", "changes?after=1", "codebook.json"):
            assert another.get(f"{BASE}/{path}").headers["etag"] == feed.get(f"{BASE}/{path}").headers["etag"]


@pytest.mark.parametrize("limits", [{}, {"MAX_ONE": 100}, {"MAX_KEPT": 1}])
def test_an_answer_is_made_once_until_the_catalogue_changes(
    stream: Path, monkeypatch: pytest.MonkeyPatch, limits: dict[str, int]
) -> None:
    """Whatever is kept: many readers at once get the same, and nobody gets what was taken back."""
    asked: list[str] = []
    real = {"table": forms.table, "answer": answering.answer}
    for name, value in limits.items():
        monkeypatch.setattr(answering, name, value)
    for module, name in ((forms, "table"), (answering, "answer")):

        def counted(*given: Any, name: str = name) -> Any:
            asked.append(name)
            return real[name](*given)

        monkeypatch.setattr(module, name, counted)
    paths = ["steps/4/table.csv", "steps/4/table.parquet", "answer?q=paid", "steps/4/table.ndjson?limit=3"]
    with served(stream / "releases") as client, ThreadPoolExecutor(8) as readers:

        def get(path: str) -> list[httpx.Response]:
            zips = [{"Accept-Encoding": kind} for kind in ("identity", "gzip")]
            return list(
                readers.map(lambda one: client.get(f"{BASE}/{path}", headers=zips[one % 2]), range(16))
            )

        told = {path: get(path) for path in paths}
        for answers in told.values():
            assert {answer.status_code for answer in answers} == {200}
            assert len({answer.content for answer in answers}) == 1
        if not limits:
            assert len(asked) == 2 * len(paths)  # plain and for those who take gzip
            csv = told["steps/4/table.csv"][1]
            assert (csv.headers["content-encoding"], csv.headers["vary"]) == ("gzip", "Accept-Encoding")
            assert int(csv.headers["content-length"]) < len(csv.content) / 2
            known = {"If-None-Match": csv.headers["etag"], "Accept-Encoding": "gzip"}
            assert client.get(f"{BASE}/steps/4/table.csv", headers=known).status_code == 304
            assert told["steps/4/table.parquet"][1].headers.get("content-encoding") is None
        file = stream / "releases/codebook.json"
        file.write_bytes(file.read_bytes() + b"\n")  # whatever changes is asked again
        before = len(asked)
        assert get("answer?q=paid")[0].json() == told["answer?q=paid"][0].json()
        assert len(asked) > before
        with opened(stream) as live:
            live.withdraw(4, "a test")
        assert {answer.status_code for path in paths[:2] for answer in get(path)} == {410}


def test_held_is_as_if_it_were_not(stream: Path) -> None:
    """Step 5 is held, step 6 does not exist: readers cannot tell which is which."""
    paths = ["", "/manifest", "/measurements", "/table.parquet", "/table.csv", "/changes.parquet"]
    with served(stream / "releases") as feed:

        def told(step: int) -> list[Any]:
            named = [f"{BASE}/steps/{step}{path}" for path in paths]
            named += [f"{BASE}/step-00000{step}/{name}" for name in ("manifest.json", "table.parquet")]
            named += [f"{BASE}/errors/step-00000{step}.json", f"{BASE}/answer?q=paid&step={step}"]
            answers = [feed.get(one) for one in named]
            assert {one.status_code for one in answers} == {404}
            return [
                (one.text.replace(str(step), "N"), sorted(one.headers.keys() - {"date"})) for one in answers
            ]

        assert told(LAST + 1) == told(LAST + 2)
        with opened(stream) as one:
            one.withdraw(LAST + 1, "nobody may read this reason")
        assert told(LAST + 1) == told(LAST + 2)
        assert "may read" not in feed.get(f"{BASE}/steps").text


def test_withdrawn_is_gone_for_its_reason(stream: Path) -> None:
    with served(stream / "releases") as feed:
        tag = feed.get(f"{BASE}/steps/2").headers["etag"]
        with opened(stream) as one:
            one.withdraw(2, "the source sent it twice")
        for path in ("steps/2", "steps/2/table.csv", "steps/2/changes.ndjson", "step-000002/changes.parquet"):
            gone = feed.get(f"{BASE}/{path}", headers={"If-None-Match": tag})
            assert problem(gone, 410)["reason"] == "the source sent it twice"
        assert problem(feed.get(f"{BASE}/answer?q=paid&step=2"), 410)["reason"]
        # Who has the manifest does not have the notice.
        notice = feed.get(f"{BASE}/step-000002/withdrawn.json", headers={"If-None-Match": tag})
        assert notice.json()["reason"] == "the source sent it twice"
        # What it measured and how it was made stay public, as in the folder.
        assert feed.get(f"{BASE}/steps/2/manifest").status_code == 200
        assert feed.get(f"{BASE}/steps/2/measurements").status_code == 200
        # The changes since its table went with it; a full table is there instead.
        assert "has a table" in problem(feed.get(f"{BASE}/steps/3/changes.csv"), 404)["detail"]
        for step in (3, 4):
            whole = feed.get(f"{BASE}/steps/{step}/table.parquet")
            assert pyarrow.parquet.read_table(io.BytesIO(whole.content)).equals(
                read_table(stream / "releases", step, ids=True)
            )
        assert {"table.parquet", "measurements.ndjson", "model.json"} == set(
            feed.get(f"{BASE}/steps/3").json()["files"]
        )
        with opened(stream) as one:
            one.withdraw(LAST, "the source sent it twice")
        assert f"<td>{LAST}</td><td>3</td></tr>" in feed.get("/").text, "the newest that is there"
        listed = feed.get(f"{BASE}/steps").json()["steps"]
        assert [one["readable"] for one in listed] == [True, False, True, False]


def test_a_step_that_goes_while_it_is_read(stream: Path) -> None:
    """Files go before the catalogue says so: never an answer of the kind "500"."""
    with served(stream / "releases") as feed:
        folder = stream / "releases/step-000001"
        assert feed.get(f"{BASE}/steps/1/table.csv").status_code == 200
        (folder / "table.parquet").unlink()
        later = feed.get(f"{BASE}/steps/1/table.parquet")
        assert problem(later, 503)["detail"] == "step 1 is changing"
        assert later.headers["retry-after"] == "1"
        (folder / "withdrawn.json").write_text('{"format": 1, "reason": "wrong week"}')
        assert problem(feed.get(f"{BASE}/steps/1/table.parquet"), 410)["reason"] == "wrong week"
        shutil.rmtree(stream / "releases")
        assert problem(feed.get(f"{BASE}/steps/1/table.parquet"), 404)
        assert feed.get("/v1/streams").json()["streams"][0]["steps"] == 0


def test_damage_is_said_and_not_served(stream: Path) -> None:
    with served(stream / "releases") as feed:
        path = stream / "releases/step-000001/table.parquet"
        data = path.read_bytes()
        path.write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
        told = problem(feed.get(f"{BASE}/steps/1/table.parquet"), 500)
        assert told["detail"] == "a file of step 1 differs from its published hash"
        assert str(stream) not in str(told)
        (stream / "releases/catalogue.json").write_text('{"x":')
        for path in ("/v1/streams", BASE, "/"):
            listed = feed.get(path).text
            assert path == "/" or "unreadable catalogue" in listed
            assert str(stream) not in listed


def test_a_long_catalogue_is_in_several_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A withdrawal that is written into a closed part only is known at once."""
    monkeypatch.setattr(catalogue, "PART", 2)
    make_stream(tmp_path)
    with served(tmp_path / "releases") as feed:
        assert [one["step"] for one in feed.get(f"{BASE}/steps").json()["steps"]] == [1, 2, 3, 4]
        assert feed.get(f"{BASE}/catalogue/000001-000002.json").status_code == 200
        tag = feed.get(f"{BASE}/steps").headers["etag"]
        before = (tmp_path / "releases/catalogue.json").read_bytes()
        with opened(tmp_path) as one:
            one.withdraw(1, "wrong")
        assert (tmp_path / "releases/catalogue.json").read_bytes() == before
        assert problem(feed.get(f"{BASE}/steps/1/table.csv"), 410)["reason"] == "wrong"
        assert feed.get(f"{BASE}/steps", headers={"If-None-Match": tag}).status_code == 200
        assert len(read_catalogue(f"{feed.base_url}{BASE}")["steps"]) == LAST


def test_changes_are_the_smallest_that_lead_on(made: Path, feed: httpx.Client) -> None:
    def steps(after: int, **more: int) -> list[tuple[int, str]]:
        lines = [
            json.loads(one)
            for one in feed.get(f"{BASE}/changes", params={"after": after, **more}).iter_lines()
        ]
        ends = [one for one in lines if one.get("event") == "end"]
        assert sum(one["rows"] for one in ends) == sum("event" not in one for one in lines)
        return [(one["step"], one["kind"]) for one in ends]

    assert steps(1) == [(2, "changes"), (3, "changes"), (4, "changes")]
    assert steps(1, limit=1) == [(2, "changes")]
    assert steps(0) == [(4, "table")]
    assert steps(4) == steps(99) == []
    # Following them gives the published table.
    table = read_table(made / "releases", 1, ids=True)
    for step in (2, 3, 4):
        table = apply_changes(table, read_changes(made / "releases", step))
    assert table.equals(read_table(made / "releases", 4, ids=True))


def test_changes_around_what_was_withdrawn(stream: Path) -> None:
    with opened(stream) as one:
        one.withdraw(2, "wrong")
    with served(stream / "releases") as feed:
        lines = [json.loads(one) for one in feed.get(f"{BASE}/changes?after=1").iter_lines()]
    told = [(one["step"], one["event"]) for one in lines if "event" in one]
    assert told == [(2, "withdrawn"), (3, "begin"), (3, "end"), (4, "begin"), (4, "end"), (4, "next")]
    assert [one["kind"] for one in lines if one.get("event") == "end"] == ["table", "changes"]


def test_who_follows_is_told_of_withdrawn_and_of_late_steps(tmp_path: Path) -> None:
    """All are full tables, with ids; 2 and 3 are approved after 4."""
    make_stream(tmp_path, [1, 4], "full")
    with served(tmp_path / "releases") as feed:

        def told(after: str, limit: int = 10) -> tuple[list[tuple[int, str]], str]:
            answer = feed.get(f"{BASE}/changes", params={"after": after, "limit": limit})
            lines = [json.loads(one) for one in answer.iter_lines()]
            *events, last = [one for one in lines if one.get("event") not in (None, "begin")]
            assert (last["event"], lines[-1]) == ("next", last)
            assert told_tables(lines)
            return [(one["step"], one.get("kind") or one["event"]) for one in events], last["after"]

        def told_tables(lines: list[dict[str, Any]]) -> bool:
            """Whether each whole table is the published one."""
            for end in (one for one in lines if one.get("kind") == "table" and one["event"] == "end"):
                rows = [one for one in lines if one["step"] == end["step"] and "event" not in one]
                table = read_table(tmp_path / "releases", end["step"], ids=True).to_pylist()
                assert rows == [{"step": end["step"], **row} for row in table]
            return True

        assert told("1") == ([(4, "table")], "4~2-3")
        assert told("4") == ([], "4~2-3")  # a number alone: nobody can have what was not there
        assert told("99~2.98") == ([], "4~2-3")
        with opened(tmp_path, "full") as one:
            one.approve(2)
        assert told("4~2-3") == ([(2, "table")], "4~3")
        with opened(tmp_path, "full") as one:
            one.approve(3)
        assert told("4~2-3") == ([(2, "table"), (3, "table")], "4")
        assert told("4~2-3", limit=1) == ([(2, "table")], "4~3")
        assert told("4~3") == ([(3, "table")], "4")
        with opened(tmp_path, "full") as one:
            one.withdraw(4, "wrong")
            one.withdraw(2, "wrong, too")
        for after in ("4", "4~2"):
            assert told(after) == ([(2, "withdrawn"), (4, "withdrawn")], "4")
        for wrong in ("-1", "4~", "4~2-", "x", "4-2", "4~2,3"):
            assert problem(feed.get(f"{BASE}/changes", params={"after": wrong}), 422)


def test_questions_are_answered_as_by_the_library(made: Path, feed: httpx.Client) -> None:
    question = "zip = '94102' and not paid"
    told = feed.get(f"{BASE}/answer", params={"q": question, "confidence": 0.9}).json()
    release = PublicRelease(made / "releases", LAST)
    expected = release.answer(question)
    interval = expected.interval(0.9)
    assert interval is not None
    assert told["in_the_table"] == expected.value
    assert (told["measured"], told["interval"]) == (expected.measured_value, list(interval))
    assert told["note"] == expected.note
    for wrong in ("zip = ", "nobody = 1", "zip = 'q'"):
        assert "detail" in problem(feed.get(f"{BASE}/answer", params={"q": wrong}), 400)
    assert problem(feed.get(f"{BASE}/answer", params={"q": "paid or " * 300 + "paid"}), 422)
    assert "from, to, change or every" in problem(feed.get(f"{BASE}/answer"), 400)["detail"]


def test_flows_changes_and_series_are_those_of_the_command(made: Path, feed: httpx.Client) -> None:
    for asked, options in (
        ({"from": "1", "to": "2"}, ("--from", "1", "--to", "2")),
        ({"from": "2", "to": "2", "change": "1/1"}, ("--from", "2", "--to", "2", "--change", "1/1")),
        (
            {"every": "1", "columns": "zip", "events": "came"},
            ("--every", "1", "--column", "zip", "--events", "came"),
        ),
    ):
        told = feed.get(f"{BASE}/answer", params=asked)
        command = dpstream("measured", made / "releases", *options, "--json")
        assert told.json() == json.loads(command.stdout), told.text
    for wrong in (
        {"from": "3", "to": "2"},
        {"every": "fortnight"},
        {"every": "1", "from": "1"},
        {"from": "1", "to": "2", "q": "paid"},
        {"columns": "zip"},
        {"from": "2", "to": "2", "change": "1"},
    ):
        assert "detail" in problem(feed.get(f"{BASE}/answer", params=wrong), 400)


def test_many_questions_keep_nobody_else_waiting(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More wait than there are threads for them; none of them is lost."""
    go_on = threading.Event()

    def slow(*_: object) -> dict[str, Any]:
        assert go_on.wait(60)
        return {}

    monkeypatch.setattr(answering, "answer", slow)
    with served(made / "releases") as feed, ThreadPoolExecutor(60) as pool:
        asked = [pool.submit(feed.get, f"{BASE}/answer?q=paid") for _ in range(60)]
        assert feed.get(f"{BASE}/steps").status_code == 200
        assert not any(one.done() for one in asked)
        go_on.set()
        assert {one.result().status_code for one in asked} == {200}


def test_many_forms_keep_few_files_open(stream: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each address that differs is a form; the oldest are let go, and made again for who asks."""
    monkeypatch.setattr(forms, "MAX_FILES", 3)
    with served(stream / "releases") as feed:
        address = f"{BASE}/steps/1/table.csv"
        first = feed.get(f"{address}?limit=1").text
        before = len(os.listdir("/proc/self/fd"))
        for limit in range(2, 40):
            assert feed.get(f"{address}?limit={limit}").text.startswith(first)
        assert len(os.listdir("/proc/self/fd")) <= before + 4
        assert feed.get(f"{address}?limit=1").text == first


def test_a_reader_asks_for_what_is_not_there(feed: httpx.Client) -> None:
    for path in (
        "/v1/streams/other",
        *(f"{BASE}/{one}" for one in ("steps/1/table.xlsx", "nothing", "steps/0")),
    ):
        assert feed.get(path).status_code in (404, 422)
    assert "has a table" in problem(feed.get(f"{BASE}/steps/1/changes.csv"), 404)["detail"]
    wrong = problem(feed.get(f"{BASE}/steps/1/table.csv?columns=paid,nobody"), 400)
    assert (wrong["detail"], wrong["allowed"]) == ("unknown column 'nobody'", "record_id, zip, paid")
    refused = feed.post(BASE)
    assert problem(refused, 405)
    assert refused.headers["allow"]


def test_the_newest_table_has_an_address(feed: httpx.Client) -> None:
    answer = feed.get(f"{BASE}/steps/latest/table.csv?limit=3", follow_redirects=True)
    assert answer.url.path == f"{BASE}/steps/{LAST}/table.csv"
    assert answer.text.count("\n") == 4


def test_pages_load_nothing(feed: httpx.Client) -> None:
    for path in ("/", "/docs"):
        page = feed.get(path)
        assert "invented" in page.text
        assert "<script" not in page.text
        assert "src=" not in page.text
        assert "://" not in page.text
        assert page.headers["content-security-policy"].startswith("default-src 'none'")
        assert ":root{color-scheme:" in page.text  # else links of the dark scheme lie on white
        assert "`" not in page.text
        assert "<wbr>/{step}<wbr>/manifest</code>" in page.text  # a line ends before a slash
        assert not re.search("=</code> *</small>", page.text), "each parameter has its words"


def test_other_origins_read_only_where_it_is_allowed(made: Path, feed: httpx.Client) -> None:
    asked = {"Origin": "https://example.org"}
    assert "access-control-allow-origin" not in feed.get(BASE, headers=asked).headers
    with served(made / "releases", origins=["https://example.org"]) as open_feed:
        assert (
            open_feed.get(BASE, headers=asked).headers["access-control-allow-origin"] == "https://example.org"
        )
        other = open_feed.get(BASE, headers={"Origin": "https://example.com"})
        assert "access-control-allow-origin" not in other.headers


def test_places_are_folders_with_names(made: Path, tmp_path: Path) -> None:
    folder = str(made / "releases")
    (one,) = find_places([f"other={folder}"])
    assert one.name == "other"
    (tmp_path / "empty").mkdir()
    wrong = {
        folder + "/nowhere": "the folder is missing",
        str(tmp_path / "empty"): "releases are missing",
        f"a b={folder}": "cannot stand in an address",
        "s3://bucket/releases": "the folder is missing",
        "x=https://example.org/v1": "the folder is missing",
    }
    for text, words in wrong.items():
        with pytest.raises(ConfigError, match=words):
            find_places([text])
    with pytest.raises(ConfigError, match="two streams"):
        find_places([folder, folder])
    with served(f"later={tmp_path / 'empty'}") as feed:
        assert feed.get("/v1/streams").json()["streams"][0]["steps"] == 0
        assert problem(feed.get("/v1/streams/later/steps"), 404)["detail"] == "nothing was released yet"
        shutil.copytree(made / "releases", tmp_path / "empty", dirs_exist_ok=True)
        assert len(feed.get("/v1/streams/later/steps").json()["steps"]) == LAST
