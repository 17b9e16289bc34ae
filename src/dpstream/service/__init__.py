"""The service (extra ``[service]``): a feed for consumers, a desk and pages for stewards, a worker behind them."""

from __future__ import annotations

__all__: list[str] = []
