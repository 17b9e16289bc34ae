"""``dpstream store``: look after the secret store of a stream."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dpstream.cli.shared import DAMAGED, json_option, of_stream, print_json
from dpstream.cli.types import FilePath
from dpstream.core.errors import ConfigError, counted

if TYPE_CHECKING:
    from dpstream.project import Config
    from dpstream.stream import PostgresServer

_questions = click.option("--questions", is_flag=True, help="The store of the questions.")


@click.group("store", short_help="Check, move or compact the secret store of a stream.")
def command() -> None:
    """Check, export, import, compact or encrypt a stream's secret store: an SQLite file in the state folder, or
    PostgreSQL ([state] url).

    \b
    Example:
      dpstream store check dpstream.toml
    """


@command.command("check", short_help="Check the store against what is published.")
@of_stream("--state", "--out")
@json_option
def check(config: Config, as_json: bool) -> int:
    """Read the whole store and all released files; say what is wrong. Changes nothing; a run may be under way. Exit
    code 0: sound; 4: damaged.

    \b
    Example:
      dpstream store check dpstream.toml
    """
    from dpstream.stream.inspection import check_store

    checked = check_store(config.state_dir, config.output.dir, server=config.server, key=config.state_key())
    if as_json:
        facts: dict[str, Any] = {
            "sound": not checked.problems,
            "store_format": checked.format,
            "steps": checked.steps,
            "key": checked.key,
        }
        print_json({"format": 1, **facts, "moved": checked.moved, "problems": list(checked.problems)})
    else:
        for problem in checked.problems:
            click.echo(f"error: {problem}", err=True)
        if not checked.problems:
            more = "" if checked.key is None else f", encrypted with the key {checked.key}"
            more += "; moved away: refuses further steps" if checked.moved else ""
            click.echo(f"sound: {counted(checked.steps or 0, 'step')}, format {checked.format}{more}")
    return DAMAGED if checked.problems else 0


@command.command("export", short_help="Write the whole store to one file.")
@of_stream("--state")
@_questions
@click.option(
    "--out", "file", type=FilePath("new"), required=True, metavar="FILE", help="A new file (mode 0600)."
)
@click.option("--move", is_flag=True, help="Move the stream: this store refuses further steps.")
def export(config: Config, questions: bool, file: str, move: bool) -> None:
    """Write the whole secret store to one file.

    Protect the file like the private table: it holds private counts and the key of the seals (encrypted where the
    store is). Without --move it can only replace a store lost at this very step. With --move the stream continues
    where the file is imported.

    \b
    Example:
      dpstream store export dpstream.toml --move --out stream.dpstore
    """
    from dpstream.stream.store.archive import export_store
    from dpstream.stream.store.sealed_history import outside_heads, outside_heads_of_questions

    target, releases = Path(file), config.output.dir
    if releases.resolve() in target.resolve().parents:
        raise ConfigError("the file would lie among the releases", where="--out", allowed="a secret place")
    place, server = _store(config, questions)
    outside = outside_heads_of_questions(config.state_dir, releases) if questions else outside_heads(releases)
    steps = export_store(place, target, server=server, move=move, key=config.state_key(), outside=outside)
    click.echo(f"wrote {target}: {counted(steps, 'step')}; it is as secret as the store")
    if move:
        click.echo("this store refuses further steps: import the file elsewhere")


@command.command("import", short_help="Make the store from a file of store export.")
@of_stream("--state")
@_questions
@click.option("--from", "file", type=FilePath("file", there=True), required=True, metavar="FILE")
def import_(config: Config, questions: bool, file: str) -> None:
    """Make the store that the configuration names from a file of `store export`.

    The file comes from --move (used once, then marked; it must be writable), or is as new as the head.json in the
    state folder (then run --discard-reserved once). A store that holds a stream is never replaced.

    \b
    Example:
      dpstream store import dpstream.toml --from stream.dpstore
    """
    from dpstream.stream.store.archive import archived_plan, import_store

    place, server = _store(config, questions)
    pinned = archived_plan(Path(file))
    # A successor's base: its predecessor's folder need not be on this machine.
    facts = config.facts(pinned=pinned)
    if questions and "questions_of" in pinned:
        facts["questions_of"] = pinned["questions_of"]  # the stream itself refuses those of another one
    steps = import_store(Path(file), place, facts, server=server, key=config.state_key())
    click.echo(f"the store holds {counted(steps, 'step')}; remove the secret file {file}")


@command.command("key", short_help="Make a new key for an encrypted store.")
@click.option(
    "--out", "file", type=FilePath("new"), required=True, metavar="FILE", help="A new file (mode 0600)."
)
def key(file: str) -> None:
    """Make a new random key file, for [state] key_file or, as text, key_env.

    Keep it away from the state, and keep a copy: without the key the stream is lost.

    \b
    Example:
      dpstream store key --out /etc/dpstream/evictions.key
    """
    from dpstream.stream.store.encryption import write_key

    made = write_key(Path(file))
    click.echo(f"wrote {file}: key {made.name}")


@command.command("rekey", short_help="Encrypt the store, change its key, or decrypt it.")
@of_stream("--state")
@_questions
@click.option("--to", "file", type=FilePath("file"), metavar="FILE", help="The new key, a file of store key.")
@click.option("--plain", is_flag=True, help="Take the encryption away.")
def rekey(config: Config, questions: bool, file: str | None, plain: bool) -> None:
    """Encrypt the store with the key in --to; the old key is the configuration's. Change the configuration afterwards.

    One transaction writes all values: after an interruption the same command continues. Older copies and backups
    keep the old key, or none.

    \b
    Example:
      dpstream store rekey dpstream.toml --to /etc/dpstream/evictions.key
    """
    from dpstream.stream.store.encryption import StateKey
    from dpstream.stream.store.upkeep import rekey_store, stored_key

    if plain == (file is not None):
        raise ConfigError("a new key is missing", where="--to", allowed="--to FILE, or --plain")
    place, server = _store(config, questions)
    new = None if file is None else StateKey.from_file(Path(file))
    encrypted = stored_key(place, server=server) is not None
    # A configuration that names a key already is fine for a store that has none.
    old = config.state_key() if encrypted else None
    rekey_store(place, old=old, new=new, server=server)
    if new is None:
        click.echo("the store is plain now: remove key_file or key_env from [state]")
    else:
        click.echo(f"the store is encrypted with the key {new.name}: name it in [state]")


@command.command("compact", short_help="Drop expired tables, and free their space.")
@of_stream("--state", "--out")
def compact(config: Config) -> None:
    """Apply [output] keep to all steps, publish what waits, and rewrite the store without what was dropped. Ledger,
    manifests and seals stay.

    \b
    Example:
      dpstream store compact dpstream.toml
    """
    from dpstream.stream.release.render import steps_to_keep
    from dpstream.stream.store.store import Store

    folder, key = config.state_dir, config.state_key()
    with Store(folder, config.facts(), server=config.server, key=key) as store:
        store.apply_keep(steps_to_keep(config.output.publishing, store))
    with config.open_stream():
        pass  # removes the tables that have just expired
    with Store(folder, config.facts(), server=config.server, key=key) as store:
        store.compact()
    click.echo("the store is compact")


def _store(config: Config, questions: bool) -> tuple[Path, PostgresServer | None]:
    """The folder and the server of the stream's store, or of the store of its questions."""
    from dpstream.stream.store.place import questions_path, questions_server

    place = config.state_dir
    return (questions_path(place), questions_server(config.server)) if questions else (place, config.server)
