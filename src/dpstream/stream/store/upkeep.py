"""Looking after a store: is it sound, and another key for its values."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from dpstream.core import durable
from dpstream.core.errors import ConfigError, StoreDamagedError, StoreError
from dpstream.core.paths import parse_json, read_bytes
from dpstream.io.sinks.publisher import MANIFEST, MEASUREMENTS, NOTICE, STAYING
from dpstream.stream.store import container
from dpstream.stream.store.archive import locked_store
from dpstream.stream.store.encryption import StateKey, key_name, mark, sealing_for, unlock
from dpstream.stream.store.place import (
    backend_for,
    has_store,
    is_moved,
    questions_path,
    questions_server,
    refuse_moved,
)
from dpstream.stream.store.postgres import PostgresServer
from dpstream.stream.store.present_rows import PRESENT, reseal_present, verify_present
from dpstream.stream.store.sealed_history import (
    CLEANED,
    COUNTERS,
    HEAD,
    RESEALED,
    Head,
    Heads,
    derive,
    head_problem,
    is_half_rekeyed,
    outside_heads,
    outside_heads_of_questions,
    read_history,
    read_meta,
    stored_seals,
    time_problems,
    write_log,
)
from dpstream.stream.store.staging import Staging
from dpstream.stream.store.step_rows import STATE, verify_state
from dpstream.stream.store.store import POSITION, staged_files
from dpstream.stream.store.store_database import STORE_FORMAT, Sealing, StoreDatabase, file_errors
from dpstream.stream.store.stored import is_forgotten, unknown_notice
from dpstream.stream.store.users import dropped, problem_of_files, read_shards, user_folder, verify_events

_STEP = re.compile(r"step-(\d{6,})")


@dataclass(frozen=True)
class CheckedStore:
    """What a check of a store found; it holds no value and no number of records.

    Attributes:
        format: of the store; None where it is broken.
        steps: committed steps that hold together.
        moved: whether the stream goes on elsewhere.
        key: the name of the key that it is encrypted with; None where it is not.
        problems: one sentence each; none if all is well.
    """

    format: int | None
    steps: int | None
    moved: bool
    key: str | None
    problems: tuple[str, ...]


def check_store(
    path: Path,
    releases: Path | None,
    *,
    server: PostgresServer | None = None,
    key: StateKey | None = None,
) -> CheckedStore:
    """Read everything: structure, seals, head, stored bytes, what is published, and the store of questions. Changes
    nothing.

    Needs no lock. The witnesses are read before the store, so that a step that is committed meanwhile does not
    look like a store that was rolled back.

    Errors:
        ConfigError: there is no stream. StoreError: the database cannot be reached.
    """
    checked = _check_one(path, releases, outside_heads(releases), server, key)
    outside, asked = outside_heads_of_questions(path, releases), questions_path(path)
    if has_store(asked, server=questions_server(server)) or any(
        witness.exists() for witness in (asked / HEAD, *outside)
    ):
        # Answers are nowhere but in the store.
        questions = _check_one(asked, None, outside, questions_server(server), key)
        found = (f"the questions: {problem}" for problem in questions.problems)
        checked = replace(checked, problems=(*checked.problems, *found))
    return checked


def _check_one(
    path: Path,
    releases: Path | None,
    outside: tuple[Path, ...],
    server: PostgresServer | None,
    key: StateKey | None,
) -> CheckedStore:
    published = _published(releases)
    head, problems = Head(path, outside), []
    before: Heads | None = None
    try:
        before = head.read(str(head.path))
    except StoreDamagedError as error:
        problems.append(str(error))
    backend = backend_for(path, server)
    try:
        db = backend.look()
    except StoreDamagedError as error:
        return CheckedStore(None, None, False, None, (*problems, str(error)))
    if db is None:
        if not head.path.exists():
            raise ConfigError(
                "there is no stream", where=backend.where, allowed="a state directory that dpstream run made"
            )
        return CheckedStore(
            None, None, False, None, (f"{backend.where}: the store is gone, and its head.json is there",)
        )
    version, history, moved = None, None, False
    try:
        with db.errors():
            db.begin(read_only=True)
            db.verify_structure()
            version = STORE_FORMAT
            unlock(db, key)
            broken = db.verify_all()
            problems += [] if broken is None else [f"{backend.where}: {broken}"]
            moved = is_moved(db)
            meta = read_meta(db)
            history = read_history(db, meta, backend.where)
            wrong = head_problem(before, *stored_seals(db, history.seals[0]))
            problems += [] if wrong is None else [f"{backend.where}: {wrong}"]
            problems += time_problems(db, meta)
            if is_half_rekeyed(db):
                problems.append(
                    f"{backend.where}: dpstream store rekey was stopped: values under the key before, or under none, "
                    "may still be in the database's files; run the same command once more"
                )
            problems += _stored_problems(db, meta["key"], history.last_step)
            problems += _last_problems(db, meta["key"], history.last_step, user_folder(path, meta))
            problems += _published_problems(db, published, releases)
    except StoreDamagedError as error:
        problems.append(str(error))
    finally:
        db.close()
    steps = None if history is None else history.last_step
    return CheckedStore(version, steps, moved, None if key is None else key.name, tuple(problems))


#: Publication states of a step (``ReleasePublisher``).
_PUBLICATIONS = {"pending", "published", "held", "expiring", "expired", "unpublished", "dropped"}
#: Those with a notice.
_TAKEN_BACK = {"withdrawing", "withdrawn", "rejected"}
#: States in which a step's table is gone, and what it measured is still published.
_STAYED = ("expired", "withdrawn")


def _published(releases: Path | None) -> dict[int, dict[str, str]]:
    """Step -> file -> SHA-256, of the released files."""
    hashes: dict[int, dict[str, str]] = {}
    if releases is None or not releases.is_dir():
        return hashes
    for folder in sorted(releases.iterdir()):
        match = _STEP.fullmatch(folder.name)
        if match is not None and folder.is_dir():
            hashes[int(match[1])] = {
                file.name: hashlib.sha256(read_bytes(file)).hexdigest() for file in sorted(folder.iterdir())
            }
    return hashes


def _stored_problems(db: StoreDatabase, key: bytes, last_step: int) -> list[str]:
    """Check the packed state, the models, and the released bytes that wait, against their checksums."""
    problems: list[str] = []

    def look(packed: bytes, where: str, kind: str, step: int) -> None:
        try:
            container.load(db.sealing.open(packed, kind, step), where=where)
        except StoreError as error:
            problems.append(str(error))

    wrong = verify_state(db, last_step, derive(key, STATE))
    problems += [] if wrong is None else [f"the stored state: {wrong}"]
    before = ""
    for step in range(1, last_step + 1):
        manifest, digest, packed, publication = db.execute(
            "SELECT manifest, manifest_sha256, synthesis, publication FROM steps WHERE step = ?", (step,)
        ).fetchone()
        if publication not in _PUBLICATIONS | _TAKEN_BACK:
            problems.append(f"the publication state of step {step} was changed")
        # Nothing else vouches for the hash of a file whose bytes are gone.
        listed = {name: facts["sha256"] for name, facts in parse_json(manifest).get("files", {}).items()}
        rows = dict(db.execute("SELECT name, sha256 FROM files WHERE step = ?", (step,)).fetchall())
        noticed = rows.pop(NOTICE, None) is not None
        if before in _TAKEN_BACK and rows != listed:
            # The step's changes went with the table that they changed, and its own table took their place.
            listed = {name: known for name, known in listed.items() if not name.startswith("changes.")}
            rows = {
                name: known for name, known in rows.items() if name in listed or name.startswith("changes.")
            }
        before = publication
        if rows != listed or noticed != (publication in _TAKEN_BACK):
            problems.append(f"the record of the files of step {step} was changed")
        if hashlib.sha256(manifest).hexdigest() != digest:
            problems.append(f"the stored manifest of step {step} was changed")
        if packed is not None:
            look(packed, f"the stored model of step {step}", "synthesis", step)
        for name, wanted, data in db.execute("SELECT name, sha256, bytes FROM files WHERE step = ?", (step,)):
            try:
                opened = None if data is None else db.sealing.open(data, "file", step, name)
            except StoreDamagedError:
                opened = b""
            if opened is not None and hashlib.sha256(opened).hexdigest() != wanted:
                problems.append(f"the stored {name} of step {step} was changed")
    return problems


def _last_problems(db: StoreDatabase, key: bytes, last_step: int, users: Path) -> list[str]:
    """Check what belongs to the last step: users' counters, and all files of them, and present records."""
    try:
        wrong = verify_events(db, last_step, derive(key, COUNTERS))
        shards = read_shards(db)
        if wrong is None and shards is not None:
            wrong = problem_of_files(users, shards, last_step, everything=True)
        wrong = wrong or verify_present(db, last_step, derive(key, PRESENT))
        dropped(db)
    except StoreDamagedError as error:
        wrong = str(error)
    return [] if wrong is None else [f"{db.where}: {wrong}"]


