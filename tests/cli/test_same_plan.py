"""The default is the good one: the same facts give the same plan in Python, in a file, and in a draft of ``init``."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pytest
from cli_stream import dpstream
from small_configs import PAID, ZIP, write_config

import dpstream as dp
from dpstream.core.contracts import StreamPlan
from dpstream.core.schema import Schema
from dpstream.project import Config

STEPS, EACH = 3, 40
PRICE = '[schema.columns.price]\ntype = "real"\nedges = [0, 10, 20, 40]\n'
EPSILON, PUBLIC = 'epsilon = "1"\n', 'unit = "event-replace"\ntotal = "public"\n'
GUESS = {"records_per_step": 300}
#: Sections of a minimal file: [mechanism], [stream], [source], columns, [budget], [expect]; and arguments of ``open``.
CASES = {
    "pooled": ("", "", "", ZIP + PAID, EPSILON, GUESS, {}),
    "pooled, deletes": ("", "", 'op_column = "op"\n', ZIP + PAID, EPSILON, GUESS, {"deletions": True}),
    "pooled, public": ("", PUBLIC, "", ZIP + PAID, EPSILON, None, {"unit": dp.Event("replace")}),
    "dpstabs": ("", "", "", ZIP + PAID, EPSILON, None, {}),
    "baseline": ("", "", "", ZIP + PAID, EPSILON, None, {}),
    "census": ("", 'unit = "record"\n', 'op_column = "op"\nkey_column = "id"\n', ZIP + PAID, EPSILON,
        {"size": 1000, "records_per_step": 300}, {"unit": dp.Record()}),
    "panel-window": ("window = 2\n", 'unit = "individual"\n', 'user_column = "id"\n', PAID,
        'rho = "1/10"\nhorizon = 3\n', None, {}),
    "panel-cumulative": ("", 'unit = "individual"\n', 'user_column = "id"\n', PAID,
        'rho = "1/10"\nhorizon = 3\n', None, {}),
    "points": ("", PUBLIC, "", PRICE, EPSILON, None, {"unit": dp.Event("replace")}),
    "scheduler": ('first_run = 10\ngamma = "1/2"\n', PUBLIC, "", ZIP + PAID, EPSILON, None,
        {"unit": dp.Event("replace")}),
    "improver": ("first_run = 10\n", PUBLIC, "", ZIP + PAID, 'rho = "1"\n', None,
        {"unit": dp.Event("replace")}),
}  # fmt: skip


def same(one: StreamPlan, other: StreamPlan) -> bool:
    def facts(plan: StreamPlan) -> tuple[object, ...]:
        return plan.name, plan.budget, plan.unit, plan.horizon, plan.parts(), plan.options()

    return facts(one) == facts(other)


def write(folder: Path, name: str) -> Path:
    mechanism, stream, source, columns, budget, expect, _ = CASES[name]
    rows, generator = EACH * STEPS, np.random.default_rng(1)
    table = {
        "step": np.repeat(np.arange(1, STEPS + 1), EACH),
        "id": [f"p{i % EACH}" for i in range(rows)],
        "op": ["insert"] * EACH + ["delete"] * EACH + ["insert"] * EACH,
        "zip": generator.choice(list("abc"), rows),
        "paid": generator.choice(["true", "false"], rows),
        "price": generator.random(rows) * 40,
    }
    kept = [key for key in table if key == "step" or f'"{key}"' in source or f".{key}]" in columns]
    csv.write_csv(pa.table({key: table[key] for key in kept}), folder / "rows.csv")
    guesses = "".join(f"{key} = {value}\n" for key, value in (expect or {}).items())
    return write_config(
        folder,
        stream=stream,
        source=f'path = "rows.csv"\ntime_column = "step"\nend = {STEPS}\n{source}',
        columns=columns,
        mechanism=f'name = "{name.partition(",")[0]}"\n{mechanism}',
        budget=budget,
        rest=f"[expect]\n{guesses}" if guesses else "",
    )


@pytest.mark.parametrize("name", CASES)
def test_python_and_a_minimal_file_give_one_plan(name: str, tmp_path: Path) -> None:
    config = Config.load(write(tmp_path, name))
    document = tomllib.loads(config.path.read_text())
    sections = {key: document[key] for key in ("mechanism", "budget", "expect") if key in document}
    arguments = {**CASES[name][-1], **sections}
    with dp.open(tmp_path / "python", config.schema(), **arguments) as stream:
        assert same(stream.plan, config.plan())


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("pooled", ()), ("pooled, deletes", ()), ("dpstabs", ("--mechanism", "dpstabs")),
        ("baseline", ("--mechanism", "baseline")), ("census", ("--key-column", "id")),
        ("panel-cumulative", ("--mechanism", "panel-cumulative", "--person-column", "id")),
        ("points", ("--mechanism", "points")),
    ],
)  # fmt: skip
def test_a_draft_and_a_minimal_file_give_one_plan(name: str, words: tuple[str, ...], tmp_path: Path) -> None:
    """The draft decides nothing of its own: without [mechanism] but what has to be written, the plan is the same."""
    path = write(tmp_path, name)
    drafted = tmp_path / "drafted.toml"
    dpstream(
        "init", tmp_path / "rows.csv", "--time-column", "step", "--public", "*", *words, "--out", drafted
    )
    text = drafted.read_text("utf-8").replace('start = "FILL IN"', "").replace('end = "FILL IN"', "end = 3")
    own = ("schema", "budget", "expect")
    drafted.write_text(
        sections(text, own, inside=False) + sections(path.read_text("utf-8"), own, inside=True),
        encoding="utf-8",
    )
    assert same(Config.load(drafted).plan(), Config.load(path).plan())


def sections(text: str, names: tuple[str, ...], *, inside: bool) -> str:
    """The lines of a file in some sections, or outside of them."""
    kept, among = [], False
    for line in text.splitlines(keepends=True):
        if line.startswith("["):
            among = line.strip("[").split("]")[0].split(".")[0] in names
        kept += [line] if among == inside else []
    return "".join(kept)


def test_guesses_of_python_are_checked_and_published(tmp_path: Path) -> None:
    schema = Schema([dp.Boolean("paid"), dp.Categorical("kind", ["x", "y"])])
    with dp.open(tmp_path / "one", schema, epsilon=1, expect={"records_per_step": 300}) as stream:
        assert stream.plan.options()["first_records"] == 300
        release = stream.step({"paid": [True], "kind": ["x"]}, name="1")
    assert "records_per_step = 300 is published" in str(release.manifest)
    with pytest.raises(dp.DpstreamError, match=r"'rows'.*records_per_step"):
        dp.open(tmp_path / "two", schema, epsilon=1, expect={"rows": 300})
    recipe = dp.tabular.Pooled(dp.Workload.all_k_way(schema.domain, 1))
    with pytest.raises(dp.DpstreamError, match="expect beside a recipe"):
        dp.open(tmp_path / "three", schema, epsilon=1, mechanism=recipe, expect={"records_per_step": 300})
