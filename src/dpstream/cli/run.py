"""``dpstream run``: take the steps that are not released yet."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

import click

from dpstream.cli.check import DataCheck
from dpstream.cli.interrupt import Guard
from dpstream.cli.logs import logged
from dpstream.cli.progress import StepProgress
from dpstream.cli.shared import CLEAN, INTERRUPTED, console, json_option, of_stream
from dpstream.cli.types import Duration, Whole
from dpstream.core.errors import ConfigError, DataError, StoreLockedError, counted

if TYPE_CHECKING:
    from dpstream.io.sources import Source
    from dpstream.project import Config, TakenStep
    from dpstream.stream import Stream

#: A retry that fails with the same words is told again after so many attempts.
_REMIND = 20

#: Takes what is due from a source; whether released steps are compared. Whether it was stopped, and the last step.
Taker = Callable[["Source", bool], tuple[bool, int]]


def watch(
    config: Config,
    take: Taker,
    *,
    last_step: int,
    interval: float,
    until: int | None,
    recheck: bool,
) -> int:
    """Until the last step, or until Ctrl-C or SIGTERM. The stream is open only while steps are taken: other commands
    find it free while this one waits.

    Args:
        last_step: how many steps it has.

    Returns:
        0 at the last step, and when stopped while waiting (every due step is taken: a planned stop); 5 when
        stopped while due steps are left.
    """
    from dpstream.io.sources import UnreadableError
    from dpstream.project import Watch

    watched, retry, waiting = Watch(config, until), _Retry(interval), False
    while not watched.finished(last_step):
        source = watched.source()
        failing = True
        try:
            if watched.worth_reading(last_step, source):
                before = last_step
                stopped, last_step = take(source, recheck)
                if stopped:
                    return INTERRUPTED
                recheck = config.source_options.always_compared
                waiting = waiting and last_step == before
                retry.forget()
                if watched.finished(last_step):
                    break
        except UnreadableError as error:
            watched.look_again()
            retry.tell(f"cannot be read yet: {error}")
            waiting = False
        except StoreLockedError:
            watched.look_again()
            retry.tell("another command has the stream open")
            waiting = False
        else:
            failing = False
        try:
            if not (waiting or failing):
                click.echo(
                    f"waiting for {watched.next_step(last_step)}; looking every {interval:g} s, Ctrl-C stops",
                    err=True,
                )
                waiting = True
            _pause(interval)
        except KeyboardInterrupt:
            if failing:
                raise
            click.echo(f"stopped after step {last_step}; every due step is released", err=True)
            return 0
    return 0


class _Retry:
    """Says what stands in the way: at once, and again when it lasts."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._text, self._times = "", 0

    def tell(self, text: str) -> None:
        self._times = self._times + 1 if text == self._text else 1
        self._text = text
        if self._times == 1 or self._times % _REMIND == 0:
            count = "" if self._times == 1 else f" (attempt {self._times})"
            click.echo(f"{text}; next try in {self._interval:g} s{count}", err=True)

    def forget(self) -> None:
        self._text, self._times = "", 0


