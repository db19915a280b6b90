"""Messages of hostile and slow clients to the server of a device, over a connection of this computer's own loopback.

    python -m tests.fuzz.remote SEED FIRST COUNT

A case is a connection, made from its seed and its number. Prints a JSON line for each: its number, what it was, and
what is wrong with it.
"""

import json
import socket
import struct
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any

import numpy as np

from cores.config import NpuConfig
from cores.device import driver_machine
from npudriver import Backend, Buffer, DriverError
from npudriver.backends.remote import RemoteBackend
from npudriver.etherbone import EtherboneClient
from npudriver.server import Limits, Server
from npudriver.windows import ANSWER, CHALLENGE, INFO, STATE

__all__ = ["Fuzzer"]

MACHINE = driver_machine(NpuConfig.preset(16))
TOKEN = b"the token of these tests"
#: Long enough for an honest client on a busy computer.
LIMITS = Limits(packet=0.4, idle=1.0, greeting=1.0, turn=4.0, guests=8)
#: Of the board: its memory on the bus, and what of it clients have.
_BASE, _MEMORY, _LENT, _FIRST = 0x4000_0000, 1 << 18, 1 << 16, 1 << 17
#: What lies in memory that is nobody's, and what the machine writes.
_CANARY, _MADE = 0xC5, 0x5A
_WINDOW = 0x1000_0000
#: Seconds after which a server is said to hang.
_PATIENCE = 20.0

Rng = np.random.Generator


class _Memory(Buffer):
    """The part of the board's memory that is lent."""

    def __init__(self, board: "Board") -> None:
        self._array = board.memory[_FIRST:_FIRST + _LENT]
        self.address, self.size = _BASE + _FIRST, _LENT

    def write(self, offset: int, data: np.ndarray) -> None:
        self.check(offset, data.size)
        self._array[offset:offset + data.size] = data

    def read(self, offset: int, size: int) -> np.ndarray:
        self.check(offset, size)
        return self._array[offset:offset + size].copy()

    def free(self) -> None: ...


class Board(Backend):
    """A machine whose programs do the worst that its hardware lets them: they read all that they can reach, and write
    all that they may. It drops the low bits of register addresses, as memory-mapped ports do.
    """

    def __init__(self) -> None:
        self.memory = np.full(_MEMORY, _CANARY, np.uint8)
        self.touched = self.starts = 0
        self.wrong: list[str] = []
        #: Whether the next program runs until it is aborted, and how many looks at it that takes then.
        self.endless, self.stubborn = False, 0
        self._names = {address >> 2: name for name, address in MACHINE.registers.items()}
        self._values = dict.fromkeys(MACHINE.registers, 0) | dict(MACHINE.fingerprint) | {"timeout": 1 << 20}
        self._owed = 0

    def read32(self, address: int) -> int:
        self.touched += 1
        name = self._names.get(address >> 2)
        if name == "status" and self._owed > 0:
            self._owed -= 1
            if not self._owed:
                self._values["status"] = 0
        return 0 if name in (None, "control") else self._values[name]

    def write32(self, address: int, value: int) -> None:
        self.touched += 1
        name = self._names.get(address >> 2)
        busy = self._values["status"] & MACHINE.status["BUSY"]
        if address % 4 or not 0 <= value < 1 << 32 or name is None:
            self.wrong.append(f"{value:#x} is written to register address {address:#x}")
        elif name == "control":
            if value & MACHINE.control["CLEAR"] and not busy:
                self._values["status"] = 0
            if value & MACHINE.control["ABORT"] and busy:
                self._values["status"] = MACHINE.status["BUSY"] if self.stubborn else 0
                self._owed = self.stubborn
            if value & MACHINE.control["START"] and not self._values["status"] & MACHINE.status["BUSY"]:
                self._start()
        elif name not in MACHINE.fingerprint and not name.startswith(("counter_", "status", "error_")) and (
                not busy or name in ("timeout", "irq_enable")):
            self._values[name] = value & (0xFFFFF000 if name in ("program_low", "data_low") else 0xFFFFFFFF)

    def _start(self) -> None:
        values = self._values
        self.starts += 1
        sizes = {"program": values["program_length"] * MACHINE.instruction_bytes,
                 "data": values["data_beats"] * MACHINE.beat_bytes}
        for name, size in sizes.items():
            first = (values[f"{name}_low"] | values[f"{name}_high"] << 32) - _BASE
            if first < _FIRST or first + size > _FIRST + _LENT:
                self.wrong.append(f"a program starts with a {name} region of {size:#x} bytes at {first + _BASE:#x}")
                return
        first = values["data_low"] - _BASE
        self.memory[first + values["write_start"] * MACHINE.beat_bytes:first + sizes["data"]] = _MADE
        values["status"] = MACHINE.status["BUSY" if self.endless else "DONE"]

    def allocate(self, size: int, alignment: int) -> Buffer:
        assert size == _LENT and _FIRST % alignment == 0
        return _Memory(self)

    def wait_interrupt(self, seconds: float) -> bool:
        return bool(self._values["status"] & MACHINE.status["DONE"])

    def close(self) -> None: ...

    def spared(self) -> bool:
        """Whether the memory that is not lent is as it was."""
        return bool((self.memory[:_FIRST] == _CANARY).all() and (self.memory[_FIRST + _LENT:] == _CANARY).all())


