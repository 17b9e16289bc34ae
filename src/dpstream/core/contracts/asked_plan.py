"""The contract of plans that answer questions between the steps of their stream (``dpstream.stream.asking_stream``)."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any, Protocol

from dpstream.core.contracts.releases import Packed

if TYPE_CHECKING:
    from dpstream.core.privacy.randomness import Randomness
    from dpstream.core.schema import Schema


class QuestionAnswer(Protocol):
    """One answer; public.

    Attributes:
        kind: what the ledger calls the charge for such an answer, in a word.
        changes_memory: whether later answers depend on it.
    """

    @property
    def kind(self) -> str: ...

    @property
    def changes_memory(self) -> bool: ...

    def as_dict(self) -> dict[str, Any]:
        """JSON-able."""
        ...

    def of_complement(self) -> QuestionAnswer:
        """The answer to the complement of the question, which follows from this one."""
        ...

    def describe(self) -> str:
        """For people, in a few lines."""
        ...


class QuestionsSoFar(Protocol):
    """What was asked so far; public.

    Attributes:
        t: number of records. asked: number of questions. spent: of the budget. hard_left: how many more questions
            there may be now that cost a noisy number.
    """

    @property
    def t(self) -> int: ...

    @property
    def asked(self) -> int: ...

    @property
    def spent(self) -> Fraction: ...

    @property
    def hard_left(self) -> int: ...


class AskedPlan(Protocol):
    """A plan that answers questions. ``state`` is the plan's own; questions change its books and its memory."""

    def read_question(self, question: Any, schema: Schema) -> tuple[Any, str]:
        """Read a question; gives it as ``ask`` takes it, and in words.

        Errors:
            ConfigError, SchemaError: it cannot be read.
        """
        ...

    def question_bytes(self, query: Any) -> tuple[bytes, bytes]:
        """Bytes that are the same for a question in whatever words, and for no other question; and its complement's."""
        ...

    def ask(self, state: Any, query: Any, randomness: Randomness) -> QuestionAnswer:
        """Answer a question; advances ``state``. See the plan for guarantee and errors."""
        ...

    def with_books(self, answer: Any, state: Any) -> QuestionAnswer:
        """The answer that follows from an earlier one, with what is spent and asked by now."""
        ...

    def read_answer(self, stored: dict[str, Any]) -> QuestionAnswer:
        """The inverse of ``QuestionAnswer.as_dict``."""
        ...

    def standing(self, state: Any) -> QuestionsSoFar:
        """What was asked so far."""
        ...

    def most(self, state: Any) -> Fraction:
        """The most that the next question can spend; 0 where the budget pays for none that is not known already.
        Public."""
        ...

    def pack_books(self, state: Any) -> dict[str, Any]:
        """What every question changes, JSON-able. Secret."""
        ...

    def restore_books(self, state: Any, packed: dict[str, Any]) -> None:
        """The inverse of ``pack_books``, in place."""
        ...

    def pack_memory(self, state: Any) -> Packed:
        """What the plan has learned from answers."""
        ...

    def restore_memory(self, state: Any, packed: Packed) -> None:
        """The inverse of ``pack_memory``, in place."""
        ...
