"""Pages of streams: what is released, held and asked, and what people decide about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi.responses import HTMLResponse, Response

from dpstream.core.errors import DpstreamError
from dpstream.io.sinks import read_catalogue, read_manifest, released_schema
from dpstream.service.pages.board import WantedPlan, draft, plan_board
from dpstream.service.pages.documents import policy_of
from dpstream.service.pages.previews import preview
from dpstream.service.pages.visits import FormError, Route, Visit, link, page

if TYPE_CHECKING:
    from dpstream.service.desk import Person, Task

#: The pages of this module; the decorators put them here.
ROUTES: list[Route] = []

#: Lines of a long list on one page.
_LINES = 200


@page(ROUTES, "GET /")
def home(visit: Visit) -> Response:
    """All streams, a card each."""
    return visit.page("home.html", cards=visit.desk.cards(visit.me), turn=0)


@page(ROUTES, "GET /cards")
def cards(visit: Visit) -> Response:
    """The cards alone, for a page that refreshes itself."""
    return visit.page("cards.html", cards=visit.desk.cards(visit.me), turn=visit.number("turn"))


def _of_stream(visit: Visit, kind: str = "") -> dict[str, Any]:
    """What every page of one stream shows; ``kind``: of tasks, only these."""
    name = visit.asked("stream")
    tasks = [one for one in visit.desk.tasks(visit.me, name)[::-1] if kind in ("", one.kind)]
    return {"card": visit.desk.card(visit.me, name), "tasks": tasks[:_LINES], "kind": kind, "turn": 0}


@page(ROUTES, "GET /stream")
def stream(visit: Visit) -> Response:
    """One stream."""
    values = _of_stream(visit)
    if visit.asked("told") == "approve" and visit.asked("step"):
        task = _approving(visit, visit.asked("stream"), visit.number("step"))
        if task is not None:
            values["said"] = _published_words(task)
    return visit.page("stream.html", **values)


def _published_words(task: Task) -> str:
    by, step = task.what.get("by", ()), task.what["step"]
    enough = "its approval" if len(by) == 1 else f"{len(by)} approvals"
    what = {
        "done": "it is published",
        "failed": "it could not be published",
        "cancelled": "it is not published",
    }
    return f"Step {step} has {enough}; {what.get(task.state, 'the worker publishes it')}."


@page(ROUTES, "GET /tasks")
def tasks(visit: Visit) -> Response:
    """Its tasks alone, for a page that refreshes itself."""
    return visit.page(
        "tasks.html", **{**_of_stream(visit, visit.asked("kind")), "turn": visit.number("turn")}
    )


@page(ROUTES, "GET /report")
def report(visit: Visit) -> Response:
    """The report on the releases, as a page of its own."""
    page = visit.documents.report(visit.desk.config(visit.me, visit.asked("stream")))
    return _sealed(page)


@page(ROUTES, "GET /statement")
def statement(visit: Visit) -> Response:
    """The privacy statement, as a page of its own."""
    page = visit.documents.statement(visit.desk.config(visit.me, visit.asked("stream")))
    return _sealed(page)


def _sealed(page: str) -> Response:
    return HTMLResponse(page.encode("utf-8", "replace"), headers={"content-security-policy": policy_of(page)})


@page(ROUTES, "GET /ledger")
def ledger(visit: Visit) -> Response:
    """What every step cost."""
    facts = visit.desk.ledger(visit.me, visit.asked("stream"))
    return visit.page("ledger.html", ledger=facts, **_of_stream(visit))


@page(ROUTES, "GET /held")
def held(visit: Visit) -> Response:
    """A held step beside the last released one."""
    me, name = visit.me, visit.asked("stream")
    found = visit.desk.held(me, name, visit.number("step"))
    config = visit.desk.config(me, name)
    releases, schema = config.output.dir, config.schema()
    if schema.open_columns and found.last_step is not None:
        schema = released_schema(releases, read_manifest(releases, found.last_step))
    made = preview(found, schema, releases)
    mine = any(one.person == me.name for one in found.approvals)
    values = _of_stream(visit)
    if mine and visit.asked("told") == "approve":
        given = f"{len(found.approvals)} of {found.needed}"
        values["said"] = f"Step {found.step}: approved, {given}."
    others = [one for one in values["card"].held if one != found.step]
    later = next((one for one in others if one > found.step), others[0] if others else None)
    return visit.page("held.html", held=found, made=made, mine=mine, later=later, **values)


@page(ROUTES, "POST /decide")
def decide(visit: Visit) -> Response:
    """Approve or reject what was looked at."""
    me, name, step, kind = visit.me, visit.asked("stream"), visit.number("step"), visit.asked("kind")
    if kind not in ("approve", "reject"):
        raise FormError("nothing was decided", where="form", allowed="approve or reject")
    visit.desk.decide(me, name, step, kind, visit.asked("reason"), {step: visit.asked("manifest")})
    # Never on to another step: a second click on the same place would approve what nobody looked at.
    if kind == "approve" and _approving(visit, name, step, visit.asked("manifest")) is None:
        return visit.to(link("/held", stream=name, step=step, told=kind))
    return visit.to(link("/stream", stream=name, step=step, told=kind))


def _approving(visit: Visit, name: str, step: int, manifest: str = "") -> Task | None:
    """The newest task that publishes a step (with that manifest): it has all its approvals."""
    wanted = {"step": step} | ({"manifest_sha256": manifest} if manifest else {})
    tasks = visit.desk.tasks(visit.me, name)[::-1]
    return next((one for one in tasks if one.kind == "approve" and wanted.items() <= one.what.items()), None)


@page(ROUTES, "GET /withdraw")
def withdraw(visit: Visit) -> Response:
    """Which step, and why; then what readers will see."""
    me, name = visit.me, visit.asked("stream")
    visit.require("decide")
    reason = visit.asked("reason")
    step = visit.number("step") if visit.asked("step") else None
    steps = _released(visit, me, name)
    if reason and step not in [number for number, _ in steps]:
        raise FormError("the step is not released", where="form", allowed="a released step")
    return visit.page("withdraw.html", step=step, reason=reason, steps=steps, **_of_stream(visit))


@page(ROUTES, "POST /withdraw")
def withdrawn(visit: Visit) -> Response:
    """Withdraw it: readers are told the reason."""
    name, step = visit.asked("stream"), visit.number("step")
    visit.desk.decide(visit.me, name, step, "withdraw", visit.asked("reason"))
    return visit.to(link("/stream", stream=name, told="withdraw"))


def _released(visit: Visit, me: Person, name: str) -> list[tuple[int, str | None]]:
    """Released steps with their periods, newest first; those that were withdrawn are left out."""
    folder = visit.desk.config(me, name).output.dir
    if not (folder / "catalogue.json").is_file():
        return []
    known = [int(one["step"]) for one in read_catalogue(folder)["steps"] if one["state"] != "withdrawn"]
    newest = sorted(known, reverse=True)
    return [
        *((step, read_manifest(folder, step)["period"]) for step in newest[:_LINES]),
        *((step, None) for step in newest[_LINES:]),
    ]


@page(ROUTES, "GET /ask")
def ask(visit: Visit) -> Response:
    """A question and its price; nothing is asked yet."""
    question, name = visit.asked("question"), visit.asked("stream")
    visit.require("price")
    price = visit.desk.price(visit.me, name, question) if question else None
    return visit.page("ask.html", question=question, price=price, **_of_stream(visit, "ask"))


@page(ROUTES, "POST /ask")
def asked(visit: Visit) -> Response:
    """Ask it."""
    name = visit.asked("stream")
    visit.desk.ask(visit.me, name, visit.asked("question"))
    return visit.to(link("/ask", stream=name, told="ask"))


@page(ROUTES, "POST /run")
def run(visit: Visit) -> Response:
    """Let the worker look at once."""
    name = visit.asked("stream")
    visit.desk.run_now(visit.me, name)
    return visit.to(link("/stream", stream=name, told="run"))


@page(ROUTES, "GET /accounts")
def accounts(visit: Visit) -> Response:
    """Accounts with their limits, by file."""
    found: dict[str, list[dict[str, Any]]] = {}
    for one in visit.desk.accounts(visit.me):
        found.setdefault(str(one["file"]), []).append(one)
    named = [(place.replace("\\", "/").rpartition("/")[2], charges) for place, charges in found.items()]
    return visit.page("accounts.html", accounts=named)


@page(ROUTES, "GET /decisions")
def decisions(visit: Visit) -> Response:
    """The decisions' log, newest first."""
    found = visit.desk.decisions(visit.me)
    if visit.asked("before"):
        found = [one for one in found if one.number < visit.number("before")]
    shown = found[::-1][:_LINES]
    older = shown[-1].number if len(found) > _LINES else None
    return visit.page("decisions.html", decisions=shown, older=older)


