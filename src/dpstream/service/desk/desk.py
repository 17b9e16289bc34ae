"""The desk: the one place where it is decided who may do what, for pages, commands and programs alike.

It opens no state and reads no private file. It sees configurations (public), folders of releases (public), and the
service's database, in which the worker tells what it may show, and takes what people decide.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpstream.core.errors import ConfigError, InputError, StoreError
from dpstream.core.foreign import arrow_input
from dpstream.service.desk import people as persons
from dpstream.service.desk.board import add_task, cancel_tasks, card_of, held_row, read_facts, read_tasks
from dpstream.service.desk.database import ServiceDatabase
from dpstream.service.desk.decisions import append, approvals, check_log, read_decisions, since_added
from dpstream.service.desk.facts import Card, Decision, Held, Person, Price, Task, rounded_up, unix_time
from dpstream.service.desk.people import Sessions
from dpstream.service.desk.roles import MACHINE, MAY, ROLES, require
from dpstream.service.desk.settings import Settings

if TYPE_CHECKING:
    import pyarrow as pa

    from dpstream.project import Config
    from dpstream.stream.store.store_database import StoreDatabase

#: What can be decided about steps.
KINDS = ("approve", "reject", "withdraw")
#: As the stream's store keeps reasons.
_LONGEST = 200
_MAX_STEPS = 1000


class OtherStepError(ConfigError):
    """Another table is held at the step now."""


class Desk:
    """One service's desk. Any thread may use it.

    Errors of every method that takes a ``person``: NotAllowedError: none of the person's roles may do this.
    ConfigError: an argument, or a stream that the service does not have. StoreError: the database failed.
    """

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.time) -> None:
        self.settings = settings
        self.database = ServiceDatabase(settings)
        self._sessions = Sessions(self.database, settings, clock)

    @classmethod
    def open(cls, folder: str | Path) -> Desk:
        """The desk of the service in ``folder``, whose database is made where there is none.

        Errors:
            ConfigError: ``service.toml`` is missing or wrong. StoreError: the database cannot be used.
        """
        desk = cls(Settings.load(folder))
        desk.database.create()
        return desk

    # Who somebody is

    def sign_in(self, token: str) -> str | None:
        """A session's secret for a one-time token; None where it was used, has expired, or never was."""
        return self._sessions.sign_in(token)

    def person(self, secret: str) -> Person | None:
        """Whose session it is; None where it is over or never was."""
        return self._sessions.person(secret)

    def person_of_header(self, name: str, address: str, secrets: Sequence[str]) -> Person | None:
        """Who the configured proxy says it is; None where none is configured, or ``address`` (of the connection) or
        ``secrets`` (what stands in its header) are not the proxy's."""
        proxy = self.settings.proxy
        if proxy is None or not proxy.sent(address, secrets):
            return None
        with self.database.reading() as db:
            return persons.find_person(db, name)

    def sign_out(self, secret: str) -> None:
        """End a session."""
        self._sessions.sign_out(secret)

    def operator(self, name: str) -> Person:
        """Who works on the command line of the machine: their rights are those of the files."""
        return Person(persons.check_name(name), frozenset({*ROLES, MACHINE}))

    def may(self, person: Person, action: str) -> bool:
        """Whether to offer it; every method asks again."""
        return bool(person.roles & MAY.get(action, frozenset()))

    # Looking

    def cards(self, person: Person) -> list[Card]:
        """All streams, in the order of ``service.toml``."""
        with self._reading(person, "cards") as db:
            return [self._card(db, one.name) for one in self.settings.streams]

    def card(self, person: Person, stream: str) -> Card:
        """One stream."""
        with self._reading(person, "card") as db:
            return self._card(db, self.settings.stream(stream).name)

    def config(self, person: Person, stream: str) -> Config:
        """The stream's configuration: public, and enough for reports, statements and plans."""
        require(person, "config")
        return self._config(stream)

    def ledger(self, person: Person, stream: str) -> dict[str, Any]:
        """What every step cost, as ``dpstream ledger show --json``, and the steps that were ``rejected``; empty before
        the first step."""
        with self._reading(person, "ledger") as db:
            return dict(read_facts(db, self.settings.stream(stream).name)[1].get("ledger") or {})

    def accounts(self, person: Person) -> list[dict[str, Any]]:
        """The accounts in which streams add up: file, charged, total, limit, unit; and the stream's name."""
        with self._reading(person, "accounts") as db:
            boards = [(one.name, read_facts(db, one.name)[1]) for one in self.settings.streams]
        return [{"stream": name, **facts["account"]} for name, facts in boards if facts.get("account")]

    def held(self, person: Person, stream: str, step: int) -> Held:
        """A step that waits for approval, and the newest released table to compare it with."""
        require(person, "held")
        chosen = self.settings.stream(stream)
        with self.database.reading() as db:
            row = held_row(db, chosen.name, step, rows=True)
            if row is None:
                raise _not_held(step)
            given = approvals(db, chosen.name, step, row.sha256)
        table = None
        if row.rows is not None:
            import pyarrow as pa

            table = pa.ipc.open_file(arrow_input(row.rows)).read_all()
        last_step, last = self._last_table(stream)
        return Held(
            chosen.name,
            step,
            json.loads(row.manifest),
            row.sha256,
            table,
            row.whole,
            last,
            last_step,
            tuple(given),
            chosen.approvals,
            json.loads(row.errors),
        )

    def tasks(self, person: Person, stream: str) -> list[Task]:
        """What the worker was told to do: waiting, begun, done, failed, cancelled; in order."""
        with self._reading(person, "tasks") as db:
            found = read_tasks(db, self.settings.stream(stream).name)
        # Reasons of rejections stay with those who may see decisions.
        return found if self.may(person, "decisions") else [_without_reason(one) for one in found]

    def decisions(self, person: Person, after: int = 0) -> list[Decision]:
        """The log, after line ``after``."""
        with self._reading(person, "decisions") as db:
            return read_decisions(db, after)

    def check_log(self) -> tuple[list[str], int, str]:
        """What is wrong with the decisions' log, how many lines it has, and the hash of the last one; for who may read
        the database."""
        with self.database.reading() as db:
            return check_log(db, self.settings.folder)

    # For monitoring: public words and numbers, for whoever asks

    def health(self) -> dict[str, str]:
        """The word of each stream's health, as the worker told it last."""
        with self.database.reading() as db:
            return {one.name: self._card(db, one.name).health for one in self.settings.streams}

    def metrics(self) -> str:
        """Public numbers of all streams in Prometheus' text format, as the worker told them last."""
        from dpstream.project.status import metrics_text

        with self.database.reading() as db:
            boards = {one.name: read_facts(db, one.name) for one in self.settings.streams}
        return metrics_text(
            {
                name: {**facts.get("metrics", {}), "dpstream_told_time_seconds": [({}, unix_time(moment))]}
                for name, (moment, facts) in boards.items()
                if moment is not None
            }
        )

    # Deciding

    def decide(
        self,
        person: Person,
        stream: str,
        steps: int | Iterable[int],
        kind: str,
        reason: str = "",
        manifests: Mapping[int, str] | None = None,
    ) -> Decision:
        """Approve or reject held steps, or withdraw released ones; the worker does it.

        A stream may need several persons for an approval: each counts once, and the first approvals are kept. One is
        enough to reject (an approval that the worker has not begun is then not done any more) and to withdraw. Deciding
        the same again gives the first decision, and nothing is written.

        Args:
            reason: of a withdrawal public; of a rejection kept inside; of an approval optional.
            manifests: by step, the SHA-256 of the manifest that the person looked at before approving or rejecting it;
                compared in the transaction that writes the decision. None: whatever is held now.

        Errors:
            ConfigError: a step that is not held (or not released), or is not the one of ``manifests``, or no reason
            where one is needed.
        """
        require(person, "decide")
        chosen = self.settings.stream(stream)
        wanted = _steps(steps)
        if kind not in KINDS:
            raise ConfigError("cannot be decided", where="kind", allowed=", ".join(KINDS))
        words = _text(reason, "reason", needed=kind != "approve")
        with self.database.writing() as db:
            same = [
                one
                for one in since_added(read_decisions(db))
                if (one.person, one.stream, one.kind, one.steps) == (person.name, chosen.name, kind, wanted)
                and (kind == "approve" or one.reason == words)
            ]
            try:
                found = _looked_at(db, chosen.name, wanted, kind, manifests)
            except OtherStepError:
                raise
            except ConfigError:
                if same:  # it was done meanwhile
                    return same[-1]
                raise
            same = [one for one in same if one.manifests == found]
            new = Decision(0, "", person.name, kind, chosen.name, wanted, words, found)
            decision = same[0] if same else append(db, new)
            for step in wanted:
                _follow(db, decision, step, chosen.approvals)
        return decision

    def price(self, person: Person, stream: str, question: str) -> Price:
        """What a question may cost. Nothing is asked.

        Errors:
            ConfigError, SchemaError: the stream is not asked, steps wait for approval, or the question cannot be read.
        """
        with self._reading(person, "price") as db:
            facts = read_facts(db, self.settings.stream(stream).name)[1]
        return _price_of(self._config(stream), _text(question, "question", needed=True), facts)

    def ask(self, person: Person, stream: str, question: str) -> Task:
        """Ask it; the worker answers, and the task's ``result`` is the answer. Costs what ``price`` says, at most.

        Errors:
            ConfigError, SchemaError: the stream is not asked, steps wait for approval, or the question cannot be read.
        """
        require(person, "ask")
        price = self.price(person, stream, question)
        name = self.settings.stream(stream).name
        with self.database.writing() as db:
            made = append(db, Decision(0, "", person.name, "ask", name, (), price.question))
            what = {"question": price.question, "most": price.most}
            return add_task(db, name, "ask", what, person.name, made.number)

    def run_now(self, person: Person, stream: str) -> Task:
        """Let the worker look at the stream's source at once; what is not due is not taken."""
        with self._writing(person, "run_now") as db:
            name = self.settings.stream(stream).name
            for task in read_tasks(db, name, only_open=True):
                if task.kind == "run":
                    return task
            made = append(db, Decision(0, "", person.name, "run", name))
            return add_task(db, name, "run", {}, person.name, made.number)

    # People

    def people(self, person: Person) -> list[Person]:
        """Everybody, by name."""
        with self._reading(person, "people") as db:
            return persons.everybody(db)

    def add_person(self, person: Person, name: str, roles: Iterable[str]) -> Person:
        """Somebody new; they come through the proxy, or with a one-time token."""
        new = Person(persons.check_name(name), frozenset(roles))
        with self._writing(person, "add_person") as db:
            persons.add(db, new.name, new.roles)
            self._log(db, person, f"added {new.name} as {', '.join(sorted(new.roles))}")
        return new

    def remove_person(self, person: Person, name: str) -> None:
        """Their sessions end at once. The last owner stays."""
        with self._writing(person, "remove_person") as db:
            persons.remove(db, name)
            self._log(db, person, f"removed {name}")

    def set_roles(self, person: Person, name: str, roles: Iterable[str]) -> None:
        """Other roles, at once."""
        with self._writing(person, "set_roles") as db:
            given = frozenset(roles)
            persons.change_roles(db, name, given)
            self._log(db, person, f"{name} is now {', '.join(sorted(given))}")

    def end_sessions(self, person: Person, name: str) -> None:
        """Sign somebody out everywhere."""
        with self._writing(person, "end_sessions") as db:
            persons.end_sessions(db, name)
            self._log(db, person, f"signed out {name}")

    def make_sign_in_token(self, person: Person, name: str) -> str:
        """A one-time token for ``name``; it is given here and nowhere again."""
        with self._writing(person, "make_sign_in_token") as db:
            token = self._sessions.make_token(db, name)
            self._log(db, person, f"made a one-time token for {name}")
        return token

    # Inside

    @contextmanager
    def _reading(self, person: Person, action: str) -> Iterator[StoreDatabase]:
        """One consistent view, for somebody who may see it."""
        require(person, action)
        with self.database.reading() as db:
            yield db

    @contextmanager
    def _writing(self, person: Person, action: str) -> Iterator[StoreDatabase]:
        """A transaction of somebody who may do this."""
        require(person, action)
        with self.database.writing() as db:
            yield db

    def _card(self, db: StoreDatabase, name: str) -> Card:
        moment, facts = read_facts(db, name)
        pending = [_without_reason(one) for one in read_tasks(db, name, only_open=True)]
        return card_of(name, moment, facts, self.settings.stream(name).approvals, pending)

    def _config(self, stream: str) -> Config:
        from dpstream.project import Config

        return Config.load(self.settings.stream(stream).config)

    def _log(self, db: StoreDatabase, person: Person, words: str) -> None:
        append(db, Decision(0, "", person.name, "people", reason=words))

    def _last_table(self, stream: str) -> tuple[int | None, pa.Table | None]:
        """The newest whole table among the releases; None where there is none that can be read."""
        from dpstream.io.sinks import read_table, readable_steps

        folder = self._config(stream).output.dir
        try:
            steps = readable_steps(folder)
            return (max(steps), read_table(folder, max(steps))) if steps else (None, None)
        except (InputError, StoreError):
            return None, None


