"""``dpstream plan``: what a configuration promises and costs, before any data are read."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import click

from dpstream.cli.progress import counted_progress
from dpstream.cli.shared import console, json_option, of_stream, print_json, print_table
from dpstream.cli.types import Whole
from dpstream.core.errors import ConfigError, counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dpstream.project import Config
    from dpstream.stream.templates import Table
    from dpstream.tools.choosing import ComparedMechanisms

_NUMBER = re.compile(r"unknown|inf|nan|-?[0-9][0-9,.]*(e[+-][0-9]+)?")
#: What a step needs is told from this many bytes on.
_TOLD_FROM = 10**8


@click.command("plan", short_help="Print guarantee, costs and noise; reads no data.")
@of_stream()
@click.option(
    "--compare-epsilon", metavar="LIST", help="Show the noise under other epsilons, such as 0.5,1,2."
)
@click.option(
    "--runs-until",
    metavar="RECORDS",
    type=Whole(),
    help="List the runs that are planned up to this size of the database, where runs are scheduled by it.",
)
@click.option(
    "--want",
    "wishes",
    multiple=True,
    metavar="WISH",
    help='Find the smallest epsilon that reaches an error, such as "zip within 5 %"; may be repeated. Needs [expect].',
)
@click.option(
    "--at",
    metavar="STEP",
    type=Whole(),
    help="The step whose verdicts are told, and at which a --want is to hold. Without it verdicts are told for the "
    "last step, or where nothing says which that is, for a year's.",
)
@click.option(
    "--compare",
    "fits",
    is_flag=True,
    help="Run the mechanisms that could run this stream on invented ones, and say which fits. Needs [expect].",
)
@click.option(
    "--against",
    multiple=True,
    metavar="MECHANISM",
    help="With --compare: only with this other mechanism; may be repeated.",
)
@click.option("--runs", type=Whole(), help="With --compare: runs of each mechanism at most (5).")
@click.option(
    "--steps", type=Whole(), help="With --compare: steps of a run (those of the stream, at most 100)."
)
@click.option(
    "--seconds", type=Whole(), help="With --compare: the limit of CPU, which may allow fewer runs (60)."
)
@click.option("--seed", type=Whole(0), help="With --compare: of the invented streams and the noise (0).")
@json_option
def command(
    config: Config,
    compare_epsilon: str | None,
    runs_until: int | None,
    wishes: tuple[str, ...],
    at: int | None,
    fits: bool,
    against: tuple[str, ...],
    runs: int | None,
    steps: int | None,
    seconds: int | None,
    seed: int | None,
    as_json: bool,
) -> None:
    """Print the guarantee, what each part costs, the noise, sizes, and every default with its reason.

    Reads no data. With [expect] in the file it predicts the errors of a table of that size, and what it is fit for.
    --compare invents streams of that size in this schema, of uniform columns and of columns that depend on each other
    (and like the public table that the stream begins with), runs this and other mechanisms on them with the same
    guarantee, and says which one it would take, and by how much. Differences up to 10 % count as none. Equal seeds give
    equal results. Where --seconds do not do for one run of each, the plan is printed without a comparison.

    \b
    Examples:
      dpstream plan dpstream.toml --compare-epsilon 0.5,1,2
      dpstream plan dpstream.toml --want "total within 2 %" --want "zip within 5 %"
      dpstream plan dpstream.toml --compare --seconds 300
    """
    from dpstream.project.planning import describe, smallest_budget

    given = {"against": against or None, "runs": runs, "steps": steps, "seconds": seconds, "seed": seed}
    given = {key: value for key, value in given.items() if value is not None}
    if given and not fits:
        raise ConfigError(
            "it belongs to a comparison of mechanisms",
            where=f"--{next(iter(given))}",
            allowed="with --compare",
        )
    config.schema().require_exact(f"{config.path} [schema]")
    facts = describe(config, at, runs_until)
    if compare_epsilon is not None:
        facts["compared"] = _compare(config, compare_epsilon)
    if wishes:
        facts["wanted"] = smallest_budget(config, wishes, at)
    compared = _compared(config, given) if fits else None
    if compared is not None:
        facts["mechanisms_compared"] = (
            {"words": compared} if isinstance(compared, str) else compared.as_dict()
        )
    if as_json:
        print_json(facts)
        return
    hopeless = (facts["expected_errors"] or {}).get("hopeless")
    if hopeless is not None:
        console().print(f"{hopeless}\n")
    if isinstance(compared, str):
        console().print(f"{compared}\n")
    elif compared is not None:
        _print_mechanisms(compared)  # the answer first: what it rests on is long
    _print(facts)


def _compare(config: Config, text: str) -> list[dict[str, Any]]:
    """Other epsilons under the file's definition: pure, or with the file's delta."""
    from dpstream.project.planning import budgets_of, compare_budgets

    name, make = budgets_of(config)
    if name == "rho":
        raise ConfigError(
            "the budget is a rho, which has no epsilon to compare with",
            where="--compare-epsilon",
            allowed="a budget of epsilon, or of epsilon and delta",
        )
    words = [word.strip() for word in text.split(",")]
    budgets = [make(word) for word in words]
    rows = compare_budgets(config, budgets)
    return [{"epsilon": word, **row} for word, row in zip(words, rows, strict=True)]


def _print(facts: dict[str, Any]) -> None:
    from dpstream.stream.templates import sentence

    out, told = console(), facts["words"]
    out.print(f"Stream {facts['stream']}, mechanism {facts['mechanism']}")
    if told["warning"]:
        out.print(told["warning"])
    out.print()
    out.print(facts["guarantee"])
    if facts["base"] is not None:
        out.print(facts["base"]["words"])
    for words in told["not_protected"]:
        out.print(sentence(words))
    if facts["draft"]:
        out.print("This schema is a draft (confirmed = false): nothing runs before it is confirmed.")
    out.print()
    _print_parts(facts)
    _print_all(told["says"])
    _print_size(facts["size"])
    _print_all(told["further"])
    if told["further"]:
        out.print()
    if facts["expected_errors"] is None:
        _print_predicted(facts, told["predicted_note"])
        out.print(
            "What the releases will be fit for: not known. "
            + (
                "With guesses of the table's size in [expect] it is."
                if not facts["expect"]
                else "This mechanism predicts no errors of tables."
            )
        )
        out.print()
    else:
        _print_expected(facts["expected_errors"])
    for words in facts["advice"]:
        out.print(f"{words}\n")
    if "wanted" in facts:
        _print_wanted(facts["wanted"])
    if "compared" in facts:
        key = next(iter(facts.get("compares", ())), "deviation")
        rows = [[one["epsilon"], one["text"], _text(one[key])] for one in facts["compared"]]
        print_table(["epsilon", "budget", told["compared"]], rows, right=[0, 2])
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


def _text(value: str | float | None) -> str:
    """A value of a table: whole numbers with commas, others to four digits, None as unknown."""
    if value is None or isinstance(value, str):
        return "unknown" if value is None else value
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def _print_all(block: Sequence[str | Table]) -> None:
    """Sentences, and tables whose columns of numbers are aligned to the right."""
    for part in block:
        if isinstance(part, str):
            console().print(part)
            continue
        heads, *rows = part
        columns = zip(*rows, strict=True) if rows else [()] * len(heads)
        right = [i for i, cells in enumerate(columns) if all(_NUMBER.fullmatch(cell) for cell in cells)]
        print_table(heads, rows, right=right)


def _print_size(size: dict[str, Any]) -> None:
    from dpstream.stream.templates import shown_bytes

    state = f"{shown_bytes(size['state_bytes_at_start'])} at the start, {size['state_grows']}."
    words = f"State: {state}"
    if "marginals" in size:
        words = (
            f"Size: {counted(size['columns'], 'column')}, {counted(size['marginals'], 'marginal')} with "
            f"{counted(size['cells'], 'cell')} (the largest "
            f"{size['largest_marginal']}); state {state}"
        )
    if size.get("step_bytes", 0) >= _TOLD_FROM:
        words += (
            f" A step needs about {shown_bytes(size['step_bytes'])} and {size['step_seconds']} s of CPU for its "
            "marginals, beside what its rows need."
        )
    console().print(words)
    console().print()


def _print_expected(expected: dict[str, Any]) -> None:
    from dpstream.project.planning import expected_table
    from dpstream.stream.release.verdicts import MEANING

    out, table = console(), expected_table(expected)
    out.print("Predicted standard errors, in records, and as shares:")
    rows = [[_text(row[key]) for key in table.headings] for row in table.rows]
    print_table(list(table.headings.values()), rows, right=range(len(table.headings)))
    out.print(f"These are {expected['words']}")
    out.print()
    at = expected["verdict_step"]
    out.print(f"What the release of step {at['step']} ({at['because']}) will be fit for:")
    for verdict in expected["verdicts"]:
        out.print(f"  {verdict['words']}")
    out.print(f"  ({'; '.join(f'{word}: {what}' for word, what in MEANING.items())})")
    out.print()


def _print_wanted(wanted: dict[str, Any]) -> None:
    out, name, step = console(), wanted["amount"], wanted["step"]
    both = " and ".join(one["words"] for one in wanted["wishes"])
    if wanted["smallest"] is None:
        out.print(f"No {name} up to {wanted['largest_tried']} reaches {both} at step {step}.")
    else:
        out.print(f"The smallest {name} of two digits with {both} at step {step}: {wanted['smallest']}.")
    for one in wanted["wishes"]:
        reached = one["with_the_smallest"]
        then = "" if reached is None else f"; with the smallest {100 * reached:.3g} %"
        out.print(f"  {one['words']}: with this file {100 * one['with_the_file']:.3g} %{then}")
    out.print()


def _print_predicted(facts: dict[str, Any], note: str) -> None:
    predicted = facts["predicted_errors"]
    if predicted is None:
        return
    out = console()
    out.print("Predicted standard errors, in records:")
    steps = predicted["steps"]
    columns = {"step": [str(one["step"]) for one in steps]}
    # A family that promises no such number has no column for it.
    if any(one["every_step"] is not None for one in steps):
        columns["cell measured at every step"] = [_number(one["every_step"]) for one in steps]
    if any(one["even_share"] is not None for one in steps):
        columns["at its even share (times)"] = [
            f"{_number(one['even_share'])} ({one['measurements']})" for one in steps
        ]
    columns["number of records"] = [_number(one["total"]) for one in steps]
    rows = [list(row) for row in zip(*columns.values(), strict=True)]
    print_table(list(columns), rows, right=list(range(len(columns))))
    if facts["base"] is not None:
        out.print(
            "The number of records with the error of the table that the stream begins with; cells without."
        )
    if facts["options"].get("deletions"):
        out.print("Of inserts less deletes, which are measured apart.")
    out.print(note)
    out.print()


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g}"


#: What ``compare_mechanisms`` takes where nothing is said.
DEFAULT_SECONDS = 60


def _compared(config: Config, options: Mapping[str, Any]) -> ComparedMechanisms | str:
    """The comparison with the options that were given, and with its progress on the standard error; or a sentence that
    the time did not do for one, which is no reason to tell no plan."""
    from dpstream.tools.choosing import ComparisonTooLongError, compare_mechanisms

    seconds = options.get("seconds", DEFAULT_SECONDS)
    click.echo(f"inventing streams and running the mechanisms on them: up to {seconds} s of CPU", err=True)
    with counted_progress("compared", "runs", quiet=False) as tell:
        try:
            return compare_mechanisms(config, **options, progress=tell)
        except ComparisonTooLongError as error:
            return f"The mechanisms were not compared: {error.what}. It would take {error.allowed}."


def _print_mechanisms(found: ComparedMechanisms) -> None:
    """The table, and what it would take."""
    out = console()
    out.print(f"Which mechanism fits: {found.words}")
    distances = sorted({name for one in found.errors for name in one.distances})
    headings = [
        "columns",
        "mechanism",
        "AvgWE",
        "total variation",
        "number of records",
        *distances,
        f"spread of {found.measure} over runs",
    ]
    rows = [
        [
            one.columns,
            one.mechanism,
            f"{one.avg_we:.3g}",
            f"{one.total_variation:.3f}",
            f"{100 * one.total:.3g} %",
            *(f"{one.distances[name]:.3g}" if name in one.distances else "-" for name in distances),
            "-" if one.spread is None else f"{one.spread:.2g}",
        ]
        for one in found.errors
    ]
    print_table(headings, rows, right=range(2, len(headings)))
    out.print(
        "AvgWE: the mean error of a cell of the widest marginals, as a share of the table; total variation: half the "
        "sum of the differences of their shares; number of records: its error as a share of it."
    )
    out.print(found.recommendation.words)
    for needs in dict.fromkeys(found.needs.values()):
        names = [name for name, own in found.needs.items() if own == needs]
        out.print(f"For {' or '.join(names)} the file would need {needs}.")
    for name, why in found.left_out.items():
        out.print(f"{name} was left out: {why}.")
    out.print()