def _wanted(visit: Visit) -> WantedPlan:
    return WantedPlan(*(visit.asked(name) for name in ("amount", "size", "records_per_step", "wish")))


@page(ROUTES, "GET /board")
def board(visit: Visit) -> Response:
    """The planning board."""
    names = [one.name for one in visit.desk.settings.streams]
    visit.require("plan")
    name, wanted, problem, made = visit.asked("stream") or names[0], _wanted(visit), "", None
    path = visit.desk.settings.stream(name).config
    try:
        made = plan_board(path, wanted)
    except DpstreamError as error:
        problem = f"{error.what[:1].upper()}{error.what[1:]}." + (
            f" Possible: {error.allowed}." if error.allowed else ""
        )
    return visit.page(
        "board.html",
        200 if made else 400,
        board=made,
        wanted=made.has if made else wanted,
        problem=problem,
        stream=name,
        streams=names,
    )


@page(ROUTES, "GET /board/draft")
def board_draft(visit: Visit) -> Response:
    """The draft as a file."""
    visit.require("plan")
    path = visit.desk.settings.stream(visit.asked("stream")).config
    headers = {"content-disposition": 'attachment; filename="draft.toml"'}
    text = draft(path, _wanted(visit)).encode("utf-8", "replace")
    return Response(text, media_type="application/toml; charset=utf-8", headers=headers)