# -- what clients send -----------------------------------------------------------------------------------------------

_EDGES = [
    0, 1, 2, 3, 4, 0xFFC, 0xFFF, 0x1000, _WINDOW - 4, _WINDOW, _WINDOW + 2, _WINDOW + _LENT - 4, _WINDOW + _LENT, _BASE,
    _BASE + _FIRST, _BASE + _FIRST - 4096, _BASE + _FIRST + _LENT, 0x7FFF_FFFF, 0x8000_0000, INFO - 4, INFO,
    INFO + 0x1000, INFO + 0x1004, STATE, CHALLENGE, ANSWER, 0xFFFF_F000, 0xFFFF_FFFC, 0xFFFF_FFFF]


def _number(rng: Rng) -> int:
    match int(rng.integers(4)):
        case 0:
            return int(rng.integers(1 << 32))
        case 1:
            return int(rng.choice(list(MACHINE.registers.values())))
        case _:
            return (int(rng.choice(_EDGES)) + int(rng.choice([0, 0, 0, -4, 4, 1]))) % (1 << 32)


def _packet(base: int, writes: list[int], reads: list[int]) -> bytes:
    head = struct.pack(">HBB4xBBBB", 0x4E6F, 0x10, 0x44, 0, 15, len(writes), len(reads))
    return head + b"".join(struct.pack(f">{len(words) + 1}I", first, *words)
                           for first, words in ((base, writes), (0, reads)) if words)


def _write(name: str, value: int) -> bytes:
    return _packet(MACHINE.registers[name], [value], [])


def _any(rng: Rng) -> bytes:
    counts = [int(rng.choice([0, 1, 1, 2, 8, 255])) for _ in range(2)]
    first = _number(rng)
    reads = [first + 4 * at for at in range(counts[1])] if rng.integers(2) else [_number(rng) for _ in range(counts[1])]
    return _packet(_number(rng), [_number(rng) for _ in range(counts[0])], [word % (1 << 32) for word in reads])


def _job(rng: Rng) -> list[bytes]:
    """A START, of which some registers are not what they should be; perhaps others while it runs, and another START."""
    bus = _BASE + _FIRST
    values = {"program_low": bus, "program_high": 0, "program_length": int(rng.integers(1, 64)), "data_low": bus + 4096,
              "data_high": 0, "data_beats": (_LENT - 4096) // MACHINE.beat_bytes, "write_start": int(rng.integers(16))}
    near = [0, 1, 4096, bus - 4096, bus + _LENT, bus + _LENT - 4096, _LENT // MACHINE.beat_bytes, 0xFFFF_F000,
            0xFFFF_FFFF, 1 << 31, (1 << 24) - 1]
    start, sent = MACHINE.control["START"], list[bytes]()
    for _ in range(int(rng.integers(1, 4))):
        names = list(values)
        for name in rng.choice(names, int(rng.choice([0, 1, 1, 2]))):
            values[str(name)] = int(rng.choice(near)) if rng.integers(4) else _number(rng)
        rng.shuffle(names)
        sent += [_write(name, values[name]) for name in names]
        sent.append(_write("control", start | int(rng.choice([0, 0, 2, 4, 6, 0xFFFF_FFF0]))))
    return sent


def _damaged(rng: Rng, message: bytes) -> bytes:
    data = bytearray(message)
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(min(len(data), int(rng.choice([12, 24, 2060]))) + 1))
        match int(rng.integers(4)):
            case 0:
                del data[at:at + int(rng.integers(1, 9))]
            case 1:
                data[at:at] = rng.bytes(int(rng.integers(1, 9)))
            case 2 if at < len(data):
                data[at] = int(rng.integers(256))
            case _ if at < len(data):
                data[at] ^= 1 << int(rng.integers(8))
    return bytes(data)


