"""The worker: takes tasks and due steps of every stream of a service, and tells the board what came of it.

One process for each service (a lock on its folder). It owns a stream only while it does one thing, and lets its lock go
before the next: another command on the machine waits no longer than a step takes, and where the worker catches up, a
few seconds more. What it does is done with the
library's own calls, each of which may be repeated: an approval of a step that is published changes nothing, nor does a
withdrawal, and a question has the task's name, under which the stream answers once. So a kill at any point leaves a
task that is done again, to the same effect.

When a source is looked at depends on the public clock, on its files' names and sizes, and on whether it could be read;
never on what is in it. Errors reach the board and the log as the name of their class and a sentence of this module: the
texts of messages stay on the machine (``dpstream check``, ``dpstream run``).
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dpstream.core.errors import (
    ConfigError,
    DataError,
    DpstreamError,
    HorizonError,
    InputError,
    RefusedError,
    SchemaError,
    StepError,
    StoreDamagedError,
    StoreError,
    StoreFormatError,
    StoreLockedError,
    UnconfirmedError,
)
from dpstream.io.sources import UnreadableError
from dpstream.project.base import require_border
from dpstream.service.desk.board import (
    begin_task,
    end_task,
    known_held,
    next_task,
    read_facts,
    rejection_waits,
    write_board,
)
from dpstream.service.desk.decisions import LogChangedError, write_head
from dpstream.service.desk.facts import Task, now
from dpstream.service.desk.snapshot import asked_facts, board_facts, held_manifests, held_rows
from dpstream.stream.asking_stream import AskingStream
from dpstream.stream.declared import kept_values
from dpstream.stream.release.render import NotMadeError
from dpstream.tools.folder import explain

if TYPE_CHECKING:
    from dpstream.project import Config, Watch
    from dpstream.service.desk.desk import Desk
    from dpstream.service.desk.settings import StreamSettings
    from dpstream.stream import Stream

#: Seconds between two looks at the queue.
_POLL = 1.0
#: Where the service's database fails, or a task has to wait, that time is doubled so often at most.
_MAX_POLL = 8
#: Seconds after which a stream that catches up is let go. Opening it, and its source, may take longer than a step.
_SPAN = 5.0
#: A look that fails is repeated after the usual time, then twice as long, and so on, up to so many doublings.
_DOUBLINGS = 4
#: What is told of an error besides the name of its class; the first that fits.
_WORDS: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], str], ...] = (
    (UnreadableError, "the source cannot be read yet"),
    (UnconfirmedError, "the newest snapshot waits: dpstream run --confirm-shrink"),
    (StepError, "the owner must decide: see dpstream status"),
    ((DataError, SchemaError), "the records do not fit: see dpstream check"),
    (HorizonError, "the planned steps are done"),
    (RefusedError, "the guarantee forbids it"),
    (StoreLockedError, "another command works on the stream"),
    (LogChangedError, "tasks stop: see dpstream ledger verify"),
    (StoreError, "the state or its disk fails: see dpstream status"),
    (ConfigError, "the configuration forbids it: see dpstream check"),
)
#: What can go wrong with one stream and leaves the others as they are; anything else is a bug and ends the worker.
_FAILURES = (DpstreamError, OSError, MemoryError, OverflowError, RecursionError)


def public_words(error: BaseException) -> str:
    """What may be told of an error: the name of its class, and a sentence that holds no value."""
    words = next((text for kind, text in _WORDS if isinstance(error, kind)), "the machine fails")
    return f"{type(error).__name__}: {words}"


class _RefusedTask(Exception):
    """A task that must not be done; the text is told."""


@dataclass
class _WatchedStream:
    """What the worker remembers of a stream: nothing that a new worker would miss."""

    settings: StreamSettings
    #: None: the stream is opened at the next look, whether a step is due or not.
    last_step: int | None = None
    next_look: float = 0.0
    failures: int = 0
    next_task: float = 0.0
    task_failures: int = 0
    recheck: bool = True
    trouble: str | None = None
    watch: Watch | None = None
    loaded: tuple[object, Config] | None = None
    asked: dict[str, Any] | None = None


class Worker:
    """The worker of the service behind ``desk``.

    Args:
        clock: Unix time; another one in tests.
        log: gets one line of JSON for each event; standard error by default.

    Errors:
        StoreLockedError: another worker runs this service.
    """

    def __init__(
        self,
        desk: Desk,
        clock: Callable[[], float] = time.time,
        log: Callable[[str], None] | None = None,
    ) -> None:
        self._desk, self._clock = desk, clock
        self._log = log or (lambda line: print(line, file=sys.stderr, flush=True))
        self._places = [_WatchedStream(one) for one in desk.settings.streams]
        self._id = desk.database.service_id()
        self._stop = threading.Event()
        #: Why no task is done, in public words; None: they are done.
        self._no_tasks: str | None = None
        self._folder = os.open(desk.settings.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(self._folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._folder)
            raise StoreLockedError(
                "another worker runs this service",
                where=str(desk.settings.folder),
                allowed="one of them",
            ) from None

    def close(self) -> None:
        """Let go of the service."""
        os.close(self._folder)

    def stop(self) -> None:
        """End after what is under way."""
        self._stop.set()

    def run(self) -> None:
        """Until ``stop``. Where the service's database or its disk fails, it waits and goes on.

        Errors:
            StoreDamagedError, StoreFormatError: waiting does not help.
        """
        failures = 0
        while not self._stop.is_set():
            try:
                busy = self.round()
            except (StoreDamagedError, StoreFormatError):
                raise
            except (StoreError, OSError) as error:
                self._log(_line("service", "waits", error=type(error).__name__))
                for place in self._places:  # what was done, and could not be told, is told at the next look
                    place.last_step, place.next_look = None, 0.0
                failures = min(failures + 1, _MAX_POLL)
                self._stop.wait(_POLL * 2**failures)
                continue
            failures = 0
            if not busy:
                self._stop.wait(_POLL)

    def round(self) -> bool:
        """Whatever there is to do now, once for each stream; False where there was nothing."""
        self._look_at_log()
        busy = False
        for place in self._places:
            while not self._stop.is_set() and self._no_tasks is None and self._task(place):
                busy = True
            if not self._stop.is_set():
                busy = self._look(place) or busy
        return busy

    # Tasks

    def _look_at_log(self) -> None:
        """Be a witness of each line, as lines about people make no task; and do no task of a log that was cut."""
        before = self._no_tasks
        try:
            with self._desk.database.reading() as db:
                write_head(self._desk.settings.folder, db)
            self._no_tasks = None
        except LogChangedError as error:
            self._no_tasks = public_words(error)
        if self._no_tasks != before:
            for place in self._places:
                self._event(place, "decisions", "sound" if before else "changed")
                self._tell(place)

    def _task(self, place: _WatchedStream) -> bool:
        """The first task of a stream; False where there is none, or it has to wait."""
        # A clock that was set back does not make it wait for more than it ever waits.
        place.next_task = min(place.next_task, self._clock() + _POLL * 2**_MAX_POLL)
        if self._clock() < place.next_task:
            return False
        with self._desk.database.reading() as db:
            task = next_task(db, place.settings.name)
        if task is None:
            return False
        result: dict[str, Any] | None
        try:
            if task.kind == "run":
                begun, result, why = self._begun(task), _run_at_once(place), None
            else:
                begun, result, why = self._done(place, task)
        except _FAILURES as error:
            # It may go better later, and is not lost: the stream is in use, a disk is full, ...
            place.task_failures += 1
            doublings = 0 if isinstance(error, StoreLockedError) else min(place.task_failures, _MAX_POLL)
            place.next_task = self._clock() + _POLL * 2**doublings
            if not isinstance(error, StoreLockedError):
                place.trouble = public_words(error)
                self._event(place, task.kind, "waits", task=task.number, error=type(error).__name__)
                self._tell(place)
            return False
        place.task_failures = 0
        if begun:
            self._tell(place, task, result, why)
            self._event(place, task.kind, "done" if why is None else "failed", task=task.number)
        return True

    def _begun(self, task: Task) -> bool:
        """From now on the task is not cancelled any more; False where it was."""
        with self._desk.database.writing() as db:
            write_head(self._desk.settings.folder, db)
            return begin_task(db, task.number)

    def _done(self, place: _WatchedStream, task: Task) -> tuple[bool, dict[str, Any] | None, str | None]:
        """Do a task: whether it was begun, and its result or why there is none."""
        config = self._config(place)
        with config.open_stream(publish=task.kind != "ask") as stream:
            place.last_step = stream.last_step
            if not self._begun(task):
                return False, None, None
            try:
                return True, self._do(config, stream, task), None
            except _RefusedTask as error:
                return True, None, str(error)
            except (InputError, RefusedError, StepError, NotMadeError) as error:
                return True, None, public_words(error)
            finally:
                place.asked = asked_facts(stream)

    def _do(self, config: Config, stream: Stream, task: Task) -> dict[str, Any]:
        """Do a task with the stream's own calls; may be repeated.

        Errors:
            _RefusedTask: it must not be done.
        """
        if task.kind == "ask":
            return self._ask(stream, task)
        step = int(task.what["step"])
        if task.kind == "approve":
            return self._approve(config, stream, step, task)
        by, held = _by([task.person], task), step in stream.held()
        if task.kind == "reject":
            if not held and stream.is_given(step):
                raise _RefusedTask(f"step {step} is published: withdraw it")
            if held:
                self._same_table(config, step, task)
                stream.withdraw(step, task.what["reason"], by=by)
            return {"words": f"step {step} is rejected{_kept(stream, step, held=True)}"}
        if held:
            raise _RefusedTask(f"step {step} is held: reject it")
        stream.withdraw(step, task.what["reason"], by=by)
        return {"words": f"step {step} is withdrawn{_kept(stream, step, held=False)}"}

    def _approve(self, config: Config, stream: Stream, step: int, task: Task) -> dict[str, Any]:
        if step in stream.held():
            require_border(config)
            self._same_table(config, step, task)
            # It may have begun long ago: a full disk, or a kill, and the task is done again. Until the table is out,
            # rejecting wins.
            with self._desk.database.reading() as db:
                if rejection_waits(db, task.stream, step, task.what["manifest_sha256"]):
                    raise _RefusedTask(f"step {step} is rejected already")
            stream.approve(step, by=_by(task.what["by"], task))
        elif not stream.is_given(step):
            raise _RefusedTask(f"step {step} is withdrawn already")
        return {"words": f"step {step} is published"}

    def _same_table(self, config: Config, step: int, task: Task) -> None:
        """What was looked at is what is decided about."""
        if held_manifests(config).get(step) != task.what["manifest_sha256"]:
            raise _RefusedTask(f"step {step} has changed since that look")

    def _ask(self, stream: Stream, task: Task) -> dict[str, Any]:
        """Under the task's name: whatever happens in between, one task is answered, and paid for, once."""
        assert isinstance(stream, AskingStream)
        name = f"service {self._id} task {task.number}"
        known = any(one.question_id == name for one in stream.asked())
        if not known and stream.held():
            # Answers come from the newest state, and nobody has approved that.
            raise _RefusedTask("steps are held; ask again afterwards")
        if not known and stream.most > Fraction(task.what["most"]):
            raise _RefusedTask("the price may have risen; ask again")
        asked = stream.ask(task.what["question"], name)
        answer = asked.as_dict()
        return {**{key: answer[key] for key in answer if key != "id"}, "words": asked.answer.describe()}

    # Steps

    def _look(self, place: _WatchedStream) -> bool:
        """Take the steps that are due, for a few seconds, if it is time to look; True if one was taken."""
        place.next_look = min(place.next_look, self._clock() + place.settings.look_every * 2**_DOUBLINGS)
        if self._clock() < place.next_look:
            return False
        taken = False
        try:
            taken = self._step(place)
        except _FAILURES as error:
            self._failed(place, error)
        else:
            place.trouble, place.failures = None, 0
            place.next_look = 0.0 if taken else self._clock() + place.settings.look_every
        self._tell(place)
        return taken

    def _step(self, place: _WatchedStream) -> bool:
        from dpstream.project import taken_steps
        from dpstream.stream.store.place import has_store
        from dpstream.tools.running import simulate_border

        config = self._config(place)
        watch = place.watch
        assert watch is not None
        if place.last_step is None:
            # What is committed and not published is published first, also of a stream that has ended.
            place.last_step = 0
            if has_store(config.state_dir, server=config.server):
                place.last_step = None
                with config.open_stream() as stream:
                    stream.publish_again()
                    place.last_step, place.asked = stream.last_step, asked_facts(stream)
        if watch.finished(place.last_step):
            return False
        source = watch.source()
        if not watch.worth_reading(place.last_step, source):
            return False
        recheck = place.recheck or config.source_options.always_compared
        with config.open_stream() as stream:
            before, end = stream.last_step, time.monotonic() + _SPAN
            with contextlib.closing(taken_steps(config, stream, source, recheck=recheck)) as steps:
                for taken in steps:
                    if taken.released:
                        continue
                    self._event(place, "step", "taken", step=taken.step)
                    if self._stop.is_set() or time.monotonic() >= end:
                        break
            place.last_step, place.asked = stream.last_step, asked_facts(stream)
        place.recheck = False
        if simulate_border(config, range(before + 1, place.last_step + 1), self._stop.is_set) is not None:
            self._event(place, "errors", "not simulated")
        if place.last_step == before:
            return False
        watch.look_again()  # there may be another one
        return True

    def _config(self, place: _WatchedStream) -> Config:
        """The configuration, read again where its file has changed."""
        from dpstream.project import Config, Watch

        found = place.settings.config.stat()
        stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
        if place.loaded is None or place.loaded[0] != stamp:
            config = Config.load(place.settings.config)
            if config.name != place.settings.name:
                raise ConfigError("the stream's name has changed", where="service", allowed="a restart")
            place.watch, place.loaded = Watch(config, waits=False), (stamp, config)
        return place.loaded[1]

    def _failed(self, place: _WatchedStream, error: BaseException) -> None:
        """Wait longer each time, and say so; the words depend on the class of the error only."""
        place.last_step = None
        if place.watch is not None:
            place.watch.look_again()
        if isinstance(error, StoreLockedError):
            place.next_look = self._clock() + _POLL
            return
        place.failures += 1
        wait = place.settings.look_every * 2 ** min(place.failures - 1, _DOUBLINGS)
        place.next_look = self._clock() + wait
        moment = datetime.datetime.fromtimestamp(place.next_look, datetime.UTC)
        place.trouble = f"{public_words(error)}; next try at {moment.isoformat(timespec='minutes')}"
        self._event(place, "look", "failed", error=type(error).__name__)

    # The board

    def _tell(
        self,
        place: _WatchedStream,
        task: Task | None = None,
        result: dict[str, Any] | None = None,
        why: str | None = None,
    ) -> None:
        """Write what the pages show, and with it that a task is done, in one transaction."""
        name, database = place.settings.name, self._desk.database
        with database.reading() as db:
            facts, known = read_facts(db, name)[1], known_held(db, name)
        manifests: dict[int, str] | None = None
        fresh = []
        try:
            config = self._config(place)
            if explain(config) is not None:
                self._event(place, "folder", "not explained")
            now_held = held_manifests(config)
            missing = {step: one for step, one in now_held.items() if (step, one) not in known}
            if missing:
                with config.open_stream(publish=False) as stream:
                    fresh = held_rows(stream, missing)
            facts, manifests = board_facts(config, place.asked), now_held
        except StoreLockedError:
            place.next_look = min(place.next_look, self._clock() + _POLL)  # told at the next look
        except _FAILURES as error:
            facts |= {"health": "unknown", "why": public_words(error)}
        facts["trouble"] = self._no_tasks or place.trouble
        with database.writing() as db:
            write_board(db, name, facts, fresh, manifests)
            if task is not None:
                end_task(db, task.number, result, why)

    def _event(self, place: _WatchedStream, event: str, state: str, **more: Any) -> None:
        self._log(_line(event, state, stream=place.settings.name, **more))


def _line(event: str, state: str, **more: Any) -> str:
    """One line of JSON: no message, no value."""
    return json.dumps({"time": now(), "event": event, "state": state, **more})


def _run_at_once(place: _WatchedStream) -> dict[str, Any]:
    place.next_look, place.failures = 0.0, 0
    if place.watch is not None:
        place.watch.look_again()
    return {"words": "the worker looks now"}


def _kept(stream: Stream, step: int, *, held: bool) -> str:
    return f"; {kept_values(held=held)}" if step in stream.discovered() else ""


def _by(names: list[str], task: Task) -> str:
    """Who decided, for the stream's own store: names and the number of the decision."""
    text = f"{', '.join(names)} (service, decision {task.decision})"
    return text if len(text) <= 200 else f"service, decision {task.decision}"
