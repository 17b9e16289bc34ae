"""``[mechanism]`` as a recipe: options checked, defaults taken from the mechanisms themselves."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Literal, cast, get_args, get_origin, get_type_hints

from dpstream.core.counters import COUNTER_NAMES
from dpstream.core.schema.domain import Domain
from dpstream.core.tables import Workload
from dpstream.families.tabular import AIM, MWEMPGM, Baseline, DPStabs, OfflineMechanism, Pooled
from dpstream.families.tabular.baseline import Prior
from dpstream.families.tabular.choice import BEST
from dpstream.families.tabular.plans import default_rounds
from dpstream.project.keys import recipe_defaults
from dpstream.project.offline_keys import OF_OFFLINE, OFFLINE
from dpstream.project.reader import Section, shown
from dpstream.project.sections import located, mechanism_name, other_choice

__all__ = ["Recipe", "read_offline", "read_recipe", "read_workload"]

Recipe = DPStabs | Baseline | Pooled


def read_recipe(section: Section, domain: Domain, *, deletions: bool) -> Recipe:
    """The recipe that ``[mechanism]`` names.

    Args:
        deletions: whether the source declares an operation column (a public fact); inserts and deletes are then
            followed apart.

    Errors:
        ConfigError: an option that is unknown, unusable, or of another mechanism.
    """
    name = mechanism_name(section)
    workload = read_workload(section, domain)
    if name == "pooled":
        return _pooled(section, workload, deletions)
    if name == "dpstabs":
        return _dpstabs(section, workload, deletions)
    return _baseline(section, workload, deletions)


def read_workload(section: Section, domain: Domain) -> Workload:
    """``workload``, with its default."""
    if section.has("workload"):
        spec = section.raw("workload")
        chosen = f"{len(spec)} chosen marginals" if isinstance(spec, list) else str(spec)
        section.note("workload", chosen, default=False)
    else:
        single = len(domain) == 1
        spec = "all-1-way" if single else "all-2-way"
        section.note("workload", spec, default=True, reason="there is one column" if single else None)
    with located(section.place("workload")):
        return Workload.parse(domain, spec)


def _dpstabs(section: Section, workload: Workload, deletions: bool) -> DPStabs:
    options = {"k": _k(section, workload), **_options(section, DPStabs)}
    with located(section.place()):
        return DPStabs(workload, deletions=deletions, **options)


def _pooled(section: Section, workload: Workload, deletions: bool) -> Pooled:
    options = _options(section, Pooled)
    with located(section.place()):
        return Pooled(workload, deletions=deletions, **options)


def _baseline(section: Section, workload: Workload, deletions: bool) -> Baseline:
    offline: OfflineMechanism = (
        _aim(section) if _offline(section) == "aim" else read_offline(section, workload)
    )
    default = recipe_defaults(Baseline)["prior"]
    prior = cast(Prior, section.choice("prior", get_args(Prior), default))
    with located(section.place()):
        return Baseline(workload, offline=offline, deletions=deletions, prior=prior)


def _offline(section: Section) -> str:
    """Which offline mechanism; ConfigError for an option of the other one."""
    word = section.choice("offline", OFFLINE, OFFLINE[0])
    section.variant = "aim" if word == "aim" else section.variant
    if foreign := other_choice(section, word, OF_OFFLINE):
        key, other = foreign
        raise section.wrong(key, f"offline = {word!r} has no option {key!r}", f'with offline = "{other}"')
    return word


def _aim(section: Section) -> AIM:
    """The options of AIM."""
    options = _options(section, AIM, ("rounds", "measure_share", "unions"))
    rounds = section.count("rounds")
    share = section.share("measure_share", Fraction(1, 2)) if section.has("measure_share") else None
    unions = section.raw("unions") if section.has("unions") else AIM.unions
    if not isinstance(unions, bool):
        raise section.wrong("unions", f"{shown(unions)} is not a choice")
    section.note("unions", str(unions).lower(), default=not section.has("unions"))
    for key, value in (("rounds", rounds), ("measure_share", share)):
        if value is None:
            what = "from a noisy number of records" if key == "rounds" else "4/5 of an epsilon, 9/10 of a rho"
            section.note(key, what, default=True, reason=f"the page on AIM tells how {key} was chosen")
    with located(section.place()):
        return AIM(rounds=rounds, measure_share=share, unions=unions, **options)


def read_offline(section: Section, workload: Workload, *, prior: bool = True) -> MWEMPGM:
    """The options of MWEM+PGM; ``prior``: whether its runs may start from one."""
    options = {"k": _k(section, workload), **_options(section, MWEMPGM, () if prior else ("prior_weight",))}
    with located(section.place()):
        return MWEMPGM(**options)


def _k(section: Section, workload: Workload) -> int:
    """``k``, whose default depends on the workload."""
    most = len(workload)
    value = section.raw("k") if section.has("k") else default_rounds(workload)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        what = f"{shown(value)} does not fit a workload of {most} marginals"
        raise section.wrong("k", what, f"1 to {most}")
    section.note("k", f"{value} marginals of {most}", default=not section.has("k"))
    return value


def _options(
    section: Section,
    kind: type[DPStabs] | type[MWEMPGM] | type[Pooled] | type[AIM],
    without: tuple[str, ...] = (),
) -> dict[str, Any]:
    """The other options, read by the types of the recipe's fields."""
    hints = get_type_hints(kind)
    return {
        name: _option(section, name, hints[name], default)
        for name, default in recipe_defaults(kind).items()
        if name not in ("k", "deletions", *without)
    }


def _option(section: Section, name: str, hint: Any, default: Any) -> Any:
    if name == "counter":
        return section.choice(name, (BEST, *COUNTER_NAMES), default)
    if get_origin(hint) is Literal:
        return section.choice(name, get_args(hint), default)
    if hint is Fraction:
        return section.share(name, default)
    if hint is float:
        return section.number(name, default)
    return section.count(name, default)
