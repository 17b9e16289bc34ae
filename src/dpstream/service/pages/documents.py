"""Reports and statements for readers on the pages: made from releases and configurations, never from a state.

Kept by what they were made of (the catalogue, which holds the hash of every manifest), so that each is made once.
"""

from __future__ import annotations

import datetime
import hashlib
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import replace
from html import unescape
from pathlib import Path

from dpstream.core.errors import ConfigError
from dpstream.io.sinks.simulated_errors import error_steps
from dpstream.project import Config
from dpstream.project.keys import StateKeys
from dpstream.project.statement import statement
from dpstream.project.status import released_facts
from dpstream.stream.identity import plan_hash
from dpstream.tools.evaluate.run_folder import open_folder
from dpstream.tools.family_tools import tool_for
from dpstream.tools.report.assembly import FamilyPage
from dpstream.tools.report.statement_page import statement_page

_KEPT = 12
_POLICY = re.compile(r'http-equiv="Content-Security-Policy" content="([^"]+)"')


class Documents:
    """The newest reports and statements; they are made one at a time."""

    def __init__(self) -> None:
        self._made: OrderedDict[Hashable, str] = OrderedDict()
        self._turn = threading.Lock()

    def report(self, config: Config) -> str:
        """The report, as anybody makes it from the folder of releases.

        Errors:
            ConfigError: no release yet. StoreError: damaged releases.
        """
        releases = config.output.dir

        def make() -> str:
            folder = open_folder(releases)
            return tool_for("page", FamilyPage, folder.mechanism).page(folder, [])

        return self._kept(("report", *_state_of(releases)), make)

    def statement(self, config: Config) -> str:
        """The privacy statement; how far the stream is is read off its releases.

        Errors:
            ConfigError: no release yet, or releases of another plan. StoreError: damaged releases.
        """
        releases, today = config.output.dir, datetime.date.today()

        def make() -> str:
            # As of somebody who has only its releases: what a stream began with is then read off them.
            public = replace(config, state=StateKeys(dir=config.path.parent / "no state"), server=None)
            folder = open_folder(releases)
            if folder.manifest["plan_hash"] != plan_hash(public.facts()):
                raise ConfigError(
                    "the releases have another plan",
                    where=config.name,
                    allowed="the configuration of the run",
                )
            facts = {
                **released_facts(releases),
                "steps": len(folder.states),
                "made_with_test_seed": folder.manifest["made_with_test_seed"],
            }
            made = statement(public, facts, date=f"{today.day} {today:%B %Y}")
            return statement_page(made, releases, len(public.schema()))

        written = hashlib.sha256(config.path.read_bytes()).digest()
        return self._kept(("statement", today, written, *_state_of(releases)), make)

    def _kept(self, key: Hashable, make: Callable[[], str]) -> str:
        with self._turn:
            if key not in self._made:
                self._made[key] = make()
                while len(self._made) > _KEPT:
                    self._made.popitem(last=False)
            self._made.move_to_end(key)
            return self._made[key]


def policy_of(page: str) -> str:
    """The policy that a page of ours seals itself with, and no part in the login: its scripts act for nobody."""
    found = _POLICY.search(page)
    policy = "default-src 'none'" if found is None else unescape(found[1])
    return f"{policy}; frame-ancestors 'none'; sandbox allow-scripts"


def _state_of(releases: Path) -> tuple[Hashable, ...]:
    """What a page depends on: the catalogue with all hashes of manifests, and errors by simulation."""
    try:
        catalogue = (releases / "catalogue.json").read_bytes()
    except OSError:
        raise ConfigError("nothing is released yet", where="releases", allowed="a released step") from None
    return (str(releases), hashlib.sha256(catalogue).digest(), tuple(error_steps(releases)))
