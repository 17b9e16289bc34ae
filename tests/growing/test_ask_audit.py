"""The audits of questions and of classifiers: honest ones pass, and every broken one is caught."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from door_runs import run_loss

from dpstream.core.privacy import DiscreteLaplace, Randomness
from dpstream.tools.audit import AuditFinding, door
from dpstream.tools.audit.door import record
from dpstream_lab.audits.asking_audit import audit_asking, conversation, conversing_plan, talk
from dpstream_lab.audits.erm_audit import audit_classifiers


def test_honest_questions_pass_and_broken_ones_are_caught() -> None:
    told: list[str] = []
    findings: dict[str, AuditFinding] = {
        one.subject: one for one in audit_asking("short", Randomness.seeded(1), told.append)
    }
    assert [one.subject for one in findings.values() if not one.passed] == []
    assert told
    honest = findings["run of tests at 2, all noise"]
    # The charge is what it really costs: not a hair less is needed.
    assert 0.999 * honest.claimed < honest.found <= honest.claimed
    broken = [one for one in findings.values() if one.control]
    assert {one.subject for one in broken} == {
        "run of tests, threshold noise anew at each test (as listed), all noise",
        "run of tests, 2/3 of the noise, all noise",
        "run of tests, half of it charged, all noise",
        "analyst who repeats, runs without end",
        "conversation, the exact share as easy, transcripts",
        "conversation, a bit where nothing was checked, transcripts",
        "conversation, a run forgotten on reopening, transcripts",
        "conversation, a number without its noise, transcripts",
        "conversation, a limit without its noise, transcripts",
        "conversation, threshold noise kept between runs, transcripts",
    }
    talks = [one for one in findings.values() if one.subject.startswith("conversation, ") and not one.control]
    assert len(talks) == 4
    assert all(one.found > 1.1 * one.claimed for one in broken)


def test_conversations_have_answers_of_every_kind_and_a_loss() -> None:
    plan, text = conversing_plan("text", {"epsilon": 20}), ""
    losses = []
    for number in range(4):
        base, other = conversation(number, early=number % 2 == 0)
        losses.append(run_loss(talk(plan, base), talk(plan, other), Randomness.seeded(number), pure=True))
        spoken = record(talk(plan, base), Randomness.seeded(number))
        text += "".join(part[0].tobytes().decode() for part in spoken.released[:-1])
    assert all(f"kind='{kind}'" in text for kind in ("easy", "hard", "unchecked"))
    assert all(loss.total <= 20 for loss in losses)
    assert any(loss.tested > 0 for loss in losses)
    assert any(loss.measured > 0 for loss in losses)


@pytest.mark.parametrize("limit", ["fresh", "none", "older", "must be a code of"])
def test_a_limit_holds_the_noise_that_was_drawn_for_it(limit: str) -> None:
    def run(number: int) -> door.Run:
        def tested(randomness: Randomness) -> Any:
            older = randomness.draw(LIMIT, 1)[0]
            fresh = randomness.draw(LIMIT, 2 if limit == "must be a code of" else 1)[0]
            noise = {"none": 0, "older": older}.get(limit, fresh)
            yield [np.array([randomness.test(number, 9 + int(noise), LAW)])]

        return tested

    loss = run_loss(run(0), run(1), Randomness.seeded(3), pure=True).total
    assert (loss <= 1 / 2) if limit == "fresh" else math.isinf(loss)


LAW, LIMIT = DiscreteLaplace(Fraction(4)), DiscreteLaplace(Fraction(2))


@pytest.mark.parametrize(
    ("moved", "said", "loss"),
    [
        ([1, 1], [False, True], 1 / 2),  # the limit rises with the numbers
        ([1, -1], [False, True], 1 / 2 + 2 / 4),  # and the yes against it
        ([-1, 1], [False, True], 0),  # noes stay noes, and a yes stays a yes
        ([0, -1], [False, True], 1 / 4),
        ([-3, -3], [False, False], 0),
        ([2, -3], [False, False], 2 / 2),
        ([0, 0], [True, True], math.inf),  # a second yes of one limit
    ],
)
def test_tests_that_share_a_limit_have_the_loss_of_their_moves(moved: Any, said: Any, loss: float) -> None:
    values = np.zeros(1, np.int64)
    one, other = (
        door.Drawn(LIMIT, values, [door.Tested(LAW, by, 9, yes) for by, yes in zip(moves, said, strict=True)])
        for moves in ([0] * len(said), moved)
    )
    assert door.tests_loss(one, other, pure=True) == loss
    assert door.tests_loss(one, other, pure=False) == loss**2 / 2


def test_classifiers_are_near_their_claim_and_broken_ones_are_caught() -> None:
    findings = list(audit_classifiers("short", Randomness.seeded(1), lambda text: None))
    assert [one.subject for one in findings if not one.passed] == []
    honest = [one for one in findings if not one.control]
    assert len(honest) == 14
    assert {one.unit for one in honest} == {"epsilon", "rho"}
    # The claim is nearly reached: nothing is added to the sensitivity that is not needed.
    assert max(one.found / one.claimed for one in honest) > 0.99
    controls = [one for one in findings if one.control]
    assert len(controls) == 7
    assert all(one.found < 5 * one.claimed for one in controls if "parity" not in one.subject)
