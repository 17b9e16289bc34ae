"""Streams add up for one unit only where both are about the same one: another column or rule is another unit."""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path

import pytest
from small_configs import load

from dpstream.core.errors import UnitError
from dpstream.project import Config, describe
from dpstream.project.statement import statement
from dpstream.project.status import status_facts
from dpstream.stream import Account, Limit

RECORD = 'unit = "record"'
USER = 'unit = "user"\nmax_events = 1'
STEPS = 'path = "data/*.csv"\ntime_column = "step"\nend = 9'
CENSUS = {"mechanism": 'name = "census"\nturnover = 5', "budget": 'epsilon = "1"\naccount = "../account"'}
KEYED = f'{STEPS}\nop_column = "op"'
KINDS = {
    "person": {"stream": USER, "source": f'{STEPS}\nuser_column = "person"'},
    "household": {"stream": USER, "source": f'{STEPS}\nuser_column = "household"'},
    "three events": {"stream": USER.replace("1", "3"), "source": f'{STEPS}\nuser_column = "person"'},
    "key": {"stream": RECORD, "source": f'{STEPS}\nkey_column = "id"\ninsert_only = true'},
    "ticket": {"stream": RECORD, "source": f'{STEPS}\nkey_column = "ticket"\ninsert_only = true'},
    "stay": {"source": f'{KEYED}\nkey_column = "id"', **CENSUS},
    "one stay": {"stream": 'returns = "refuse"', "source": f'{KEYED}\nkey_column = "id"', **CENSUS},
}
#: What the account is in; whether both are about the same unit.
PAIRS = [
    ("user", "person", "household", False),
    ("user", "person", "three events", True),
    ("record", "key", "ticket", False),
    ("record", "key", "stay", False),
    ("record", "stay", "one stay", False),
    ("record", "stay", "stay", True),
]


def stream(folder: Path, kind: str, name: str, same: str = "") -> Config:
    (folder / name).mkdir()
    parts = {"budget": 'epsilon = "1"\naccount = "../account"', **KINDS[kind]}
    parts["stream"] = parts.get("stream", "") + (f'\nsame_unit = "{same}"' if same else "")
    return load(folder / name, **parts)


@pytest.mark.parametrize(("unit", "first", "second", "same"), PAIRS)
def test_an_account_adds_up_what_one_unit_loses(
    tmp_path: Path, unit: str, first: str, second: str, same: bool
) -> None:
    book = Account.create(tmp_path / "account", Limit.parse("epsilon=3"), unit)
    stream(tmp_path, first, "a").open_stream().close()
    if same:
        stream(tmp_path, second, "b").open_stream().close()
        assert book.read().total.epsilon == 2
        return
    with pytest.raises(UnitError, match="same_unit"):
        stream(tmp_path, second, "b").open_stream()
    assert book.read().total.epsilon == 1
    # Whoever says why they are the same says it to everybody.
    why = "every household of this table is one person"
    config = stream(tmp_path, second, "c", why)
    config.open_stream().close()
    assert book.read().total.epsilon == 2
    assert any(why in sentence for sentence in describe(config)["declared_public"])
    assert why in statement(config, status_facts(config), date="2026-11-23").markdown()
    # What was said of one column holds for it, and for no third one.
    stream(tmp_path, second, "d").open_stream().close()


def test_what_a_household_loses_is_more_than_the_sum_of_both_budgets() -> None:
    """Why: by brute force over outputs of two counts with geometric noise of epsilon 1, of persons and of households. A
    household of four persons changes the first one by 4 and the second one by 1."""

    def law(value: int, middle: int) -> float:
        return (1 - math.exp(-1)) / (1 + math.exp(-1)) * math.exp(-abs(value - middle))

    def largest(persons: int) -> float:
        return max(
            math.log(law(i, persons) * law(j, 1) / (law(i, 0) * law(j, 0)))
            for i, j in product(range(-9, 10), repeat=2)
        )

    assert largest(1) == pytest.approx(2)
    assert largest(4) == pytest.approx(5)
