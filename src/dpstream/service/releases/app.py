"""The addresses of the consumers' feed. What they give follows from the catalogues, never from a listed folder."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Literal

import anyio.to_thread
import jinja2
from fastapi import APIRouter, Depends, FastAPI, Header, Path, Query, Request
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import (
    FileResponse,
    HTMLResponse,
    JSONResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from markupsafe import Markup, escape
from starlette.types import Receive, Scope, Send

from dpstream.core.errors import DpstreamError
from dpstream.core.showing import templates
from dpstream.core.version import __version__
from dpstream.io.sinks.target import MANIFEST, MEASUREMENTS, NOTICE, STAYING, step_name
from dpstream.service.guard import Guard
from dpstream.service.releases import answering, forms
from dpstream.service.releases.events import News
from dpstream.service.releases.forms import FORMS, PATTERN, Cursor
from dpstream.service.releases.places import OpenFile, ReleaseFolder
from dpstream.service.releases.problems import MEDIA_TYPE, TITLES, Problem, handle_problems, problem
from dpstream.service.tokens import TokenFile
from dpstream.stream.release.flows import AskedFlow


class _Ending(Response):
    """An answer whose ``end`` is called once it is over, however it ends: also for a reader who left before the first
    byte."""

    end: Callable[[], None]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI has it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.end()


class SentFile(_Ending, FileResponse):
    """An open file, which is closed then."""

    def __init__(self, file: OpenFile, headers: dict[str, str], media_type: str) -> None:
        super().__init__(file.path, headers=headers, media_type=media_type, stat_result=file.facts)
        self.end = file.close


class SentNews(_Ending, StreamingResponse):
    """Server-sent events."""

    def __init__(self, events: AsyncIterator[str], end: Callable[[], None], headers: dict[str, str]) -> None:
        super().__init__(events, headers=headers, media_type="text/event-stream")
        self.end = end


def send_json(request: Request, value: Any, tag: str | None = None) -> Response:
    """A small answer; 304 where the reader has it."""
    headers = _headers(request, tag)
    if tag is not None and _has(request, tag):
        return Response(status_code=304, headers=headers)
    return JSONResponse(value, headers=headers)


def send_file(request: Request, opened: Callable[[], OpenFile], media_type: str, tag: str) -> Response:
    """A file, or the parts that ``Range`` asks for. It is not opened where the reader has it.

    Errors: those of ``opened``.
    """
    headers = _headers(request, tag)
    if _has(request, tag):
        return Response(status_code=304, headers=headers)
    return SentFile(opened(), headers, media_type)


def _has(request: Request, tag: str) -> bool:
    """Whether the reader says that it has this."""
    given = request.headers.get("if-none-match", "")
    return any(text.strip().removeprefix("W/") in (f'"{tag}"', "*") for text in given.split(","))


def _headers(request: Request, tag: str | None) -> dict[str, str]:
    # What is there can be taken back: a cache asks whether it still holds, which costs a 304.
    private = "authorization" in request.headers
    headers = {"Cache-Control": f"{'private' if private else 'public'}, no-cache"}
    return headers if tag is None else {**headers, "ETag": f'"{tag}"'}


def page(openapi: Mapping[str, Any], streams: Sequence[Mapping[str, Any]]) -> str:
    """The page, made of the OpenAPI document. Every text is escaped."""
    return _template().render(openapi=openapi, streams=streams)


@cache
def _template() -> jinja2.Template:
    made = templates("dpstream.service.releases", "", autoescape=True)
    made.filters |= {"address": _address, "words": _words}
    return made.get_template("page.html")


def _address(text: str) -> Markup:
    """As code, which may be broken before a slash only."""
    return Markup("<code>{}</code>").format(Markup("<wbr>/").join(text.split("/")))


def _words(text: str) -> Markup:
    """A sentence; what stands between backticks as code."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))


