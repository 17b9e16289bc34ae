"""A stream that answers questions: one durable, exactly-once question after another, beside its steps.

The stream's own store holds the counts. What is spent, the noise of the run and the histogram are in a second store
beside it (``STATE-questions``), of the same kind: there each question is a step with its exact charge, sealed in a
chain.

* **One transaction a question.** Answer, charge and new state become durable together, before the answer is given.
  A question that was stopped before has given nothing, so asking it again is not a second answer.
* **An id is answered once.** The same id with the same question gives the stored answer: nothing is drawn or spent.
* **A question is answered once a step,** whatever its words and its id: two questions are the same where their values
  are the same in every cell, which is what the keyed hash of a question's content is made of. The complement ``1 - f``
  of an answered question is answered by one minus its answer. Neither draws or spends anything.
* **The two stores belong together.** Each question notes how far the stream was, and each step how many questions
  there were; a stream that is behind its questions, or has steps and no questions' store, was rolled back, and so were
  questions that are behind the stream. Both are refused.
* **The last question stands outside of its store, too,** before its answer leaves: its seals are in the stream's state
  and among the releases, so that an older copy of the questions is refused at the same step as well.

Trusted base: kernel (answers questions to private counts).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dpstream.core.contracts import AskedPlan, Packed, QuestionAnswer, QuestionsSoFar
from dpstream.core.errors import StepError, StoreDamagedError, unreadable
from dpstream.core.paths import sha256_hex
from dpstream.stream.arguments import check_text
from dpstream.stream.identity import canonical_json
from dpstream.stream.store import container
from dpstream.stream.store.place import has_store, questions_path, questions_server
from dpstream.stream.store.sealed_history import outside_heads_of_questions
from dpstream.stream.store.step_rows import PackedState, Prepared, Reservation, Step
from dpstream.stream.store.store import Store, closed_stream
from dpstream.stream.store.store_database import NEWEST_STATE, damaged_store
from dpstream.stream.stream import Stream, WatchedRandomness, shown_failure, undecided

_BOTH_STORES = "the newest copies of both stores"

_MAX_ID = 200


@dataclass(frozen=True)
class AnsweredQuestion:
    """A question and its answer as they are stored. Public.

    Attributes:
        number: 1, 2, ...
        question_id, question: its id and its words.
        step: how many steps the stream had.
        answer: the answer.
        test_seed: whether noise was predictable, which voids the guarantee.
    """

    number: int
    question_id: str
    question: str
    step: int
    answer: QuestionAnswer
    test_seed: bool

    def as_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {
            "number": self.number,
            "id": self.question_id,
            "question": self.question,
            "step": self.step,
            **self.answer.as_dict(),
            "made_with_test_seed": self.test_seed,
        }


def default_id(step: int, question: str) -> str:
    """The id of a question that came without one: the same question at the same step has the same id."""
    text = f"step {step}: {question}"
    if len(text) <= _MAX_ID and text.isprintable():
        return text
    return f"step {step}: sha256 {sha256_hex(question.encode())}"


class AskingStream(Stream):
    """A ``Stream`` whose plan answers questions between steps; made by ``open_stream``.

    A step counts the records that arrive (free) and releases a table drawn from the public histogram.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._questions: Store | None = None
        #: The exception of a question that failed after it had drawn noise, until its owner decides.
        self._failed: str | None = None
        #: The last hard question, which holds the histogram; 0 where there was none.
        self._last_hard = 0
        #: The present step, and its questions: content and number; None: to be read from the store.
        self._step_answers: tuple[int, dict[bytes, int]] | None = None
        try:
            super().__init__(*arguments, **options)
        except BaseException:
            self._close_questions()
            raise

    @property
    def _asks(self) -> AskedPlan:
        assert self._plan.asks is not None
        return self._plan.asks

    # Public facts

    @property
    def standing(self) -> QuestionsSoFar:
        """What was asked so far, and what is left of the budget."""
        self._check_process()
        return self._asks.standing(self._present())

    @property
    def most(self) -> Fraction:
        """The most that the next question can spend. Public."""
        self._check_process()
        return self._asks.most(self._present())

    def asked(self) -> tuple[AnsweredQuestion, ...]:
        """All questions and their answers, in order."""
        self._check_process()
        store = self._question_store
        self._witness()
        return tuple(self._stored_question(number) for number in range(1, store.last_step + 1))

    # Asking

    def ask(self, question: Any, question_id: str | None = None) -> AnsweredQuestion:
        """Answer one question, durably.

        Guarantee: the plan's, for all answers and releases together, crashes and repetitions included.

        Args:
            question: see ``AskedPlan.read_question``.
            question_id: the owner's name for it; the same id again gives the stored answer. By default the question
                itself, at this step: it is answered anew only after more records came. Where the same question was
                answered at this step in other words, that answer is given, and also stored under an id of its own.

        Errors:
            ConfigError, SchemaError: the question cannot be read; nothing was spent. BudgetError: too few records yet.
            StepError: the id was used for another question, or an attempt failed after it had drawn noise (see
            ``discard_reservation``). BudgetError, too: the stream was closed in its account. StoreError: the disk
            failed.

        Cost: the plan's, and one commit; after a hard question the histogram is written.
        """
        self._check_process()
        query, text = self._asks.read_question(question, self._schema)
        name = default_id(self.last_step, text) if question_id is None else question_id
        check_text(name, "question_id")
        store = self._question_store
        self._witness()  # of an answer that a full disk kept back
        content, complement = map(store.fingerprint, self._asks.question_bytes(query))
        known = store.find(batch_id=name)
        if known is not None:
            if known.content != content:
                raise StepError(
                    "the id belongs to another question",
                    where=f"question {name!r}",
                    allowed="a new id",
                )
            return self._stored(known)
        same = self._answered_here.get(content)
        if same is not None and question_id is None:
            return self._stored_question(same)
        if self._membership is not None:
            self._membership.allow_step(self._store.meta, self.last_step)
        kind = self._failed or self._undecided or store.undecided_failure()
        if kind is not None:
            raise undecided("a question or step", kind, f"question {name!r}")
        implied = None if same is None else self._stored_question(same).answer
        other = self._answered_here.get(complement)
        if implied is None and other is not None:
            implied = self._stored_question(other).answer.of_complement()
        return self._answered(Reservation(store.last_step + 1, name, content), text, query, implied)

    def discard_reservation(self) -> None:
        """See ``Stream.discard_reservation``; also allows questions again after one that failed."""
        super().discard_reservation()
        self._question_store.release_reservation()
        self._failed = None

    def close(self) -> None:
        """Give up both stores."""
        super().close()
        self._close_questions()

    # Inside

    @property
    def _answered_here(self) -> dict[bytes, int]:
        """The questions that were answered at the present step: content and number."""
        if self._step_answers is None or self._step_answers[0] != self.last_step:
            store, numbers = self._question_store, {}
            for number in range(store.last_step, 0, -1):
                row = store.committed(number)
                if self._stored(row).step != self.last_step:
                    break
                numbers[row.content] = number
            self._step_answers = (self.last_step, numbers)
        return self._step_answers[1]

    def _stored_question(self, number: int) -> AnsweredQuestion:
        return self._stored(self._question_store.committed(number))

    def _stored(self, row: Step) -> AnsweredQuestion:
        with unreadable("a stored answer cannot be read", "questions", NEWEST_STATE):
            stored = json.loads(row.manifest)
            answer = {
                name: value
                for name, value in stored.items()
                if name not in ("number", "id", "question", "step", "made_with_test_seed")
            }
            return AnsweredQuestion(
                row.step,
                row.batch_id,
                stored["question"],
                stored["step"],
                self._asks.read_answer(answer),
                row.test_seed,
            )

    def _answered(
        self, place: Reservation, text: str, query: Any, implied: QuestionAnswer | None
    ) -> AnsweredQuestion:
        """Answer a question durably; ``implied``: the answer that follows from an earlier one, if one does."""
        store, here = self._question_store, self._answered_here
        # As in a step: whatever stops it, the next one reads the stores again.
        state, self._state, self._step_answers = self._present(), None, None
        randomness = WatchedRandomness(self._randomness)
        before = self._asks.standing(state)
        try:
            answer = (
                self._asks.ask(state, query, randomness)
                if implied is None
                else self._asks.with_books(implied, state)
            )
            learned = implied is None and answer.changes_memory
            seed = not randomness.secure or store.used_test_seed or self._store.used_test_seed
            asked = AnsweredQuestion(place.step, place.batch_id, text, self.last_step, answer, seed)
            charge = self._asks.standing(state).spent - before.spent
            prepared = self._prepared_question(place, asked, state, charge, learned)
            store.commit_step(prepared)
        except BaseException as error:
            self._failed = shown_failure(error, randomness.used)
            self._settle(store, place, True, randomness.used, error)
            raise
        here.setdefault(place.content, place.step)
        self._state, self._step_answers = state, (self.last_step, here)
        if learned:
            self._last_hard = place.step
        self._witness()
        return asked

    def _witness(self) -> None:
        """Note the last question outside of its store; nobody sees an answer before."""
        if not self._question_store.witnessed:
            self._question_store.write_head()

    def _prepared_question(
        self, place: Reservation, asked: AnsweredQuestion, state: Any, charge: Fraction, learned: bool
    ) -> Prepared:
        y_number = place.step if learned else self._last_hard
        manifest = canonical_json(asked.as_dict())
        books = {
            **self._asks.pack_books(state),
            "y_number": y_number,
            "t": self._asks.standing(state).t,
            "step": self.last_step,
        }
        memory = self._asks.pack_memory(state)
        return Prepared(
            reservation=place,
            definition=str(self._plan.budget.as_dict()["definition"]),
            spent=str(charge),
            parts=canonical_json([{"name": asked.answer.kind, "amount": str(charge)}]),
            state=PackedState(container.dump(Packed(books, {})), {}),
            synthesis=container.dump(memory if learned else Packed(memory.meta, {})),
            manifest=manifest,
            files={},
            test_seed=asked.test_seed,
            publication="unpublished",
            keep=None,
        )

    def _present(self) -> Any:
        if self._state is None:
            self._state = self._stored_state()
        return self._state

    def _stored_state(self) -> Any:
        """The state: counts from the stream's store, books and histogram from the store of its questions."""
        state = super()._stored_state()
        if self._questions is None:
            self._questions = self._open_questions()
            self._witness()
        store, where = self._questions, str(self._questions.path)
        books = store.state().meta
        with unreadable("the questions' books are unreadable", where, NEWEST_STATE):
            step, t, asked = (int(books[name]) for name in ("step", "t", "asked"))
        if step > self.last_step or t > self._asks.standing(state).t:
            raise StoreDamagedError(
                "the stream was rolled back behind its questions",
                where=where,
                allowed=_BOTH_STORES,
            )
        # As of the last step: with older books, what was spent since could be spent again.
        if self._asks.standing(state).asked > asked:
            raise StoreDamagedError("the questions' store was rolled back", where=where, allowed=_BOTH_STORES)
        self._asks.restore_books(state, books)
        self._last_hard = int(books["y_number"])
        if self._last_hard:
            packed = store.synthesis(self._last_hard)
            if packed is None:
                raise damaged_store("the last hard question's histogram is missing", where)
            self._asks.restore_memory(state, container.load(packed, where=where))
        return state

    def _open_questions(self) -> Store:
        path, server = questions_path(self.path), questions_server(self._server)
        stream_id = self._store.meta["stream_id"]
        if self.last_step and not has_store(path, server=server):
            raise StoreDamagedError("the questions' store is gone", where=str(path), allowed=_BOTH_STORES)
        fresh = self._asks.pack_books(self._plan.start())
        first = container.dump(Packed({**fresh, "y_number": 0, "t": 0, "step": 0}, {}))
        # An id of its own: what is encrypted in one of the two stores means nothing in the other.
        own_id = hashlib.sha256(b"questions of " + stream_id).digest()[: len(stream_id)]
        releases = None if self._sink is None else self._sink.directory
        return Store(
            path,
            {**self._facts, "questions_of": stream_id.hex()},
            lambda: ({"stream_id": own_id}, first),
            server=server,
            key=self._key,
            # No question is answered before the first step: with the stream, its questions begin anew.
            renew=self.last_step == 0,
            outside=outside_heads_of_questions(self.path, releases),
        )

    @property
    def _question_store(self) -> Store:
        if self._questions is None:
            raise closed_stream(str(self.path))
        return self._questions

    def _close_questions(self) -> None:
        if self._questions is not None:
            self._questions.close()
            self._questions = None
