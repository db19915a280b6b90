"""What one client of a server may do with the device, and how the device is left for the next.

A client reads and writes the registers that the machine has, by their names in its map, and the server's buffer; it
waits for the interrupt and resets. The machine reaches memory by two regions, of the program and of the data, and
checks each load and store against the second: so START goes through only where both lie in the buffer. Where the
machine has limits, the server locks them around the buffer; what a client writes to them does nothing.
"""

from __future__ import annotations

from typing import Sequence

import numpy as np

from .backend import Backend
from .errors import DeviceError, OutOfMemoryError, TransportError
from .machine import Machine
from .registers import LIMIT_REGISTERS, Registers
from .settling import settles
from .windows import INFO, Windows

__all__ = ["REGISTERS", "Session"]

#: Where a client finds the registers and the buffer, among the addresses of its connection.
REGISTERS, _MEMORY = 0x0, 0x1000_0000
_WAIT, _RESET = INFO + 0x1000, INFO + 0x1004
#: Seconds that a read of the word for it waits for the interrupt.
_LONGEST_WAIT = 0.1
#: Bytes that are cleared at once.
_PIECE = 1 << 20
#: What tells the machine which memory is its program's and which its data's.
_REGIONS = ("program_low", "program_high", "program_length", "data_low", "data_high", "data_beats", "write_start")


class Session:
    """``backend`` with ``memory`` bytes of its memory. One client at a time; `end` makes it ready for each.

    Raises DeviceError where the device is not ``machine``, OutOfMemoryError, TransportError.
    """

    def __init__(self, backend: Backend, machine: Machine, memory: int) -> None:
        self._backend, self._machine = backend, machine
        if memory > INFO - _MEMORY:
            raise OutOfMemoryError(f"a server lends {INFO - _MEMORY:,} bytes of memory at most, not {memory:,}")
        self._device = Registers(backend, machine)
        self._names = {address: name for name, address in machine.registers.items()}
        self._buffer = backend.allocate(memory, machine.alignment)
        if (self._buffer.address + memory - 1) >> machine.address_bits:
            raise OutOfMemoryError(f"memory at {self._buffer.address:#x} is out of the machine's reach, whose bus has "
                                   f"{machine.address_bits} address bits; reserve lower memory")
        self._timeout = self._device.read("timeout")
        windows = Windows(REGISTERS, _MEMORY, memory, self._buffer.address, _WAIT, _RESET)
        self._info = {INFO + 4 * number: word for number, word in enumerate(windows.words())}

    def _confine(self) -> None:
        """Limits are the server's: around the buffer, for as long as it has that. A reset drops them."""
        first, size, page = self._buffer.address, self._buffer.size, self._machine.alignment
        self._device.confine(first, first + -(-size // page) * page - 1)

    # -- for the next client -----------------------------------------------------------------------------------------

    def end(self) -> None:
        """Stop the machine, forget what it was told, clear the buffer. Raises DeviceError where it does not stop.

        What the machine keeps inside, its buffers and the counters of the last run, only a reset clears, which not all
        ways to a device have.
        """
        registers = self._device
        if registers.status() & registers.busy:
            registers.command("ABORT")
        if not settles(self._backend, registers) and not (self._backend.reset() and settles(self._backend, registers)):
            raise DeviceError("the device does not stop, as its bus owes answers: load its bitstream again",
                              code="device-stuck")
        registers.identify()
        self._confine()
        registers.command("CLEAR")
        for name in (*_REGIONS, "irq_enable", "stream_shift"):
            if name in self._machine.registers:
                registers.write(name, 0)
        registers.write("timeout", self._timeout)
        zeros = np.zeros(min(_PIECE, self._buffer.size), np.uint8)
        for first in range(0, self._buffer.size, _PIECE):
            self._buffer.write(first, zeros[:self._buffer.size - first])

    # -- what the client asks ----------------------------------------------------------------------------------------

    def write(self, base: int, words: Sequence[int]) -> None:
        """Words to an address and those after it. Raises TransportError for what a client must not write."""
        size = 4 * len(words)
        if base % 4:
            raise TransportError(f"a write to {base:#x}, which is no multiple of 4", code="bad-write")
        if _MEMORY <= base and base + size <= _MEMORY + self._buffer.size:
            self._buffer.write(base - _MEMORY, np.array(words, "<u4").view(np.uint8))
            return
        for number, word in enumerate(words):
            address = base + 4 * number
            name = self._names.get(address - REGISTERS)
            if name is None:
                raise TransportError(f"a write to {address:#x}, where there is nothing", code="bad-write")
            if name == "control":
                self._require_sense(word)
            if name in LIMIT_REGISTERS:
                continue
            self._device.write(name, word)

    def _require_sense(self, command: int) -> None:
        """Raises TransportError for a START that would reach memory which is not the client's.

        The registers are read back, so it is the machine that says what it would do. They stand still from then on:
        this client alone writes them, one packet after another, and a running machine does not take new ones.
        """
        device = self._device
        if not command & self._machine.control["START"] or device.status() & device.busy:    # which ignores it
            return
        low, high = self._buffer.address, self._buffer.address + self._buffer.size
        machine = self._machine
        code = device.read("program_length") * machine.instruction_bytes
        sizes = {"program": -(-code // machine.beat_bytes) * machine.beat_bytes,    # whole beats are fetched
                 "data": device.read("data_beats") * machine.beat_bytes}
        for name, size in sizes.items():
            first = device.read(f"{name}_low") | device.read(f"{name}_high") << 32
            if first < low or first + size > high:
                raise TransportError(f"START with a {name} region of {size:#x} bytes at {first:#x}; it must lie in the "
                                     f"{self._buffer.size:#x} bytes at {low:#x}", code="bad-write")

    def read(self, addresses: Sequence[int]) -> list[int]:
        """Words; 0 where there is nothing. Raises TransportError."""
        first, count = addresses[0], len(addresses)
        offset = first - _MEMORY
        if first % 4 == 0 and 0 <= offset <= self._buffer.size - 4 * count and \
                list(addresses) == list(range(first, first + 4 * count, 4)):
            return list(self._buffer.read(offset, 4 * count).view("<u4").tolist())
        return [self._word(address) for address in addresses]

    def _word(self, address: int) -> int:
        if address == _WAIT:
            if self._backend.has_interrupt:
                return int(self._backend.wait_interrupt(_LONGEST_WAIT))
            self._backend.pause(1e-4)
            return 0
        if address == _RESET:
            done = self._backend.reset()
            if done:
                self._device.identify()
                self._confine()
            return int(done)
        if address in self._info:
            return self._info[address]
        if address % 4 == 0 and 0 <= address - _MEMORY <= self._buffer.size - 4:
            return int(self._buffer.read(address - _MEMORY, 4).view("<u4")[0])
        name = self._names.get(address - REGISTERS)
        return 0 if name is None else self._device.read(name)
