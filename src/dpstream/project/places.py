"""Where a stream's files may lie: the secret state apart from the public output, an account apart from both."""

from __future__ import annotations

from pathlib import Path

from dpstream.core.errors import ConfigError
from dpstream.project.keys import keys_of
from dpstream.project.reader import Section

__all__ = ["check_account", "check_places"]


def check_account(account: Path | None, state: Path, output: Path, section: Section, base: Path) -> None:
    """An account belongs to several streams: not into the state or the output of one.

    Args:
        base: the folder of the configuration.
    """
    if account is None:
        return
    section.file_path("account", base, "file")
    for folder in (state, output):
        if folder.resolve() in account.resolve().parents:
            raise section.wrong("account", f"the account lies inside {str(folder)!r}")


def check_places(state: Path, output: Path, where: str) -> Path:
    """The state's folder, refused where it would lie among the releases or hold them.

    Errors:
        ConfigError: the state holds private counts, and the output is public.
    """
    inner, outer = state.resolve(), output.resolve()
    if inner == outer or outer in inner.parents or inner in outer.parents:
        raise ConfigError(
            f"the secret state {str(state)!r} and the output {str(output)!r} lie inside each other",
            where=where,
            allowed=keys_of("state")["dir"].allowed,
        )
    return state