def _without_reason(task: Task) -> Task:
    kept = {key: value for key, value in task.what.items() if key != "reason" or task.kind == "withdraw"}
    return replace(task, what=kept)


def _steps(given: int | Iterable[int]) -> tuple[int, ...]:
    steps = (given,) if isinstance(given, int) else tuple(given)
    wrong = any(isinstance(one, bool) or not isinstance(one, int) or one < 1 for one in steps)
    if wrong or not 0 < len(steps) <= _MAX_STEPS:
        raise ConfigError("cannot be used", where="steps", allowed=f"1 to {_MAX_STEPS} numbers of steps")
    return tuple(sorted(set(steps)))


def _text(given: str, what: str, *, needed: bool) -> str:
    words = given.strip() if isinstance(given, str) else ""
    if (needed and not words) or len(words) > _LONGEST or not words.isprintable():
        raise ConfigError(
            "cannot be used", where=what, allowed=f"a line of up to {_LONGEST} printable characters"
        )
    return words


def _looked_at(
    db: StoreDatabase,
    stream: str,
    steps: tuple[int, ...],
    kind: str,
    seen: Mapping[int, str] | None,
) -> dict[str, str]:
    """The manifests of held steps; what was looked at is what is decided about.

    Errors:
        ConfigError: a step that is not held (or, to be withdrawn, not released).
        OtherStepError: one whose manifest is not the one in ``seen``.
    """
    rows = {step: held_row(db, stream, step) for step in steps}
    if kind != "withdraw":
        for step, row in rows.items():
            if row is None:
                raise _not_held(step)
            if seen is not None and seen.get(step) != row.sha256:
                raise OtherStepError(
                    f"step {step} has changed since your look",
                    where=kind,
                    allowed="another look",
                )
        return {str(step): row.sha256 for step, row in rows.items() if row is not None}
    done = int(read_facts(db, stream)[1].get("steps", 0))
    for step, row in rows.items():
        if row is not None or step > done:
            raise ConfigError(
                f"step {step} is not released",
                where="withdraw",
                allowed="a released step",
            )
    return {}


