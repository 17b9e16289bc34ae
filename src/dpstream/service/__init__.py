"""The service: a feed for consumers, and pages, a desk and a worker for those who look after streams."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dpstream.core.errors import ConfigError


@contextmanager
def service_installed() -> Iterator[None]:
    """Around an import of the service's modules.

    Errors:
        ConfigError: the packages that they need are not installed.
    """
    try:
        yield
    except ImportError:
        raise ConfigError(
            "what a service needs is not installed",
            where="service",
            allowed="pip install 'dpstream[service]'",
        ) from None
