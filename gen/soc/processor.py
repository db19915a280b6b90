"""The processors that a system can have beside the machine: what LiteX calls them, and how they begin."""

import importlib
from dataclasses import dataclass
from pathlib import Path

from cores.errors import ArgumentError
from npudriver.files import read_text

__all__ = ["IDLE", "PROCESSORS", "Processor", "ProcessorError", "get_processor"]

#: In LiteX's register ``ctrl_scratch`` after a reset: the processor waits. Another value is where it is to begin.
#: npudriver/c/vexriscv/firmware.h has it too.
IDLE = 0x12345678


class ProcessorError(ArgumentError):
    """A processor that is not known; the message lists those there are."""

    code = "unknown-name"


@dataclass(frozen=True, kw_only=True)
class Processor:
    """A processor of LiteX, without its own software: it runs what the host has put into memory."""

    #: LiteX's name, the variant, and the variant's module in the file of the package that has it.
    name: str
    variant: str
    module: str
    package: str
    #: Bytes of a line of its data cache.
    line: int
    #: Where its registers are: of the first, ``ctrl``, the second word is ``ctrl_scratch``.
    csr_base: int

    def boot(self) -> list[int]:
        """The words of its read-only memory, at 0: wait for an address in ``ctrl_scratch``, and go there."""
        return [
            self.csr_base | 0x537,  # lui a0, csr_base
            0x123455b7,             # lui a1, 0x12345
            0x67858593,             # addi a1, a1, 0x678
            0x00452603,             # wait: lw a2, 4(a0)
            0xfeb60ee3,             # beq a2, a1, wait
            0x0000500f,             # drop the data cache: memory is what the host has put there
            0x0000100f,             # fence.i, the instruction cache too
            0x00060067,             # jr a2
        ]

    def verilog(self) -> str:
        """Its file in the package, which must be installed."""
        package = importlib.import_module(self.package)
        return read_text(Path(package.data_location) / f"{self.module}.v")


_PROCESSORS = (
    Processor(name="vexriscv", variant="standard", module="VexRiscv", package="pythondata_cpu_vexriscv", line=32,
              csr_base=0xF000_0000),
)

PROCESSORS = {processor.name: processor for processor in _PROCESSORS}


def get_processor(name: str) -> Processor:
    """Raises ProcessorError when there is none of this name."""
    try:
        return PROCESSORS[name]
    except KeyError:
        raise ProcessorError(f"no processor {name!r}; there are: {', '.join(PROCESSORS)}") from None