_STATE = _packet(0, [], [STATE])
KINDS = ("any", "job", "damaged", "noise", "locked", "slow")
#: Of all but slow ones, of which there is one in so many cases, each of the ways in turn.
_SHARES, _SLOW, _WAYS = (0.3, 0.3, 0.2, 0.1, 0.1), 25, 4


class Fuzzer:
    """A board behind two servers, one of which wants a token; `case` by case."""

    def __init__(self) -> None:
        self.board, self.locked_board = Board(), Board()
        self.said: list[str] = []
        self._died: list[str] = []
        self._servers = [Server(board, MACHINE, port=0, memory=_LENT, token=token, limits=LIMITS, say=self.said.append)
                         for board, token in ((self.board, None), (self.locked_board, TOKEN))]
        self._ports = [server.address[1] for server in self._servers]
        self._threads = [threading.Thread(target=server.serve) for server in self._servers]
        self._hook, threading.excepthook = threading.excepthook, lambda what: self._died.append(repr(what.exc_value))
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> "Fuzzer":
        return self

    def __exit__(self, *exception: object) -> None:
        for server, thread in zip(self._servers, self._threads, strict=True):
            server.close()
            thread.join()
        threading.excepthook = self._hook

    def case(self, seed: int, number: int) -> dict[str, Any]:
        """What it was, how many STARTs got through, and what is ``wrong``."""
        rng = np.random.default_rng([seed, number])
        kind = "slow" if number % _SLOW == 0 else str(rng.choice(KINDS[:-1], p=_SHARES))
        board = self.locked_board if kind == "locked" else self.board
        board.endless, board.stubborn = bool(rng.integers(2)), int(rng.choice([0, 0, 1, 5]))
        touched, starts, told = board.touched, board.starts, len(self.said)
        wrong = []
        try:
            if kind == "slow":
                self._slow(number // _SLOW % _WAYS, _any(rng))
            else:
                wrong += self._send(rng, kind)
            if kind == "locked" and board.touched != touched:
                wrong.append("the device is touched by a client that has not shown the token")
            if kind == "slow" or rng.integers(20) == 0:
                wrong += self._honest()
        except (OSError, DriverError) as error:
            wrong.append(f"{type(error).__name__}: {error}")
        wrong += self._died + self.board.wrong + self.locked_board.wrong
        self._died.clear()
        for one in (self.board, self.locked_board):
            one.wrong.clear()
            if not one.spared():
                wrong.append("memory is changed that is not lent")
                one.memory[:] = _CANARY
        wrong += [f"not a line: {line!r}" for line in self.said[told:] if not line.isprintable() or len(line) > 300]
        return {"number": number, "kind": kind, "starts": board.starts - starts, "wrong": wrong}

    def _send(self, rng: Rng, kind: str) -> list[str]:
        """Messages of a client that reads all answers; what it must not have been told."""
        match kind:
            case "any":
                messages = [_any(rng) for _ in range(int(rng.integers(1, 5)))]
            case "job":
                messages = _job(rng)
            case "damaged":
                sound = _job(rng) if rng.integers(2) else [_any(rng)]
                at = int(rng.integers(len(sound)))
                messages = [*sound[:at], _damaged(rng, sound[at]), *sound[at + 1:]]
            case "noise":
                messages = [rng.bytes(int(rng.integers(1, 3000)))]
            case _:
                greetings = [_STATE, _packet(0, [], [INFO]), _packet(0, [], [CHALLENGE + 4 * at for at in range(8)]),
                             _packet(ANSWER, [_number(rng) for _ in range(8)], [])]
                messages = [greetings[int(rng.integers(4))] for _ in range(int(rng.integers(4)))] + _job(rng)
        data = b"".join([] if kind == "locked" else [_STATE] * int(rng.integers(2))) + b"".join(messages)
        answers = b""
        with socket.create_connection(("127.0.0.1", self._ports[kind == "locked"]), _PATIENCE) as connection:
            try:
                for piece in np.array_split(np.frombuffer(data, np.uint8), int(rng.choice([1, 1, 2, 7]))):
                    connection.sendall(piece.tobytes())
                connection.shutdown(socket.SHUT_WR)
                while part := connection.recv(1 << 16):
                    answers += part
            except TimeoutError:
                return [f"neither an answer nor an end of the connection in {_PATIENCE:g} s"]
            except OSError:     # it has ended the connection, or does so
                pass
        words = np.frombuffer(answers, np.uint8)
        shut = words.size >= 4 and bool((np.lib.stride_tricks.sliding_window_view(words, 4) == _CANARY).all(1).any())
        return ["memory is read that is not lent"] if shut else []

    def _slow(self, how: int, message: bytes) -> None:
        """Clients that are there and hinder, while an honest one wants its turn; a crowd of those that say nothing."""
        for _ in range(20 if how == 0 else 1):
            connection = socket.socket()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 12)     # answers that it does not take
            connection.settimeout(_PATIENCE)
            connection.connect(("127.0.0.1", self._ports[0]))
            began = threading.Event()
            threading.Thread(target=_hinder, args=(connection, how, message, began), daemon=True).start()
            began.wait(_PATIENCE)

    def _honest(self) -> list[str]:
        """The next client: it gets the device, whose memory is clear, and what it computes."""
        with closing(EtherboneClient("127.0.0.1", self._ports[0], timeout=_PATIENCE)) as client:
            backend = RemoteBackend(client)
            buffer = backend.allocate(_LENT, 4096)
            if buffer.read(0, _LENT).any():
                return ["a client reads what another has left"]
            if any(backend.read32(MACHINE.registers[name]) for name in ("status", "program_low", "data_beats")):
                return ["registers are as another client left them"]
            self.board.endless = False
            for name, value in (("program_low", buffer.address), ("data_low", buffer.address), ("program_length", 1),
                                ("data_beats", _LENT // MACHINE.beat_bytes), ("control", MACHINE.control["START"])):
                backend.write32(MACHINE.registers[name], value)
            if not backend.wait_interrupt(1) or not (buffer.read(0, _LENT) == _MADE).all():
                return ["an honest client's program does not run"]
        return []


def _hinder(connection: socket.socket, how: int, message: bytes, began: threading.Event) -> None:
    """Until the server ends the connection. ``began``: in the way of others from now on."""
    with connection, suppress(OSError):
        if how == 0:        # silence, perhaps after a byte
            connection.sendall(message[:len(message) % 2])
        else:
            connection.sendall(_STATE)
            connection.recv(1 << 16)
        began.set()
        match how:
            case 2:     # a byte now and then
                for byte in _packet(_WINDOW, [0] * 255, []):
                    connection.sendall(bytes([byte]))
                    threading.Event().wait(LIMITS.packet / 10)
            case 3:     # takes no answers
                while True:
                    connection.sendall(_packet(0, [], [_WINDOW] * 255))
        while connection.recv(1 << 16):
            pass


def run(seed: int, first: int, count: int, report: Callable[[dict[str, Any]], None]) -> None:
    with Fuzzer() as fuzzer:
        for number in range(first, first + count):
            report(fuzzer.case(seed, number))


if __name__ == "__main__":
    results: list[dict[str, Any]] = []
    run(*map(int, sys.argv[1:]), results.append)
    for result in results:
        if result["wrong"]:
            print(json.dumps(result))
    kinds = Counter(result["kind"] for result in results)
    bad = sum(bool(result["wrong"]) for result in results)
    print(json.dumps({"cases": len(results), **kinds, "starts": sum(result["starts"] for result in results),
                      "wrong": bad}))
    sys.exit(bool(bad))
