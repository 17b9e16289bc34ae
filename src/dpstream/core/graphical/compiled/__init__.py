"""The compiled loops of the graphical model: flat arrays and integer plans in, flat arrays out.

Nothing here depends on the clique set at compile time, so a new clique set never compiles anything.
Importing these modules imports Numba (0.7 s); the modules above import them when they are first used.
"""

__all__: list[str] = []
