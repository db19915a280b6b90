"""Workers of a Dask cluster, on however many computers.

Whoever reaches a scheduler of Dask has its workers run what he likes, and what its workers send back is unpickled here:
so a scheduler is as good as a shell, on both sides. TLS lets those in whose certificates the cluster's authority has
signed.
"""

import logging
import ssl
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gen.files.sources import sources_digest

from .errors import ExploreError
from .evaluation import Meter
from .search import Workers

if TYPE_CHECKING:
    from distributed import Client, Future, Security

__all__ = ["Tls", "cluster"]

#: Seconds in which a scheduler must have answered, and one worker at least be there.
_PATIENCE = 10

#: Loggers of Dask: what goes wrong is said here, in one line.
_SPEAKERS = ("distributed", "distributed.client")


@dataclass(frozen=True)
class Tls:
    """PEM files: the authority that the cluster's certificates are signed by, and our own certificate with its key."""

    authority: Path
    certificate: Path
    key: Path


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
def cluster(meter: Meter, address: str, tls: Tls | None = None) -> Iterator[Workers]:
    """The workers of the Dask scheduler at an address; each needs these very sources of npugen. Without ``tls`` it is
    Dask's own configuration that counts.

    Raises ExploreError without the package distributed, for files that are no certificates, where nobody answers, for
    workers of other sources, and when the scheduler goes away or workers die of a job again and again.
    """
    if find_spec("distributed") is None:
        raise ExploreError("--scheduler needs the package distributed: pip install 'npugen[explore]'; --jobs does "
                           "without", code="missing-package")
    from distributed import Client

    for name in _SPEAKERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        client = Client(address, timeout=_PATIENCE, security=_security(tls) if tls else None)
    except (OSError, ValueError, TimeoutError, TypeError) as error:
        raise ExploreError(f"--scheduler {address}: {' '.join(str(error).split()) or 'no answer'}",
                           code="cluster") from None
    with _failures(), client:
        _require_workers(client, address)
        yield _Cluster(client, client.scatter(meter, broadcast=True, hash=False))


def _security(tls: Tls) -> "Security":
    """Raises ExploreError that names the file, of those that Dask would otherwise only fail to connect with."""
    from distributed import Security

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(tls.authority)
    except OSError as error:
        raise ExploreError(f"{tls.authority}: is no certificate of an authority ({_reason(error)})",
                           code="cluster") from None
    try:
        context.load_cert_chain(tls.certificate, tls.key, password=lambda: b"")
    except OSError as error:
        raise ExploreError(f"{tls.certificate} with {tls.key}: is no certificate and its key, or one that has a "
                           f"password ({_reason(error)})", code="cluster") from None
    return Security(tls_ca_file=str(tls.authority), tls_client_cert=str(tls.certificate),
                    tls_client_key=str(tls.key), require_encryption=True)


def _reason(error: OSError) -> str:
    return " ".join(str(getattr(error, "reason", None) or error.strerror or error).split())


@contextmanager
def _failures() -> Iterator[None]:
    from distributed import KilledWorker
    from distributed.comm import CommClosedError

    try:
        yield
    except (CommClosedError, KilledWorker, CancelledError) as error:
        raise ExploreError(f"the cluster has failed ({type(error).__name__}); what was measured is kept, and the same "
                           "command goes on from there", code="cluster") from None


def _require_workers(client: "Client", address: str) -> None:
    try:
        client.wait_for_workers(1, timeout=_PATIENCE)
    except TimeoutError:
        raise ExploreError(f"--scheduler {address}: has no workers; start some: dask worker {address}",
                           code="cluster") from None
    try:
        states = client.run(sources_digest)
    except ModuleNotFoundError as error:
        raise ExploreError(f"--scheduler {address}: a worker has no package {error.name}; start it where npugen "
                           "is installed", code="cluster") from None
    other = next((worker for worker, state in states.items() if state != sources_digest()), None)
    if other is not None:
        raise ExploreError(f"--scheduler {address}: the worker {other} has other sources of npugen than these",
                           code="cluster")


def _measure(meter: Meter, sources: str, jobs: _Jobs) -> _Results:
    """On a worker, which may have come later than the others were asked for their sources."""
    if sources_digest() != sources:
        raise ExploreError("a worker has other sources of npugen than these", code="cluster")
    return meter.measure(jobs)
