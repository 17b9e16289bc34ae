"""The true table that a successor stream begins with: the predecessor's records under the declared rule. Private."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dpstream.core.errors import ConfigError
from dpstream.project.base import BaseOptions, column_rules
from dpstream.tools.evaluate.array_types import Codes

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpstream.core.schema import Schema
    from dpstream.project import Config


def old_stream(config: Config, options: BaseOptions) -> tuple[Config, int]:
    """The predecessor's configuration, and the last step that it published.

    Errors:
        ConfigError: the file does not say where it is, or names another stream.
    """
    from dpstream.project import Config

    if options.config is None:
        raise ConfigError(
            "the stream began with another one's table, and nothing says where its private records are",
            where=options.place,
            allowed='config = "...", the earlier stream\'s configuration file',
        )
    base, old = config.base(), Config.load(options.config)
    assert base is not None
    if old.name != base.facts["stream"]:
        raise ConfigError(
            f"the configuration is that of {old.name!r}, and the stream began with a release of "
            f"{base.facts['stream']!r}",
            where=f"{options.place} config",
        )
    return old, max(base.facts["step"], *base.facts["withdrawn_since"], 0)


def record_rule(options: BaseOptions, old: Schema, new: Schema) -> Callable[[Codes], Codes]:
    """Old records as new ones, where the rule names one value for each.

    Errors:
        ConfigError: a column whose values are spread by shares: what a record really has there is not known.
    """
    tables: list[tuple[int | None, Codes]] = []
    for column, rule in zip(new.columns, column_rules(options, old, new), strict=True):
        if not (rule.shares.max(axis=1) == 1.0).all():
            raise ConfigError(
                f"the old records' values of column {column.name!r} are declared shares: there is no truth to compare "
                "with",
                where=options.place,
                allowed="an evaluation of a stream whose rule names one value for every old one",
            )
        codes = rule.shares.argmax(axis=1).astype(np.int32)
        if rule.old is None:
            tables.append((None, codes))
            continue
        size = old[rule.old.name].size
        # Where a release shows "other" and "missing" alike, the rule has one line for both.
        tables.append((old.domain.index(rule.old.name), codes[np.minimum(np.arange(size), len(codes) - 1)]))

    def mapped(records: Codes) -> Codes:
        columns = [
            np.full(len(records), codes[0], np.int32) if source is None else codes[records[:, source]]
            for source, codes in tables
        ]
        return np.asfortranarray(np.column_stack(columns).astype(np.int32))

    return mapped
