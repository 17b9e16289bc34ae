"""The pages in a real browser: decisions, two persons, an ended login, keyboard, contrast, a phone, no network."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlencode

import pytest
from chromium import PROGRAM, Browser
from offices import EVIL, Office

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium on this machine")
STREAM = urlencode({"stream": EVIL})
APPROVE = "form:has([value=approve]) button"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    made = Browser(tmp_path_factory.mktemp("chromium"))
    yield made
    made.close()


@pytest.fixture(autouse=True)
def afresh(browser: Browser) -> Iterator[None]:
    """A browser that knows nobody; afterwards: it loaded from here only, and no policy had to stop anything."""
    browser.send("Network.clearBrowserCookies")
    browser.asked.clear()
    browser.complaints.clear()
    browser.size(1100)
    yield
    assert {re.sub(r":\d+/.*", "", one) for one in browser.asked} <= {"http://127.0.0.1"}
    assert [one for one in browser.complaints if "Failed to load resource" not in one] == []


def sign_in(browser: Browser, office: Office, name: str, place: str = "/") -> None:
    browser.go(f"{office.address}{place}")
    if "/sign-in" not in browser.place:
        browser.click(".leave button")
        browser.go(f"{office.address}{place}")
    browser.fill("[name=once]", office.token_of(name))
    browser.click("main button")


def test_two_persons_approve(browser: Browser, office: Office) -> None:
    held = f"/held?{STREAM}&step=5"
    sign_in(browser, office, "Anna", held)
    assert browser.script("new URLSearchParams(location.search).get('step')") == "5"
    assert "What differs most from the last released table" in browser.words
    browser.click(APPROVE)
    assert "Held too: step 6." in browser.words
    browser.go(f"{office.address}{held}")
    assert re.search(r"1 of 2.*Anna approved on \d+ \w+ \d{4}", browser.words, re.DOTALL)
    assert "Needed: 1 more person" in browser.words
    sign_in(browser, office, "Ben", held)
    browser.click(APPROVE)
    assert office.tasks() == [("approve", "waiting")]
    sign_in(browser, office, "Aldo", "/decisions")
    assert [one in browser.words for one in ("Anna", "Ben", "approve step 5")] == [True] * 3
    office.work()
    browser.go(f"{office.address}/stream?{STREAM}")
    assert "step 5 is published" in browser.words
    assert office.desk.card(office.desk.operator("root"), EVIL).held == (6,)


def test_withdrawing_shows_first_what_readers_will_see(browser: Browser, office: Office) -> None:
    sign_in(browser, office, "Olga", f"/withdraw?{STREAM}")
    assert browser.script("[...document.querySelectorAll('option')].map((o) => o.value)") == list("4321")
    browser.script("document.querySelector('select').value = '3'")
    browser.fill("main [name=reason]", "week 3 was sent twice")
    browser.click("main form button")
    assert "What readers will see" in browser.words
    assert "step 3 was withdrawn.\n\nweek 3 was sent twice" in browser.words
    assert office.tasks() == []
    browser.click("button.danger")
    assert office.tasks() == [("withdraw", "waiting")]


def test_a_page_refreshes_itself_and_not_for_ever(browser: Browser, office: Office) -> None:
    sign_in(browser, office, "Anna", f"/stream?{STREAM}")
    office.desk.run_now(office.desk.operator("root"), EVIL)
    assert "waiting" not in browser.words
    place = "document.querySelector('#tasks').getAttribute('hx-get')"
    browser.script(f"htmx.ajax('GET', {place}, {{target: '#tasks', swap: 'outerHTML'}})")
    browser.until("document.querySelector('#tasks').innerText.includes('waiting')")
    assert "turn=2" in browser.script(place)
    cookies = browser.send("Network.getCookies", urls=[office.address])["cookies"]
    office.desk.sign_out(next(one["value"] for one in cookies if one["name"] == "dpstream_login"))
    before = browser.loads
    browser.script(f"htmx.ajax('GET', {place}, {{target: '#tasks', swap: 'outerHTML'}})")
    browser.loaded(before)
    assert browser.place.startswith("/sign-in?next=%2Fstream%3F")
    sign_in(browser, office, "Anna")
    browser.go(f"{office.address}/cards?turn=20")
    assert browser.script("document.querySelector('#cards').getAttribute('hx-get')") is None


def test_the_keyboard_does_all(browser: Browser, office: Office) -> None:
    browser.go(f"{office.address}/held?{STREAM}&step=5")
    browser.until("document.activeElement.name === 'once'")
    browser.send("Input.insertText", text=office.token_of("Anna"))
    browser.press("Enter", 13, loads=True)
    reached = []
    for _ in range(60):
        browser.press("Tab", 9)
        seen = browser.script(
            "(() => { const e = document.activeElement, s = getComputedStyle(e);"
            " return [e.innerText ?? '', e.tagName, s.outlineStyle !== 'none'] })()"
        )
        reached.append(seen[0].strip())
        assert seen[2] or seen[1] == "BODY", seen
        if reached[-1] == "Approve step 5":
            break
    assert reached[0] == "To the content"
    assert {"Streams", "Decisions", "Sign out", "Overview", "Ledger"} <= set(reached)
    browser.press("Enter", 13, loads=True)
    assert "Step 5: approved, 1 of 2." in browser.words


#: Tables whose columns end beyond the edge.
CUT = (
    "[...document.querySelectorAll('table.rows')]"
    ".filter((e) => e.parentElement.scrollWidth > e.parentElement.clientWidth).length"
)
PAGES = (
    *("/", "/accounts", "/decisions", "/people", "/nowhere", f"/stream?{STREAM}"),
    *(f"/ledger?{STREAM}", f"/held?{STREAM}&step=5", f"/withdraw?{STREAM}"),
    *(f"/withdraw?{STREAM}&step=2&reason=x", f"/board?{STREAM}&amount=1/2&wish=total+within+5+%25"),
)


def test_pages_fit_a_phone_and_can_be_read(browser: Browser, office: Office) -> None:
    """Nothing is wider than 360 pixels, faint, or without a name; by day and by night."""
    for name, places in (("nobody", ("/sign-in",)), ("Olga", PAGES)):
        if name != "nobody":
            sign_in(browser, office, name)
        for place in places:
            browser.go(f"{office.address}{place}")
            for width, dark in ((360, False), (360, True), (1100, False)):
                browser.size(width, dark=dark)
                seen = browser.look()
                assert seen["faint"] == seen["unnamed"] == seen["wide"] == [], (place, width, dark)
                assert seen["scroll"] == seen["client"] == width, place
                assert width > 360 or browser.script(CUT) == 0, place
                assert seen["owned"] == "", place
                brightness = sum(map(int, re.findall(r"\d+", seen["paper"])[:3]))
                assert brightness < 90 if dark else brightness > 700
    # Reports and statements look as they do by themselves; their scripts run, and have no part in the login.
    for place in (f"/report?{STREAM}", f"/statement?{STREAM}"):
        browser.go(f"{office.address}{place}")
        assert browser.look()["owned"] == ""
        assert (
            browser.script("try { document.cookie; 'read' } catch { 'refused' }".join(["(() => { ", " })()"]))
            is None
        )
    browser.go(f"{office.address}/report?{STREAM}")
    assert browser.script("self.origin") == "null"
    assert browser.script("document.documentElement.dataset.ready") == "true"


def test_what_was_not_there_is_stopped_or_seen(browser: Browser, office: Office) -> None:
    """Control: a script, a style and a picture that somebody adds are refused and recorded; the rest is seen."""
    browser.go(f"{office.address}/sign-in")
    browser.script(
        "(() => { const add = (name, more) => { const e = Object.assign(document.createElement(name), more);"
        " document.querySelector('main').append(e); return e };"
        " add('script', {textContent: \"document.documentElement.dataset.owned = '3'\"});"
        " add('img', {src: 'http://127.0.0.1:9/x.png', alt: ''});"
        " add('p', {textContent: 'styled'}).setAttribute('style', 'color: red');"
        " add('p', {textContent: 'faint'}).style.color = '#999'; add('input', {});"
        " add('p', {textContent: 'wide'}).style.minWidth = '2000px'; })()"
    )
    seen = browser.look()
    assert seen["owned"] == ""
    assert [one.split(" ", 1)[1] for one in seen["faint"]] == ["P. faint"]
    assert [one for one in seen["wide"] if "wide" in one]
    assert seen["unnamed"] == ["<input>"]
    assert seen["scroll"] > seen["client"]
    stopped = " ".join(browser.complaints)
    for what in ("inline script", "inline style", "127.0.0.1:9"):
        assert what in stopped
    browser.complaints.clear()
    browser.asked.clear()
