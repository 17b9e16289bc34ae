"""What is protected, and what it cost: words that can be read aloud."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from dpstream.core.contracts.explanation import sentence
from dpstream.core.privacy import ZCDP, PureDP, decimal_text, zcdp_to_epsilon
from dpstream.stream.predecessor_cost import own_budget
from dpstream.tools.evaluate.run_folder import Told
from dpstream.tools.report.markup import Html, element, fold, integer, join, table

#: Beyond this epsilon the bound has more than 13 digits, and says nothing.
_HARDLY_A_BOUND = 30


def promise(run: Told) -> Html:
    """The section on what is protected, and at what cost; its clauses are folded."""
    manifest = run.manifest
    plain = element("div", [element("p", text) for text in _plainly(run)], class_="aloud")
    return element(
        "section",
        element("h2", "What is protected, and what it cost"),
        plain,
        fold(
            "What is not covered",
            element("ul", [element("li", text) for text in _limits(run)], class_="prose"),
        ),
        _declared(run),
        fold("Where the budget goes", _parts(run)),
        fold(
            "The exact words of the manifest",
            element("p", str(manifest["guarantee"]["words"])),
            element("p", f"Accounting: {manifest['spent']['composition']}."),
            element("p", f"Plan {manifest['plan_hash']}" if "plan_hash" in manifest else None, class_="hash"),
        ),
        id="promise",
    )


def factor_words(guarantee: dict[str, Any]) -> str:
    """The promise in half a sentence.

    >>> factor_words({"definition": "pure", "epsilon": "1"})
    'it makes any outcome at most 2.72 times likelier'
    """
    if guarantee["definition"] == "pure":
        return f"it makes any outcome {_times(Fraction(guarantee['epsilon']))}"
    implied = Fraction(zcdp_to_epsilon(ZCDP.of(Fraction(guarantee["rho"])), "1e-9"))
    return f"it makes any outcome {_times(implied)}, but for a chance of one in a billion"


def _plainly(run: Told) -> list[str]:
    manifest = run.manifest
    last = run.shown[-1].step
    words = [f"Protected is {manifest['unit']['words']}."]
    words += _bound(manifest["guarantee"], last, str(manifest.get("relation", "add-remove")))
    if run.test_seed:
        return [
            "There is no guarantee: this stream was made with a test seed. Otherwise it would read:",
            *words,
        ]
    words.append(
        "This holds against somebody who knows every other record, has any amount of computing power, and "
        "watches every release."
    )
    spent = decimal_text(Fraction(manifest["spent"]["total"]))
    planned = decimal_text(Fraction(manifest["spent"]["planned"]))
    name = "epsilon" if own_budget(manifest)["definition"] == "pure" else "rho"
    words.append(f"Spent so far: {name} {spent} of {planned} that the plan allows. {_more_steps(manifest)}")
    return words


def _more_steps(manifest: dict[str, Any]) -> str:
    """Why a further step costs those who are in earlier ones nothing."""
    if str(manifest["spent"]["composition"]).startswith("parallel"):
        horizon = manifest["horizon"]
        end = "" if horizon is None else f" The plan ends after {integer(horizon)} steps."
        return f"A further step protects its own records with the same amount and takes nothing from earlier ones.{end}"
    return "The amount is for the whole stream: further steps are paid for already."


def _bound(guarantee: dict[str, Any], last: int, relation: str = "add-remove") -> list[str]:
    """The promise as a factor.

    >>> _bound({"definition": "pure", "epsilon": "1"}, 3)[0][:97]
    'Whether it is there or not, any outcome of all releases up to step 3 together is at most 2.72 tim'
    """
    whatever = "Whatever it holds" if relation == "replace" else "Whether it is there or not"
    opening = f"{whatever}, any outcome of all releases up to step {last} together"
    if guarantee["definition"] == "pure":
        epsilon = Fraction(guarantee["epsilon"])
        return [
            f"{opening} is {_times(epsilon)} in one case than in the other (epsilon = {decimal_text(epsilon)})."
        ]
    rho = Fraction(guarantee["rho"])
    implied = Fraction(zcdp_to_epsilon(ZCDP.of(rho), "1e-9"))
    bound = Fraction(math.ceil(implied * 10**4), 10**4)
    return [
        f"{opening} looks almost the same: the releases satisfy zero-concentrated differential privacy with "
        f"rho = {decimal_text(rho)}.",
        f"It implies that any outcome is {_times(bound)} in one case than in the other, plus a chance of one in "
        f"10^9 (epsilon = {decimal_text(bound)}, delta = 1e-9).",
    ]


def _times(epsilon: Fraction) -> str:
    """Rounded up, so that the sentence stays true.

    >>> _times(Fraction(1)), _times(Fraction(100))
    ('at most 2.72 times likelier', 'bounded by a factor so large that it protects hardly anything')
    """
    if epsilon > _HARDLY_A_BOUND:
        return "bounded by a factor so large that it protects hardly anything"
    factor = math.exp(float(PureDP(epsilon).amount))
    digits = max(0, 2 - math.floor(math.log10(factor)))
    return f"at most {math.ceil(factor * 10**digits) / 10**digits:,.{min(digits, 2)}f} times likelier"


def _limits(run: Told) -> list[str]:
    unit = run.manifest["unit"]["name"]
    pure = run.manifest["guarantee"]["definition"] == "pure"
    what = "records, or stays of a record," if "returns" in run.manifest["unit"] else "records"
    ten = "ten times the epsilon" if pure else "a hundred times the rho, and ten times the epsilon or more"
    several = f"A person with several {what} is protected less, in proportion: ten of them, {ten}."
    limits = []
    if unit == "event-replace":
        limits += [
            "How many records there are is public. Protected is what any one of them holds.",
            several,
        ]
    elif unit.startswith("event"):
        limits += [
            "A record that is added and later withdrawn or corrected is two such events, and loses twice as much.",
            several,
        ]
    elif unit.startswith("record"):
        limits.append(several)
    limits += [
        "The names of columns, their values and bins, and this stream's settings are public and not protected.",
        "What is true of people in general can be learned, with or without any one record in the table. That is "
        "what the releases are for.",
        "The running time, the memory of the program and the folder with its secret state are outside the promise.",
    ]
    return limits


def _declared(run: Told) -> Html | None:
    facts = run.manifest["declared_public"]
    if not facts:
        return None
    items = [element("li", sentence(str(text))) for text in facts]
    return fold(
        "What this stream's owner declared public, and what a halt shows",
        element("ul", items, class_="prose fine"),
    )


def _parts(run: Told) -> Html:
    manifest = run.manifest
    amount = "epsilon" if own_budget(manifest)["definition"] == "pure" else "rho"
    parts: Sequence[dict[str, Any]] = manifest["mechanism"].get("parts", [])
    rows = [[str(p["name"]), str(p["times"]), _amount(p["amount"]), _amount(p["total"])] for p in parts]
    rows.append(["together", "", "", _amount(manifest["spent"]["step"])])
    # A person is in every step, a user in several, and an early record of a growing database in every run: they pay
    # once for all.
    composition = str(manifest["spent"]["composition"])
    once = not composition.startswith("parallel")
    per, what = ("in all", "What all steps take together") if once else ("a step", "What one step takes")
    if composition.startswith("parallel over epochs"):
        per, what = "an epoch", "What one epoch takes (steps that are measured together)"
    made = table(
        ["part", "times" if once else f"times {per}", f"{amount} each", f"{amount} {per}"],
        rows,
        caption=f"{what}, by part of the mechanism ({manifest['mechanism']['name']})",
    )
    details = [
        element("li", element("b", f"{p['name']}: "), str(p["detail"])) for p in parts if p.get("detail")
    ]
    return join([made, element("ul", details, class_="prose note") if details else None])


def _amount(text: str) -> str:
    return decimal_text(Fraction(str(text)))