def _follow(db: StoreDatabase, decision: Decision, step: int, needed: int) -> None:
    """Put into the queue what follows from a decision about one step, unless it is there (or was done) already.

    Errors:
        ConfigError: an approval of a step that was rejected.
    """
    stream, kind = decision.stream, decision.kind
    what: dict[str, Any] = {"step": step}
    if kind == "withdraw":
        what |= {"reason": decision.reason}
    else:
        digest = what["manifest_sha256"] = decision.manifests[str(step)]
    # A held step may have been decided about before: its state was restored. What was done to it then does not stand.
    standing = [
        one
        for one in read_tasks(db, stream, only_open=kind != "withdraw")
        if what.items() <= one.what.items() and one.state not in ("failed", "cancelled")
    ]
    if kind != "withdraw" and any(one.kind == "reject" for one in standing):
        if kind == "approve":
            raise ConfigError(f"step {step} was rejected", where="approve", allowed="a step that is held")
        return
    if any(one.kind == kind for one in standing):
        return
    if kind == "reject":
        cancel_tasks(db, stream, "approve", step, "the step was rejected")
        what |= {"reason": decision.reason}
    if kind == "approve":
        # Somebody who may not decide any more does not count.
        what["by"] = sorted(
            one.person
            for one in approvals(db, stream, step, digest)
            if one.number == decision.number or persons.may_decide(db, one.person)
        )
        if len(what["by"]) < needed:
            return
    add_task(db, stream, kind, what, decision.person, decision.number)


