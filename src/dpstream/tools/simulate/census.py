"""An invented survey of adults whose composition drifts in order, as in a table that arrives sorted.

The columns follow the well-known census extracts (age, education, occupation, hours, income band); no
number is taken from any census.
"""

from __future__ import annotations

import numpy as np

from dpstream.tools.simulate.example import (
    Example,
    StepColumns,
    choose_rows,
    in_parts,
    with_odd_values,
    without_end,
)

SEX = np.array(["female", "male"])
EDUCATION = np.array(["none", "school", "college", "bachelor", "master", "doctorate"])
MARITAL = np.array(["single", "married", "divorced", "widowed"])
OCCUPATION = np.array(
    ["farming", "crafts", "transport", "service", "sales", "office", "technical", "management"]
)
REGION = np.array(["north", "east", "south", "west", "islands"])
#: Steps that the interviewers need for one round through the regions.
ROUND = 60
#: How much schooling (0 to 5) an occupation usually asks for.
_SCHOOLING = np.array([0.3, 1.0, 0.8, 1.2, 1.8, 2.2, 3.0, 3.6])


def _interviews(rows: int, step: int, generator: np.random.Generator) -> StepColumns:
    """The people who are interviewed at one step (here counted from 0, in the files from 1)."""
    count = int(generator.poisson(rows))
    reach = 1 - np.exp(-step / 150)
    where = (step / ROUND * len(REGION) - np.arange(len(REGION)) + len(REGION) / 2) % len(REGION)
    region = choose_rows(generator, np.tile(np.exp(-1.5 * np.abs(where - len(REGION) / 2)), (count, 1)))
    age = np.clip(np.round(18 + generator.gamma(2.2, 7 + 7 * reach, count)), 18, 99).astype(np.int64)
    sex = (generator.random(count) < 0.48).astype(np.int64)
    schooling = 1.4 + 1.4 * reach + 0.4 * (region == 1) - 0.02 * np.maximum(age - 40, 0)
    education = choose_rows(generator, np.exp(-0.5 * (np.arange(6) - schooling[:, None]) ** 2))
    marital = choose_rows(
        generator,
        np.column_stack(
            [
                np.exp(-(age - 18) / 12),
                np.full(count, 0.6),
                0.2 * (age > 28),
                0.02 + 0.5 * (age > 68),
            ]
        ),
    )
    occupation = choose_rows(
        generator,
        np.exp(-0.8 * (_SCHOOLING - education[:, None]) ** 2)
        * np.where(sex[:, None] == 1, [1.5, 2.0, 2.5, 0.8, 1.0, 0.5, 1.1, 1.1], 1.0),
    )
    full_time = generator.random(count) < 0.72 - 0.3 * (age > 65)
    hours = np.where(full_time, 40 + generator.poisson(3, count) * 3 - 9, generator.integers(5, 36, count))
    score = -5.2 + 0.9 * education + 0.04 * (hours - 30) + 0.6 * (marital == 1) + 0.02 * (age - 30)
    income = generator.random(count) < 1 / (1 + np.exp(-score))
    hours = np.where(generator.random(count) < 0.01, 98, hours)
    return {
        "step": np.full(count, step + 1, dtype=np.int64),
        "region": REGION[region],
        "age": with_odd_values(generator, age, missing=0.01),
        "sex": SEX[sex],
        "education": EDUCATION[education],
        "marital": MARITAL[marital],
        "occupation": with_odd_values(
            generator, OCCUPATION[occupation], missing=0.05, unknown=0.01, codes=("?",)
        ),
        "hours": with_odd_values(generator, hours, missing=0.02),
        "income_over_50k": income,
    }


CENSUS = Example(
    in_parts(without_end(_interviews), 50, {"age": "int64", "occupation": "string", "hours": "int64"}),
    rows_per_step=50,
)
