"""A device that others reach over the network."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from cores.device import driver_machine
from npudriver.server import Limits, Server
from sim.devices import FunctionalBackend

__all__ = ["serving"]


@contextmanager
def serving(backend: FunctionalBackend, *, token: bytes | None = None, limits: Limits | None = None,
            said: list[str] | None = None) -> Iterator[str]:
    """Serve it, with 1 MiB for others; its URL. ``said``: what the server says goes there."""
    heard: list[str] = [] if said is None else said
    server = Server(backend, driver_machine(backend.config), port=0, memory=1 << 20, token=token, limits=limits,
                    say=heard.append)
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield f"tcp://127.0.0.1:{server.address[1]}"
    finally:
        server.close()
        thread.join()