def _published_problems(
    db: StoreDatabase, published: dict[int, dict[str, str]], releases: Path | None
) -> list[str]:
    if releases is None:
        return []
    problems: list[str] = []
    rows = db.execute("SELECT step, publication, manifest_sha256 FROM steps ORDER BY step").fetchall()
    states = {step: (publication, digest) for step, publication, digest in rows}
    problems += [
        f"step {step} is published, and the store does not know it: the store was rolled back"
        for step in sorted(published.keys() - states.keys())
    ]
    for step, (publication, digest) in states.items():
        files = published.get(step)
        if files is None:
            # Looked at again: it may have been published since.
            if publication == "published" and not (releases / f"step-{step:06d}").is_dir():
                problems.append(f"the release of step {step} is missing in {releases}")
            continue
        wanted = {MANIFEST: digest}
        wanted |= dict(db.execute("SELECT name, sha256 FROM files WHERE step = ?", (step,)).fetchall())
        for name in sorted(wanted):
            if name not in files:
                if publication == "published" or (name == MEASUREMENTS and publication in _STAYED):
                    problems.append(f"{name} of step {step} is missing in {releases}")
            elif files[name] != wanted[name]:
                problems.append(f"the published {name} of step {step} is not the committed one")
        if NOTICE in files and is_forgotten(publication):
            problems.append(unknown_notice(step))
        if publication == "withdrawn":
            problems += [
                f"{name} is in the folder of step {step}, which was withdrawn: move it away"
                for name in sorted(files.keys() - STAYING)
            ]
    return problems


