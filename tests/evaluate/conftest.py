"""A finished run for all tests of evaluations."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    """The configuration of a run of fourteen steps; tests that change something take a copy."""
    from evaluated_runs import run, typical, write_run

    config = write_run(tmp_path_factory.mktemp("finished"), typical(14))
    run(config)
    return config


@pytest.fixture
def copied(finished, tmp_path):  # type: ignore[no-untyped-def]
    """A copy of it that a test may change."""
    from evaluated_runs import copy_of

    return copy_of(finished, tmp_path / "copy")
