"""Every page for every role: who gets in, what cannot be forged, and what is never in an answer."""

from __future__ import annotations

import html
import logging
import re
from typing import Any
from urllib.parse import urlencode

import pytest
from offices import EVIL, EVIL_VALUE, PLANTED, Office
from small_configs import rewrite

from dpstream.core.errors import ConfigError
from dpstream.service.desk import Person
from dpstream.service.pages import serve
from dpstream.service.pages.serving import POLICY, ROUTES
from dpstream.service.pages.visits import LARGEST
from dpstream.service.tokens import add_token

ALL = "analyst auditor approver owner"
LOOKS = "auditor approver owner"
ONE = {"stream": EVIL}
#: Every route: the roles that get in, the fields, and what they get. A route that is not here fails the test.
MATRIX: dict[str, tuple[str, dict[str, Any], int]] = {
    "GET /": (ALL, {}, 200),
    "GET /cards": (ALL, {"turn": 1}, 200),
    "GET /stream": (ALL, ONE, 200),
    "GET /tasks": (ALL, {**ONE, "turn": 1}, 200),
    "GET /report": (ALL, ONE, 200),
    "GET /statement": (ALL, ONE, 200),
    "GET /ledger": (LOOKS, ONE, 200),
    "GET /accounts": (LOOKS, {}, 200),
    "GET /decisions": (LOOKS, {}, 200),
    "GET /held": ("approver owner", {**ONE, "step": 5}, 200),
    "POST /decide": ("approver owner", {**ONE, "step": 5, "kind": "approve", "manifest": "@5"}, 303),
    "GET /withdraw": ("approver owner", ONE, 200),
    "POST /withdraw": ("approver owner", {**ONE, "step": 1, "reason": "sent twice"}, 303),
    # The stream is not asked, which those are told who may ask.
    "GET /ask": ("analyst owner", ONE, 200),
    "POST /ask": ("analyst owner", {**ONE, "question": "paid"}, 400),
    "POST /run": ("owner", ONE, 303),
    "GET /board": ("analyst approver owner", {**ONE, "amount": "1/2"}, 200),
    "GET /board/draft": ("analyst approver owner", {**ONE, "amount": "1/2"}, 200),
    "GET /people": ("owner", {}, 200),
    "POST /people/add": ("owner", {"name": f"New {EVIL_VALUE}", "role": "analyst"}, 303),
    "POST /people/roles": ("owner", {"name": "Ben", "role": "approver"}, 303),
    "POST /people/sign-out": ("owner", {"name": "Ben"}, 303),
    "POST /people/remove": ("owner", {"name": "Ben"}, 303),
    "GET /metrics": (ALL, {}, 200),
}
#: For everybody, also without a login.
OPEN = {
    "GET /sign-in": 200,
    "POST /sign-in": 403,
    "POST /sign-out": 303,
    "GET /health": 200,
    **{f"GET /assets/{name}": 200 for name in ("htmx.min.js", "icon.svg", "report.css", "service.css")},
}
ROLES = {"analyst": "Ada", "auditor": "Aldo", "approver": "Anna", "owner": "Olga"}
#: In no address, whoever asks.
NEVER = ("state", "restore", "discard", "private", "evaluat", "store", "seed", "export")


def routes(office: Office) -> list[str]:
    return [f"{method} {one.path}" for one in office.app.routes for method in sorted(one.methods - {"HEAD"})]


def send(office: Office, name: str, route: str) -> Any:
    method, path = route.split()
    fields = dict(MATRIX[route][1]) if route in MATRIX else {}
    if fields.get("manifest") == "@5":
        fields["manifest"] = office.desk.held(office.desk.operator("root"), EVIL, 5).manifest_sha256
    client = office.client(name)
    if method == "GET":
        return client.get(path, **fields)
    return client.post(path, page="/" if name else "/sign-in", **fields)


def test_every_route_has_an_entry(office: Office) -> None:
    found = routes(office)
    assert sorted(found) == sorted([*MATRIX, *OPEN])
    words = {word for one in found for word in re.split(r"[^a-z]", one.lower())}
    assert [one for one in words if one.startswith(NEVER) and one != "statement"] == []
    assert {f"{one.method} {one.path}" for one in ROUTES if one.open} <= set(OPEN)


