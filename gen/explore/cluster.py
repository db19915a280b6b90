"""Workers of a Dask cluster, on however many computers."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from gen.files.sources import sources_digest

from .errors import ExploreError
from .evaluation import Meter
from .search import Workers

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = ["cluster"]

#: Seconds in which a scheduler must have answered, and one worker at least be there.
_PATIENCE = 10

#: Loggers of Dask: what goes wrong is said here, in one line.
_SPEAKERS = ("distributed", "distributed.client")

_Jobs = Sequence[Mapping[str, Any]]
_Results = list[dict[str, Any]]


class _Cluster:
    def __init__(self, client: "Client", meter: "Future") -> None:
        self._client, self._meter = client, meter

    def run(self, groups: Sequence[_Jobs]) -> Iterator[tuple[int, _Results]]:
        from distributed import as_completed

        futures = [self._client.submit(_measure, self._meter, sources_digest(), jobs, pure=False, priority=-number)
                   for number, jobs in enumerate(groups)]
        numbers = {future.key: number for number, future in enumerate(futures)}
        try:
            for future in as_completed(futures):
                yield numbers[future.key], future.result()
        finally:
            with suppress(OSError):     # of one that is gone
                self._client.cancel(futures)


@contextmanager
def cluster(meter: Meter, address: str) -> Iterator[Workers]:
    """The workers of the Dask scheduler at an address; each needs these very sources of npugen.

    Raises ExploreError without the package distributed, where nobody answers, for workers of other sources, and when
    the scheduler goes away or workers die of a job again and again.
    """
    if find_spec("distributed") is None:
        raise ExploreError("--scheduler needs the package distributed: pip install 'npugen[explore]'; --jobs does "
                           "without")
    from distributed import Client

    for name in _SPEAKERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        client = Client(address, timeout=_PATIENCE)
    except (OSError, ValueError, TimeoutError) as error:
        raise ExploreError(f"--scheduler {address}: {' '.join(str(error).split()) or 'no answer'}") from None
    with _failures(), client:
        _require_workers(client, address)
        yield _Cluster(client, client.scatter(meter, broadcast=True, hash=False))


@contextmanager
def _failures() -> Iterator[None]:
    from distributed import KilledWorker
    from distributed.comm import CommClosedError

    try:
        yield
    except (CommClosedError, KilledWorker, CancelledError) as error:
        raise ExploreError(f"the cluster has failed ({type(error).__name__}); what was measured is kept, and the same "
                           "command goes on from there") from None


def _require_workers(client: "Client", address: str) -> None:
    try:
        client.wait_for_workers(1, timeout=_PATIENCE)
    except TimeoutError:
        raise ExploreError(f"--scheduler {address}: has no workers; start some: dask worker {address}") from None
    try:
        states = client.run(sources_digest)
    except ModuleNotFoundError as error:
        raise ExploreError(f"--scheduler {address}: a worker has no package {error.name}; start it where npugen "
                           "is installed") from None
    other = next((worker for worker, state in states.items() if state != sources_digest()), None)
    if other is not None:
        raise ExploreError(f"--scheduler {address}: the worker {other} has other sources of npugen than these")


def _measure(meter: Meter, sources: str, jobs: _Jobs) -> _Results:
    """On a worker, which may have come later than the others were asked for their sources."""
    if sources_digest() != sources:
        raise ExploreError("a worker has other sources of npugen than these")
    return meter.measure(jobs)
