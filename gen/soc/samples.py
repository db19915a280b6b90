"""Samples by the processor of a system: put into its memory with the model's image, and read when it is done."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gen.soc.firmware import Firmware
from gen.soc.host import SystemClient
from gen.soc.image import FINISHED, Mailbox, ProcessorFaultError, Waiting, read_memory, run_image

__all__ = ["Sample", "run_samples", "wrong_values"]

#: Of the largest value of an output, as TOLERANCE of npudriver/c/model/main.c: sums run in another order.
_TOLERANCE = 1e-4
#: Of npudriver/c/npugen.h.
_STATUSES = ("NPUGEN_OK", "NPUGEN_WRONG_DEVICE", "NPUGEN_BUSY", "NPUGEN_FAULT", "NPUGEN_TIMEOUT", "NPUGEN_ABORTED",
             "NPUGEN_NO_MEMORY", "NPUGEN_ARGUMENT", "NPUGEN_IO", "NPUGEN_UNREACHABLE", "NPUGEN_DAMAGED")
_CALLS = ("npugen_vexriscv_open", "npugen_open", "npugen_model_load", "npugen_model_run")


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
                samples: Sequence[Mapping[str, np.ndarray]], waiting: Waiting) -> tuple[list[Sample], int]:
    """Have the processor run a model over samples in memory, without the host; each has the model's inputs by name.

    Returns the results, and the cycles in which the processor has loaded the model. Raises as `run_image` does.
    """
    data = b"".join(map(firmware.sample, samples))
    mail = run_image(client, description, firmware.image, count=len(samples), room=len(data), data=data,
                     waiting=waiting)
    if mail.state != FINISHED:
        raise _fault(mail)
    size = firmware.sample_bytes
    read = [read_memory(client, mail.samples + size * number, size) for number in range(len(samples))]
    return [Sample(*firmware.result(one)) for one in read], mail.load_cycles


def _fault(mail: Mailbox) -> ProcessorFaultError:
    machine = ""
    if mail.fault_code:
        machine = f": error {mail.fault_code} of the machine at instruction {mail.fault_index}"
    return ProcessorFaultError(f"{_CALLS[mail.what]} gives {_STATUSES[mail.status]} after {mail.done:,} samples"
                               f"{machine}")


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