@pytest.mark.parametrize("role", ROLES)
def test_who_gets_in(office: Office, role: str) -> None:
    """What is refused has done nothing; what is allowed answers; nothing planted is told."""
    name, answers = ROLES[role], {}
    office.client(name)
    before = office.desk.decisions(office.desk.operator("root"))
    for route, (allowed, _, _) in MATRIX.items():
        if role not in allowed.split():
            answer = answers[route] = send(office, name, route)
            assert answer.status_code == 403, (route, role, answer.text)
            assert "You may not do this" in answer.text
    assert office.desk.decisions(office.desk.operator("root")) == before
    assert office.tasks() == []
    for route, (allowed, _, status) in MATRIX.items():
        if role in allowed.split():
            answer = answers[route] = send(office, name, route)
            assert answer.status_code == status, (route, role, answer.text)
    answers["POST /sign-out"] = office.client(name).post("/sign-out")
    for route, answer in answers.items():
        check(route, answer)


def test_nobody_gets_in(office: Office) -> None:
    """Without a login every page leads to the sign-in, and what is open for everybody tells nothing of a stream."""
    for route in MATRIX:
        answer = send(office, "", route)
        assert answer.status_code == (401 if route == "GET /metrics" else 303), route
        assert answer.headers.get("location", "/sign-in").startswith("/sign-in"), route
        check(route, answer)
    for route, status in OPEN.items():
        answer = send(office, "", route)
        assert answer.status_code == status, route
        check(route, answer)
        if "/assets/" not in route:
            words = html.unescape(answer.text)
            assert "epsilon" not in words, route
            assert "owned" not in words, route
    assert office.tasks() == []
    assert send(office, "", "GET /health").json() == {"pages": "ok"}


def check(route: str, answer: Any) -> None:
    """No private value, no markup from a name, and the headers; a report brings its own policy."""
    assert PLANTED not in answer.text
    assert PLANTED not in str(answer.headers)
    assert "Traceback" not in answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-frame-options"] == "DENY"
    policy = answer.headers["content-security-policy"]
    if route in ("GET /report", "GET /statement") and answer.status_code == 200:
        assert "default-src 'none'" in policy
        assert "sandbox allow-scripts" in policy
        assert "script-src 'unsafe-inline'" not in policy
    else:
        assert policy == POLICY
    if answer.headers.get("content-type", "").startswith("text/html"):
        text = answer.text
        assert "<img src=x" not in text
        assert "<svg onload" not in text
        assert "<script>document" not in text
        assert "49 ../" not in text  # a name is no template
    for cookie in answer.headers.get_list("set-cookie"):
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie


def test_an_approval_stays_with_its_step(office: Office) -> None:
    """A second click approves nothing else; the last approval says what follows, and its task names everybody."""
    held = office.desk.held(office.desk.operator("root"), EVIL, 5)
    fields = {"stream": EVIL, "step": 5, "kind": "approve", "manifest": held.manifest_sha256}
    anna, ben = office.client("Anna"), office.client("Ben")
    answer = anna.post("/decide", **fields)
    assert answer.headers["location"].startswith("/held?")
    assert "step=5" in answer.headers["location"]
    page = html.unescape(anna.get(answer.headers["location"]).text)
    assert "Step 5: approved, 1 of 2." in page
    assert re.search(r'href="/held\?[^"]*step=6"', page)
    assert 'value="approve"' not in page
    answer = ben.post("/decide", **fields)
    assert answer.headers["location"].startswith("/stream?")
    page = ben.get(answer.headers["location"]).text
    assert "Step 5 has 2 approvals; the worker publishes it." in page
    assert "<bdi>Anna</bdi> and <bdi>Ben</bdi>, " in page
    # An address says nothing by itself.
    assert "Step 6 has" not in ben.get("/stream", stream=EVIL, step=6, told="approve").text
    assert "Step 6: approved" not in ben.get("/held", stream=EVIL, step=6, told="approve").text


def test_the_ledger_says_why_costs_do_not_add_up(office: Office) -> None:
    """And which steps nobody can read; the overview tells of the newest that can be read."""
    desk, anna = office.desk, Person("Anna", frozenset(["approver"]))
    desk.decide(anna, EVIL, 6, "reject", "the file was cut")
    desk.decide(anna, EVIL, 4, "withdraw", "sent twice")
    office.work()
    page = office.client("Aldo").get("/ledger", stream=EVIL).text
    assert "Steps do not add up" in page
    rows = {
        row[1]: row[0]
        for row in re.findall(r'(<tr><th scope="row" data-is="step">([0-9]+)</th>.*?</tr>)', page)
    }
    told = {step: re.findall(r'class="word [a-z]+">(\w+)<', row) for step, row in rows.items()}
    assert told == {"6": ["rejected"], "5": ["held"], "4": ["withdrawn"], "3": [], "2": [], "1": []}
    assert "step 3, released" in office.client("Ada").get("/stream", stream=EVIL).text
    # Who has no shell is not told to run a command.
    for name, words in (
        ("Anna", "not known: ask the owner to run dpstream errors"),
        ("Olga", "not known: run"),
    ):
        assert words in office.client(name).get("/held", stream=EVIL, step=5).text


