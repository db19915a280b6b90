"""A simulated serial line on a TCP port, where LiteX's own tools find it."""

import select
import socket
from collections.abc import Callable

from gen.soc.simulator import SerialLine

__all__ = ["serve"]

#: Cycles between two looks at the socket.
_SLICE = 2000
_HOST = "localhost"
#: Seconds in which a client must take what the line has said.
_PATIENCE = 10.0


def serve(line: SerialLine, port: int, *, ready: Callable[[int], None], patience: float = _PATIENCE) -> None:
    """Serve one client after the other, for ever; the clock runs while one is there. It may be silent for as long as it
    likes, as `litex_server` is, but one that takes nothing for ``patience`` seconds is cut off.

    ``port``: 0 for any that is free; ``ready`` is told which. `litex_server --uart --uart-port=socket://localhost:PORT`
    takes it for a serial port. Raises OSError when the port cannot be had.
    """
    with socket.create_server((_HOST, port)) as listener:
        ready(listener.getsockname()[1])
        while True:
            connection, _ = listener.accept()
            with connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.settimeout(patience)
                _serve_one(line, connection)


def _serve_one(line: SerialLine, connection: socket.socket) -> None:
    """Until the client has gone."""
    try:
        while True:
            readable, _, _ = select.select([connection], [], [], 0)
            if readable:
                data = connection.recv(1 << 16)
                if not data:
                    return
                line.write(data)
            line.run(_SLICE)
            if waiting := line.inWaiting():
                connection.sendall(line.read(waiting))
    except (ConnectionError, TimeoutError):
        return
