"""The privacy statement of a stream: what is published, protected and spent, in words for everybody."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dpstream.core.contracts.explanation import COUNTS_UNKNOWN, sentence
from dpstream.core.contracts.verdicts import MEANING, PREDICTED, SIMULATED
from dpstream.core.privacy import Budget, Event, PureDP, User, decimal_text, group, zcdp_to_epsilon
from dpstream.core.privacy.odds import best_guess
from dpstream.core.privacy.unit import Individual, InsertedRecord, Record
from dpstream.project.plan_description import guarantee, told_base
from dpstream.project.planning import expected_facts
from dpstream.stream.declared import shown_public
from dpstream.stream.ledger.limit import budget_from_dict
from dpstream.stream.predecessor_cost import base_words, broken_words, covered, together

if TYPE_CHECKING:
    from dpstream.core.contracts import StreamPlan
    from dpstream.io.sources.source_options import SourceOptions
    from dpstream.project.config import Config

#: The delta at which a rho is told as (epsilon, delta), as in the plan.
_DELTA = "1e-9"
#: Units of which one person may have many.
_RECORDS = (Event, Record, InsertedRecord)
_HARDLY_A_BOUND = 30


@dataclass(frozen=True)
class Progress:
    """How far the stream is; public.

    Attributes:
        seeded: some step was made with predictable noise.
        verdicts: sentences on what the newest table is fit for.
        unfit: why nobody should use it.
        holds: the records that the newest release is about.
        simulated: whether errors by simulation are published.
        predicted: whether the plan tells how wrong the newest table's counts of columns are.
    """

    steps: int = 0
    last_period: str | None = None
    seeded: bool = False
    verdicts: tuple[str, ...] = ()
    unfit: str | None = None
    simulated: bool = False
    predicted: bool = False
    holds: str | None = None


@dataclass(frozen=True)
class Statement:
    """A title and sections; each section is a heading and its paragraphs (a list of items where ``bullets``)."""

    title: str
    sections: tuple[tuple[str, tuple[str, ...], bool], ...]

    def markdown(self) -> str:
        """One page of Markdown."""
        lines = [f"# {_escape(self.title)}", ""]
        for heading, paragraphs, bullets in self.sections:
            lines += [f"## {_escape(heading)}", ""]
            for text in paragraphs:
                lines += [f"* {_escape(text)}"] if bullets else [_escape(text), ""]
            lines += [""] if bullets else []
        return "\n".join(lines).rstrip() + "\n"

    def plain(self) -> str:
        """The same for a terminal, without the signs of Markdown."""
        lines = [self.title, ""]
        for heading, paragraphs, bullets in self.sections:
            lines += [heading.upper(), ""]
            for text in paragraphs:
                lines += [f"* {text}"] if bullets else [text, ""]
            lines += [""] if bullets else []
        return "\n".join(lines).rstrip() + "\n"


def statement(config: Config, progress: Progress, *, date: str, contact: str | None = None) -> Statement:
    """The statement, from the plan and from how far the stream is. Reads no data; all of it is public.

    Args:
        date: of the statement.
        contact: whom to ask; ``[statement] contact``, or a line to fill in, where it is None.
    """
    plan, told = config.plan(), config.publication
    base = told_base(config, plan)
    budget = covered(plan.budget, base)
    version = f"Version {told.version} of {date}" if told.version else f"As of {date}"
    about = "" if told.description is None else f" {told.description}"
    sections = [
        ("What is published", (f"{version}.{about}", *_published(config, plan, progress, base)), False),
        *((("What it is fit for", fit, False),) if (fit := _fit_for(config, plan, progress)) else ()),
        ("What is protected", (*_seeded(progress), *_protected(config, plan, base)), False),
        ("What a record, a stay and a person are protected with", _each(config, plan, budget), True),
        ("Whom one has to trust", _trust(told.publisher), False),
        ("What it costs", _costs(config, plan, progress, budget), False),
        ("Who decided, and why", _decided(told.decided_by, told.reason), False),
        *((("The stream before this one", _before(config, base), False),) if base else ()),
        ("If the stream is renewed", _renewed(config, plan, budget), False),
        ("What is not protected", limits_told(config, plan), True),
        ("Questions", (contact or told.contact or "Contact: ______________________________",), False),
    ]
    return Statement(f"Privacy statement: {told.title or config.name}", tuple(sections))


def _each(config: Config, plan: StreamPlan, budget: Budget) -> tuple[str, ...]:
    """The loss of everything that somebody may mean by "my data", whichever of the streams has seen it."""

    def line(what: str, loss: Budget) -> str:
        epsilon, delta = loss_of(config, loss)
        if epsilon > _HARDLY_A_BOUND:
            return f"{what}: {loss}, which protects hardly anything."
        return f"{what}: {loss}; a guess is right in at most {_percent(epsilon, delta)} of 100 cases."

    if not isinstance(plan.unit, _RECORDS):
        return (line("One person, with everything that the stream holds of them", budget),)
    stay = isinstance(plan.unit, Record)
    lines = [line("One stay of a record, with all its changes" if stay else "One record", budget)]
    if config.source_options.deletions and isinstance(plan.unit, Event):
        lines.append(line("One record that is entered and later deleted", group(budget, 2)))
    what = "stays or records" if stay else "records"
    return (*lines, *(line(f"One person with {many} {what}", group(budget, many)) for many in (2, 10)))


def _trust(publisher: str | None) -> tuple[str, ...]:
    owner = publisher or "the owner of the original records"
    return (
        f"{owner[:1].upper()}{owner[1:]} runs the program, which reads the original records and adds the noise before "
        "anything leaves it (the central model). Who receives the tables need not be trusted with anything. Who runs "
        "it has to be: with the original records, with the program's secret state, and to run it as is said here.",
    )


def _decided(who: str | None, why: str | None) -> tuple[str, ...]:
    return (
        f"The budget was decided by {who}." if who else "Decided by: ______________________________",
        f"Why: {why}" if why else "Why: ______________________________",
    )


def _published(
    config: Config, plan: StreamPlan, progress: Progress, base: Mapping[str, Any] | None
) -> tuple[str, ...]:
    told = plan.explain()
    before, after = told.published
    counts = COUNTS_UNKNOWN if base is not None and told.counts_told else told.counts_told
    if progress.simulated:
        counts = counts.replace(COUNTS_UNKNOWN, ". How wrong its counts may be was found by simulation")
    elif progress.predicted:
        counts = counts.replace(
            COUNTS_UNKNOWN, ". How wrong counts of one column may be is predicted by the plan"
        )
    steps = {0: "Nothing has been published yet.", 1: "One table has been published so far."}.get(
        progress.steps, f"{progress.steps} tables have been published so far."
    )
    period = "" if progress.holds is None else f" The newest one is made from {progress.holds}."
    end = "" if plan.horizon is None else f" At most {plan.horizon} will be."
    return (
        f"{before}{_often(config.source_options)}{after}",
        f"{steps}{period}{end} Published with each table: how it was made, what it cost, and {told.number_told}"
        f"{counts}.",
    )


def _fit_for(config: Config, plan: StreamPlan, progress: Progress) -> tuple[str, ...]:
    """Of the newest table; before there is one, what the plan expects of the last one."""
    meaning = "; ".join(f"{word}: {what}" for word, what in MEANING.items())
    found = progress.verdicts
    before: tuple[str, ...] = (f"DO NOT USE THE NEWEST TABLE: {progress.unfit}.",)
    if not progress.steps:
        expected = expected_facts(config, plan)
        if expected is None:
            return ()
        found = tuple(one["words"] for one in expected["verdicts"])
        before = (
            f"Nothing has been published yet. What is expected of step {expected['steps'][-1]['step']}:",
        )
    elif progress.unfit is None:
        before = ()
    return (*before, *found, f"What the words mean: {meaning}.") if found else ()


def _often(options: SourceOptions) -> str:
    if options.rows is not None:
        return f"after every {options.rows} records"
    if options.period_columns is not None:
        return "for every period"
    if options.every == "files":
        return "for every file of records that arrives"
    return f"for every {options.every or 'step of the records'}"


def _seeded(progress: Progress) -> tuple[str, ...]:
    if not progress.seeded:
        return ()
    return (
        "THERE IS NO GUARANTEE: tables of this stream were made with predictable noise, for a test. Otherwise:",
    )


def _protected(config: Config, plan: StreamPlan, base: Mapping[str, Any] | None) -> tuple[str, ...]:
    broken = "" if base is None else broken_words(base.get("broken", ()))
    before = "" if base is None else " with those of the stream before, which they hold,"
    return (
        f"{broken}Protected is {plan.unit.describe()}.",
        *odds_told(config, plan),
        f"This holds for all published tables together, past and future,{before} against somebody who knows every "
        "other record and has any amount of computing power.",
        f"In exact terms: {guarantee(config, plan).removeprefix(broken)}",
    )


def odds_told(config: Config, plan: StreamPlan) -> tuple[str, ...]:
    """What the loss means for somebody who guesses."""
    budget, unit = covered(plan.budget, told_base(config, plan)), plan.unit
    epsilon, delta = loss_of(config, budget)
    if epsilon > _HARDLY_A_BOUND:
        return (f"The loss is so large (epsilon = {epsilon:.4g}) that it protects hardly anything.",)
    factor = math.ceil(math.exp(epsilon) * (1 + 1e-12) * 100) / 100
    but = f", up to an exception of probability {delta}" if delta else ""
    if unit.relation == "add-remove":
        cases, what = "with it than without it", "whether it is among the data"
    else:
        cases, what = "for one content of it than for another", "which of two contents it has"
    return (
        f"Whatever is published is at most {factor:g} times likelier {cases}{but}.",
        f"An example: somebody guesses {what}, and either is as likely as the other. Without the tables they are "
        "right in 50 of 100 cases. With all tables, and with the best method there is, in at most "
        f"{_percent(epsilon, delta)} of 100.",
    )


def loss_of(config: Config, budget: Budget) -> tuple[float, str]:
    """(epsilon, delta as text) of a budget; delta is empty for pure DP."""
    if isinstance(budget, PureDP):
        return float(budget.epsilon), ""
    stated = config.budget.stated
    if stated is not None and budget == config.budget.budget:
        return float(stated[0]), decimal_text(stated[1])
    delta = _DELTA if stated is None else str(stated[1])
    return zcdp_to_epsilon(budget, delta), _DELTA if stated is None else decimal_text(stated[1])


def _percent(epsilon: float, delta: str) -> str:
    """A chance as a percentage, rounded up to a tenth; below 100 where the bound is."""
    rate = best_guess(epsilon, float(Fraction(delta.split(" ")[0])) if delta else 0.0)
    return f"{min(100.0, math.ceil(rate * 1000) / 10):g}"


def _costs(config: Config, plan: StreamPlan, progress: Progress, budget: Budget) -> tuple[str, ...]:
    spent = str(plan.budget) if progress.steps else "nothing"
    costs = plan.explain().costs
    if isinstance(plan.unit, User) and not isinstance(plan.unit, InsertedRecord):
        costs = (
            f"Each of the {plan.unit.max_events} events of a user that are counted at most costs "
            f"{plan.unit.per_event(plan.budget)}, and all of them together no more than what is planned. It is charged "
            "in full at the first step, and further tables cost nothing more."
        )
    return (
        f"Planned: {plan.budget}. Spent so far: {spent}.",
        costs,
        *((_several(config, plan, budget, 2),) if isinstance(plan.unit, _RECORDS) else ()),
    )


def _several(config: Config, plan: StreamPlan, budget: Budget, events: int) -> str:
    epsilon, delta = loss_of(config, group(budget, events))
    twice = config.source_options.deletions and isinstance(plan.unit, Event)
    deleted = ", or one record that is entered and later deleted," if twice else ""
    return (
        f"A person with {events} such records{deleted} has "
        f"{group(budget, events)}: the example above then reads {_percent(epsilon, delta)} of 100."
    )


def _before(config: Config, base: Mapping[str, Any]) -> tuple[str, ...]:
    """What a stream that began with another one's release costs together with it."""
    both = budget_from_dict(base["composition"]["together"])
    epsilon, delta = loss_of(config, both)
    seeded = ("THE EARLIER STREAM HAS NO GUARANTEE: it was made with predictable noise, for a test.",)
    return (
        *(seeded if base["made_with_test_seed"] else ()),
        base_words(base),
        f"For both periods together the example above reads {_percent(epsilon, delta)} of 100. A record of the "
        "earlier period that is deleted later is one more event, of this stream.",
    )


