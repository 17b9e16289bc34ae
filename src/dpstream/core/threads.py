"""Work in a few threads, with results in the order of the work: nothing that is computed depends on their number.

Arrow, NumPy and compiled loops let other threads run while they work; plain Python does not.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from typing import TypeVar

from dpstream.core.errors import ConfigError

#: More threads would hold more blocks in memory, and wait for each other in Python.
MAX_THREADS = 4
_VARIABLE = "DPSTREAM_THREADS"
#: A larger number is a slip, and would ask for more memory than there is.
_MAX_GIVEN = 1024

Task = TypeVar("Task")
Result = TypeVar("Result")


def thread_count() -> int:
    """How many threads work at once: as the variable ``DPSTREAM_THREADS`` says, or else the cores that this process may
    use, and ``MAX_THREADS`` at most.

    Errors:
        ConfigError: the variable is not a number from 1.
    """
    given = os.environ.get(_VARIABLE)
    if not given:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return max(1, min(cores, MAX_THREADS))
    if not given.isascii() or not given.isdigit() or not 1 <= int(given) <= _MAX_GIVEN:
        raise ConfigError(
            f"{given!r} cannot be used",
            where=_VARIABLE,
            allowed=f"1 to {_MAX_GIVEN} threads",
        )
    return int(given)


def in_order(work: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
    """The result of each task, in the order of the tasks; some tasks ahead are done meanwhile.

    An exception comes where its result would come, and one of ``tasks`` after the results of the tasks before it. So
    the first failure in the order of the tasks is the one that is seen. A single task is done in this thread.

    Memory: twice as many tasks and results as there are threads.

    >>> list(in_order(str.upper, ["a", "b", "c"]))
    ['A', 'B', 'C']
    """
    source, count = iter(tasks), thread_count()
    if count == 1:
        yield from map(work, source)
        return
    for first in source:
        try:
            second = next(source)
        except StopIteration:
            yield work(first)
        except Exception:
            yield work(first)
            raise
        else:
            yield from _pooled(work, chain((first, second), source), count)


def _pooled(work: Callable[[Task], Result], tasks: Iterator[Task], count: int) -> Iterator[Result]:
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(count, thread_name_prefix="dpstream") as pool:
        try:
            more = True
            while more:
                try:
                    waiting.append(pool.submit(work, next(tasks)))
                except StopIteration:
                    more = False
                except Exception:
                    while waiting:
                        yield waiting.popleft().result()
                    raise
                while waiting and (not more or len(waiting) >= 2 * count):
                    yield waiting.popleft().result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
