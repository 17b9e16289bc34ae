"""What one marginal alone takes of a model, without the compiler that larger questions need."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from dpstream.core.errors import LimitError
from dpstream.core.graphical import tree_cells
from dpstream.core.schema.domain import Domain
from dpstream.core.tables import Workload
from dpstream.mechanisms.limits import check_each
from dpstream.tools.simulate import simulate

_STATUS = """
import sys
from click.testing import CliRunner
from dpstream.cli import main
done = CliRunner().invoke(main, ["status", sys.argv[1]])
assert done.exit_code == 0, done.output
assert "numba" not in sys.modules
"""


def test_the_limit_of_one_marginal_is_that_of_its_tree() -> None:
    generator = np.random.default_rng(7)
    for _ in range(20):
        sizes = tuple(int(size) for size in generator.integers(1, 9, 5))
        domain = Domain(tuple("abcde"), sizes)
        clique = tuple(sorted(generator.choice(5, int(generator.integers(1, 5)), replace=False).tolist()))
        workload = Workload(domain, (clique,), (Fraction(1),))
        cells = tree_cells(domain, [clique])
        check_each(workload, cells)
        with pytest.raises(LimitError, match="has more cells than it may"):
            check_each(workload, cells - 1)


@pytest.mark.parametrize("name", ["evictions", "panel"])
def test_status_loads_no_compiler(tmp_path: Path, name: str) -> None:
    made = simulate(name, 1, tmp_path, rows_per_step=50)
    subprocess.run([sys.executable, "-c", _STATUS, str(made)], check=True)
