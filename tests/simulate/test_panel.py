"""The invented panel of households: its rates and its shape."""

from __future__ import annotations

import numpy as np
import pytest

from dpstream.tools.simulate import panel_folder, poverty_panel


def rates(panel: np.ndarray) -> list[float]:
    ones = panel.astype(int)
    quarter, year = ones[:, :3].sum(axis=1), ones.sum(axis=1)
    before, after = ones[:, :-1], ones[:, 1:]
    return [
        ones.mean(), (quarter >= 1).mean(), (quarter >= 2).mean(), (quarter == 3).mean(), (year >= 1).mean(),
        (year >= 3).mean(), (year == 12).mean(), after[before == 1].mean(), after[before == 0].mean(),
    ]  # fmt: skip


def test_rates_are_those_of_the_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    # From the latent kinds by hand: 0.06 + 0.18 / 3 = 0.12 poor in a month, and so on. A tenth of the standard
    # deviation between seeds is left for rounding; a mean of 20 seeds is off by more than five of its own once in 1e6.
    expected = [0.120, 0.136, 0.119, 0.104, 0.186, 0.158, 0.071, 0.930, 0.0096]
    found = np.array([rates(poverty_panel(seed=seed)) for seed in range(20)])
    spread = found.std(axis=0, ddof=1)
    assert (np.abs(found.mean(axis=0) - expected) < (5 / 20**0.5) * spread + 0.0006).all()
    monkeypatch.setattr(panel_folder, "STAY", 0.80)
    other = np.mean([rates(poverty_panel(seed=seed)) for seed in range(20)], axis=0)
    assert (np.abs(other - expected) > (5 / 20**0.5) * spread + 0.0006).any()


def test_equal_seeds_and_longer_panels() -> None:
    assert (poverty_panel(periods=5, seed=3) == poverty_panel(seed=3)[:, :5]).all()
    assert (poverty_panel(seed=3) != poverty_panel(seed=4)).any()
    assert poverty_panel(7, 2).shape == (7, 2)
