"""What a stream spent, step by step: what ``dpstream ledger show`` tells, and the service's pages show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpstream.project.config import Config
    from dpstream.stream.ledger.reading import Ledger


def ledger_facts(config: Config, ledger: Ledger) -> dict[str, Any]:
    """JSON-able; no batch id and no count is in it. Times are the owner's."""
    unit = ledger.facts["unit"]
    return {
        "format": 1,
        "stream": ledger.facts["stream"],
        "stream_id": ledger.stream_id,
        "mechanism": ledger.facts["mechanism"],
        "unit": unit,
        "protects": config.unit.describe() if unit == config.unit.name else unit,
        "planned": ledger.planned.as_dict(),
        "planned_words": str(ledger.planned),
        "total": str(ledger.total.amount),
        "total_words": str(ledger.total) if ledger.spends else "nothing",
        "steps": len(ledger.spends),
        "horizon": ledger.facts["horizon"],
        "steps_left": ledger.steps_left,
        "used_up": ledger.steps_left == 0,
        "account": _account(config, ledger),
        "spends": [
            {
                "step": one.step,
                "period": one.period,
                "definition": one.definition,
                "spent": str(one.spent),
                "parts": list(one.parts),
                "manifest_sha256": one.manifest_sha256,
                "made_with_test_seed": one.test_seed,
                "time": one.time,
            }
            for one in ledger.spends
        ],
    }


def _account(config: Config, ledger: Ledger) -> dict[str, Any] | None:
    """The account in which the stream adds up with others; None without one."""
    if config.account is None:
        return None
    from dpstream.stream.ledger.account import Account

    state = Account(config.account).read()
    charge = state.find(ledger.stream_id)
    return {
        "file": str(config.account),
        "charged": None if charge is None else str(charge.charged),
        "closed": charge is not None and charge.closed,
        "total": str(state.total),
        "limit": str(state.limit),
        "unit": state.unit,
        "streams": len(state.charges),
    }
