"""Spark sessions: how one is made here, what another one must have switched on, and what becomes of its exceptions.

Trusted base: spark (reads private records).
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import socket
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from dpstream.core.errors import ConfigError, DataError, DpstreamError
from dpstream.core.foreign import failures
from dpstream.io.sources.file_opening import UnreadableError

_INSTALL = 'pip install "dpstream[spark]", and Java 17 or newer'
MASTERS = '"local[*]", "spark://host:7077", "yarn", "k8s://https://host"'
_UTC = ("UTC", "Etc/UTC", "Z", "GMT", "Etc/GMT", "+00:00")
#: What decides which records are read, and as what; of every session, at each step. With another value in a later step
#: a record could be in both steps, or in neither.
_READING = {
    "spark.sql.session.timeZone": _UTC,
    "spark.sql.files.ignoreCorruptFiles": ("false",),
    "spark.sql.files.ignoreMissingFiles": ("false",),
    "spark.sql.ansi.enabled": ("true",),
    "spark.sql.caseSensitive": ("false",),
    "spark.sql.timestampType": ("TIMESTAMP_LTZ",),
    "spark.sql.legacy.timeParserPolicy": ("CORRECTED",),
    "spark.sql.parquet.datetimeRebaseModeInRead": ("CORRECTED",),
    "spark.sql.parquet.int96RebaseModeInRead": ("CORRECTED",),
    "spark.sql.parquet.inferTimestampNTZ.enabled": ("true",),
    "spark.sql.parquet.binaryAsString": ("false",),
    "spark.sql.sources.partitionColumnTypeInference.enabled": ("true",),
}
#: What ``[source] settings`` may hold: memory, cores, shuffles and connections.
_ALLOWED = re.compile(
    r"spark\.((driver|executor)\.(memoryOverhead(Factor)?|cores|maxResultSize|pyspark\.memory|host|bindAddress|port)"
    r"|executor\.(memory|instances|heartbeatInterval)|memory\..+|cores\.max|task\.(cpus|maxFailures)"
    r"|default\.parallelism|dynamicAllocation\..+|speculation.*|local\.dir|shuffle\..+|reducer\..+"
    r"|sql\.(shuffle\.partitions|adaptive\..+|autoBroadcastJoinThreshold|broadcastTimeout)"
    r"|sql\.files\.(maxPartitionBytes|openCostInBytes|minPartitionNum)|rpc\..+|network\.timeout"
    r"|port\.maxRetries|blockManager\.port|driver\.blockManager\.port|ssl\..+|submit\.deployMode"
    r"|yarn\.queue|kubernetes\.(namespace|context|container\.image.*|authenticate\..+)"
    r"|jars(\.packages)?|sql\.(extensions|catalogImplementation|warehouse\.dir|catalog\..+)"
    r"|hadoop\.(fs\..+|hive\.metastore\.uris))"
)
#: Of every session that is made here.
_ALWAYS = {name: values[0] for name, values in _READING.items()} | {
    # Shuffle files and what does not fit into memory hold private counts.
    "spark.io.encryption.enabled": "true",
    # Spark's messages quote values.
    "spark.log.level": "OFF",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # A table of the catalogue is listed anew by each reading.
    "spark.sql.filesourceTableRelationCacheSize": "0",
    "spark.executorEnv.TZ": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    # To the Python workers of this machine; a socket of the network waits longer, and others can connect to it.
    "spark.python.unix.domain.socket.enabled": "true",
}
#: Broadcasts hold keys, and whoever reaches the port of an unprotected driver can run code in it: on one machine its
#: other users can. Spark draws a fresh secret for a local session; the machines of a cluster share that of its own
#: configuration.
_CONNECTIONS = {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}
#: All of it stays on this machine.
_LOCAL = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
#: What a plan of Spark says of a record whose time is in no step (``SparkSource``).
NO_TIME = "dpstream: a record without a time"
_FILES = 'or kind = "files"'
_SHUFFLE = "spark.io.encryption.enabled"
#: What an executor says that has another version of this package, or none, or lacks a package that the driver has.
_MISSING = re.compile(
    r"No module named '?dpstream|dpstream [^ ]+ is installed here, and|be counted \(ConfigError\)"
)
_TYPES = re.compile(r"COLUMN_DATA_TYPE_MISMATCH|SchemaColumnConvertNotSupported")
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
        chosen |= {"spark.driver.memory": memory, **_CONNECTIONS, **(_LOCAL if is_local(master) else {})}
        _require_java()
        _require_master(master)
        # Spark starts `python3` otherwise, which may be another one.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for name, value in {**chosen, **(settings or {})}.items():
        builder = builder.config(name, value)
    failed = None
    with _quiet_start() as said:
        try:
            with _without_pandas_warning():
                return builder.getOrCreate()
        except (pyspark.errors.PySparkException, OSError, *_gateway_errors()) as error:
            failed = f"{error}\n{said()}"
    raise _not_started(failed, settings or {})


def is_allowed_setting(name: str) -> bool:
    """Whether ``[source] settings`` may hold it: what changes neither what is read nor who may see it."""
    return _ALLOWED.fullmatch(name) is not None


def _require_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java" if home is None else os.path.join(home, "bin", "java")) is None:
        what = "missing Java" if home is None else "JAVA_HOME lacks Java"
        raise ConfigError(what, where="[source] kind", allowed=_INSTALL)


def _require_master(master: str) -> None:
    """That a standalone cluster answers: Spark itself would try for minutes."""
    addresses = re.findall(r"([^/,:]+):([0-9]{1,5})", master) if master.startswith("spark://") else []
    for host, port in addresses:
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=5):
            return
    if addresses:
        raise UnreadableError(
            "the Spark master cannot be reached", where="[source] master", allowed="a running master"
        )


@contextlib.contextmanager
def _quiet_start() -> Iterator[Callable[[], str]]:
    """Keep what Java says while it starts, outside the sentences of this program, and have it start in UTC: what Spark
    asks of a database takes the zone of the process.

    Gives what was said so far.
    """
    zone, terminal = os.environ.get("TZ"), os.dup(2)
    with tempfile.TemporaryFile() as kept:
        os.dup2(kept.fileno(), 2)
        os.environ["TZ"] = "UTC"
        try:
            yield lambda: os.pread(kept.fileno(), 2**16, 0).decode("utf-8", "replace")
        finally:
            os.dup2(terminal, 2)
            os.close(terminal)
            if zone is None:
                del os.environ["TZ"]
            else:
                os.environ["TZ"] = zone


def _not_started(said: str, settings: Mapping[str, str]) -> ConfigError:
    """Why Spark did not start, from texts that are not shown."""
    if settings and re.search(r"NumberFormat|IllegalArgument|requirement failed|INVALID_CONF|must be", said):
        return ConfigError(
            f"Spark refuses the settings {', '.join(settings)}",
            where="[source] settings",
            allowed="values that Spark takes",
        )
    if re.search(r"Master URL|with master '", said):
        return ConfigError(
            "Spark refuses this master",
            where="[source] master",
            allowed=MASTERS,
        )
    return ConfigError(
        "Java does not start Spark", where="[source] kind", allowed=f"{_INSTALL}; enough memory"
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
    """That what executors write and send is encrypted, and nobody else can ask them for it: counts of parts of the
    records, the keys that rows and ids are hashed with, and on its way the records themselves.

    Errors:
        ConfigError: it is not, and the owner does not allow it. Names the settings.
        UnreadableError: the session is gone.
    """
    if not is_alive(spark):
        raise gone(where)
    with shielded_from_spark(where):
        local = is_local(core_setting(spark, "spark.master"))
        ssl = core_setting(spark, "spark.ssl.rpc.enabled", "false") == "true"
        needed = list(_CONNECTIONS)[: 1 if ssl else 2]
        if allow_plain_shuffle:
            # Trusted are the disks and the network of a cluster, not the other users of this machine.
            needed = needed if local else []
        else:
            needed = [_SHUFFLE, *needed]
        missing = [name for name in needed if core_setting(spark, name, "false").lower() != "true"]
    if missing:
        allowed = f"a session with {', '.join(f'{name} = true' for name in missing)}"
        if not local:
            allowed += "; or allow_plain_shuffle = true (trusted disks and network)"
        raise ConfigError(
            "the Spark session sends private counts unencrypted or unauthenticated",
            where=where,
            allowed=allowed,
        )


def require_reading(spark: Any, where: str) -> None:
    """That a session reads the same records of a table or a query at each step.

    Errors:
        ConfigError: a setting that changes what is read has another value than it needs.
        UnreadableError: the session is gone.
    """
    with shielded_from_spark(where):
        # Spark knows each of these names, and refuses a default that is none of its values.
        wrong = next((one for one, allowed in _READING.items() if spark.conf.get(one) not in allowed), None)
        java = getattr(getattr(spark, "_jvm", None), "java", None)
        if wrong is None and java is not None:
            zones = java.util.TimeZone
            wrong = None if zones.getDefault().hasSameRules(zones.getTimeZone("UTC")) else "user.timezone"
    if wrong == "user.timezone":
        raise ConfigError(
            "the Java of the Spark session must run in UTC", where=where, allowed="TZ=UTC at its start"
        )
    if wrong is not None:
        raise ConfigError(
            f"the Spark session's {wrong} changes what is read",
            where=where,
            allowed=f"{wrong} = {_READING[wrong][0]}",
        )


def gone(where: str) -> UnreadableError:
    """The session is not there any more."""
    return UnreadableError(
        "the Spark session has ended", where=where, allowed="a running session; then run again"
    )


@contextlib.contextmanager
def shielded_from_spark(where: str, *, doing: str = "read or count the records") -> Iterator[None]:
    """Replace Spark's exceptions, whose messages and tracebacks quote values.

    Args:
        doing: what fails where names and types are accepted.

    Errors:
        ConfigError: Spark refuses names or types before it reads anything.
        UnreadableError: the session is gone. DataError: anything else. Only the
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
    if NO_TIME in text:
        raise DataError(
            "a record lacks a time, or precedes the start", where=where, allowed="times from the start on"
        )
    if isinstance(caught, (AssertionError, AttributeError)) and not _is_gone(caught, text):
        raise caught  # a fault of this package
    if _is_gone(caught, text):
        told: DataError | ConfigError = gone(where)
    elif condition.startswith(("PARQUET_TYPE_", "UNSUPPORTED_TIME_TYPE", "UNSUPPORTED_DATATYPE")):
        told = ConfigError(
            f"Spark cannot read a type ({condition}), even in an ignored column",
            where=where,
            allowed="times in microseconds, times of the day as texts, numbers of 32 bits or more; a "
            f"view without that column; {_FILES}",
        )
    elif isinstance(caught, pyspark.errors.AnalysisException):
        told = ConfigError(
            f"Spark refuses the table or the query ({condition})",
            where=where,
            allowed="names of its catalog, and a query that runs there",
        )
    elif _TYPES.search(text):
        told = DataError("a column has several types", where=where, allowed=f"one type per column; {_FILES}")
    elif _MISSING.search(text):
        told = ConfigError(
            "executors lack this version of dpstream, or its dependencies",
            where=where,
            allowed='pip install "dpstream[spark,encryption]", the driver\'s version, on every machine',
        )
    else:
        told = DataError(
            f"Spark could not {doing} ({condition})",
            where=where,
            allowed="a table and a query that Spark can read to the end (its message stays hidden)",
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
    return SimpleNamespace(SparkSession=pyspark.sql.SparkSession, errors=pyspark.errors)
