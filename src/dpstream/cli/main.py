"""The group of verbs, loaded when they are used, the way from exceptions to exit codes, and how shells complete them.

Only click is imported here and at the top of the verbs' modules: ``dpstream --help`` has to be quick.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from click.shell_completion import get_completion_class

import dpstream
from dpstream.cli import failures
from dpstream.cli.shared import CLEAN, INTERRUPTED, seen
from dpstream.core.compiling import telling
from dpstream.core.errors import ConfigError, DpstreamError
from dpstream.core.version import __version__

#: Every verb, in the order in which a newcomer meets them.
VERBS = (
    *("demo", "init", "simulate", "check", "plan", "run", "ask", "status", "sample", "approve", "withdraw"),
    *("measured", "errors", "evaluate", "report", "statement", "audit"),
    *("ledger", "up", "serve", "store", "advisory", "warm", "lab"),
)
#: Verbs that share the module of another one.
_TOGETHER = {"withdraw": "approve"}
#: Groups of verbs that another distribution brings as entry points of the group ``dpstream.commands``: the
#: distribution, and what its verbs do.
BROUGHT = {"lab": ("dpstream-lab", "Audits of the program; the papers' experiments.")}


class Brought(click.Group):
    """Verbs of another distribution: it is looked for, and imported, when one of them or their help is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The verbs that it brings."""
        return self._loaded().list_commands(ctx)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Its verb of that name."""
        return self._loaded().get_command(ctx, cmd_name)

    def _loaded(self) -> click.Group:
        from dpstream.core.contracts.plugins import Plugins

        name = str(self.name)
        brought = Plugins("dpstream.commands", "the command", click.Group, ())
        if name not in brought.names():
            distribution = BROUGHT[name][0]
            raise ConfigError(
                f"the distribution {distribution} is not installed",
                where=f"dpstream {name}",
                allowed=f"pip install {distribution}; in a copy of the repository: pip install ./{name}",
            )
        return brought.get(name)


class Verbs(click.Group):
    """Verbs that are loaded when they are used; errors become one line and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All verbs."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The verb of that name."""
        if cmd_name in BROUGHT:
            return Brought(cmd_name, help=BROUGHT[cmd_name][1])
        if cmd_name not in VERBS:
            return None
        module = import_module(f"dpstream.cli.{_TOGETHER.get(cmd_name, cmd_name)}")
        verb: click.Command = getattr(module, cmd_name if cmd_name in _TOGETHER else "command")
        return verb

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any) -> Any:  # type: ignore[override]
        """Run and exit; an exception that is not ours is a bug and keeps its traceback (exit code 1)."""
        if not extra.pop("standalone_mode", True):
            return super().main(args, prog_name, standalone_mode=False, **extra)
        with warnings.catch_warnings(), failures.guarded(), seen(), telling(_tell):
            warnings.showwarning = _warn
            sys.exit(self._exit_code(args, prog_name, extra))

    def _exit_code(self, args: Sequence[str] | None, prog_name: str | None, extra: dict[str, Any]) -> int:
        try:
            result = super().main(args, prog_name, standalone_mode=False, **extra)
        except click.exceptions.Exit as stop:
            return stop.exit_code
        except click.ClickException as error:
            error.show()
            return error.exit_code
        except DpstreamError as error:
            say_error("; ".join([str(error), *getattr(error, "__notes__", ())]))
            return error.exit_code
        except (KeyboardInterrupt, click.Abort):
            say_error(f"interrupted; {CLEAN}")
            return INTERRUPTED
        except SystemExit as stop:
            # click ends so when the reader (`| head`) has seen enough: not a bug.
            if not isinstance(stop.__context__, BrokenPipeError):
                raise
            return 0
        except (OSError, ValueError, ArithmeticError, RecursionError, MemoryError) as error:
            explained = failures.explain(error)
            if explained is None:
                raise
            say_error(explained[0])
            return explained[1]
        return result if isinstance(result, int) else 0


def say_error(text: str) -> None:
    """One line on standard error."""
    click.echo(f"error: {' '.join(text.split())}", err=True)


def _tell(sentence: str) -> None:
    click.echo(sentence, err=True)


def _warn(message: Warning | str, category: type[Warning], filename: str, *_: object, **__: object) -> None:
    # Other libraries' warnings may quote data, as their exceptions do.
    ours = Path(filename).is_relative_to(Path(dpstream.__file__).parent)
    click.echo(f"warning: {message if ours else category.__name__}", err=True)


#: Where shells look for the file of one program, from the home folder on.
_PLACES = {
    "bash": ".local/share/bash-completion/completions/dpstream",
    "fish": ".config/fish/completions/dpstream.fish",
    "zsh": ".zfunc/_dpstream",
}
_MORE = {
    "bash": "bash needs the package bash-completion",
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
            f"{shell or 'no name'!r} cannot complete dpstream",
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
            "the file cannot be written", where=str(target), allowed="your own folder"
        ) from None
    click.echo(f"wrote {target}; {_MORE[shell]}. New shells complete dpstream.")
    ctx.exit()


@click.command(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, "--version", prog_name="dpstream", message="%(prog)s %(version)s")
@click.option(
    "--install-completion",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=install_completion,
    help="Let bash, zsh or fish complete verbs and options, and exit.",
)
def main() -> None:
    """Keep a differentially private synthetic copy of a private table that grows and changes.

    \b
    A first look, and a first run on invented data:
      dpstream demo
      dpstream simulate evictions --steps 12 --out example
      dpstream plan example/dpstream.toml
      dpstream run example/dpstream.toml

    Exit codes: 0 done, 2 wrong input or configuration, 3 refused by the guarantee, 4 state locked or damaged
    or disk full, 5 interrupted (the state is clean), 6 somebody should look and 7 the newest table is
    unfit (status --health), 1 a bug.
    """
