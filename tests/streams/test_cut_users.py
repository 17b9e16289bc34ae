"""How many users the bound cuts: published numbers are a hand-made stream's true ones with noise of the stated law."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import chi_square
import numpy as np
import pytest
import toy_stream
from numpy.typing import NDArray
from toy_stream import ToyPlan

import dpstream as dp
from dpstream import Batch, PureDP, Stream, User
from dpstream.core.errors import ConfigError
from dpstream.core.privacy import AnyNoise, DiscreteLaplace, Noisy, Randomness, Relay, StepPeriods
from dpstream.stream.cut_users import NONE_CUT, CutUsers, published_cut
from dpstream.stream.declared import cut_words

#: Users of the records of each step; the bound is 2.
STEPS = ["aab", "aabbccc", "ccddd", "", "aeee", "e", "bcf", "dd", "gggg", "fghfaaa", "fff", "a"]
#: Whose third event a step holds: a, b, c; then d, e, -, -, -, g; f; nobody.
CUT = [0, 3, 1, 0, 1, 0, 0, 0, 1, 1, 0, 0]
FALSE_ALARM = 1e-6


class Seen(Relay):
    """Remembers the exact counts that noise is added to, and stops at a step."""

    def __init__(self, fails: bool = False) -> None:
        super().__init__(Randomness.seeded(7))
        self.exact, self.fails = list[int](), fails

    def measure(
        self, exact: NDArray[np.int64], law: AnyNoise, drawn: NDArray[np.int64] | None = None
    ) -> Noisy:
        self.exact += exact.tolist()
        if self.fails:
            raise KeyboardInterrupt  # as a kill: from outside, after the words were used
        return super().measure(exact, law, drawn)


def opened(home: Path, randomness: Randomness, unit: User | None = None) -> Stream:
    plan = ToyPlan(unit=unit or User(2))  # type: ignore[arg-type]
    return toy_stream.start(home, plan=plan, publish=False, randomness=randomness)


def taken(stream: Stream, number: int) -> dict[str, Any]:
    users = STEPS[number - 1]
    frame = {"zip": ["94102"] * len(users), "paid": [True] * len(users), "rent": [1] * len(users)}
    accuracy = stream.step(Batch(frame, users=list(users)), f"b{number}").manifest["accuracy"]
    found: dict[str, Any] = accuracy.get("cut_users", {})
    assert found.get("words", "") in accuracy["words"]
    return found


def test_each_user_is_counted_once_over_restarts_repetitions_and_stops(tmp_path: Path) -> None:
    told, exact = list[dict[str, Any]](), list[int]()
    for number in range(1, len(STEPS) + 1):
        stopped = Seen(fails=True)
        with opened(tmp_path, stopped) as stream:
            if number not in (10, 12):  # no period ends there: nothing is drawn
                with pytest.raises(KeyboardInterrupt):
                    taken(stream, number)
        seen = Seen()
        with opened(tmp_path, seen) as stream:
            told.append(taken(stream, number))
            assert taken(stream, number) == told[-1], "a repetition draws nothing"
        assert stopped.exact in (seen.exact, [])
        exact += seen.exact
    # Where a tenth of the steps came since: after the ninth step at the eleventh.
    assert exact == [*CUT[:9], sum(CUT[9:11])]
    periods = [one["period"] for one in told if "period" in one]
    assert [(one["first"], one["last"]) for one in periods] == [*((n, n) for n in range(1, 10)), (10, 11)]
    assert {str(one["noise"]) for one in periods} == {"[['laplace', '50', 1]]"}
    sums = np.cumsum([one["users"] for one in periods]).tolist()
    assert [one["users"] for one in told] == [*sums[:9], sums[8], sums[9], sums[9]]
    assert [one["up_to_step"] for one in told] == [*range(1, 10), 9, 11, 11]


def test_in_each_public_period_users_are_counted_anew(tmp_path: Path) -> None:
    seen, expected, asked = Seen(), [0] * len(STEPS), Counter[tuple[str, int]]()
    for step, user in ((step, user) for step, users in enumerate(STEPS) for user in users):
        asked[user, step // 4] += 1
        expected[step] += asked[user, step // 4] == 3
    assert sum(expected) > sum(CUT)
    with opened(tmp_path, seen, User(2, StepPeriods(4))) as stream:
        words = [taken(stream, number)["words"] for number in range(1, len(STEPS) + 1)]
    assert seen.exact == [*expected[:9], sum(expected[9:11])]
    assert "in one period (4 steps; who has in two is counted twice) up to step 11" in words[-1]


def test_a_pooled_stream_publishes_the_number_where_its_first_headline_is_measured(tmp_path: Path) -> None:
    schema, accuracy = dp.Schema([dp.Boolean("paid")]), {"headline": ["paid"], "periods": "2 steps"}
    told = []
    with dp.open(tmp_path / "paid", schema, epsilon=1, unit=dp.User(2), accuracy=accuracy) as stream:
        for step in range(1, 6):
            rows = {"paid": [True, False]}
            told.append(stream.step(rows, f"b{step}", users=["a", "b"]).manifest["accuracy"]["cut_users"])
    spans = [(one["period"]["first"], one["period"]["last"]) for one in told if "period" in one]
    assert spans == [(1, 2), (3, 4)]


def test_without_a_share_nobody_is_counted(tmp_path: Path) -> None:
    seen = Seen(fails=True)
    with opened(tmp_path, seen, User(2, cut_share=Fraction(0))) as stream:
        assert taken(stream, 1) == {}
        assert stream.release(1).manifest["unit"]["each_event"] == "1/2"
    assert seen.exact == []
    for wrong in (1, -1, "a half", float("nan")):
        with pytest.raises(ConfigError, match="cut_share"):
            User(2, cut_share=wrong)  # type: ignore[arg-type]


def residuals(counts: Sequence[int], randomness: Randomness) -> NDArray[np.int64]:
    """Published numbers less the true ones, of periods of a step each."""
    plan, found = ToyPlan(unit=User(2)), list[int]()  # type: ignore[arg-type]
    for cut in counts:
        after = NONE_CUT.after(plan, 1, cut, randomness)
        told = published_cut(plan, NONE_CUT, after, 1)
        assert told is not None
        found.append(told["period"]["users"] - cut)
    return np.array(found)


def test_published_numbers_are_the_true_ones_with_noise_of_the_stated_law() -> None:
    """False alarms: at most 1e-6 by the chi-square law. The control is the law of twice the share."""
    drawn = residuals([0, 3, 90, 2000] * 1000, Randomness.seeded(3))

    def likely(scale: int) -> float:
        rate = DiscreteLaplace(Fraction(scale))
        law = np.cumsum(np.asarray(rate.pmf(np.arange(-4000, 4001))))
        return chi_square.one_sample(drawn, lambda k: law[np.clip(k + 4000, 0, 8000)])

    assert likely(50) > FALSE_ALARM
    assert likely(25) < chi_square.P_CERTAIN
    # And for a count that forgets its users beyond the first: what it publishes is off by 1,999 of a thousand times.
    assert chi_square.two_samples(drawn, drawn - np.array([0, 2, 89, 1999] * 1000)) < chi_square.P_CERTAIN


@pytest.mark.parametrize(
    ("users", "words"),
    [(90, "About 90 ± 12 users (95 %)"), (9, "At most 21 users (95 %)"), (-40, "At most 0 users (95 %)")],
)
def test_a_number_below_its_error_is_a_bound(users: int, words: str) -> None:
    assert cut_words(User(15), {"users": users, "half_width": 12.0}, "step 3").startswith(words)


def test_what_is_remembered_is_packed_whole() -> None:
    books = CutUsers(3, 12, -40, 5)
    assert CutUsers.unpack(books.pack()) == books
    assert ToyPlan(budget=PureDP.of(2), unit=User(2)).cut_noise == DiscreteLaplace(Fraction(25))  # type: ignore[arg-type]
