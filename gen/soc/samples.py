"""Samples by the processor of a system: put into its memory with the model's image, and read when it is done."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cores.errors import NpugenError
from gen.soc.firmware import MAILBOX_OFFSET, Firmware, Mailbox
from gen.soc.host import SystemClient
from gen.soc.processor import IDLE

__all__ = ["ProcessorFaultError", "Sample", "run_samples", "wrong_values"]

#: Words that are moved at once.
_WORDS = 128
#: Of the largest value of an output, as TOLERANCE of npudriver/c/model/main.c: sums run in another order.
_TOLERANCE = 1e-4
#: Of npudriver/c/vexriscv/firmware.h.
_FINISHED, _FAILED = 1, 2
#: Of npudriver/c/npugen.h.
_STATUSES = ("NPUGEN_OK", "NPUGEN_WRONG_DEVICE", "NPUGEN_BUSY", "NPUGEN_FAULT", "NPUGEN_TIMEOUT", "NPUGEN_ABORTED",
             "NPUGEN_NO_MEMORY", "NPUGEN_ARGUMENT", "NPUGEN_IO", "NPUGEN_UNREACHABLE", "NPUGEN_DAMAGED")
_CALLS = ("npugen_vexriscv_open", "npugen_open", "npugen_model_load", "npugen_model_run")


class ProcessorFaultError(NpugenError):
    """The processor has not done what it was to."""

    code = "processor-fault"


@dataclass(frozen=True, eq=False)
class Sample:
    """``cycles``: from the sample in memory to its outputs there. ``accelerator``: of these, by the machine's counter;
    the rest is the processor's part.
    """

    outputs: dict[str, np.ndarray]
    cycles: int
    accelerator: int

    @property
    def processor(self) -> int:
        return self.cycles - self.accelerator


def run_samples(client: SystemClient, description: Mapping[str, Any], firmware: Firmware,
                samples: Sequence[Mapping[str, np.ndarray]], *, pause: Callable[[], None], patience: int,
                progress: Callable[[int], None] = lambda done: None) -> tuple[list[Sample], int]:
    """Load image and samples into a memory that is awake, have the processor run, and read what it leaves.

    The host does nothing meanwhile but to look at a register of the system, after each ``pause``, and after so many
    of these without another sample done (``patience``) gives up. A sample has the model's inputs by name. Returns the
    results, and the cycles in which the processor has loaded the model.

    Raises ProcessorFaultError, and HostError when the memory does not hold what is written to it.
    """
    memory, scratch = description["regions"]["main_ram"], description["registers"]["ctrl_scratch"]
    base = memory["base"]
    mail = firmware.mailbox
    data = b"".join(map(firmware.sample, samples))
    if mail.samples + len(data) > base + memory["size"]:
        raise ProcessorFaultError(f"{len(samples):,} samples of {firmware.sample_bytes:,} bytes do not fit into "
                                  f"{memory['size']:,} bytes of memory after the model; take fewer",
                                  code="processor-memory")
    if client.read(scratch, 1)[0] != IDLE:
        raise ProcessorFaultError("the processor is at work, or there is none: reset the system")
    image = bytearray(firmware.image)
    image[MAILBOX_OFFSET:MAILBOX_OFFSET + Mailbox.LAYOUT.size] = replace(mail, count=len(samples)).to_bytes()
    _write(client, base, bytes(image))
    _write(client, mail.samples, data)
    client.write(scratch, [base])
    mail = _ended(client, scratch, base + MAILBOX_OFFSET, pause, patience, progress)
    if mail.state != _FINISHED:
        raise _fault(mail)
    size = firmware.sample_bytes
    read = [_read(client, mail.samples + size * number, size) for number in range(len(samples))]
    return [Sample(*firmware.result(one)) for one in read], mail.load_cycles


def _ended(client: SystemClient, scratch: int, address: int, pause: Callable[[], None], patience: int,
           progress: Callable[[int], None]) -> Mailbox:
    """What is in the mailbox when the processor waits again. It says in the register how many samples are done."""
    last = first = client.read(scratch, 1)[0]
    waited = 0
    while (found := client.read(scratch, 1)[0]) != IDLE:
        if found != last:
            last, waited = found, 0
            progress(found)
        if waited >= patience:
            done = 0 if found == first else found
            raise ProcessorFaultError(f"the processor does not end; {done:,} samples are done")
        pause()
        waited += 1
    return Mailbox.read(_read(client, address, Mailbox.LAYOUT.size))


def _fault(mail: Mailbox) -> ProcessorFaultError:
    if mail.state != _FAILED:
        return ProcessorFaultError(f"the processor stopped at 0x{mail.instruction:08x} with cause {mail.cause} and "
                                   f"value 0x{mail.value:08x}, after {mail.done:,} samples")
    machine = ""
    if mail.fault_code:
        machine = f": error {mail.fault_code} of the machine at instruction {mail.fault_index}"
    return ProcessorFaultError(f"{_CALLS[mail.what]} gives {_STATUSES[mail.status]} after {mail.done:,} samples"
                               f"{machine}")


def _write(client: SystemClient, address: int, data: bytes) -> None:
    words = np.frombuffer(data.ljust(-(-len(data) // 4) * 4, b"\0"), "<u4")
    for at in range(0, len(words), _WORDS):
        client.write(address + 4 * at, words[at:at + _WORDS].tolist())


def _read(client: SystemClient, address: int, size: int) -> bytes:
    count = -(-size // 4)
    words = [word for at in range(0, count, _WORDS) for word in client.read(address + 4 * at, min(_WORDS, count - at))]
    return np.array(words, "<u4").tobytes()[:size]


def wrong_values(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> int:
    """Values of a sample's outputs that are not the expected ones, all of one whose shape is another: integers by one
    bit, real numbers by more than 1e-4 of the largest.
    """
    wrong = 0
    for name, values in expected.items():
        got = found[name]
        if got.size != values.size:
            wrong += max(got.size, values.size)
        elif values.dtype.kind == "f":
            limit = _TOLERANCE * np.abs(values).max(initial=0)
            wrong += int((~(np.abs(got.ravel() - values.ravel()) <= limit)).sum())
        else:
            wrong += int((got.ravel() != values.ravel()).sum())
    return wrong