# Another key for a store, or its first one, or none: every sealed value is written anew, in one transaction.
#
# Guarantee: killed or failing anywhere, the store is as it was, with the old key, or whole with the new one.

#: Table, column of bytes, kind, and the columns that name the row.
_VALUES = (
    ("reservation", "content", "reservation", ("step",)),
    ("steps", "content", "content", ("step",)),
    ("steps", "synthesis", "synthesis", ("step",)),
    ("files", "bytes", "file", ("step", "name")),
    ("state", "packed", "state", ("step",)),
    ("contribution", "checksum", "checksum", ("step",)),
    ("present_sum", "checksum", "present sum", ("step",)),
    ("state_parts", "packed", "state part", ("name",)),
)
#: Table, kind, column of numbers (``sealed`` beside it), and the column that names the row.
_COUNTS = (("contribution", "dropped", "dropped", "step"), ("users", "events", "events", "id"))
#: Table and kind.
_POSITIONS = (("position", "position"), ("reserved_position", "reserved position"))
_ROWS = 5000


def stored_key(path: Path, *, server: PostgresServer | None = None) -> str | None:
    """The name of the key that the store of ``path`` is encrypted with; None where it is not.

    Errors:
        ConfigError: there is no stream. StoreLockedError: a stream has it open.
    """
    with locked_store(path, server) as (db, _):
        return key_name(db)


