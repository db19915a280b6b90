"""PyTorch as it gives the same numbers every time, and leaves others' as they were."""

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["repeatable"]


@contextmanager
def repeatable(seed: int) -> Iterator[None]:
    """Random numbers by ``seed``; one thread, as several add up in another order, and wait for each other in layers as
    small as these.
    """
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield
    finally:
        torch.set_num_threads(threads)
