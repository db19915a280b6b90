"""A device that others reach over the network."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from npudriver.backend import Backend
from npudriver.server import Server

__all__ = ["serving"]


@contextmanager
def serving(backend: Backend) -> Iterator[str]:
    """Serve it, with 1 MiB for others; its URL."""
    server = Server(backend, port=0, memory=1 << 20)
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield f"tcp://127.0.0.1:{server.address[1]}"
    finally:
        server.close()
        thread.join()
