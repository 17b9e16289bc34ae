"""Where a stream's files may lie: the secret state apart from the public output, an account apart from both."""

from __future__ import annotations

import fnmatch
import os
from pathlib import Path
from typing import TYPE_CHECKING

from dpstream.core.errors import ConfigError
from dpstream.project.keys import keys_of
from dpstream.project.reader import Section

if TYPE_CHECKING:
    from dpstream.io.sources.source_options import SourceOptions
    from dpstream.project.sections import OutputOptions


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


def check_database(output: OutputOptions, source: SourceOptions, section: Section, base: Path) -> None:
    """The file of ``sink = "duckdb"``: not among the releases, and not what the next step reads as a source.

    Args:
        base: the folder of the configuration.
    """
    if output.sink != "duckdb" or output.database is None:
        return
    file, folder = Path(output.database).resolve(), output.dir.resolve()
    if folder in file.parents:
        raise section.wrong(
            "database",
            f"the database {file.name!r} lies among the releases",
            "a file outside of the output folder",
        )
    patterns = source.path if source.kind == "files" else ()
    for pattern in patterns:
        whole = os.path.normpath(base.resolve() / pattern)
        if file.match(whole) or ("**" in pattern and fnmatch.fnmatch(str(file), whole)):
            raise section.wrong(
                "database",
                f"the next run would read the database {file.name!r} as a source, by [source] path = {pattern!r}",
                "a file that no pattern of [source] path matches",
            )


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
