"""``dpstream warm``: compile ahead what a first step would compile."""

from __future__ import annotations

import click

from dpstream.core.errors import ConfigError


@click.command("warm", short_help="Compile all loops ahead of the first step.")
def command() -> None:
    """Compile the loops that read, count, hash, fit and sample, for this machine and user.

    Else Numba compiles them at first use (20 seconds of a core). The code is kept in NUMBA_CACHE_DIR, in the user's
    cache, or beside the package, and serves every install of the same version. No private data are read.

    \b
    Example (in a container image):
      NUMBA_CACHE_DIR=/var/cache/dpstream dpstream warm
    """
    from dpstream.core.compiling import kept_in

    warm()
    place = kept_in()
    if place is None:
        raise ConfigError(
            "compiled code cannot be kept",
            where="warm",
            allowed="NUMBA_CACHE_DIR, a folder that this user alone can write",
        )
    click.echo(f"all loops are compiled, and kept in {place}")


def warm() -> None:
    """Compile all loops that kept code does not have yet: each runs once, on invented data.

    Cost: with nothing kept some 20 s of CPU, else one or two.
    """
    import numpy as np

    from dpstream.core.graphical import Measurement, Model, TreeSizes, draw_blocks, fit
    from dpstream.core.schema.domain import Domain
    from dpstream.core.tables import MultisetHash, count_marginals

    domain, pairs = Domain(("a", "b", "c", "d"), (2, 3, 2, 3)), ((0, 1), (1, 2), (2, 3))
    codes = np.zeros((1, len(domain)), np.int32)
    count_marginals(codes, domain, pairs)
    MultisetHash.of(codes, None, bytes(32))
    measured = [Measurement(pair, np.arange(1.0, 1 + domain.cells(pair)), 1.0) for pair in pairs]
    model = fit(domain, measured, warm=Model.uniform(domain, 10.0), iterations=3)
    # All pairs at once, a clique within one of the tree, and one that is spread over it.
    model.marginals([(0, 1), (0, 2), (0, 3), (1, 3), (1, 2), (2, 3)])
    model.marginals([(0,), (0, 1), (0, 1, 3)])
    model.sample(5, seed=1)
    for make in draw_blocks([model, model], np.array([3, 2]), 1, 4):
        make()
    TreeSizes(domain, [(0, 3), (1, 3)], pairs).cells_with(np.arange(2))
