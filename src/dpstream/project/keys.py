"""Every section and key of ``dpstream.toml``, in one table: read, documented and explained from here.

The options of mechanisms come from their families, which are loaded only where their options are needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from dpstream.core.contracts import Family, Key
from dpstream.core.contracts.expectations import VARIES
from dpstream.core.contracts.recipe_options import COUNT, NUMBER, TEXT, words
from dpstream.core.contracts.registry import DEFAULT_MECHANISM, families, family_of, mechanisms
from dpstream.io.sinks.sink_kinds import SINKS
from dpstream.io.sources.source_keys import SOURCES, rows_of_source
from dpstream.project.accuracy_keys import ACCURACY_KEYS
from dpstream.project.base_keys import BASE_KEYS
from dpstream.project.output_keys import OUTPUT_KEYS
from dpstream.project.prior_keys import PRIOR_KEYS
from dpstream.project.publication_keys import PUBLICATION_KEYS

SECTIONS: dict[str, str] = {
    "": "",
    "stream": "Who is protected, and what may be public.",
    "source": "Where the private rows are, and how they are cut into steps.",
    "schema": "What the columns may hold; public, written by the steward (see the schema's README).",
    "expect": "Public guesses about the table, from which `dpstream plan` predicts errors; published in every "
    "manifest, and part of what the stream is pinned to. Coarse values are enough: 1, 3, 10, 30, 100, ... They must "
    "not be computed from the private table.",
    "mechanism": "How the synthetic copy is made.",
    "budget": "What all releases together may cost one unit of protection.",
    "accuracy": "Which counts have to be most exact, and what is found out about errors; public.",
    "prior": "A public table that says what the private one may look like (see the guide on priors). It joins the "
    "measured counts that it is near to, and costs nothing of the budget.",
    "output": "Where releases go; public.",
    "statement": "What the owner says to readers in `dpstream statement` and its files for catalogues; public, and not "
    "part of what the stream is pinned to.",
    "report": "What `dpstream report` draws besides; public, and not part of what the stream is pinned to.",
    "state": "Where the stream's secret state is kept.",
    "base": "The last release of an earlier stream that this one begins with, and what becomes of its columns (see "
    "the guide on evolution). Without the section a stream begins empty.",
}

_SECTION_KEYS: tuple[Key, ...] = (
    Key(
        "",
        "format",
        "1",
        "1",
        "the only format there is",
        "Version of this file's format.",
        fragment=words(1),
    ),
    Key(
        "stream",
        "name",
        "1 to 200 printable characters",
        None,
        "",
        "Name of the stream; it is published in every manifest.",
        fragment={**TEXT, "maxLength": 200},
    ),
    Key(
        "stream",
        "unit",
        "event, event-replace, user; record, record-replace where records have keys; of a mechanism that follows "
        "people individual, individual-replace",
        "event; record of the mechanism census; individual where the mechanism follows people",
        "batch sizes stay private unless the owner declares them public",
        "Who is protected: one record inserted or deleted at one step (`event`); one record's value where "
        "the numbers of records are public (`event-replace`); or all records of one user id together (`user`, "
        "with `max_events` and `[source] user_column`). Where records have keys (`[source] key_column`), a "
        "record's whole stay in the table, with its insert, all its updates and its delete (`record`); or its "
        "values alone, where it is public which keys are there when (`record-replace`). Where the mechanism follows "
        "people, everything that one person reports: added or removed (`individual`), or replaced, with the number of "
        "people public (`individual-replace`).",
        fragment=words(
            "event", "event-replace", "user", "record", "record-replace", "individual", "individual-replace"
        ),
    ),
    Key(
        "stream",
        "total",
        "private, public",
        "private",
        "a number of records is information about people, too",
        "`public`: the owner declares the number of records of every step public. That switches the unit to "
        "`event-replace` (or `individual-replace`, or `record-replace`): a changed record "
        "then moves two cells, so the noise doubles.",
        fragment=words("private", "public"),
    ),
    Key(
        "stream",
        "season",
        "year, week, or a number of steps from 2 to 10,000",
        "not set",
        "nothing but the owner's knowledge says that a stream has a season",
        "Public knowledge, with the mechanism pooled: what comes repeats itself after a year, a week (where steps are "
        "periods of a calendar), or so many steps. Columns and numbers of records may then follow a season, as far as "
        "noisy counts show one: while steps are put together, and in tables between two measurements.",
        fragment={"anyOf": [words("year", "week"), {"type": "integer", "minimum": 2, "maximum": 10_000}]},
    ),
    Key(
        "stream",
        "returns",
        "new, refuse",
        "new",
        "keys of records that left are forgotten, so nobody can tell that one comes back",
        "With unit = record: what a key is that comes back after it was absent. `new`: another record, with a loss of "
        "its own, so somebody whose key comes back often is protected less. `refuse`: the stream stops; the hashes "
        "of all keys that ever were there are kept, and a record is all that its key ever does.",
        fragment=words("new", "refuse"),
    ),
    Key(
        "stream",
        "same_unit",
        "a sentence of up to 500 printable characters",
        "not set",
        "units that are told by different columns are taken for different ones",
        "Why the unit is the same as that of the streams which this one is added up with, in an account or under "
        '`[base]`, although other columns or rules tell it, such as "person_id was renamed to pid". It is public: '
        "manifests and the statement quote it. If it is wrong, the sums are.",
        fragment={**TEXT, "maxLength": 500},
    ),
    Key(
        "stream",
        "max_events",
        "a number from 1 to 1000000, with unit = user",
        "not set",
        "it has to be written with the unit user, and means nothing without it",
        "How many events (inserts and deletes together) of one user are counted over the whole life of the stream; "
        "all further ones are left out. Each event gets its part of the budget, so choose it from what a user "
        "typically does, not from the largest user.",
        fragment={**COUNT, "maximum": 1_000_000},
    ),
    Key(
        "expect",
        "size",
        "a whole number from 1; 1, 3, 10, 30, 100, ... are exact enough",
        "10 times records_per_step, or 1000",
        "only its ratio to records_per_step counts, and three times too large or too small makes cells 4 to 15 % worse",
        "About how many records the table holds, as anybody may know or guess who never saw it; of a panel the number "
        "of people; of a table that only grows its last size, which takes a horizon (or say records_per_step).",
        fragment=COUNT,
    ),
    Key(
        "expect",
        "records_per_step",
        "a whole number from 1; 1, 3, 10, 30, 100, ... are exact enough",
        "a tenth of size",
        "it says how long records stay, and so how often they are counted again; three times too large or too small "
        "makes cells 4 to 15 % worse",
        "About how many records come in a step, as anybody may know or guess who never saw the table. Not for panels, "
        "where everybody reports in every period.",
        fragment=COUNT,
    ),
    Key(
        "expect",
        "order",
        "mixed, sorted (not where records or people are followed)",
        "mixed",
        "most streams come in the order of time, and neighbouring steps hold like records",
        "How records come. `sorted`: sorted by columns of the table, such as place after place, so that each step "
        "holds records of few kinds and a later one holds others. Then what one step holds says little of the next "
        "one, and `plan --compare` invents such streams.",
        fragment=words("mixed", "sorted"),
    ),
    Key(
        "expect",
        "varies",
        "a number from 0 to 10 (not where people are followed)",
        f"{VARIES:g}",
        "months of real streams differ by .2 to .5",
        "By which share the number of records that come differs from one step to the next, as a rule. Where several "
        "steps are measured together, and between censuses, plan predicts from it how far off the number of records "
        "is.",
        fragment={"type": "number", "minimum": 0, "maximum": 10},
    ),
    Key(
        "budget",
        "epsilon",
        'an exact positive number up to 1000, such as "1" or "0.5"',
        "not set",
        "one of epsilon and rho has to be written",
        "Pure differential privacy; with `delta`, approximate: converted to the largest rho within it.",
        fragment=NUMBER,
    ),
    Key(
        "budget",
        "rho",
        "an exact positive number",
        "not set",
        "one of epsilon and rho has to be written",
        "Zero-concentrated differential privacy.",
        fragment=NUMBER,
    ),
    Key(
        "budget",
        "delta",
        'an exact number between 0 and 1, such as "1e-9", together with epsilon',
        "not set",
        "without delta the guarantee has no exception",
        "The probability left out of an (epsilon, delta) guarantee.",
        fragment=NUMBER,
    ),
    Key(
        "budget",
        "horizon",
        "none, or a number of steps from 1",
        "none",
        "the mechanisms for tables run without end at the same cost",
        "Most steps the stream may have; counters with a horizon are tuned to it. Where the mechanism follows "
        "people it is needed: the noise is made for so many periods.",
        fragment={"anyOf": [words("none"), COUNT]},
    ),
    Key(
        "budget",
        "account",
        "a file that dpstream ledger account create made, outside of state and output",
        "not set",
        "a single stream on a private source needs no sum",
        "The account in which several streams on one private source add up. A stream is charged its whole budget "
        "there when it is started, and refused where the account's limit would be passed.",
        fragment=TEXT,
    ),
    *ACCURACY_KEYS,
    *PRIOR_KEYS,
    *PUBLICATION_KEYS,
    *OUTPUT_KEYS,
    *BASE_KEYS,
)


def __getattr__(name: str) -> Any:
    """``KEYS``, the whole table, and ``MECHANISMS``, the names of all mechanisms: made when they are asked for."""
    if name == "KEYS":
        return tuple(key for section in SECTIONS for key in keys_of(section).values())
    if name == "MECHANISMS":
        return mechanisms()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def keys_of(section: str) -> dict[str, Key]:
    """The keys of one section by name.

    >>> sorted(keys_of("budget"))
    ['account', 'delta', 'epsilon', 'horizon', 'rho']
    """
    if section == "mechanism":
        return _options(families())
    if section == "source":
        return rows_of_source(SOURCES.names())
    rows = {key.name: key for key in _SECTION_KEYS if key.section == section}
    if section == "output":
        sinks = SINKS.names()
        rows["sink"] = replace(rows["sink"], allowed=", ".join(sinks), fragment=words(*sinks))
    return rows


def rows_of(section: str, table: Mapping[str, Any], mechanism: str = DEFAULT_MECHANISM) -> dict[str, Key]:
    """The keys that a section of a file is read by: of ``[mechanism]`` its family's, where it has no others (of
    ``mechanism`` where it names none), and of ``[source]`` its kind's."""
    if section == "mechanism":
        name = table.get("name", mechanism)
        own = _options([family_of(name)]) if name in mechanisms() else {}
        if own.keys() >= table.keys():
            return own
    if section == "source":
        return rows_of_source((table.get("kind"),))
    return keys_of(section)


def _options(of: Iterable[Family]) -> dict[str, Key]:
    """``[mechanism]``: where several families have a key, the first one says what it means."""
    rows = {"name": _name()}
    for family in of:
        for key in family.keys:
            known = rows.get(key.name)
            rows[key.name] = key if known is None else _joined(known, key)
    return rows


def _joined(one: Key, other: Key) -> Key:
    return replace(one, mechanisms=(*one.mechanisms, *other.mechanisms))


def _name() -> Key:
    return Key(
        "mechanism",
        "name",
        ", ".join(mechanisms()),
        DEFAULT_MECHANISM,
        "one measurement serves many steps, so there is less noise in each than where every step is measured",
        "Which mechanism runs (see the guide on choosing one).",
        fragment=words(*mechanisms()),
    )
