"""The functional simulator as the device of a program in C, on the host or under qemu: by a pipe, as
tests/npudriver/piped_backend.h asks.
"""

import enum
import os
import struct
import subprocess
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np

from cores.config import NpuConfig
from npudriver import Backend, Buffer
from sim.devices.functional import FunctionalBackend

__all__ = ["Answers", "PipedError", "run_piped", "run_together"]


class PipedError(Exception):
    """The program ended early; the message says how."""


class Operation(enum.IntEnum):
    """As the enumeration of piped_backend.h."""

    READ = 0
    WRITE = 1
    ALLOCATE = 2
    FREE = 3
    TO_DEVICE = 4
    TO_HOST = 5
    WAIT = 6
    NOW = 7
    RESET = 8
    SAMPLES = 9
    INPUT = 10
    OUTPUT = 11
    STATUS = 12
    SAY = 13


@dataclass
class Answers:
    """``outputs``: those of each sample, in bytes with their sizes. ``cycles``: of all programs of all samples."""

    outputs: list[dict[int, tuple[tuple[int, ...], bytes]]] = field(default_factory=list)
    cycles: int = 0
    #: (status, cause of a fault, index of its instruction), where a call had another outcome than NPUGEN_OK.
    status: tuple[int, int, int] | None = None
    #: What the program says.
    lines: list[str] = field(default_factory=list)


class _Served:
    """One program's requests. ``element``: bytes of an element of each output."""

    def __init__(self, device: Backend, samples: Sequence[Sequence[bytes]], element: Sequence[int],
                 requests: BinaryIO, replies: BinaryIO) -> None:
        self.device = device
        self.buffers: dict[int, Buffer] = {}
        self.samples, self.element = samples, element
        self.requests, self.replies = requests, replies
        self.answers = Answers(outputs=[{} for _ in samples])
        self.started = 0

    def run(self) -> None:
        while head := self.requests.read(16):
            operation, *numbers = struct.unpack("<4I", head)
            getattr(self, f"_{Operation(operation).name.lower()}")(*numbers)
            self.replies.flush()

    def _answer(self, *numbers: int) -> None:
        self.replies.write(struct.pack(f"<{len(numbers)}I", *numbers))

    def _buffer(self, address: int) -> Buffer:
        for buffer in self.buffers.values():
            if buffer.address <= address < buffer.address + buffer.size:
                return buffer
        raise PipedError(f"no memory has the address {address:#x}")

    def _read(self, address: int, *_: int) -> None:
        self._answer(self.device.read32(address))

    def _write(self, address: int, value: int, _: int) -> None:
        self.device.write32(address, value)

    def _allocate(self, size: int, alignment: int, _: int) -> None:
        buffer = self.device.allocate(size, alignment)
        self.buffers[buffer.address] = buffer
        self._answer(buffer.address)

    def _free(self, address: int, *_: int) -> None:
        self.buffers.pop(address).free()

    def _to_device(self, address: int, size: int, _: int) -> None:
        data = np.frombuffer(self.requests.read(size), np.uint8)
        if size:
            buffer = self._buffer(address)
            buffer.write(address - buffer.address, data)

    def _to_host(self, address: int, size: int, _: int) -> None:
        if size:
            buffer = self._buffer(address)
            self.replies.write(buffer.read(address - buffer.address, size).tobytes())

    def _wait(self, microseconds: int, *_: int) -> None:
        self.device.wait_interrupt(microseconds / 1e6)
        if isinstance(self.device, FunctionalBackend) and self.device.starts > self.started:
            self.started = self.device.starts
            self.answers.cycles += self._counter("cycles")
        self._answer(0)

    def _counter(self, name: str) -> int:
        assert isinstance(self.device, FunctionalBackend)
        low, high = (self.device.read32(self.device._machine.registers[f"counter_{name}_{half}"])
                     for half in ("low", "high"))
        return low | high << 32

    def _now(self, *_: int) -> None:
        self._answer(int(self.device.time() * 1e6) & 0xFFFFFFFF)

    def _reset(self, *_: int) -> None:
        self.device.reset()
        self._answer(0)

    def _samples(self, *_: int) -> None:
        self._answer(len(self.samples))

    def _input(self, sample: int, index: int, _: int) -> None:
        self.replies.write(self.samples[sample][index])

    def _output(self, sample: int, index: int, rank: int) -> None:
        shape = struct.unpack(f"<{rank}I", self.requests.read(4 * rank))
        size = int(np.prod(shape, dtype=np.int64)) * self.element[index]
        self.answers.outputs[sample][index] = shape, self.requests.read(size)

    def _status(self, status: int, code: int, index: int) -> None:
        self.answers.status = status, code, index

    def _say(self, size: int, *_: int) -> None:
        self.answers.lines.append(self.requests.read(size).decode())


def run_piped(command: Sequence[str | Path], config: NpuConfig, samples: Sequence[Sequence[bytes]],
              element: Sequence[int], *, timeout: float = 600, device: Backend | None = None) -> Answers:
    """What a program over piped_model.c makes of some ``samples``, each the bytes of every input.

    ``element``: bytes of an element of every output; ``device``: in place of the functional simulator's.
    Raises PipedError where it ends by a signal or says anything.
    """
    process = subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
    assert process.stdin and process.stdout and process.stderr
    timer = threading.Timer(timeout, process.kill)
    timer.start()
    served = _Served(device or FunctionalBackend(config), samples, element, process.stdout, process.stdin)
    try:
        served.run()
    except BrokenPipeError:
        pass
    finally:
        timer.cancel()
        for stream in (process.stdin, process.stdout):
            try:
                stream.close()
            except BrokenPipeError:
                pass
        said = process.stderr.read().decode(errors="replace")
        process.stderr.close()
        code = process.wait()
    if said or code not in (0, 1) or (code == 1) != (served.answers.status is not None):
        raise PipedError(f"ended with {code}: {said.strip()[-2000:]}")
    return served.answers


def run_together(command: Sequence[str | Path], config: NpuConfig, samples: Sequence[Sequence[Sequence[bytes]]],
                 element: Sequence[int], *, timeout: float = 600) -> list[Answers]:
    """What instances of a model in one program (piped_several.c) make of the ``samples`` of each, at the same time and
    on a device each. As `run_piped`.
    """
    mine, theirs = [], []
    for one in samples:
        (their_from, my_to), (my_from, their_to) = os.pipe(), os.pipe()
        theirs += [their_from, their_to]
        mine.append(_Served(FunctionalBackend(config), one, element, os.fdopen(my_from, "rb"), os.fdopen(my_to, "wb")))
    process = subprocess.Popen([*map(str, command), *map(str, theirs)], pass_fds=theirs, stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    for end in theirs:
        os.close(end)
    with ThreadPoolExecutor(len(mine)) as threads:
        running = [threads.submit(served.run) for served in mine]
        for one in running:     # without its device the program would wait for ever
            one.add_done_callback(lambda done: process.kill() if done.exception() else None)
        try:
            _, said = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            _, said = process.communicate()
        wait(running)
        for served in mine:
            for stream in (served.requests, served.replies):
                with suppress(BrokenPipeError):
                    stream.close()
    for one in running:
        with suppress(BrokenPipeError):     # it has ended, and says why
            one.result()
    if said or process.returncode:
        raise PipedError(f"ended with {process.returncode}: {said.decode(errors='replace').strip()[-2000:]}")
    return [served.answers for served in mine]
