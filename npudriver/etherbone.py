"""Etherbone over TCP: 32-bit reads and writes in packets, as LiteX's server and its remote client speak it.

A packet has one record: up to 255 writes to one address and those after it, and up to 255 reads, 2,060 bytes at most.
The answer to reads is a record of writes. There is neither a password nor a signature in it: who reaches an address
where it is spoken can read and write there.
"""

from __future__ import annotations

import socket
import struct
import time
from dataclasses import dataclass
from typing import Sequence

from .errors import TransportError

__all__ = ["EtherboneClient", "Packet", "receive", "send"]

_MAGIC, _VERSION, _SIZES = 0x4E6F, 0x10, 0x44     # 32 bits of address and of data
_HEADER = struct.Struct(">HBB4xBBBB")
_ALL_BYTES = 0xF
#: Reads or writes of a packet.
LONGEST = 255


@dataclass(frozen=True)
class Packet:
    """``writes`` go to ``base`` and after it; ``reads`` are addresses."""

    base: int = 0
    writes: Sequence[int] = ()
    reads: Sequence[int] = ()


def send(connection: socket.socket, packet: Packet, *, within: float | None = None) -> None:
    """``within``: seconds that it may take, or those of the connection. Raises TransportError after them, OSError."""
    head = _HEADER.pack(_MAGIC, _VERSION, _SIZES, 0, _ALL_BYTES, len(packet.writes), len(packet.reads))
    body = b""
    if packet.writes:
        body += struct.pack(f">{len(packet.writes) + 1}I", packet.base, *packet.writes)
    if packet.reads:
        body += struct.pack(f">{len(packet.reads) + 1}I", 0, *packet.reads)
    own = connection.gettimeout()
    try:
        connection.settimeout(own if within is None else within)
        connection.sendall(head + body)     # whose timeout is one of the whole
    except socket.timeout:
        raise TransportError("the other side does not take what it is sent: timed out") from None
    finally:
        connection.settimeout(own)


def receive(connection: socket.socket, *, idle: float | None = None, within: float | None = None) -> Packet | None:
    """None when the other side has closed.

    ``idle``: seconds until the first byte comes, ``within``: from that one to the last; both are those of the
    connection where nothing is said. Raises TransportError after them, and for what is no such packet; OSError.
    """
    own = connection.gettimeout()
    try:
        return _receive(connection, own if idle is None else idle, own if within is None else within)
    except socket.timeout:
        raise TransportError("timed out") from None
    finally:
        connection.settimeout(own)


def _receive(connection: socket.socket, idle: float | None, within: float | None) -> Packet | None:
    connection.settimeout(idle)
    first = connection.recv(_HEADER.size)
    if not first:
        return None
    deadline = None if within is None else time.monotonic() + within
    head = first + _exactly(connection, _HEADER.size - len(first), deadline)
    magic, version, sizes, _, _, writes, reads = _HEADER.unpack(head)
    if (magic, version & 0xF0, sizes) != (_MAGIC, _VERSION, _SIZES):
        raise TransportError("the other side does not speak Etherbone")
    words: dict[str, tuple[int, ...]] = {"writes": (), "reads": ()}
    base = 0
    for name, count in (("writes", writes), ("reads", reads)):
        if count:
            body = _exactly(connection, 4 * (count + 1), deadline)
            number, *words_read = struct.unpack(f">{count + 1}I", body)
            words[name] = tuple(words_read)
            base = number if name == "writes" else base
    return Packet(base, **words)


def _exactly(connection: socket.socket, size: int, deadline: float | None) -> bytes:
    """Raises socket.timeout at the ``deadline``, however many bytes have come; TransportError for too few."""
    data = b""
    while len(data) < size:
        if deadline is not None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise socket.timeout
            connection.settimeout(left)
        part = connection.recv(size - len(data))
        if not part:
            raise TransportError("the connection was closed in the middle of a packet")
        data += part
    return data


class EtherboneClient:
    """``read`` and ``write`` as LiteX's RemoteClient has them; each takes ``timeout`` seconds at most to send, and to
    receive. Raises TransportError.
    """

    def __init__(self, host: str, port: int = 1234, *, timeout: float = 5.0) -> None:
        self._where = f"{host}:{port}"
        try:
            self._connection = socket.create_connection((host, port), timeout)
        except OSError as error:
            raise TransportError(f"{self._where}: {error.strerror or error}") from None
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def read(self, addr: int, length: int = 1) -> list[int]:
        """``length`` words (255 at most) from a byte address on."""
        try:
            send(self._connection, Packet(reads=[addr + 4 * number for number in range(length)]))
            answer = receive(self._connection)
        except (OSError, TransportError) as error:
            raise self._lost(error) from None
        if answer is None:
            raise self._lost("the connection was closed")
        if len(answer.writes) != length:
            raise self._lost(f"{len(answer.writes)} words came where {length} were asked for")
        return list(answer.writes)

    def write(self, addr: int, datas: Sequence[int]) -> None:
        """Words (255 at most) to a byte address and after it."""
        try:
            send(self._connection, Packet(base=addr, writes=datas))
        except (OSError, TransportError) as error:
            raise self._lost(error) from None

    def _lost(self, why: object) -> TransportError:
        """After this nothing is sent or taken any more: an answer that comes late is not that to the next question."""
        self._connection.close()
        return TransportError(f"{self._where}: {getattr(why, 'strerror', None) or why}")

    def close(self) -> None:
        self._connection.close()
