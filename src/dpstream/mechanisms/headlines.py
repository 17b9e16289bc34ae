"""Headline marginals: they are measured whenever anything is, with a share of the budget of their own."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from dpstream.core.contracts import HEADLINE_SHARE, Headline, Periods, check_share
from dpstream.core.errors import ConfigError, DpstreamError, LimitError
from dpstream.core.graphical import tree_cells
from dpstream.core.privacy import HistogramsNoise, Noise
from dpstream.core.schema.domain import Clique, Domain, Fold
from dpstream.core.tables import Workload

_WHERE = "[accuracy] headline"


def headline_folds(domain: Domain, headline: Headline) -> tuple[tuple[Fold, ...], ...]:
    """The marginals of each headline: one, or those of all levels of a tree, the coarsest first. A level names its
    tree.

    Errors:
        ConfigError: an unknown column, one that a marginal has twice, or a marginal that is there twice.
    """
    if not headline:
        return ()
    if mean := next((name for names in headline for name in names if name.startswith("mean(")), None):
        what = f"{mean} is a mean, which the mechanism does not measure"
        raise ConfigError(what, where=_WHERE, allowed="columns and groups of columns")
    trees, levels = dict[str, tuple[str, ...]](), dict[str, str]()
    for name, columns in domain.trees:
        levels |= {f"{name}.{column}": column for column in columns}
        trees |= dict.fromkeys((name, *columns[:-1], *(f"{name}.{column}" for column in columns)), columns)

    def group(names: Sequence[str]) -> tuple[Sequence[str], ...]:
        if isinstance(names, str):  # refused below
            return (names,)
        if len(names) == 1 and names[0] in trees:
            return tuple((column,) for column in trees[names[0]])
        return (tuple(levels.get(name, name) for name in names),)

    # Levels of one tree are one headline; marginals that are named twice are refused below.
    found = [group(names) for names in headline]
    groups = [own for place, own in enumerate(found) if len(own) == 1 or own not in found[:place]]
    try:
        Workload.of(domain.released, [names for group in groups for names in group])
        return tuple(tuple(domain.fold(names) for names in group) for group in groups)
    except DpstreamError as error:
        place = (error.where or "").removeprefix("workload").replace("table", "marginal")
        allowed = "each marginal once" if "twice" in error.what else error.allowed
        what = error.what.replace("the table", "the marginal")
        raise type(error)(what, where=f"{_WHERE}{place}", allowed=allowed) from None


def headline_cliques(domain: Domain, headline: Headline) -> tuple[Clique, ...]:
    """The marginals of measured columns among them, by positions of columns. Errors as of ``headline_folds``."""
    folds = headline_folds(domain, headline)
    return tuple(fold.clique for group in folds for fold in group if fold.cells is None)


def check_headline(domain: Domain, headline: Any, share: Any, max_cells: int) -> tuple[Headline, Fraction]:
    """Both options of a recipe, checked.

    Errors:
        ConfigError: see ``headline_cliques``; a share that leaves nothing to the other marginals, or none.
        LimitError: more cells than the table's model may have.
    """
    exact = check_share(share, "headline_share", "[accuracy] headline_share")
    if isinstance(headline, str) or not isinstance(headline, Sequence):
        raise ConfigError(
            "expected a list of marginals", where=_WHERE, allowed='such as [["zip"], ["zip", "cause"]]'
        )
    if not headline and exact != HEADLINE_SHARE:
        raise ConfigError(
            "a headline share needs headlines",
            where="[accuracy] headline_share",
            allowed="a headline, or no share",
        )
    cliques = headline_cliques(domain, tuple(headline))
    if cliques and tree_cells(domain, cliques) > max_cells:
        labels = ", ".join(domain.label(clique) for clique in cliques)
        raise LimitError(
            f"a model with the headlines {labels} exceeds its cells",
            where=_WHERE,
            allowed=f"max_cells = {max_cells}; raise it, or name fewer or smaller marginals",
        )
    return tuple(tuple(columns) for columns in headline), exact


def headline_words(draws: Sequence[tuple[Sequence[Any], Noise | HistogramsNoise]]) -> str:
    """How headlines get their noise, by the groups of one draw each; for plans."""
    alone = [noise.describe() for group, noise in draws if len(group) == 1]
    shared = [
        f"{'all' if len(draws) == 1 else len(group)} together with {noise.describe()}"
        for group, noise in draws
        if len(group) > 1
    ]
    return ", ".join([*shared, *(f"each by itself with {one}" for one in dict.fromkeys(alone))])


#: Fields of recipes that say what is measured by headlines, in the order of ``headline_options``.
HEADLINE_OPTIONS = ("headline", "headline_share", "periods", "number", "number_share")


def headline_options(
    headline: Headline,
    share: Fraction,
    periods: Periods | None = None,
    number: Periods | None = None,
    number_share: Fraction | None = None,
) -> dict[str, Any]:
    """The options for manifests, where there are headlines, and where the number of records has periods."""
    found: dict[str, Any] = {}
    if headline:
        found = {"headline": [list(columns) for columns in headline], "headline_share": str(share)}
        if periods is not None:
            found["periods"] = periods.name
    if number is not None:
        found |= {"number": number.name, "number_share": str(number_share)}
    return found