def test_a_form_of_somebody_else_does_nothing(office: Office) -> None:
    """The token of another login, none, a page of another site, and other kinds of bodies."""
    anna, ben = office.client("Anna"), office.client("Ben")
    fields = dict(MATRIX["POST /withdraw"][1])
    for token in ("", "0" * 64, ben.token()):
        answer = anna.post("/withdraw", token=token, **fields)
        assert answer.status_code == 400
        assert "too old or foreign" in answer.text
    good = {"token": anna.token(), **fields}
    for site in ("cross-site", "same-site", "none"):
        answer = anna.http.post("/withdraw", data=good, headers={"sec-fetch-site": site})
        assert answer.status_code == 400
    assert anna.http.post("/withdraw", json=good).status_code == 400
    several = {key: (None, str(value)) for key, value in good.items()}
    assert anna.http.post("/withdraw", files=several).status_code == 400
    kind = {"content-type": "application/x-www-form-urlencoded"}
    parts = iter([urlencode(good).encode()])  # without a length
    assert anna.http.post("/withdraw", content=parts, headers=kind).status_code == 400
    assert anna.http.post("/withdraw", content=b"a=1&" * 200, headers=kind).status_code == 400
    large = urlencode({**good, "more": "x" * LARGEST}).encode()
    assert anna.http.post("/withdraw", content=large, headers=kind).status_code == 413
    for wrong in ("PUT", "DELETE", "PATCH"):
        assert anna.http.request(wrong, "/withdraw").status_code == 405
    assert office.tasks() == []
    answer = anna.http.post("/withdraw", data=good, headers={"sec-fetch-site": "same-origin"})
    assert answer.status_code == 303
    assert office.tasks() == [("withdraw", "waiting")]


def test_errors_are_pages_with_a_sentence(office: Office, caplog: pytest.LogCaptureFixture) -> None:
    anna = office.client("Anna")
    for path, status in (
        ("/nowhere", 404),
        ("/stream", 400),
        ("/stream?stream=none", 400),
        (f"/held?{urlencode({'stream': EVIL, 'step': 1})}", 400),
        (f"/held?{urlencode({'stream': EVIL, 'step': '1e9'})}", 400),
        (f"/withdraw?{urlencode({'stream': EVIL, 'step': 5, 'reason': 'x'})}", 400),
        (f"/board?{urlencode({'stream': EVIL, 'amount': '1e999999999'})}", 400),
        (f"/board?{urlencode({'stream': EVIL, 'wish': 'nonsense'})}", 400),
    ):
        answer = anna.get(path)
        assert answer.status_code == status, path
        assert answer.headers["content-type"].startswith("text/html")
        check(path, answer)

    def broken(name: str) -> None:
        raise ZeroDivisionError(PLANTED)

    logging.getLogger("uvicorn.error").addHandler(caplog.handler)
    office.desk.cards = broken  # type: ignore[method-assign, assignment]
    answer = anna.get("/")
    assert answer.status_code == 500
    assert "This did not work" in answer.text
    check("/", answer)
    office.close()  # the log is written after the answer
    (told,) = {one.getMessage() for one in caplog.records if one.levelname == "ERROR"}
    assert re.match(r"ZeroDivisionError at .*test_routes.py:\d+", told)
    assert PLANTED not in caplog.text
    logging.getLogger("uvicorn.error").removeHandler(caplog.handler)


def test_an_ended_login_goes_back_to_where_one_was(office: Office) -> None:
    anna = office.client("Anna")
    page = f"/held?{urlencode({'stream': EVIL, 'step': 5})}"
    token, before = anna.token(), len(office.desk.decisions(office.desk.operator("root")))
    held = office.desk.held(office.desk.operator("root"), EVIL, 5)
    office.desk.sign_out(anna.http.cookies["dpstream_login"])
    answer = anna.get(page)
    assert answer.status_code == 303
    assert anna.http.get(answer.headers["location"]).status_code == 200
    fields = {"stream": EVIL, "step": 5, "kind": "approve", "manifest": held.manifest_sha256, "back": page}
    answer = anna.post("/decide", token=token, **fields)
    assert len(office.desk.decisions(office.desk.operator("root"))) == before
    place = answer.headers["location"]
    hidden = re.search(r'name="next" value="([^"]*)"', anna.get(place).text)
    assert hidden
    back = html.unescape(hidden[1])
    assert back == f"{page}&told=expired"
    answer = anna.post("/sign-in", page="/sign-in", once=office.token_of("Anna"), next=back)
    assert answer.headers["location"] == back
    assert "nothing was done" in anna.get(back).text
    # A page that refreshes itself leads the whole page to the login; one that came from a mail asks once more.
    office.desk.sign_out(anna.http.cookies["dpstream_login"])
    part = anna.http.get(
        "/cards?turn=1", headers={"hx-request": "true", "hx-current-url": f"{office.address}{page}"}
    )
    assert part.status_code == 204
    assert part.headers["hx-redirect"].startswith("/sign-in?next=%2Fheld")
    mailed = anna.http.get("/decisions", headers={"sec-fetch-site": "cross-site"})
    assert 'http-equiv="refresh" content="0;url=/decisions"' in mailed.text