def _not_held(step: int) -> ConfigError:
    """The error."""
    return ConfigError(f"step {step} is not held", where="desk", allowed="a step waiting for approval")


def _price_of(config: Config, question: str, facts: Mapping[str, Any]) -> Price:
    """The price of a question.

    Args:
        facts: what the worker told of the stream; ``asked`` has ``most``, ``spent`` and ``planned``.

    Errors:
        ConfigError, SchemaError: the stream is not asked, has told nothing yet, or holds steps back; or the question
        cannot be read.
    """
    plan = config.plan()
    asks = plan.asks
    if asks is None:
        raise ConfigError(
            "the stream's releases answer questions",
            where="ask",
            allowed="another stream",
        )
    understood = asks.read_question(question, config.schema())[1]
    if facts.get("held"):
        raise ConfigError(
            "answers would reveal held steps",
            where="ask",
            allowed="after approval or rejection",
        )
    asked = facts.get("asked")
    if asked is None:
        raise ConfigError(
            "the stream has no records yet",
            where="ask",
            allowed="after the first step",
        )
    name = str(plan.budget).partition(" = ")[0]
    most = f"{name} = {rounded_up(asked['most'])}" if Fraction(asked["most"]) else None
    words = "Repeated questions are free. "
    words += "The budget for tests is spent." if most is None else f"No answer costs more than {most}."
    return Price(understood, str(asked["most"]), str(asked["spent"]), str(asked["planned"]), words)
