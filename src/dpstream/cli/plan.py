"""``dpstream plan``: what a configuration promises and costs, before any data are read."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import click

from dpstream.cli.shared import config_argument, console, json_option, print_json, print_table
from dpstream.cli.types import Whole

if TYPE_CHECKING:
    from dpstream.project import Config

__all__ = ["command"]


@click.command("plan", short_help="Print guarantee, costs and noise; reads no data.")
@config_argument
@click.option(
    "--compare-epsilon", metavar="LIST", help="Show the noise under other epsilons, such as 0.5,1,2."
)
@click.option(
    "--runs-until",
    metavar="RECORDS",
    type=Whole(),
    help="Of a scheduler or an improver: list all runs up to this size of the database.",
)
@json_option
def command(config: str, compare_epsilon: str | None, runs_until: int | None, as_json: bool) -> None:
    """Print the guarantee, what each part costs, the noise, sizes, and every default with its reason.

    Reads no data.

    \b
    Example:
      dpstream plan dpstream.toml --compare-epsilon 0.5,1,2
    """
    from dpstream.project import Config
    from dpstream.project.description import describe

    loaded = Config.load(config)
    loaded.schema().require_exact(f"{loaded.path} [schema]")
    facts = describe(loaded)
    if compare_epsilon is not None:
        facts["compared"] = _compare(loaded, compare_epsilon)
    if runs_until is not None:
        listed = _runs(loaded, runs_until)
        facts["growing"] |= {"runs": listed, "if_steps": False}
    if as_json:
        print_json(facts)
    else:
        _print(facts)


def _compare(config: Config, text: str) -> list[dict[str, Any]]:
    """Other epsilons under the file's definition: pure, or with the file's delta."""
    from dpstream.core.errors import ConfigError
    from dpstream.core.privacy import ZCDP, Budget, PureDP, approximate_to_zcdp
    from dpstream.project.description import compare_budgets
    from dpstream.project.sections import round_down

    words = [word.strip() for word in text.split(",")]
    budgets: list[Budget] = [PureDP.of(word) for word in words]
    if isinstance(config.budget.budget, ZCDP):
        if config.budget.stated is None:
            raise ConfigError(
                "the budget is a rho, which has no epsilon to compare with",
                where="--compare-epsilon",
                allowed="a budget of epsilon, or of epsilon and delta",
            )
        delta = config.budget.stated[1]
        budgets = [round_down(approximate_to_zcdp(word, delta)) for word in words]
    rows = compare_budgets(config, budgets)
    return [{"epsilon": word, **row} for word, row in zip(words, rows, strict=True)]


def _runs(config: Config, until: int) -> list[dict[str, Any]]:
    """All runs up to a size.

    Errors:
        ConfigError: another mechanism.
    """
    from dpstream.core.errors import ConfigError
    from dpstream.project.description import coming_runs

    plan = config.plan()
    runs = coming_runs(plan, until)
    if runs is None:
        raise ConfigError(
            f"the mechanism {plan.name!r} has no runs to be listed",
            where="--runs-until",
            allowed="a scheduler or an improver",
        )
    return runs


def _print(facts: dict[str, Any]) -> None:
    out = console()
    out.print(f"Stream {facts['stream']}, mechanism {facts['mechanism']}")
    out.print()
    out.print(facts["guarantee"])
    if facts["base"] is not None:
        out.print(facts["base"]["words"])
    for sentence in facts["declared_public"]:
        out.print(f"{sentence[:1].upper()}{sentence[1:]}.")
    if facts["draft"]:
        out.print("This schema is a draft (confirmed = false): nothing runs before it is confirmed.")
    out.print()
    _print_parts(facts)
    if "panel" in facts:
        _print_panel(facts)
    elif "points" in facts:
        _print_points(facts)
    elif "growing" in facts:
        _print_growing(facts)
    elif "asking" in facts:
        _print_asking(facts)
    else:
        _print_noise(facts)
    if "pooled" in facts:
        _print_pooled(facts["pooled"])
    if "counter_choice" in facts:
        _print_choice(facts["counter_choice"])
    _print_predicted(facts)
    if "compared" in facts and "points" in facts:
        shown = [[row["epsilon"], row["text"], f"{row['first_cells']:,}"] for row in facts["compared"]]
        print_table(["epsilon", "budget", "first cells from point"], shown, right=[0, 2])
    elif "compared" in facts:
        rows = [[row["epsilon"], row["text"], _number(row["deviation"])] for row in facts["compared"]]
        print_table(["epsilon", "budget", "noise of one measurement"], rows, right=[0, 2])
    out.print("What the plan rests on:")
    for value in facts["values"]:
        why = "" if value["default_because"] is None else f" (default: {value['default_because']})"
        section = f"[{value['section']}] " if value["section"] else ""
        out.print(f"  {section}{value['key']} = {value['value']}{why}")


def _print_parts(facts: dict[str, Any]) -> None:
    amount = "epsilon" if facts["budget"]["definition"] == "pure" else "rho"
    rows = [
        [p["name"], str(p["times"]), _amount(p["each"]), _amount(p["total"]), p["detail"]]
        for p in facts["parts"]
    ]
    factor = facts.get("contribution", {}).get("events_in_times")
    rows.append(
        ["sum", "", "", _amount(facts["sum"]), "what one unit of protection can lose over the whole stream"]
    )
    print_table(["part", "times", f"{amount} each", f"{amount}", "how"], rows, right=[1, 2, 3])
    if factor is not None:
        bound = facts["contribution"]["max_events"]
        why = (
            f"{bound} events of one user"
            if amount == "epsilon"
            else f"the square of {bound} events of one user"
        )
        console().print(f'Each is for one event; "times" holds a factor of {factor}: {why}.')
        console().print()


def _amount(exact: str) -> str:
    """Long fractions as decimals, where these end."""
    from dpstream.core.privacy import decimal_text

    decimal = decimal_text(Fraction(exact))
    return exact if "/" in decimal or len(exact) <= len("100/101") else decimal


def _print_noise(facts: dict[str, Any]) -> None:
    noise, size = facts["noise"], facts["size"]
    out = console()
    one = _number(noise["one_measurement"])
    where = ", in an epoch that measures single columns only" if "pooled" in facts else ""
    if noise["one_measurement"] is None:
        out.print(
            "Noise of one measurement: see the parts; how a run divides its budget follows from noisy numbers."
        )
    else:
        what = "a column's cell, on average" if "pooled" in facts else "every cell"
        out.print(f"Noise of one measurement{where}: standard deviation {one} records in {what}.")
    sums = ", ".join(f"{ticks}: {_number(value)}" for ticks, value in noise.get("running_sum", {}).items())
    if sums:
        out.print(f"Of a marginal's running sum, after so many measurements: {sums}.")
    out.print(
        f"Size: {size['columns']} columns, {size['marginals']} marginals with {size['cells']} cells "
        f"(the largest {size['largest_marginal']}); "
        f"state {_bytes(size['state_bytes_at_start'])} at the start, {size['state_grows']}."
    )
    out.print()


def _print_pooled(pooled: dict[str, Any]) -> None:
    out, words = console(), pooled["words"]
    ends = ", ".join(str(end) for end in pooled["epoch_ends"][pooled["measured_one_by_one"] :])
    out.print(words["epochs"])
    if ends:
        out.print(f"The next epochs end with the steps {ends}.")
    out.print(words["errors"])
    out.print(words["instead"])
    out.print()


def _print_panel(facts: dict[str, Any]) -> None:
    panel, out = facts["panel"], console()
    out.print(f"{panel['words']}.")
    out.print(
        f"The first synthetic people come with period {panel['first_release']}; {panel['padding']} of them are "
        "padding, which answers leave out. They persist: later periods are added, and nothing of them is changed."
    )
    rows = [[one["question"], _number(one["standard_error"])] for one in panel["errors"]]
    print_table(["people, at the last period", "standard error of the count"], rows, right=[1])
    out.print(f"State: {facts['size']['state_grows']}.")
    out.print()


def _print_points(facts: dict[str, Any]) -> None:
    points, out = facts["points"], console()
    out.print(f"{points['words'][:1].upper()}{points['words'][1:]}.")
    out.print(
        f"Coordinates, in the order of their cuts: {', '.join(points['coordinates'])}; "
        f"{points['categories']} categories, each with cells of its own. At most {points['most_points']:,} points."
    )
    shown = [one for one in points["depths"] if one["depth"] in (1, 2, 4, 8, 12, 16, 20, 24)]
    rows = [[str(one["depth"]), f"{one['cells']:,}", f"{one['from_point']:,}"] for one in shown]
    print_table(["depth", "cells", "from point"], rows, right=[0, 1, 2])
    out.print(
        f"State: {_bytes(facts['size']['state_bytes_at_start'])} at the start, {facts['size']['state_grows']}."
    )
    out.print()


def _print_asking(facts: dict[str, Any]) -> None:
    asking, out = facts["asking"], console()
    out.print(
        f"Questions about {asking['cells']:,} cells begin with {asking['start']:,} records. An answer of the public "
        f"histogram is let pass where it is within about {asking['threshold']:.3g} of the truth; numbers have noise of "
        f"scale {asking['noise_of_numbers']:.3g} then, as shares of the records, and less with more records. At least "
        f"{asking['hard_questions']} hard questions can be paid."
    )
    out.print(f"{asking['promise'][:1].upper()}{asking['promise'][1:]}.")


def _print_growing(facts: dict[str, Any]) -> None:
    growing, out = facts["growing"], console()
    amount = "epsilon" if facts["budget"]["definition"] == "pure" else "rho"
    out.print(f"{growing['words'][:1].upper()}{growing['words'][1:]}.")
    what = "Runs where steps end at these sizes" if growing["if_steps"] else "Runs"
    out.print(
        f"{what}, each on all records so far; a step that crosses several is one run with {growing['crossed']}. In "
        "between the last release is repeated."
    )
    rows = [
        [
            f"{one['records']:,}",
            _number(float(Fraction(one["cost"]))),
            _number(one["left"]),
            "nothing" if one["promise"] is None else f"within {one['promise']:.3g}",
        ]
        for one in growing["runs"]
    ]
    print_table(["at records", amount, "left for ever", growing["promised"]], rows, right=[0, 1, 2])
    out.print(growing["promise"])
    out.print(
        f"State: counts of marginals, {_bytes(facts['size']['state_bytes_at_start'])}, however many records."
    )
    out.print()


def _print_choice(choice: dict[str, Any]) -> None:
    out = console()
    what, why = _JUDGED[choice["judged"]]
    out.print(f"Counter: {choice['chosen']}, chosen by the predicted error of {what}, {why}.")
    rows = [
        [
            one["name"],
            _number(one["deviation"]),
            _number(one["last"]),
            one["why_not"] or _bytes(one["state_bytes"]),
        ]
        for one in choice["candidates"]
    ]
    ticks = choice["expected_measurements"]
    heads = ["counter", f"over {ticks} measurements", "at the last", "state, or why not"]
    print_table(heads, rows, right=[1, 2])
    out.print(
        f"A stream keeps the counter that it began with. To hold on to it in later versions of this program, write "
        f'counter = "{choice["chosen"]}".'
    )
    out.print()


_JUDGED = {
    "sums": ("the running sum of one cell", "since every marginal is measured at every step"),
    "gains": (
        "what one measurement adds",
        "since marginals take turns and a model learns from each measurement",
    ),
}


def _print_predicted(facts: dict[str, Any]) -> None:
    predicted = facts["predicted_errors"]
    if predicted is None:
        return
    out = console()
    out.print("Predicted standard errors, in records:")
    rows = [
        [
            str(one["step"]),
            _number(one["every_step"]),
            f"{_number(one['even_share'])} ({one['measurements']})",
            _number(one["total"]),
        ]
        for one in predicted["steps"]
    ]
    heads = ["step", "cell measured at every step", "at its even share (times)", "number of records"]
    print_table(heads, rows, right=[0, 1, 2, 3])
    if facts["base"] is not None:
        out.print(
            "The number of records with the error of the table that the stream begins with; cells without."
        )
    if facts["options"].get("deletions"):
        out.print("Of inserts less deletes, which are measured apart.")
    if facts["mechanism"] == "baseline":
        out.print("These are of sums of measurements; the released table comes from models fitted to them.")
    else:
        out.print("At its even share: the measurements only, without what the model expects of other steps.")
    out.print()


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g}"


def _bytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 10**6 else f"{max(1, round(count / 1e3))} kB"