def test_programs_come_with_a_token_for_numbers_only(office: Office) -> None:
    """Of the file that ``service.toml`` names, which the feed's tokens are in as well."""
    token = add_token(office.folder / "tokens.txt", "prometheus")
    head = {"authorization": f"Bearer {token}"}
    assert office.client().http.get("/metrics", headers=head).status_code == 401
    office.close()
    rewrite(office.folder / "service.toml", "[service]", '[service]\ntokens = "tokens.txt"')
    office = Office.served(office.folder)
    http = office.client().http
    told = http.get("/metrics", headers=head)
    assert told.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert re.search(r'^dpstream_steps\{stream=".+"\} 6$', told.text, re.MULTILINE)
    assert http.get("/health", headers=head).json()["streams"] == {EVIL: "held"}
    for route in MATRIX:
        if route.startswith("GET ") and route != "GET /metrics":
            assert http.get(route[4:], headers=head).status_code == 303
    assert http.get("/metrics", headers={"authorization": f"Bearer {token[:-1]}"}).status_code == 401
    (office.folder / "tokens.txt").write_text("")
    assert http.get("/metrics", headers=head).status_code == 401
    office.close()


def test_only_the_configured_proxy_says_who_somebody_is(office: Office) -> None:
    office.close()
    file = office.folder / "service.toml"
    text = file.read_text(encoding="utf-8")
    secret = "s" * 32
    (office.folder / "secret").write_text(secret)
    (office.folder / "secret").chmod(0o600)
    known = [("x-remote-user", "Anna"), ("x-proxy-secret", secret)]
    for address, status in (("127.0.0.1", 200), ("10.0.0.1", 303)):
        proxy = f'[proxy]\naddress = "{address}"\nheader = "X-Remote-User"\nsecret_file = "secret"\n'
        file.write_text(text + proxy, encoding="utf-8")
        behind = Office.served(office.folder)
        http, left = behind.client().http, behind.client("Ben").http
        for more in ([], [("x-forwarded-for", "10.0.0.1")]):
            assert http.get("/", headers=[*known, *more]).status_code == status
        # Another program of the proxy's machine; nobody of that name; and what comes twice.
        for heads in (
            known[:1],
            [known[0], ("x-proxy-secret", "s" * 31)],
            [("x-remote-user", "Nobody"), known[1]],
            [*known, ("x-remote-user", "Ben")],
            [("x-remote-user", "Ben"), *known],
            [*known, known[1]],
        ):
            assert http.get("/", headers=heads).status_code == 303, heads
        if status == 200:
            # Ben's login was left in the browser: who the proxy says it is counts, or nobody.
            assert "Ben" in left.get("/", headers=known[1:]).text
            page = left.get("/", headers=known).text
            assert "Anna" in page
            assert "Ben" not in page
            assert left.get("/", headers=[("x-remote-user", "Nobody"), known[1]]).status_code == 303
            behind.desk.add_person(behind.desk.operator("root"), "Zoë", ["analyst"])
            for name, found in (("Zoë".encode(), 200), ("Zoë".encode("latin-1"), 303)):
                heads = [(b"x-remote-user", name), (b"x-proxy-secret", secret.encode())]
                assert http.get("/", headers=heads).status_code == found
            # The form's token of nobody, with the same cookie, is none of hers: another one's cookie gives no token.
            form = {"token": behind.client().token("/sign-in"), **MATRIX["POST /withdraw"][1]}
            answer = http.post("/withdraw", data=form, headers=known)
            assert "too old or foreign" in answer.text
            page = http.get("/held", params={"stream": EVIL, "step": 5}, headers=known).text
            mine = re.search(r'name="token" value="([0-9a-f]{64})"', page)
            assert mine
            assert http.post("/withdraw", data={**form, "token": mine[1]}, headers=known).status_code == 303
        behind.close()


def test_addresses_that_cannot_be_used(office: Office) -> None:
    """How pages that are served end, ``test_up.py`` shows."""
    taken = office.address.removeprefix("http://")
    for at in (taken, "localhost", "localhost:http", "300.1.1.1:80", "127.0.0.1:99999"):
        with pytest.raises(ConfigError, match="address"):
            serve(office.folder, at)
