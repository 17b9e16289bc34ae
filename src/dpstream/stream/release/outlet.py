"""From committed rows to the world: publish, approve, withdraw. Every call may be repeated."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from dpstream.core.errors import ConfigError, DataError, StepError, StoreDamagedError, StoreError
from dpstream.core.paths import parse_json, sha256_hex
from dpstream.io.sinks import catalogue
from dpstream.io.sinks.change_tables import apply_changes, content_sha256
from dpstream.io.sinks.period_tables import add_periods
from dpstream.io.sinks.publisher import Publisher, noticed
from dpstream.io.sinks.signing import NEWEST, SIGNATURE
from dpstream.io.sinks.table_files import Content, StagedFile, file_sha256
from dpstream.io.sinks.target import (
    CODEBOOK,
    MANIFEST,
    MEASUREMENTS,
    NOTICE,
    STAYING,
    StepFiles,
    Target,
    step_name,
)
from dpstream.stream.arguments import check_text
from dpstream.stream.identity import plan_hash
from dpstream.stream.ledger.reading import KNOWN_TO_READERS, UNREAD, difference_words
from dpstream.stream.release.manifest import labelled, pretty_json
from dpstream.stream.release.render import NotMadeError, RemadeFiles
from dpstream.stream.step_log import StepEvent, log_step
from dpstream.stream.store.store import Store, rollback_problems
from dpstream.stream.store.store_database import NEWEST_OR_NEW, file_errors

_WAITS = "publication waits: writing failed"
_WITHDRAWN = ("withdrawing", "withdrawn")
#: Publication states of steps that readers do not know of.
_UNKNOWN_TO_READERS = ("unpublished", "dropped", "held", "rejected")
#: Of steps whose files readers have, or may get.
_STANDING = ("held", "pending", "published")
#: Of those that they know of, or are about to.
_KNOWN_OR_PENDING = (*KNOWN_TO_READERS, "pending", "withdrawing")


class ReleasePublisher:
    """Publishes what the store has committed, and only that.

    Publication states of a step: ``pending`` (to be published), ``published``, ``held`` (waits for approval),
    ``expiring`` and ``expired`` (the keep policy), ``withdrawing`` and ``withdrawn``, ``rejected`` (withdrawn while it
    was held: readers never hear of it); ``unpublished`` and ``dropped`` without a sink.
    """

    def __init__(
        self,
        store: Store,
        sink: Publisher,
        facts: dict[str, Any],
        describe: Callable[[str, int], dict[str, Any]],
        remade: Callable[[], RemadeFiles],
        discovered: Callable[[], Set[int]],
    ) -> None:
        """
        Args:
            describe: the codebook, for the path of a table's file, of readers who know the steps up to one.
            remade: gives the files of steps whose bytes are not in the store.
            discovered: gives the steps that discovered values.
        """
        self._store = store
        self._sink = sink
        self._facts = facts
        self._plan_hash = plan_hash(facts)
        self._describe = describe
        self._remade = remade
        self._discovered = discovered
        self._stream_id = store.meta["stream_id"].hex()
        #: Closed parts of the catalogue that are known to be there.
        self._closed = 0
        #: Whether every place was compared with the ledger.
        self._checked = False

    def begin(self) -> None:
        """Compare the folder with the ledger, and bring every place up to date that answers. One beside the folder that
        does not is asked again before the next step: a withdrawal does not wait for it.

        Errors:
            StoreDamagedError: see ``_compare``. ConfigError: the key that signs releases cannot be used.
        """
        _ = self._sink.signer  # a missing key is said before a step is taken
        alone = self._sink.targets == (self._sink,)
        if alone:
            self._check()
        else:
            self._compare(self._sink.have)
        if not self._store.witnessed:
            self._store.write_head()
        try:
            if not alone:
                self._take_back()
            # A table that is gone and cannot be made again must not stop its own withdrawal.
            self.publish(skip=True)
        except StoreError as error:
            if alone or isinstance(error, StoreDamagedError):
                raise
            log_step(
                StepEvent.AWAY,
                self._store.last_step,
                ": a place of releases is missing",
                error,
            )

    def publish(self, *, skip: bool = False) -> None:
        """Bring the sink up to date; does nothing where it is.

        A step whose table cannot be made again keeps the steps after it waiting, until it is withdrawn.

        Args:
            skip: log such a step, and raise nothing.

        Errors:
            NotMadeError: there is such a step; all else is done.
        """
        self._check()
        self._take_back()
        waiting = self._store.in_publication("pending")
        expiring = self._store.in_publication("expiring")
        if not waiting and not expiring:
            return
        made = self._remade()
        pending: list[int] = []
        stuck: NotMadeError | None = None
        with file_errors(_WAITS, self._where):
            for step in waiting:
                files = self._files(made, step)
                try:
                    files.all()
                except NotMadeError as error:
                    log_step(StepEvent.UNPUBLISHED, step, " is not published", error)
                    stuck = error
                    break
                for target in self._sink.targets:
                    target.put(files)
                pending.append(step)
            there = None if stuck is None else {*self._store.in_publication("published"), *pending}
            # Readers learn that a table goes before it goes.
            if pending or expiring:
                self._write_catalogue((*pending, *expiring), there)
            for step in expiring:
                for target in self._sink.targets:
                    target.withdraw(step, self._leaving(step), {})
        self._store.mark_published(pending, expiring)
        for step in pending:
            log_step(StepEvent.PUBLISHED, step, ": published")
        if stuck is not None and not skip:
            raise stuck

    def _take_back(self) -> None:
        """Take the tables of withdrawn steps from every place that answers.

        Errors:
            StoreError: one did not answer; these steps stay ``withdrawing``, and the next call goes on.
        """
        leaving = self._store.in_publication("withdrawing")
        if not leaving:
            return
        made, failures = self._remade(), list[StoreError]()
        for target in self._sink.targets:  # whatever else does not answer, readers of the folder are told
            try:
                with file_errors(_WAITS, self._where):
                    self._take_from(target, leaving, made)
            except StoreError as error:
                failures.append(error)
        if failures:
            raise failures[-1]
        published = set(self._store.in_publication("published", since=leaving[0]))
        self._store.mark_published([step + 1 for step in leaving if step + 1 in published], [])
        self._store.move(leaving, "withdrawn")

    def _take_from(self, target: Target, leaving: list[int], made: RemadeFiles) -> None:
        """Take withdrawn tables from a place, and the changes since them; one that cannot be written to, such as a full
        disk, loses them all the same."""
        waits = self._store.in_publication("pending")
        there = {*self._store.in_publication("published"), *leaving} if waits else None
        try:
            for step in leaving:
                if new := self._changed_files(step + 1)[0]:
                    target.put(self._files(made, step + 1, new), mend=True)
            # Readers learn that a table goes before it goes.
            changed = [number for step in leaving for number in (step, step + 1)]
            self._write_catalogue(changed, there, (target,))
        finally:
            for step in leaving:
                if gone := self._changed_files(step + 1)[1]:
                    target.withdraw(step + 1, gone, {})
                target.withdraw(step, self._leaving(step), self._staying(step))

    def _changed_files(self, step: int) -> tuple[list[str], list[str]]:
        """Of a step after one that was taken back, where a place has it: the files to put there, because the manifest
        does not list them, and those that it lists and that are gone."""
        committed = self._store.find(step=step)
        if committed is None or committed.publication not in ("pending", "published"):
            return [], []
        listed, there = json.loads(committed.manifest)["files"].keys(), set(self._store.file_names(step))
        new = there - listed
        if committed.publication == "pending":
            if not (self._where / step_name(step)).is_dir():
                return [], []
            new = there  # the folder has it, and a place beside it did not answer
        return sorted({*new, MANIFEST} if new else ()), sorted(listed - there)

    def _check(self) -> None:
        """Compare every place with the ledger, once, and mend catalogue and codebook.

        Errors:
            StoreError: one does not answer. StoreDamagedError: see ``_compare``.
        """
        if self._checked:
            return
        there = self._compare(self._sink.published)
        self._require_newest()
        if there:
            # No hash vouches for the codebook, nor for what the catalogue says beside its hashes: readers cannot
            # notice a damage there. Both are mended here.
            with file_errors("the catalogue could not be written", self._where):
                self._write_catalogue(range(1, self._store.last_step + 1), there)
        self._checked = True

    def _compare(self, have: Callable[[str], Mapping[int, str]]) -> set[int]:
        """The steps that are there. One that the ledger does not know, or a public notice of a withdrawal that it does
        not know, means that the state was rolled back.

        Errors:
            StoreDamagedError: it was, or a published manifest differs from the committed manifest.
        """
        with file_errors(UNREAD, self._where):
            published = sorted(have(self._stream_id).items())
            withdrawn = noticed(self._where)
        committed = self._store.publications(1, self._store.last_step)
        hashes = {step: digest for step, _, digest in committed}
        states = {step: state for step, state, _ in committed}
        for problem in rollback_problems([step for step, _ in published], withdrawn, states):
            raise StoreDamagedError(problem, where=str(self._where), allowed=NEWEST_OR_NEW)
        for step, digest in published:
            if hashes[step] != digest:
                raise StoreDamagedError(
                    f"{MANIFEST} of step {step} differs from the committed file",
                    where=str(self._where),
                    allowed="move the step away (folder and database) and run again",
                )
        return {step for step, _ in published}

    def _require_newest(self) -> None:
        """Refuse to sign beside a catalogue of an earlier day, which somebody put back with its signature.

        Errors:
            StoreDamagedError: it lacks a step, or a withdrawal, that readers know of.
        """
        for target in self._sink.targets:
            data, signature = (target.indexed(name) for name in (catalogue.CATALOGUE, SIGNATURE))
            if data is None or signature is None:
                continue
            facts: dict[str, Any] = parse_json(data)
            listed = {entry["step"]: entry["state"] for entry in facts["steps"]}
            first = facts["closed_parts"] * catalogue.PART
            for step, state, _ in self._store.publications(first + 1, self._store.last_step):
                wanted = {"published": ("full", "change"), "withdrawn": ("withdrawn",)}.get(state)
                if wanted and listed.get(step) not in wanted:
                    what = f"{catalogue.CATALOGUE} lacks step {step}, {state}"
                    raise StoreDamagedError(what, where=str(self._where), allowed=NEWEST)

    def restore(self) -> list[int]:
        """Put back what is missing of steps in the state ``published``, and of no others; gives those steps.

        Errors:
            StoreDamagedError: something was changed, or a file of a withdrawn step is there: nothing is put in its
                place. NotMadeError: a file cannot be made again, of these steps or of one that was to be published.
        """
        self.publish()
        committed = self._store.published_files()
        withdrawn = self._store.in_publication("withdrawn")
        restored: set[int] = set()
        made = self._remade()
        for _ in range(2):  # what stands beside the folder is compared with it once it is whole
            with file_errors("releases and store cannot be compared", self._where):
                differences = self._sink.compared(committed, deep=False, withdrawn=withdrawn)
                wrong = {place: how for place, how in differences.items() if how != "missing"}
                for problem in difference_words(wrong):
                    raise StoreDamagedError(
                        problem, where=str(self._where), allowed="move it away and run again"
                    )
                missing = sorted({step for step, _ in differences})
                for step in missing:
                    files = self._files(made, step)
                    for target in self._sink.targets:
                        target.put(files, mend=True)
                    self._store.sweep_staged()
                    log_step(StepEvent.RESTORED, step, ": published again")
                for target in self._sink.targets if missing else ():
                    # A place that lost a release may have lost what it was told of withdrawn ones.
                    known = target.have(self._stream_id)
                    for step in withdrawn:
                        if known and step not in known:
                            target.withdraw(step, self._leaving(step), self._staying(step))
            restored.update(missing)
            if not missing:
                break
            self._write_catalogue(range(1, self._store.last_step + 1))
        return sorted(restored)

    def approve(self, steps: Collection[int] | None, by: str) -> list[int]:
        """Publish some held steps, or all of them, in order. A step that was approved before is fine.

        Errors:
            StepError: no such step, one that is not held and not published, one with the changes since a step that
                stays held, or as ``require_values``; then none is approved.
            NotMadeError: a table is gone and cannot be made again; then none is approved either.
        """
        check_text(by, "by")
        self._check()
        held = self._store.in_publication("held")
        for step in sorted(set(steps or ()) - set(held)):
            state = self._store.committed(step).publication
            if state in _WITHDRAWN or state in _UNKNOWN_TO_READERS:
                raise StepError(f"step {step} is {state}", where="approve", allowed="a held step")
        chosen = held if steps is None else [step for step in held if step in steps]
        for step in chosen:
            if step - 1 in held and step - 1 not in chosen and self._has_changes(step):
                raise StepError(
                    f"step {step} has the changes since step {step - 1}, which is held",
                    where="approve",
                    allowed=f"approving step {step - 1} too, or withdrawing it first",
                )
        self.require_values(chosen, chosen, "approve")
        if chosen:
            # Before the decision is kept: a step that cannot be published stays held, so that it can be rejected.
            made = self._remade()
            try:
                with file_errors("a waiting table could not be made", self._where):
                    for step in chosen:
                        self._files(made, step).all()
            except StoreError:
                self._store.sweep_staged()  # of an encrypted store, what was made is not encrypted
                raise
            self._store.move(chosen, "pending", ("approved", by))
        self.publish()
        return chosen

    def require_values(self, steps: Iterable[int], approved: Collection[int], where: str) -> None:
        """Refuse to publish values that a step discovered of which readers never hear: later steps have them.

        Args:
            approved: held steps that readers get first.

        Errors:
            StepError: one of ``steps`` has such values.
        """
        found, last = self._discovered(), max(steps, default=0)
        held = set(self._store.in_publication("held")) - set(approved) if found else set()
        rejected = self._store.in_publication("rejected") if found else ()
        for apart, state, allowed in (
            (rejected, "rejected", "a new stream: this one ends here"),
            (held, "held", "approving both, or a new stream"),
        ):
            for step in sorted(found & set(apart)):
                if step < last:
                    raise StepError(
                        f"step {last} has the values that step {step} discovered, which is {state}",
                        where=where,
                        allowed=allowed,
                    )

    def withdraw(self, step: int, reason: str, by: str) -> bool:
        """Take a step's table back, or reject a step that is held; gives False where that was done before.

        The changes that the next step holds go with it, since they would give it away; a full table takes their place,
        where one can be made.

        Errors:
            StepError: no such step, or one that has no sink. ConfigError: another reason than the first time.
            StoreError: a place does not answer; the step is ``withdrawing`` until a later call reaches it.
        """
        check_text(reason, "reason")
        check_text(by, "by")
        committed = self._store.committed(step)
        if committed.publication in ("unpublished", "dropped"):
            raise StepError(f"step {step} was never published", where="withdraw", allowed="a published step")
        if committed.publication in (*_WITHDRAWN, "rejected"):
            given = json.loads(self._notice(step))["reason"]
            if given != reason:
                done = "rejected" if committed.publication == "rejected" else "withdrawn"
                raise ConfigError(
                    f"step {step} is {done} already",
                    where="withdraw",
                    allowed=f"the reason {given!r}",
                )
            if committed.publication != "rejected":
                self._withdrawn(step)
            return False
        held = committed.publication == "held"
        words = (
            "The step was held, never published. Its cost stays spent."
            if held
            else "The table was taken back. Its cost stays spent. Copies and old versions of files remain."
        )
        notice: dict[str, Any] = {
            "format": 1,
            "step": step,
            "state": "rejected" if held else "withdrawn",
            "reason": reason,
            "manifest_sha256": sha256_hex(committed.manifest),
            "words": words,
        }
        decision, state = (notice["state"], by), "rejected" if held else "withdrawing"
        whole = self._instead_of_changes(step + 1)
        self._store.withdraw(step, NOTICE, pretty_json(notice), state, decision, whole)
        if not held:
            self._withdrawn(step)
        return True

    def _withdrawn(self, step: int) -> None:
        """Take back what is withdrawn, and publish what waited for that."""
        try:
            self._take_back()
        except StoreError as error:
            raise StoreError(
                f"step {step} is withdrawing: all places but one are done ({error.what})",
                where=error.where,
                allowed="the same call, or the next run",
            ) from None
        if self._store.in_publication("pending"):
            self.publish(skip=True)  # another step that cannot be made is withdrawn by a call of its own

    # Inside

    @property
    def _where(self) -> Path:
        return self._sink.directory

    def _has_changes(self, step: int) -> bool:
        return any(name.startswith("changes.") for name in self._store.file_names(step))

    def _instead_of_changes(self, step: int) -> dict[str, bytes] | None:
        """The files that take the place of a step's changes; none where its table is there, or cannot be made; None
        where it has no changes, or they go anyway."""
        committed = self._store.find(step=step)
        if committed is None or committed.publication not in _STANDING or not self._has_changes(step):
            return None
        if self._sink.table_name in self._store.file_names(step):
            return {}
        try:
            return self._whole(step)
        except NotMadeError as error:
            log_step(StepEvent.UNMADE, step, " loses its changes, and its table cannot be made", error)
            return {}

    def _whole(self, step: int) -> dict[str, bytes]:
        """The files of the whole table of a step that was committed as changes, from the files before it.

        Errors:
            NotMadeError: one is gone, and the table cannot be made again.
        """
        made, changes, table = self._remade(), list[StepFiles](), None
        facts = json.loads(self._store.committed(step).manifest)
        try:
            for number in range(step, 0, -1):
                files = self._files(made, number)
                table = files.part("table")
                if table is not None:
                    break
                changes.append(files)
            for files in reversed(changes):
                if files.has_periods:
                    table = add_periods(table, files.part("changes"), files.manifest["records"].get("weight"))
                else:
                    table = apply_changes(table, files.part("changes"))
        except (NotMadeError, DataError):
            table = None
        if table is None or content_sha256(table) != facts["records"]["content_sha256"]:
            table = made.whole(step)
        return self._sink.render(labelled(table, facts["label"]))

    def _files(self, made: RemadeFiles, step: int, names: Collection[str] | None = None) -> StepFiles:
        """The files of a committed step, from the store, the folder, or made again; all by default."""

        def make(name: str) -> Content:
            if name == MANIFEST:
                return self._store.committed(step).manifest
            digest, data = self._store.remembered_file(step, name)
            if data is not None:
                return data
            return self._in_folder(step, name, digest) or made.file(step, name)

        return StepFiles(
            step,
            [MANIFEST, *self._store.file_names(step)] if names is None else names,
            make,
            fields=self._fields,
            whole=partial(made.whole, step),
            drawing=partial(made.drawing, step),
        )

    def _in_folder(self, step: int, name: str, digest: str) -> StagedFile | None:
        """A committed file that the folder has already: a loss of power may take back the mark that says so."""
        path = self._where / step_name(step) / name
        if file_sha256(path) != digest:
            return None
        return StagedFile(digest, path.stat().st_size, path)

    def _leaving(self, step: int) -> list[str]:
        """The files that go when a step's table goes, and changes that have gone before where a place answered."""
        listed = json.loads(self._store.committed(step).manifest)["files"].keys()
        return sorted({*self._store.file_names(step), *listed} - STAYING)

    def _staying(self, step: int) -> dict[str, bytes]:
        """The files that stay of a step whose table is withdrawn or has expired."""
        committed = self._store.committed(step)
        stay = {MANIFEST: committed.manifest}
        if committed.publication in _WITHDRAWN:
            stay[NOTICE] = self._notice(step)
        measured = self._store.stored_file(step, MEASUREMENTS)
        return stay if measured is None else {**stay, MEASUREMENTS: measured}

    def _notice(self, step: int) -> bytes:
        notice = self._store.stored_file(step, NOTICE)
        if notice is None:
            raise StoreDamagedError(f"{NOTICE} of step {step} is missing", where=str(self._store.path))
        return notice

    def _write_catalogue(
        self, changed: Iterable[int], there: Set[int] | None = None, targets: Sequence[Target] = ()
    ) -> None:
        """Write what the catalogue says of the steps ``changed``: the closed parts that hold one of them, the parts
        that were closed since, and at last the file that counts the parts. Older parts stay as they are.

        Args:
            there: the steps that are published, where others still wait; those are not listed yet.
            targets: where to; everywhere by default.
        """
        if there is None:
            last = self._store.last_in_publication(*_KNOWN_OR_PENDING)
        else:
            last = max((self._store.last_in_publication(*KNOWN_TO_READERS), *there))
        opened = max(last - 1, 0) // catalogue.PART
        parts = {(step - 1) // catalogue.PART for step in changed}
        lines, newest, notices = self._part(opened, there)
        for earlier in range(opened - 1, -1, -1):
            if newest is not None:
                break
            newest = self._part(earlier, there)[1]
        documents = {CODEBOOK: self._codebook(newest, last)}
        for part in sorted(parts.union(range(self._closed, opened))):
            if part < opened:
                older, _, more = self._part(part, there)
                documents[catalogue.part_name(part)] = catalogue.part_bytes(self._stream_id, part, older)
                notices |= more
        facts = {
            "stream": self._facts["stream"],
            "stream_id": self._stream_id,
            "plan_hash": self._plan_hash,
        }
        documents[catalogue.CATALOGUE] = catalogue.index_bytes(facts, opened, lines)
        self._sink.write_index(self._stream_id, documents, self._staying, targets, notices)
        if not targets:
            self._closed = opened

    def _part(
        self, part: int, there: Set[int] | None
    ) -> tuple[list[str], int | None, dict[str, bytes | None]]:
        """One part of the catalogue, read once: its lines, its newest step whose whole table is there, or is about to
        be, and its notices of withdrawals, by path.

        The lines are of the steps that readers know of: each with a ``full`` table, a ``change`` against the step
        before, or ``withdrawn``; and whether its table is still there."""
        first, last = part * catalogue.PART + 1, (part + 1) * catalogue.PART
        names = self._store.file_names_of(first, last)
        lines, newest, before = [], None, None
        notices: dict[str, bytes | None] = {}
        for step, publication, digest in self._store.publications(first - 1, last):
            after, before = before in (*_WITHDRAWN, "rejected"), publication
            if step < first:
                continue
            full = any(one.startswith("table.") for one in names.get(step, ()))
            kept = publication in ("pending", "published")
            if full and kept and (there is None or step in there):
                newest = step if newest is None else max(newest, step)
            waits = there is not None and step not in there and publication in ("pending", "withdrawing")
            if publication in _UNKNOWN_TO_READERS or waits:
                continue
            state, more = ("full" if full or step not in names else "change"), {}
            if publication in _WITHDRAWN:
                notice = notices[f"{step_name(step)}/{NOTICE}"] = self._notice(step)
                state, more = "withdrawn", {"reason": str(json.loads(notice)["reason"])}
            elif after and kept:
                more = self._files_now(step, names.get(step, set()))
                kept = full or not more
            lines.append(catalogue.entry_line(step, state, kept, digest, **more))
        return lines, newest, notices

    def _files_now(self, step: int, names: Set[str]) -> dict[str, Any]:
        """What the catalogue says of the files of a step after one that was taken back; nothing where its manifest
        lists them."""
        listed = json.loads(self._store.committed(step).manifest)["files"]
        if listed.keys() == names:
            return {}
        put = {name: {"sha256": self._store.remembered_file(step, name)[0]} for name in names - listed.keys()}
        return {"files": {name: listed.get(name) or put[name] for name in sorted(names)}}

    @cached_property
    def _fields(self) -> list[dict[str, Any]]:
        """The fields of the codebook, which give the types of CSV files."""
        book = self._describe(self._sink.table_name, 0)
        fields: list[dict[str, Any]] = book["resources"][0]["schema"]["fields"]
        return [*fields, *book["dpstream"].get("panel", {}).get("fields", [])]

    def _codebook(self, newest: int | None, last: int) -> bytes:
        """The codebook of readers who know the steps up to ``last``; its ``path`` is that of the newest whole table, of
        step ``newest``."""
        folder = "" if newest is None else f"{step_name(newest)}/"
        return pretty_json(self._describe(f"{folder}{self._sink.table_name}", last))
