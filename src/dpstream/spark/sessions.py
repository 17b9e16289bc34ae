"""Spark sessions: how one is made here, what another one must have switched on, and what becomes of its exceptions."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from dpstream.core.errors import ConfigError, DataError, DpstreamError
from dpstream.core.foreign import failures
from dpstream.io.sources.formats import UnreadableError

__all__ = ["is_local", "require_protected", "session", "setting", "shielded_from_spark"]

_INSTALL = 'pip install "dpstream[spark]", and Java 17 or newer'
#: Of every session that is made here.
_ALWAYS = {
    # Shuffle files and what does not fit into memory hold private counts.
    "spark.io.encryption.enabled": "true",
    # Spark's messages quote values.
    "spark.log.level": "OFF",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # A time without a zone is that of a file; days begin as in every other source.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    # To the Python workers of this machine; a socket of the network waits longer, and others can connect to it.
    "spark.python.unix.domain.socket.enabled": "true",
}
#: All of it stays on this machine.
_LOCAL = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
#: The workers' connections to each other. The secret that they share is in the cluster's own configuration.
_CLUSTER = {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}
_SHUFFLE = "spark.io.encryption.enabled"
#: What an executor says that has another version of this package, or none, or lacks a package that the driver has.
_MISSING = re.compile(
    r"No module named '?dpstream|dpstream [^ ]+ is installed here, and|be counted \(ConfigError\)"
)
_GONE = (
    "stopped SparkContext",
    "SparkContext was shut down",
    "SESSION_CLOSED",
    "SESSION_NOT_FOUND",
    "SESSION_OR_CONTEXT_NOT_EXISTS",
    "UNAVAILABLE",
)


def session(
    master: str = "local[*]",
    *,
    remote: str | None = None,
    memory: str = "2g",
    settings: Mapping[str, str] | None = None,
) -> Any:
    """The session of this process: the one that runs, that of ``spark-submit``, or a new one with everything encrypted.

    Args:
        master: of a new session; ``spark-submit`` names its own.
        remote: a Spark Connect server, ``sc://host``; then it is that one's session.
        memory: of the driver of a new session, as Spark writes it.
        settings: further settings of a new session.

    Errors:
        ConfigError: PySpark or Java is missing, or Spark does not start with these settings.
        UnreadableError: the Spark Connect server cannot be reached.
    """
    pyspark = _pyspark()
    running = pyspark.SparkSession.getActiveSession()
    if running is not None and is_alive(running):
        return running
    builder = pyspark.SparkSession.builder.appName("dpstream")
    if remote is not None:
        with shielded_from_spark("[source] remote"):
            return builder.remote(remote).getOrCreate()
    chosen = dict(_ALWAYS)
    submitted = (
        "PYSPARK_GATEWAY_PORT" in os.environ
    )  # spark-submit has started the driver, and chosen the cluster
    if not submitted:
        builder = builder.master(master)
        chosen |= {"spark.driver.memory": memory, **(_LOCAL if is_local(master) else _CLUSTER)}
        # Spark starts `python3` otherwise, which may be another one.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for name, value in {**chosen, **(settings or {})}.items():
        builder = builder.config(name, value)
    failed = None
    try:
        with _without_pandas_warning():
            return builder.getOrCreate()
    except (pyspark.errors.PySparkException, OSError, *_gateway_errors()) as error:
        failed = type(error).__name__
    raise ConfigError(
        f"Spark does not start ({failed})",
        where="[source] master",
        allowed=f"{_INSTALL}; and a master that runs, with settings that fit it",
    )


def setting(spark: Any, name: str, default: str = "") -> str:
    """A setting of a session."""
    return str(spark.conf.get(name, default))


def core_setting(spark: Any, name: str, default: str = "") -> str:
    """A setting that Spark started with. What a session shows may have been written into it later, without effect; of a
    remote session nothing else can be seen."""
    context = getattr(spark, "_sc", None)
    return setting(spark, name, default) if context is None else str(context.getConf().get(name, default))


def is_local(master: str) -> bool:
    """Whether driver and executors are one process."""
    return master.startswith("local") and not master.startswith("local-cluster")


def is_alive(spark: Any) -> bool:
    """Whether a session of this process still has its driver; of a remote one only its use can tell."""
    context = getattr(spark, "_sc", None)
    return context is None or getattr(context, "_jsc", None) is not None


def require_protected(spark: Any, *, allow_plain_shuffle: bool, where: str) -> None:
    """That what executors write and send is encrypted: counts of parts of the records, the key that rows are hashed
    with, and on its way the records themselves.

    Errors:
        ConfigError: it is not, and the owner does not allow it. Names the settings.
        UnreadableError: the session is gone.
    """
    if not is_alive(spark):
        raise gone(where)
    if allow_plain_shuffle:
        return
    with shielded_from_spark(where):
        needed = [_SHUFFLE]
        if not is_local(core_setting(spark, "spark.master")):
            ssl = core_setting(spark, "spark.ssl.rpc.enabled", "false") == "true"
            needed += (
                ["spark.authenticate"] if ssl else ["spark.authenticate", "spark.network.crypto.enabled"]
            )
        missing = [name for name in needed if core_setting(spark, name, "false").lower() != "true"]
    if missing:
        raise ConfigError(
            "the Spark session writes or sends private counts in plain text",
            where=where,
            allowed=f"a session with {', '.join(f'{name} = true' for name in missing)}; or allow_plain_shuffle = true, "
            "where disks and network of the cluster are trusted with them",
        )


def gone(where: str) -> UnreadableError:
    """The session is not there any more."""
    return UnreadableError(
        "the Spark session is gone", where=where, allowed="a session that runs; the step can be taken again"
    )


@contextlib.contextmanager
def shielded_from_spark(
    where: str, *, names: str = "the table or the query", doing: str = "read or count the records"
) -> Iterator[None]:
    """Replace Spark's exceptions, whose messages and tracebacks quote values.

    Args:
        names: what may be wrong if Spark refuses names and types before it reads anything.
        doing: what fails otherwise.

    Errors:
        ConfigError: Spark refuses ``names``. UnreadableError: the session is gone. DataError: anything else. Only the
        name of Spark's error condition is shown, which is one of a public list.
    """
    pyspark = _pyspark()
    caught: Exception | None = None
    told_by = [logging.getLogger(name) for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger")]
    silent = [logger.disabled for logger in told_by]
    for logger in told_by:
        logger.disabled = True  # PySpark logs the message of an exception when it makes it
    try:
        with _without_pandas_warning():
            yield
    except DpstreamError:
        raise
    except (
        pyspark.errors.PySparkException,
        AssertionError,
        AttributeError,
        ConnectionError,
        *_gateway_errors(),
        *failures(),
    ) as error:
        caught = error
    finally:
        for logger, before in zip(told_by, silent, strict=True):
            logger.disabled = before
    if caught is None:
        return
    text, condition = str(caught), _condition(caught)
    if isinstance(caught, (AssertionError, AttributeError)) and not _is_gone(caught, text):
        raise caught  # a fault of this package
    if _is_gone(caught, text):
        told: DataError | ConfigError = gone(where)
    elif isinstance(caught, pyspark.errors.AnalysisException):
        told = ConfigError(
            f"Spark refuses {names} ({condition})",
            where=where,
            allowed="names that the session's catalog has, and a query that runs there",
        )
    elif _MISSING.search(text):
        told = ConfigError(
            "the executors do not have this version of dpstream, or not what it needs",
            where=where,
            allowed='pip install "dpstream[spark]" (for users "dpstream[spark,encryption]") with the driver\'s version '
            "on every machine of the cluster",
        )
    else:
        told = DataError(
            f"Spark could not {doing} ({condition})",
            where=where,
            allowed="a table and a query that Spark can read to the end; its own message, which may quote values, is "
            "not shown",
        )
    raise told from None


def _condition(error: Exception) -> str:
    """The name of Spark's error condition, or of the exception's class: both come from public lists."""
    name = getattr(error, "getCondition", lambda: None)()
    return name if isinstance(name, str) and name else type(error).__name__


def _is_gone(error: Exception, text: str) -> bool:
    network = ("Py4JNetworkError", "ConnectionRefusedError", "ConnectionResetError", "BrokenPipeError")
    lost = isinstance(error, (AttributeError, AssertionError)) and ("NoneType" in text or not text)
    return type(error).__name__ in network or lost or any(word in text for word in _GONE)


def _gateway_errors() -> tuple[type[Exception], ...]:
    try:
        from py4j.protocol import Py4JError
    except ImportError:  # a client of Spark Connect has no gateway
        return ()
    return (Py4JError,)


@contextlib.contextmanager
def _without_pandas_warning() -> Iterator[None]:
    """PySpark wants pandas to be there, and warns of its newest versions. Nothing here uses it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        yield


def _pyspark() -> Any:
    try:
        with _without_pandas_warning():
            import pyspark.errors
            import pyspark.sql
    except ImportError:
        raise ConfigError("PySpark is not installed", where="[source] kind", allowed=_INSTALL) from None
    return _Names(pyspark.sql.SparkSession, pyspark.errors)


class _Names:
    """What is used of PySpark."""

    def __init__(self, session_class: Any, errors: Any) -> None:
        self.SparkSession, self.errors = session_class, errors