def _pause(seconds: float) -> None:
    """Sleep, in pieces of a second: a signal that arrives after Python's last look for one, or in another thread, does
    not end a sleep."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, 1))


@click.command("run", short_help="Take and publish the steps that are not released yet.")
@logged
@of_stream("--state", "--out")
@click.option("--until", type=Whole(), metavar="STEP", help="Stop after this step.")
@click.option(
    "--steps",
    type=Whole(1, 10**9),
    metavar="N",
    help="Take at most N new steps. Never limit runs by time.",
)
@click.option("--dry-run", is_flag=True, help="Read everything, write and spend nothing.")
@click.option(
    "--no-recheck",
    is_flag=True,
    help="Do not compare released steps with the data.",
)
@click.option(
    "--watch",
    "watched",
    is_flag=True,
    help="Take each step when it is due (exit code 5: stopped before).",
)
@click.option(
    "--interval",
    type=Duration(),
    default="30s",
    metavar="TIME",
    show_default=True,
    help="With --watch: how often to look.",
)
@click.option(
    "--confirm-shrink",
    is_flag=True,
    help="Take one step although its snapshot shrank. Never schedule this.",
)
@click.option(
    "--discard-reserved",
    is_flag=True,
    help="Give up an interrupted step. If noise was drawn, the guarantee does not cover repetitions: never schedule "
    "this.",
)
@click.option(
    "--test-seed",
    type=Whole(0),
    hidden=True,
    help="Predictable noise: no guarantee, for tests only.",
)
@json_option
def command(
    config: Config,
    until: int | None,
    steps: int | None,
    dry_run: bool,
    no_recheck: bool,
    watched: bool,
    interval: float,
    confirm_shrink: bool,
    discard_reserved: bool,
    test_seed: int | None,
    as_json: bool,
) -> int:
    """Take every step of the source that is not released yet, and publish each.

    Released steps are compared with the data, never drawn again. An interrupted run continues. A missing release is
    published again; a changed one stops the run. --json prints a line a step.

    \b
    Examples:
      dpstream run dpstream.toml --until 52
      dpstream run dpstream.toml --watch --interval 5m
    """
    from dpstream.project import check_recheck

    if as_json and config.output.sink == "stdout":
        raise ConfigError(
            "releases go to standard output",
            where="--json",
            allowed="another [output] sink",
        )
    if dry_run and steps is not None:
        raise ConfigError("a dry run takes no step", where="--steps", allowed="--until with --dry-run")
    if no_recheck:
        check_recheck(config)
    if confirm_shrink:
        _check_confirm(config, watched=watched, dry_run=dry_run)
    if dry_run:
        return _dry_run(config, until)
    from dpstream.core.privacy import Randomness
    from dpstream.project import last_wanted
    from dpstream.tools.running import run_steps

    if test_seed is not None:
        click.echo("warning: a test seed makes the noise predictable: NO GUARANTEE", err=True)
    randomness = None if test_seed is None else Randomness.seeded(test_seed)
    # Standard output may be where the releases go.
    beside = config.output.sink == "stdout"
    before = last_step = 0

    def prepare(stream: Stream) -> None:
        nonlocal before, last_step, until
        if discard_reserved:
            stream.discard_reservation()
        before = last_step = stream.last_step
        until = last_wanted(stream, until, steps)
        restored = ", ".join(map(str, stream.publish_again()))
        if restored:
            click.echo(f"published again, because it was missing: step {restored}", err=True)

    def take(source: Source, recheck: bool, prepare: Callable[[Stream], object]) -> tuple[bool, int]:
        """What is due; whether a signal stopped it, and the last step."""
        nonlocal last_step
        bar = StepProgress(quiet=as_json or beside)
        due = run_steps(
            config,
            source=source,
            until=until,
            steps=None if watched else steps,
            recheck=recheck,
            confirm=confirm_shrink,
            randomness=randomness,
            prepare=prepare,
            expect=bar.expect,
            during=guard.hold,
            stop=lambda: guard.stop,
            warn=lambda warning: click.echo(f"warning: {warning}", err=True),
        )
        with closing(bar), closing(due):
            for taken in due:
                last_step = max(last_step, taken.step)
                _tell(bar, taken, as_json, held=config.output.publishing.approve)
                if guard.stop:
                    bar.close()
                    click.echo(
                        f"error: interrupted after step {taken.step}; {CLEAN}",
                        err=True,
                    )
                    return True, last_step
        return False, last_step

    with Guard() as guard:
        if watched:
            with config.open_stream(randomness=randomness) as stream:
                prepare(stream)
            again = partial(take, prepare=lambda stream: stream.publish_again())
            code = watch(
                config, again, last_step=before, interval=interval, until=until, recheck=not no_recheck
            )
        else:
            source = config.source(schema=config.reading_schema)
            code = INTERRUPTED if take(source, not no_recheck, prepare)[0] else 0
        if not as_json and code == 0:
            _say_end(config, last_step - before, beside)
        return code


def _say_end(config: Config, done: int, beside: bool) -> None:
    from dpstream.core.privacy import amount_words
    from dpstream.stream import read_status
    from dpstream.stream.release.fitness import unfit_table

    ended = read_status(config.state_dir, server=config.server)
    lost = type(config.budget.budget)(ended.spent)
    spent = amount_words(lost, config.plan().delta) if ended.last_step else "none"
    click.echo(
        f"{counted(done, 'new step')}, {ended.last_step} in all; loss so far {spent}",
        err=beside,
    )
    last = config.source_options.final_step()
    if not done and last is not None and ended.last_step >= last:
        click.echo(
            f"the plan is used up: step {last} is the last (a later [source] end, or dpstream init --after)",
            err=beside,
        )
    unfit = unfit_table(config.output.dir)
    if unfit is not None:
        console(err=beside).print(f"unfit: {unfit}")
    if ended.held:
        click.echo(
            f"held for approval: {counted(len(ended.held), 'step')} (dpstream approve)",
            err=beside,
        )


def _check_confirm(config: Config, *, watched: bool, dry_run: bool) -> None:
    """ConfigError where there is nothing to confirm, or nobody to look."""
    if watched or dry_run:
        word = "--watch" if watched else "--dry-run"
        raise ConfigError(
            f"--confirm-shrink confirms one step; it cannot be combined with {word}",
            where="--confirm-shrink",
            allowed=f"no {word}",
        )
    if not config.source_options.whole_tables:
        raise ConfigError(
            "the source gives changes, which cannot shrink",
            where="--confirm-shrink",
            allowed='only with shape = "snapshots", or stays with late = "next-step"',
        )


def _tell(bar: StepProgress, taken: TakenStep, as_json: bool, *, held: bool) -> None:
    if as_json:
        facts = {
            "step": taken.step,
            "batch_id": taken.batch_id,
            "drawn": not taken.released,
            "made_with_test_seed": taken.release.manifest["made_with_test_seed"],
        }
        click.echo(json.dumps(facts))
        sys.stdout.flush()
    else:
        rows = int(taken.release.manifest["rows"])
        bar.step(taken.step, taken.batch_id, rows, released=taken.released, held=held)


def _dry_run(config: Config, until: int | None) -> int:
    """Everything that can be found out without spending or writing."""
    from dpstream.project.base import require_border

    _check_state_as_run_would(config)
    base = config.base()
    if base is not None and not base.known:
        base.table()
    require_border(config)
    checked = DataCheck(config)
    problems = checked.read(until)
    config.require_decided()
    if problems:
        raise DataError("; ".join(problems), where=str(config.path))
    click.echo(
        f"dry run: {counted(checked.steps, 'step')} can be read and fit the schema; nothing was spent or written"
    )
    return 0


def _check_state_as_run_would(config: Config) -> None:
    """Refuse what a run would refuse: a state of another plan, and a charge that the account does not allow."""
    from dpstream.stream import read_status
    from dpstream.stream.identity import plan_hash, require_same_plan
    from dpstream.stream.ledger.account import Membership
    from dpstream.stream.ledger.reading import read_identity
    from dpstream.stream.store.sealed_history import stored_plan

    folder, facts = config.state_dir, config.facts()
    identity = read_identity(folder, server=config.server, key=config.state_key())
    if identity is not None and not (
        config.account is None and read_status(folder, server=config.server).unspent
    ):
        require_same_plan(stored_plan(identity[0], str(folder)), facts, str(folder))
    if config.account is None:
        return
    member = Membership(config.account, folder, facts, plan_hash(facts))
    member.preview(*((None, 1) if identity is None else (identity[0], identity[1] + 1)))