_routes = APIRouter()
#: Threads for tables and questions, beside those for everything else.
APART = 16
#: Requests that are answered at one time, beside the readers who wait for news.
BUSIEST = 1000
#: What every answer says, but the page of a folder: nothing of it may load or run anything.
_SAFE = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}
#: Of the page of a folder, which brings its script and says by a hash that it is the only one.
_PAGE = (
    "sandbox allow-scripts allow-top-navigation-by-user-activation allow-downloads; default-src 'none'; "
    "style-src 'unsafe-inline'; script-src 'unsafe-inline'; frame-ancestors 'none'"
)
#: What lies in a folder of releases, and is given under the same name, so that ``dpstream.read`` needs an address only.
_FILE = re.compile(
    r"(?:README\.txt|(?:index|report)\.html|counts\.csv|(?:datapackage|croissant|catalog)\.json|(?:catalogue|codebook|signature)\.json|catalogue/\d{6,18}-\d{6,18}\.json)"
)
_STEP_FILE = re.compile(r"step-(\d{6,18})/([A-Za-z0-9._-]{1,100})")
_ERRORS = re.compile(r"errors/step-(\d{6,18})\.(?:json|parquet)")

_MOST = 10**18
Step = Annotated[int, Path(ge=1, le=_MOST)]
OfStep = Annotated[int | None, Query(ge=1, le=_MOST, description="The newest one by default.")]
AsOf = Annotated[int | None, Query(ge=1, le=_MOST, description="The end of this step.")]
After = Annotated[int, Query(ge=0, le=_MOST, description="Steps after this one.")]
SinceStep = Annotated[
    str,
    Query(
        pattern=PATTERN,
        max_length=4000,
        description="Your table's step, or the last `next`.",
    ),
]
Listed = Annotated[int, Query(ge=1, le=1000, description="Steps in one answer.")]
Fed = Annotated[int, Query(ge=1, le=100, description="Steps in one answer; `next` goes on.")]
Columns = Annotated[str | None, Query(max_length=2000, description="Comma-separated names.")]
Records = Annotated[int | None, Query(ge=1, le=_MOST, description="The first records only.")]
From = Annotated[str | None, Query(max_length=40, alias="from", description="First day, or step, of a flow.")]
To = Annotated[str | None, Query(max_length=40, alias="to", description="Its last day, or step.")]
ChangeFrom = Annotated[
    str | None, Query(max_length=40, description="DAY/DAY: the flow less that of these days.")
]
Every = Annotated[
    str | None, Query(max_length=40, description="Flows of each week, month, quarter, year or N steps.")
]
WhichEvents = Annotated[
    Literal["net", "came", "left"], Query(description="What a flow counts; net: came less left.")
]
Cover = Annotated[bool, Query(description="Widen a flow to what is measured as a whole.")]
Question = Annotated[
    str | None,
    Query(
        min_length=1,
        max_length=2000,
        description="A condition, as in `age >= 65 and smoker`.",
        examples=["age >= 65 and smoker"],
    ),
]
Confidence = Annotated[float, Query(gt=0.0, le=0.999999, description="Of the interval.")]
LastId = Annotated[str | None, Header(alias="Last-Event-ID", max_length=100)]
Part = Annotated[str, Path(pattern=r"^[a-z]{5,12}(\.[a-z]{3,8})?$")]
_TOLD = {"content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}}
_ANSWERS: dict[int | str, dict[str, Any]] = {
    206: {"description": "The requested range."},
    304: {"description": "Unchanged (`If-None-Match`)."},
    307: {"description": "It is elsewhere."},
    **{status: {"description": title, **_TOLD} for status, title in TITLES.items()},
}
_PROBLEM = {
    "description": "RFC 9457; `reason`: of a withdrawal.",
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {"status": {"type": "integer"}, "detail": {"type": "string"}},
}


def _get(path: str, summary: str, *kinds: str) -> Callable[[Any], Any]:
    """A route for GET, described, and for HEAD."""

    def add(handler: Any) -> Any:
        content: dict[str, Any] = {kind: {"schema": {}} for kind in kinds or ("application/json",)}
        responses = {200: {"description": summary, "content": content}, **_ANSWERS}
        _routes.get(path, summary=summary, responses=responses, response_class=Response)(handler)
        _routes.head(path, include_in_schema=False)(handler)
        return handler

    return add


async def _place(request: Request, name: Annotated[str, Path(max_length=100)]) -> ReleaseFolder:
    place: ReleaseFolder | None = request.app.state.places.get(name)
    if place is None:
        raise Problem(404, "unknown stream")
    return place


At = Annotated[ReleaseFolder, Depends(_place)]


def _apart(handler: Callable[..., Response]) -> Callable[..., Awaitable[Response]]:
    """Do what may take long in threads of its own: who asks for little does not wait for it."""

    @functools.wraps(handler)
    async def answered(request: Request, **given: Any) -> Response:
        work = functools.partial(handler, request, **given)
        return await anyio.to_thread.run_sync(work, limiter=request.app.state.apart)

    return answered


def _about(place: ReleaseFolder) -> dict[str, Any]:
    try:
        listing = place.listing()
    except (Problem, DpstreamError) as error:
        # Not the whole text: it names the file on this machine.
        why = error.detail if isinstance(error, Problem) else error.what
        return {"name": place.name, "steps": 0, "last_step": None, "last_table": None, "problem": why}
    return {
        "name": place.name,
        **{key: listing.facts.get(key) for key in ("stream", "stream_id", "plan_hash")},
        "steps": len(listing.entries),
        "last_step": listing.last or None,
        "last_table": listing.readable[-1] if listing.readable else None,
    }


def _all(request: Request) -> list[dict[str, Any]]:
    return [_about(place) for place in request.app.state.places.values()]


@_get("/health", "The server runs.")
def health(request: Request) -> Response:
    return send_json(request, {"status": "ok"})


@_get("/", "This list as a page.", "text/html")
@_get("/docs", "The same page.", "text/html")
def index(request: Request) -> Response:
    return HTMLResponse(page(request.app.openapi(), _all(request)))


@_get("/v1/streams", "All streams.")
def streams(request: Request) -> Response:
    return send_json(request, {"streams": _all(request)})


@_get("/v1/streams/{name}", "A stream and its newest steps.")
def stream(request: Request, place: At) -> Response:
    return send_json(request, _about(place))


@_get(
    "/v1/streams/{name}/steps",
    "The catalogue's steps, oldest first; `next` goes on.",
)
def steps(request: Request, place: At, after: After = 0, limit: Listed = 100) -> Response:
    listing = place.listing()
    wanted = [step for step in listing.entries if step > after]
    readable = set(listing.readable)
    shown = [{**listing.entries[step], "readable": step in readable} for step in wanted[:limit]]
    rest = wanted[limit - 1] if len(wanted) > limit else None
    return send_json(request, {"stream": place.name, "steps": shown, "next": rest}, listing.digest)


@_get("/v1/streams/{name}/steps/latest/{part}", "Leads to the newest readable step.", "*/*")
def latest(request: Request, place: At, part: Part) -> Response:
    if not (readable := place.listing().readable):
        raise Problem(404, "no step has a readable table")
    query = f"?{request.url.query}" if request.url.query else ""
    return RedirectResponse(f"../{readable[-1]}/{part}{query}", headers={"Cache-Control": "no-cache"})


@_get("/v1/streams/{name}/steps/{step}", "A step: its state and files.")
def one_step(request: Request, place: At, step: Step) -> Response:
    entry = place.standing(step)
    manifest = place.manifest(step)[1]
    facts = {key: manifest.get(key) for key in ("period", "rows", "rows_in_table", "files")}
    return send_json(request, {**entry, **facts}, str(entry["manifest_sha256"]))


@_get("/v1/streams/{name}/steps/{step}/manifest", "The manifest: method, cost, errors.")
def manifest(request: Request, place: At, step: Step) -> Response:
    return _step_file(request, place, step, MANIFEST)


@_get("/v1/streams/{name}/steps/{step}/measurements", "The published noisy counts.", FORMS["ndjson"])
def measurements(request: Request, place: At, step: Step) -> Response:
    return _step_file(request, place, step, MEASUREMENTS)


@_get("/v1/streams/{name}/steps/{step}/{kind}.{form}", "A step's table or changes.", *FORMS.values())
@_apart
def table(
    request: Request,
    place: At,
    step: Step,
    kind: Literal["table", "changes"],
    form: Literal["parquet", "arrows", "ndjson", "csv"],
    columns: Columns = None,
    limit: Records = None,
) -> Response:
    digest = str(place.standing(step)["manifest_sha256"])
    names = tuple(name.strip() for name in columns.split(",")) if columns is not None else ()
    made = request.app.state.made
    return send_file(
        request, lambda: forms.table(made, place, step, kind, form, names, limit), FORMS[form], digest
    )


@_get("/v1/streams/{name}/changes", "Changes since step `after`.", FORMS["ndjson"])
@_apart
def changes(request: Request, place: At, after: SinceStep = "0", limit: Fed = 10) -> Response:
    listing, made, cursor = place.listing(), request.app.state.made, Cursor.parse(after)
    return send_file(
        request, lambda: forms.feed(made, place, listing, cursor, limit), FORMS["ndjson"], listing.digest
    )


@_get("/v1/streams/{name}/answer", "A count, a flow, a change or a series, with errors.")
@_apart
def answer(
    request: Request,
    place: At,
    q: Question = None,
    step: OfStep = None,
    as_of: AsOf = None,
    columns: Columns = None,
    start: From = None,
    end: To = None,
    change: ChangeFrom = None,
    every: Every = None,
    events: WhichEvents = "net",
    cover: Cover = False,
    confidence: Confidence = 0.95,
) -> Response:
    with request.app.state.made.one_of_two():
        if q is not None and not (start or end or change or every or columns):
            return send_json(request, answering.answer(place, q, step, as_of, confidence))
        if not (start or end or change or every) or q is not None or step or as_of:
            raise Problem(400, "give q (with step, as_of), or from, to, change or every (with columns)")
        names = tuple(name.strip() for name in columns.split(",")) if columns else ()
        asked = AskedFlow(names, start, end, change, every, events, cover)
        return send_json(request, answering.over_time(place, asked, confidence))


@_get("/v1/streams/{name}/events", "News: released, withdrawn, dropped, changed.", "text/event-stream")
async def events(request: Request, place: At, last_id: LastId = None) -> Response:
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    if request.method == "HEAD":
        return Response(headers=headers, media_type="text/event-stream")
    news = request.app.state.news
    return SentNews(await news.told(place, last_id), news.left, headers)


@_get("/v1/streams/{name}/{path:path}", "A file of the folder, for `dpstream.read`.", "*/*")
def folder_file(request: Request, place: At, path: Annotated[str, Path(max_length=200)]) -> Response:
    found, errors = _STEP_FILE.fullmatch(path), _ERRORS.fullmatch(path)
    if found and path == f"{step_name(int(found[1]))}/{found[2]}":
        return _step_file(request, place, int(found[1]), found[2])
    if errors:
        place.standing(int(errors[1]))
    elif not _FILE.fullmatch(path):
        raise Problem(404, "unknown file")
    place.listing()
    try:
        file = place.open(*path.split("/"))
    except FileNotFoundError:
        raise Problem(404, "unknown file") from None
    answer = send_file(request, lambda: file, _type(path), place.digest(file))
    if path.endswith(".html"):
        answer.headers["Content-Security-Policy"] = _PAGE
    return answer


def _step_file(request: Request, place: ReleaseFolder, step: int, name: str) -> Response:
    entry = place.entry(step) if name in STAYING else place.standing(step)
    if name == NOTICE:  # written later than the manifest, whose hash readers of the step have
        notice = place.step_file(step, name)
        return send_file(request, lambda: notice, _type(name), place.digest(notice))
    digest = str(entry["manifest_sha256"])
    return send_file(request, lambda: place.step_file(step, name), _type(name), digest)


def _type(name: str) -> str:
    ending = name.rpartition(".")[2]
    texts = {
        "json": "application/json",
        "txt": "text/plain; charset=utf-8",
        "html": "text/html; charset=utf-8",
    }
    return texts[ending] if ending in texts else FORMS.get(ending, "application/octet-stream")


def make_app(
    places: Sequence[ReleaseFolder],
    *,
    tokens: TokenFile | None = None,
    origins: Sequence[str] = (),
    readers: int = 1000,
) -> FastAPI:
    """The application.

    Args:
        places: folders of releases. tokens: who may read; everybody by default.
        origins: pages of these origins may read in a browser. readers: most that wait for news at one time.
    """

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.apart = anyio.CapacityLimiter(APART)
        watch = asyncio.create_task(app.state.news.watch())
        yield
        watch.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watch

    app = FastAPI(
        title="dpstream releases",
        version=__version__,
        description="Published releases of differentially private streams.",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.places = {place.name: place for place in places}
    app.state.made = forms.Made()
    app.state.news = News(list(places), readers)
    app.include_router(_routes)
    app.openapi().setdefault("components", {}).setdefault("schemas", {})["Problem"] = _PROBLEM
    handle_problems(app)
    app.add_middleware(answering.Kept, places=app.state.places)
    app.add_middleware(Guard, headers=_SAFE, refuse=problem, tokens=tokens, busiest=BUSIEST + readers)
    if origins:
        shown = ["ETag", "Content-Range", "Accept-Ranges", "Content-Length"]
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(origins),
            allow_methods=["GET", "HEAD"],
            allow_headers=["Authorization", "If-None-Match", "Range", "Last-Event-ID"],
            expose_headers=shown,
        )
    return app
