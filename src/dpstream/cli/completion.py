"""``dpstream --install-completion``: the shell completes verbs and options."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click
from click.shell_completion import get_completion_class

from dpstream.core.errors import ConfigError

#: Where shells look for the file of one program, from the home folder on.
_PLACES = {
    "bash": ".local/share/bash-completion/completions/dpstream",
    "fish": ".config/fish/completions/dpstream.fish",
    "zsh": ".zfunc/_dpstream",
}
_MORE = {
    "bash": "it needs the package bash-completion",
    "fish": "fish finds it there",
    "zsh": "put `fpath+=~/.zfunc; autoload -Uz compinit; compinit` into ~/.zshrc",
}


def install_completion(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:
    """Write the file of the shell that is in use, say where, and end.

    Errors:
        ConfigError: another shell, or a place that cannot be written.
    """
    if not wanted or ctx.resilient_parsing:
        return
    shell = Path(os.environ.get("SHELL", "")).name
    if shell not in _PLACES:
        raise ConfigError(
            f"{shell or 'no name'!r} is no shell that can complete dpstream",
            where="SHELL",
            allowed=", ".join(_PLACES),
        )
    made: Any = get_completion_class(shell)
    target = Path.home() / _PLACES[shell]
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(made(ctx.command, {}, "dpstream", "_DPSTREAM_COMPLETE").source(), encoding="utf-8")
    except OSError:
        raise ConfigError(
            "the file cannot be written", where=str(target), allowed="a folder of yours"
        ) from None
    click.echo(f"wrote {target}; {_MORE[shell]}. New shells complete dpstream.")
    ctx.exit()