def rekey_store(
    path: Path,
    *,
    old: StateKey | None,
    new: StateKey | None,
    server: PostgresServer | None = None,
) -> None:
    """Encrypt a store with ``new``, or with None decrypt it; then leave no trace of the old values in its files.

    A repetition is fine: where the store has the new key already, only the traces are removed.

    Errors:
        ConfigError: no stream. StoreError: ``old`` is not its key, or it was moved away.

    Cost: reads and writes the whole store; SQLite needs room for it three times.
    """
    with locked_store(path, server) as (db, where):
        refuse_moved(db, where)
        done = key_name(db) == (None if new is None else new.name)
        unlock(db, new if done else old)
        meta = read_meta(db)
        last_step = read_history(db, meta, where).last_step
        fresh, waiting = sealing_for(new, meta["stream_id"], where), staged_files(db)
        if not done:
            with file_errors("files that wait to be published could not be sealed anew", path):
                Staging(path).reseal(waiting, db.sealing, fresh)
            db.begin()
            try:
                _reseal(db, fresh)
                mark(db, fresh)
                # Until the old values are gone from the database's files, every check says that they are not.
                write_log(db, meta["key"], last_step, RESEALED)
                durable.commit(db)
            except BaseException:
                db.rollback()
                raise
        db.compact()
        with file_errors("files that wait to be published could not be removed", path):
            Staging(path).sweep(waiting, fresh)
        if is_half_rekeyed(db):
            db.begin()
            try:
                write_log(db, meta["key"], last_step, CLEANED)
                durable.commit(db)
            except BaseException:
                db.rollback()
                raise


def _reseal(db: StoreDatabase, new: Sealing) -> None:
    old = db.sealing
    (key,) = db.execute("SELECT value FROM meta WHERE key = 'key'").fetchone()
    db.execute("UPDATE meta SET value = ? WHERE key = 'key'", (new.seal(old.open(key, "key"), "key"),))
    for table, column, kind, names in _VALUES:
        row_is = " AND ".join(f"{name} = ?" for name in names)
        places = db.execute(
            f"SELECT {', '.join(names)} FROM {table} WHERE {column} IS NOT NULL ORDER BY 1"
        ).fetchall()
        for place in places:
            (data,) = db.execute(f"SELECT {column} FROM {table} WHERE {row_is}", place).fetchone()
            sealed = new.seal(old.open(data, kind, *place), kind, *place)
            db.execute(f"UPDATE {table} SET {column} = ? WHERE {row_is}", (sealed, *place))
    reseal_present(db, new)
    for table, kind in _POSITIONS:
        for step, source in db.execute(f"SELECT step, source FROM {table}").fetchall():
            text = new.seal_text(old.open_text(source, kind, step), kind, step, least=POSITION)
            db.execute(f"UPDATE {table} SET source = ? WHERE step = ?", (text, step))
    for table, column, kind, name in _COUNTS:
        for rows in _chunks(db, f"SELECT {name}, {column}, sealed FROM {table}"):
            counts = [(place, old.open_count(count, sealed, kind, place)) for place, count, sealed in rows]
            db.executemany(
                f"UPDATE {table} SET {column} = ?, sealed = ? WHERE {name} = ?",
                [(*new.seal_count(count, kind, place), place) for place, count in counts],
            )


def _chunks(db: StoreDatabase, query: str) -> Iterator[list[tuple[int | bytes, int, bytes | None]]]:
    rows = db.execute(query).fetchall()
    for start in range(0, len(rows), _ROWS):
        yield rows[start : start + _ROWS]
