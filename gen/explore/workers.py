"""Workers on this computer: this very process, or others beside it."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

from sim.toolchain import end_tools

from .errors import ExploreError
from .evaluation import Meter
from .search import Workers

__all__ = ["Here", "Processes", "local_workers"]

_Jobs = Sequence[Mapping[str, Any]]
_Results = list[dict[str, Any]]


class Here:
    """One after the other, in this process."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter

    def run(self, groups: Sequence[_Jobs]) -> Iterator[tuple[int, _Results]]:
        for number, jobs in enumerate(groups):
            yield number, self._meter.measure(jobs)


class Processes:
    """Processes, each with the meter."""

    def __init__(self, executor: ProcessPoolExecutor) -> None:
        self._executor = executor

    def run(self, groups: Sequence[_Jobs]) -> Iterator[tuple[int, _Results]]:
        """Raises ExploreError when a process has died."""
        numbers = {self._executor.submit(_measure, jobs): number for number, jobs in enumerate(groups)}
        try:
            for future in as_completed(numbers):
                yield numbers[future], future.result()
        except BrokenProcessPool:
            raise ExploreError("a worker process has died, perhaps for want of memory; what was measured is kept, and "
                               "the same command with fewer --jobs goes on from there", code="cluster") from None


@contextmanager
def local_workers(meter: Meter, processes: int) -> Iterator[Workers]:
    """So many workers; what they are at when the context ends, or an exception leaves it, is given up."""
    if processes == 1:
        yield Here(meter)
        return
    # Not a fork: this process has threads.
    executor = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), _begin, (meter,))
    try:
        yield Processes(executor)
        executor.shutdown()
    finally:
        working = list((executor._processes or {}).values())    # which `shutdown` forgets
        executor.shutdown(wait=False, cancel_futures=True)
        for process in working:
            process.terminate()


#: Of a worker process.
_meter: Meter | None = None


def _begin(meter: Meter) -> None:
    global _meter
    _meter = meter
    # The parent decides when it is interrupted, and takes its workers along however it ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: _end())
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    _end()


def _end() -> None:
    """At once, whatever is under way."""
    end_tools()
    os._exit(1)


def _measure(jobs: _Jobs) -> _Results:
    assert _meter is not None
    return _meter.measure(jobs)
