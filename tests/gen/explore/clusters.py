"""Dask clusters on this computer."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

__all__ = ["dask_cluster"]


@contextmanager
def dask_cluster(workers: int, *, processes: bool) -> Iterator[str]:
    """Its address. Without ``processes`` the workers are threads of this one."""
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(max(1, workers), threads_per_worker=1, processes=processes,
                                  dashboard_address=None) as local:
        local.scale(workers)    # it cannot begin with none
        while len(local.scheduler.workers) != workers:
            time.sleep(0.01)
        yield local.scheduler_address
