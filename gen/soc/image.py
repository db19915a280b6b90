"""An image for the processor of a system: put into its memory, started, and its mailbox when it is done."""

import struct
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, replace
from typing import Any, ClassVar

import numpy as np

from cores.errors import NpugenError
from gen.soc.host import SystemClient
from gen.soc.processor import IDLE

__all__ = ["FAILED", "FINISHED", "MAGIC", "MAILBOX_OFFSET", "Mailbox", "ProcessorFaultError", "Waiting", "mailbox_of",
           "read_memory", "run_image"]

#: Of npudriver/c/vexriscv/firmware.h.
MAILBOX_OFFSET = 16
MAGIC = 0x4355504e
FINISHED, FAILED = 1, 2
#: Words that are moved at once.
_WORDS = 128


class ProcessorFaultError(NpugenError):
    """The processor has not done what it was to."""

    code = "processor-fault"


@dataclass(frozen=True)
class Mailbox:
    """As ``npugen_mailbox`` of npudriver/c/vexriscv/firmware.h."""

    magic: int
    samples: int
    count: int
    done: int
    state: int
    status: int
    what: int
    fault_code: int
    fault_index: int
    cause: int
    instruction: int
    value: int
    load_cycles: int

    #: Of the C structure.
    LAYOUT: ClassVar = struct.Struct("<12IQ")

    @classmethod
    def read(cls, data: bytes) -> "Mailbox":
        return cls(*cls.LAYOUT.unpack(data[:cls.LAYOUT.size]))

    def to_bytes(self) -> bytes:
        return self.LAYOUT.pack(*astuple(self))


@dataclass(frozen=True)
class Waiting:
    """How the host waits: it looks at a register after each ``pause``, and gives up after ``patience`` of these in
    which nothing more was ``done``; ``progress`` is told what is.
    """

    pause: Callable[[], None]
    patience: int
    progress: Callable[[int], None] = lambda done: None


def mailbox_of(image: bytes) -> Mailbox:
    return Mailbox.read(image[MAILBOX_OFFSET:])


def run_image(client: SystemClient, description: Mapping[str, Any], image: bytes, *, count: int, room: int,
              waiting: Waiting, data: bytes = b"") -> Mailbox:
    """Load an image and what lies after it into a memory that is awake, start it, and wait for its end.

    ``description``: ``system.json`` of the system; ``count``: what the mailbox gets as such; ``data``: put where the
    image leaves ``room`` bytes and more.

    Raises ProcessorFaultError when these do not fit, the processor does not wait for an image, does not end or stops at
    what it cannot do; HostError when the memory does not hold what is written to it.
    """
    memory, scratch = description["regions"]["main_ram"], description["registers"]["ctrl_scratch"]
    base, mail = memory["base"], mailbox_of(image)
    if mail.samples + room > base + memory["size"]:
        raise ProcessorFaultError(f"{room:,} bytes do not fit into {memory['size']:,} bytes of memory after the image",
                                  code="processor-memory")
    if client.read(scratch, 1)[0] != IDLE:
        raise ProcessorFaultError("the processor is at work, or there is none: reset the system")
    filled = bytearray(image)
    filled[MAILBOX_OFFSET:MAILBOX_OFFSET + Mailbox.LAYOUT.size] = replace(mail, count=count).to_bytes()
    _write(client, base, bytes(filled))
    _write(client, mail.samples, data)
    client.write(scratch, [base])
    _wait(client, scratch, waiting)
    mail = Mailbox.read(read_memory(client, base + MAILBOX_OFFSET, Mailbox.LAYOUT.size))
    if mail.state not in (FINISHED, FAILED):
        raise ProcessorFaultError(f"the processor stopped at 0x{mail.instruction:08x} with cause {mail.cause} and "
                                  f"value 0x{mail.value:08x}, after {mail.done:,} of {count:,}")
    return mail


def _wait(client: SystemClient, scratch: int, waiting: Waiting) -> None:
    last = first = client.read(scratch, 1)[0]
    waited = 0
    while (found := client.read(scratch, 1)[0]) != IDLE:
        if found != last:
            last, waited = found, 0
            waiting.progress(found)
        if waited >= waiting.patience:
            raise ProcessorFaultError(f"the processor does not end; {0 if found == first else found:,} are done")
        waiting.pause()
        waited += 1


def _write(client: SystemClient, address: int, data: bytes) -> None:
    words = np.frombuffer(data.ljust(-(-len(data) // 4) * 4, b"\0"), "<u4")
    for at in range(0, len(words), _WORDS):
        client.write(address + 4 * at, words[at:at + _WORDS].tolist())


def read_memory(client: SystemClient, address: int, size: int) -> bytes:
    """``size`` bytes from an address of the system on, which is one of a word."""
    count = -(-size // 4)
    words = [word for at in range(0, count, _WORDS) for word in client.read(address + 4 * at, min(_WORDS, count - at))]
    return np.array(words, "<u4").tobytes()[:size]
