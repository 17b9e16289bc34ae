"""What a draft cannot know, as questions of `dpstream init --interactive`; an empty answer leaves one open."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpstream.core.errors import ConfigError
from dpstream.core.privacy.odds import best_guess
from dpstream.project.reader import exact_number

#: The mechanism that follows coordinates.
POINTS = "points"


@dataclass(frozen=True)
class Question:
    """One question.

    Attributes:
        key: the key of the file that the answer becomes.
        words: what it is about, and what the answer means.
        default: what an empty answer stands for; empty: it is left open.
        read: the value of an answer.
    """

    key: str
    words: str
    default: str
    read: Callable[[str], Any]


#: Asks, and gives the answer; None: left open. An answer that ``Question.read`` refuses is asked for again.
Ask = Callable[[Question], Any]

_CHANCES = ("0.1", "0.5", "1", "2", "5")


def _meaning() -> str:
    """What epsilon bounds, by an example."""
    rates = ", ".join(f"{100 * best_guess(float(one), 0.0):.3g} at {one}" for one in _CHANCES)
    return (
        "It bounds what all releases together tell about one of those who are protected. Somebody who guesses a fact "
        f"about them is right in 50 of 100 cases without the releases, and with them in at most so many: {rates}."
    )


def _exact(text: str) -> str:
    number = exact_number(text)
    if number is None or not 0 < number <= 1000:
        raise ConfigError(
            f"{text!r} cannot be used", allowed='an exact positive number up to 1000, such as "1"'
        )
    return text


def _count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 2**53:
        raise ConfigError(f"{text!r} cannot be used", allowed="a whole number from 1")
    return int(text)


def _day(text: str) -> str:
    try:
        datetime.date.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"{text!r} is not a day", allowed="a day such as 2026-01-05") from None
    return text


def _end(text: str) -> str:
    return text if text == "today" else _day(text)


def _every(text: str) -> str:
    from dpstream.io.sources.calendar import EVERY, period_grid

    if text != "files":
        try:
            period_grid(text, datetime.date(2000, 1, 1), "every")
        except ConfigError:
            raise ConfigError(f"{text!r} is no length of a step", allowed=EVERY) from None
    return text


_QUESTIONS: Mapping[str, Question] = {
    one.key: one
    for one in (
        Question("epsilon", f"How much may be lost? (epsilon) {_meaning()}", "1", _exact),
        Question(
            "rho",
            "How much may be lost? (rho, of zero-concentrated differential privacy: smaller is more private; 0.005 "
            "is about epsilon = 0.57 at delta = 1e-9, 0.02 about 1.2, 0.1 about 2.8)",
            "0.005",
            _exact,
        ),
        Question(
            "every",
            "How often do you publish? (day, week, month, ...) Longer steps hold more records, so their shares of "
            "noise are smaller.",
            "week",
            _every,
        ),
        Question(
            "start",
            "The public first day of step 1, such as the day on which the register opened; for weeks a Monday. It "
            "must not be read off the data.",
            "",
            _day,
        ),
        Question("end", "The public last day, or today; it may be moved later.", "today", _end),
        Question(
            "max_events", "How many records has one of them at most? Further ones are left out.", "", _count
        ),
        Question("horizon", "How many steps (periods) will there be at most?", "", _count),
        Question(
            "size",
            "About how many records does the table hold, as anybody may guess who never saw it? (1000, 3000, ...; it "
            "is published)",
            "",
            _count,
        ),
        Question(
            "records_per_step",
            "About how many records come in a step, as anybody may guess who never saw them? (it is published)",
            "",
            _count,
        ),
    )
}


def question(key: str) -> Question | None:
    """The question about a key of the file; None where there is none."""
    return _QUESTIONS.get(key)


def about_person(columns: Sequence[str], likely: str | None = None) -> Question:
    """Which column says whose a record is, where several records may be of one person.

    Args:
        likely: the column that looks like it.
    """

    def read(text: str) -> str:
        if text not in columns:
            raise ConfigError(
                f"there is no column {text!r}", allowed="a column of the data, or an empty answer"
            )
        return text

    words = (
        "Who is to be protected? Each record by itself: an empty answer. All records of one person (customer, patient) "
        "together: the column that says whose a record is."
    )
    if likely is not None:
        words += f" It may be {likely!r}, whose values come again and again."
    return Question("user_column", words, "", read)


def about_points(place: tuple[str, str]) -> Question:
    """Whether columns that look like coordinates are to be followed as such."""

    def read(text: str) -> str:
        if text != POINTS:
            raise ConfigError(f"{text!r} cannot be used", allowed=f"{POINTS}, or an empty answer")
        return text

    words = (
        f"Columns {place[0]!r} and {place[1]!r} look like coordinates. Follow them more finely than bins do? Then "
        f"answer {POINTS}: the number of records of every step is declared public. Else an empty answer."
    )
    return Question("mechanism", words, "", read)
