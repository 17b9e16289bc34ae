"""The service (extra ``[service]``): a feed for consumers, a desk and pages for stewards, a worker behind them."""

__all__: list[str] = []
