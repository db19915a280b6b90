"""A device at the other end of a connection that reads and writes 32-bit words.

That is a board that runs `python3 -m npudriver serve`, or LiteX's server (litex_server) with a UART, Ethernet, PCIe or
JTAG bridge beyond it, by our own client or by LiteX's RemoteClient.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping, Protocol

import numpy as np

from ..access import CHALLENGE_WORDS, TOKEN, TOKEN_FILE, answer
from ..arena import Arena
from ..backend import Backend, Buffer
from ..errors import TransportError
from ..windows import ANSWER, CHALLENGE, STATE, State, Windows

__all__ = ["Client", "RemoteBackend"]

#: Words that are moved at once: fewer than the 255 of an Etherbone packet, as bridges have buffers of a power of two.
_WORDS = 128

_REFUSALS: Mapping[int, str] = {
    State.TAKEN: "another client has the device; try again when it is done",
    State.STUCK: "the device does not stop, as its bus owes answers: load its bitstream again",
}


class Client(Protocol):
    """What is asked of a connection; LiteX's RemoteClient has it."""

    def read(self, addr: int, length: Any) -> Any: ...

    def write(self, addr: int, datas: Any) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class _Place:
    client: Client
    #: What is added to a bus address for the client's.
    shift: int


class RemoteBackend(Backend):
    """``windows``: where things are; None asks the other side, which must be a server of this package and may want the
    ``token``.

    Raises TransportError.
    """

    def __init__(self, client: Client, windows: Windows | None = None, *, token: bytes | None = None) -> None:
        self._client = client
        try:
            self._windows = windows or self._found(token)
        except BaseException:
            client.close()
            raise
        self.has_interrupt = self._windows.wait is not None
        self._place = _Place(client, self._windows.memory - self._windows.bus)
        self._arena = Arena(self._windows.bus, self._windows.size)

    def _found(self, token: bytes | None) -> Windows:
        """Of a server of this package, which lends the device once it is asked for its state."""
        def read(address: int) -> int:
            return int(self._client.read(address, 1)[0])

        Windows.require_server(read)
        state = read(STATE)
        if state == State.LOCKED:
            if token is None:
                raise TransportError(f"the server wants a token: set {TOKEN} or {TOKEN_FILE}, or ?token-file=FILE in "
                                     "the device's URL", code="bad-token")
            words = self._client.read(CHALLENGE, CHALLENGE_WORDS)
            self._client.write(ANSWER, answer(token, words))
            state = read(STATE)
            if state == State.LOCKED:
                raise TransportError("the server has another token", code="bad-token")
        if state != State.YOURS:
            raise TransportError(_REFUSALS.get(state, f"the server says {state}, which this version does not know"),
                                 code="refused-by-server")
        return Windows.found(read)

    def read32(self, address: int) -> int:
        return int(self._client.read(self._windows.registers + address, 1)[0])

    def write32(self, address: int, value: int) -> None:
        self._client.write(self._windows.registers + address, [value])

    def wait_interrupt(self, seconds: float) -> bool:
        assert self._windows.wait is not None
        return bool(self._client.read(self._windows.wait, 1)[0])

    def reset(self) -> bool:
        if self._windows.reset is None:
            return False
        return bool(self._client.read(self._windows.reset, 1)[0])

    def allocate(self, size: int, alignment: int) -> Buffer:
        whole = -(-size // 4) * 4
        return _RemoteBuffer(self._place, self._arena, self._arena.allocate(whole, alignment), size)

    def close(self) -> None:
        self._client.close()


class _RemoteBuffer(Buffer):
    def __init__(self, place: _Place, arena: Arena, address: int, size: int) -> None:
        self._place, self._arena, self.address, self.size = place, arena, address, size
        self._freed = False

    def write(self, offset: int, data: np.ndarray) -> None:
        self.check(offset, data.size)
        if not data.size:
            return
        first, end = offset // 4 * 4, -(-(offset + data.size) // 4) * 4
        raw = np.zeros(end - first, np.uint8)
        if first != offset:
            raw[:4] = self._words(first, 1)
        if end != offset + data.size:
            raw[-4:] = self._words(end - 4, 1)
        raw[offset - first:offset - first + data.size] = data
        words = raw.view("<u4")
        for number in range(0, len(words), _WORDS):     # lists of all of them at once would take ten times the memory
            self._place.client.write(self.address + self._place.shift + first + 4 * number,
                                     words[number:number + _WORDS].tolist())

    def read(self, offset: int, size: int) -> np.ndarray:
        self.check(offset, size)
        first, end = offset // 4 * 4, -(-(offset + size) // 4) * 4
        parts = [self._words(at, min(_WORDS, (end - at) // 4)) for at in range(first, end, 4 * _WORDS)]
        raw = np.concatenate([np.zeros(0, np.uint8), *parts])
        return raw[offset - first:offset - first + size]

    def _words(self, offset: int, count: int) -> np.ndarray:
        words = self._place.client.read(self.address + self._place.shift + offset, count)
        if len(words) != count:
            raise TransportError(f"{len(words)} words came where {count} were asked for")
        return np.array(words, "<u4").view(np.uint8)

    def free(self) -> None:
        if not self._freed:
            self._freed = True
            self._arena.free(self.address)
