"""Winograd sums: see bench_winograd_sums."""

from cores.store.winograd_sums import WinogradSums
from tests.bench import run_bench


def test_winograd_sums():
    run_bench(WinogradSums(), module="tests.cores.bench_winograd_sums", name="winograd_sums")
