"""A device for others to use over the network: Etherbone in front of any back end.

Whoever has the token, or reaches a server that wants none, can run any program on the device and read and write the
memory that the server has set aside, and nothing else of this computer (`session`). What goes over the connection is
neither hidden nor signed: a network that others listen to wants a tunnel.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any, Callable

from .access import CHALLENGE_WORDS, challenge, is_answer
from .backend import Backend
from .errors import DriverError, TransportError
from .etherbone import Packet, receive, send
from .machine import Machine
from .session import Session
from .windows import ANSWER, CHALLENGE, INFO, MAGIC, STATE, State

__all__ = ["Limits", "Server"]

#: Seconds: a pause of the listener where there is no room for another connection, and between two looks of one that
#: waits for its turn at whether it still may.
_PAUSE, _SLICE = 0.1, 0.05
#: Bytes of answers that wait for a client.
_ANSWERS = 1 << 16


@dataclass(frozen=True)
class Limits:
    """What one client can keep from the others, in seconds.

    ``packet``: from a packet's first byte to its last, and for taking an answer. ``idle``: between the packets of the
    client that has the device. ``greeting``: from the connection until it has it. ``turn``: that it waits for one
    before it. ``guests``: connections beside that one; a further one closes the oldest.
    """

    packet: float = 5.0
    idle: float = 120.0
    greeting: float = 10.0
    turn: float = 2.0
    guests: int = 16


def _say(message: str) -> None:
    print(f"npudriver serve: {message}", file=sys.stderr, flush=True)


class Server:
    """Serves ``backend``, which is ``machine``, with ``memory`` bytes of its memory, one client at a time.

    ``port`` 0 takes any that is free; `address` says which. ``token``: what clients must have; it can be None where
    ``host`` is this computer's own loopback. ``say``: is told in a line whose connection was ended, and why.

    Raises TransportError, DeviceError for another device or one that does not stop, OutOfMemoryError.
    """

    def __init__(self, backend: Backend, machine: Machine, *, host: str = "127.0.0.1", port: int = 1234,
                 memory: int = 1 << 26, token: bytes | None = None, limits: Limits | None = None,
                 say: Callable[[str], None] = _say) -> None:
        self._token, self._limits, self._say = token, limits or Limits(), say
        family, where = _resolved(host, port)      # once: what is asked about is what is listened at
        if token is None and not ipaddress.ip_address(where[0].partition("%")[0]).is_loopback:
            raise TransportError(f"{host}:{port}: others can reach this address, so that clients must show a token: "
                                 "set NPUDRIVER_TOKEN or NPUDRIVER_TOKEN_FILE, or --token-file FILE", code="bad-token")
        self._session = Session(backend, machine, memory)
        self._session.end()
        self._turn = threading.Lock()       # of the client that has the device
        self._ready = True                  # what the last client left is gone
        self._clients: dict[socket.socket, threading.Thread] = {}   # oldest first
        self._tenant: socket.socket | None = None
        self._unwanted: set[socket.socket] = set()      # guests that had to go for others
        self._guard = threading.Lock()      # of the three above
        self._closed = False
        try:
            self._listener = socket.create_server(where, family=family)
        except OSError as error:
            raise TransportError(f"{host}:{port}: {error.strerror or error}") from None

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._listener.getsockname()[:2]
        return host, port

    def close(self) -> None:
        """Also ends `serve`, of another thread. The device is at rest and its memory is cleared after that."""
        with self._guard:
            self._closed = True
            clients = dict(self._clients)
        for connection in (self._listener, *clients):
            _shut(connection)
        self._listener.close()
        for thread in clients.values():
            thread.join()

    def serve(self) -> None:
        """Client after client, until `close`. What a client does wrong ends its connection."""
        while True:
            try:
                connection, address = self._listener.accept()
            except OSError as error:
                if self._closed or error.errno in (errno.EBADF, errno.EINVAL):
                    return
                time.sleep(_PAUSE)      # of this connection, or there are too many files: others will come
                continue
            self._begin(connection, f"{address[0]}:{address[1]}")

    def _begin(self, connection: socket.socket, name: str) -> None:
        if not self._make_room():
            connection.close()
            return
        thread = threading.Thread(target=self._attend, args=(connection, name), daemon=True)
        with self._guard:
            try:
                if not self._closed:
                    thread.start()
                    self._clients[connection] = thread
                    return
            except RuntimeError:        # there are too many, of all programs here
                pass
        connection.close()

    def _make_room(self) -> bool:
        """For one more guest, at the cost of the oldest; whether there is."""
        most = self._limits.guests
        with self._guard:
            guests = [other for other in self._clients if other is not self._tenant]
            leaving = guests[:max(0, len(guests) + 1 - most)]
            threads = [self._clients[other] for other in leaving]
            self._unwanted.update(leaving)
        for other in leaving:
            _shut(other)
        for thread in threads:
            thread.join(_PAUSE)
        return len(self._clients) <= 2 * most       # of those that are just being left by the device some take longer

    # -- one client --------------------------------------------------------------------------------------------------

    def _attend(self, connection: socket.socket, name: str) -> None:
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # Of its own accord the system keeps megabytes of answers for a client that takes none.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _ANSWERS)
            first = self._greet(connection)
            if first is not None:
                self._lend(connection, first)
        except (OSError, DriverError) as error:
            if not self._closed:
                self._say(f"{name}: {getattr(error, 'strerror', None) or error}")
        finally:
            with self._guard:
                del self._clients[connection]
                self._unwanted.discard(connection)
            connection.close()

    def _greet(self, connection: socket.socket) -> Packet | None:
        """Until the client may have the device: its first packet that needs it. None when it has gone.

        A client is told before that who is here, and can show its token, once. Raises TransportError, OSError.
        """
        limits, words = self._limits, challenge()
        deadline = time.monotonic() + limits.greeting
        locked, tried = self._token is not None, False
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TransportError("has not asked for the device in time")
            packet = receive(connection, idle=left, within=min(left, limits.packet))
            if packet is None:
                return None
            if packet.reads == (INFO,) and not packet.writes:
                send(connection, Packet(writes=[MAGIC]), within=limits.packet)
            elif not locked:
                return packet
            elif packet.reads == (STATE,) and not packet.writes:
                send(connection, Packet(writes=[State.LOCKED]), within=limits.packet)
                if tried:
                    raise TransportError("has another token", code="bad-token")
            elif packet.reads == tuple(CHALLENGE + 4 * number for number in range(CHALLENGE_WORDS)):
                send(connection, Packet(writes=words), within=limits.packet)
            elif packet.base == ANSWER and not packet.reads and not tried and self._token is not None:
                tried, locked = True, not is_answer(self._token, words, packet.writes)
            else:
                raise TransportError("has not shown the token", code="bad-token")

    def _lend(self, connection: socket.socket, packet: Packet | None) -> None:
        """The device, from this packet on until the client goes. Raises TransportError, OSError, DeviceError."""
        limits = self._limits
        deadline = time.monotonic() + limits.turn
        while not self._turn.acquire(timeout=_SLICE):
            if connection in self._unwanted:
                raise TransportError("has waited for the device while others came")
            if self._closed or time.monotonic() >= deadline:
                self._refuse(connection, packet, State.TAKEN)
        try:
            if not self._ready:
                try:
                    self._end()
                except DriverError:
                    self._refuse(connection, packet, State.STUCK)
            with self._guard:
                self._tenant = connection
            try:
                while packet is not None:
                    self._answer(connection, packet)
                    packet = receive(connection, idle=limits.idle, within=limits.packet)
            finally:
                with self._guard:
                    self._tenant = None
                self._end()
        finally:
            self._turn.release()

    def _end(self) -> None:
        self._ready = False
        self._session.end()
        self._ready = True

    def _refuse(self, connection: socket.socket, packet: Packet | None, state: State) -> None:
        """Raises TransportError."""
        if packet is not None and tuple(packet.reads) == (STATE,):
            send(connection, Packet(writes=[state]), within=self._limits.packet)
        raise TransportError("another client has the device" if state == State.TAKEN else "the device does not stop",
                             code="refused-by-server")

    def _answer(self, connection: socket.socket, packet: Packet) -> None:
        if packet.writes:
            self._session.write(packet.base, packet.writes)
        if packet.reads:
            send(connection, Packet(writes=self._session.read(packet.reads)), within=self._limits.packet)


def _shut(connection: socket.socket) -> None:
    """Whoever waits for it, in another thread, finds it closed."""
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:     # by the other side, before
        pass


def _resolved(host: str, port: int) -> tuple[socket.AddressFamily, tuple[Any, ...]]:
    """Family and numbers of a host, of which there may be several. Raises TransportError."""
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise TransportError(f"{host}:{port}: {getattr(error, 'strerror', None) or error}") from None
    family, _, _, _, where = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    return family, where