def _renewed(config: Config, plan: StreamPlan, budget: Budget) -> tuple[str, ...]:
    both = together([budget, plan.budget], "sum")
    epsilon, delta = loss_of(config, both)
    one = "A person" if isinstance(plan.unit, Individual) else "A record"
    return (
        f"A renewal is a new stream with a budget of its own. {one} that only one of the two streams has seen costs "
        f"what is said above. One that both have seen costs the sum: on the same terms {both}, and the example "
        f"reads {_percent(epsilon, delta)} of 100.",
    )


def limits_told(config: Config, plan: StreamPlan) -> tuple[str, ...]:
    """What is not protected, in sentences."""
    declared = [sentence(text) for text in shown_public(config.facts())]
    return (
        *((_many_records(plan),) if isinstance(plan.unit, _RECORDS) else ()),
        "Facts about groups are what the tables are for. A fact about a group can be unwelcome to its members, whether "
        "or not they are among the data.",
        "Columns, their possible values and the times of the tables are public.",
        "When a table appears, and that one is withdrawn or late, is not protected.",
        *declared,
        "The original records are kept by their owner as before. This statement is about what is published.",
    )


def _many_records(plan: StreamPlan) -> str:
    """Group privacy in words: k times the epsilon, k^2 times the rho."""
    what = "records, or stays of a record," if isinstance(plan.unit, Record) else "records"
    pure = isinstance(plan.budget, PureDP)
    cost = (
        "epsilon is k times" if pure else "rho is k^2 times, and epsilon at the same delta at least k times,"
    )
    less = f"A person with many {what} is protected less, in proportion to their number"
    return f"{less}: with k of them {cost} as large."


def _escape(text: str) -> str:
    """Names are the owner's, and Markdown would read some of their signs."""
    return "".join(f"\\{sign}" if sign in "\\`*_[]<>#|" else sign for sign in " ".join(text.split()))


def as_progress(facts: dict[str, Any]) -> Progress:
    """From what ``dpstream status --json`` says."""
    return Progress(
        int(facts["steps"]),
        facts["last_period"],
        bool(facts["made_with_test_seed"]),
        tuple(one["words"] for one in facts["verdicts"]),
        facts["unfit"],
        any(one["how"] == SIMULATED for one in facts["verdicts"]),
        any(one["how"] == PREDICTED and one["use"] == "columns" for one in facts["verdicts"]),
        facts["holds"],
    )
