"""The process that Spark forks its Python workers from, in these tests: the compiled loops of a task are there already.

A worker is replaced when its task failed, and when it has waited for a minute; each would spend three seconds of CPU
on them. Spark starts this module by its name (``spark.python.daemon.module``). A process with threads must not be
forked, so nothing is imported that starts one.
"""

from __future__ import annotations

import os
import threading

os.environ["OPENBLAS_NUM_THREADS"] = "1"


def warm() -> None:
    """Load what tasks have compiled.

    Errors:
        RuntimeError: a thread was started.
    """
    import numpy as np

    from dpstream.core.schema import Domain
    from dpstream.core.tables import EncodedBatch, MultisetHash

    codes = np.zeros((1, 2), np.int32)
    MultisetHash.of(codes, None, bytes(32))
    EncodedBatch(Domain(("a", "b"), (2, 2)), codes).count([(0, 1)])
    tasks = "/proc/self/task"
    if threading.active_count() > 1 or (os.path.isdir(tasks) and len(os.listdir(tasks)) > 1):
        raise RuntimeError("a process with threads cannot be forked")


if __name__ == "__main__":
    # Here, as the doctests import this file on machines without PySpark, too.
    from pyspark.daemon import manager

    warm()
    manager()
