"""A device for others to use over the network: Etherbone in front of any back end.

Whoever can connect can read and write the device's memory: serve on a network that you trust, or through a tunnel.
"""

from __future__ import annotations

import socket

import numpy as np

from .backend import Backend
from .errors import DriverError, TransportError
from .etherbone import Packet, receive, send
from .windows import INFO, Windows

__all__ = ["Server"]

_REGISTERS, _REGISTERS_END = 0x0, 0x1000
_MEMORY = 0x1000_0000
_WAIT, _RESET = INFO + 0x1000, INFO + 0x1004
#: Seconds that a read of the word for it waits for the interrupt.
_LONGEST_WAIT = 0.1


class Server:
    """Serves ``backend`` with ``memory`` bytes of its memory, one client at a time.

    ``port`` 0 takes any that is free; `address` says which. Raises TransportError, OutOfMemoryError.
    """

    def __init__(self, backend: Backend, *, host: str = "127.0.0.1", port: int = 1234, memory: int = 1 << 26,
                 alignment: int = 4096) -> None:
        self._backend = backend
        self._buffer = backend.allocate(memory, alignment)
        self._windows = Windows(_REGISTERS, _MEMORY, memory, self._buffer.address, _WAIT, _RESET)
        try:
            self._listener = socket.create_server((host, port))
        except OSError as error:
            raise TransportError(f"{host}:{port}: {error.strerror or error}") from None

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._listener.getsockname()[:2]
        return host, port

    def close(self) -> None:
        """Also ends `serve`, of another thread."""
        try:
            self._listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._listener.close()

    def serve(self) -> None:
        """Client after client, until `close`. What a client does wrong ends its connection."""
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                # One that has vanished does not keep the others out for good.
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                try:
                    while True:
                        packet = receive(connection)
                        if packet is None:
                            break
                        self._answer(connection, packet)
                except (OSError, DriverError, ValueError):
                    continue

    def _answer(self, connection: socket.socket, packet: Packet) -> None:
        if packet.writes:
            self._write(packet.base, packet.writes)
        if packet.reads:
            send(connection, Packet(writes=self._read(packet.reads)))

    def _write(self, base: int, words: object) -> None:
        data = np.array(words, "<u4")
        if _MEMORY <= base < _MEMORY + self._buffer.size:
            self._buffer.write(base - _MEMORY, data.view(np.uint8))
            return
        for number, word in enumerate(data.tolist()):
            address = base + 4 * number
            if _REGISTERS <= address < _REGISTERS_END:
                self._backend.write32(address - _REGISTERS, word)

    def _read(self, addresses: object) -> list[int]:
        wanted = np.array(addresses, np.int64)
        offset = int(wanted[0]) - _MEMORY
        if 0 <= offset < self._buffer.size and bool((np.diff(wanted) == 4).all()):
            return list(self._buffer.read(offset, 4 * len(wanted)).view("<u4").tolist())
        return [self._word(address) for address in wanted.tolist()]

    def _word(self, address: int) -> int:
        if _REGISTERS <= address < _REGISTERS_END:
            return self._backend.read32(address - _REGISTERS)
        if address == _WAIT:
            if self._backend.has_interrupt:
                return int(self._backend.wait_interrupt(_LONGEST_WAIT))
            self._backend.pause(1e-4)
            return 0
        if address == _RESET:
            return int(self._backend.reset())
        words = self._windows.words()
        return words[(address - INFO) // 4] if INFO <= address < INFO + 4 * len(words) else 0
