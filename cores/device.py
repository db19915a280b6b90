"""What the driver has to know of a machine, from the tables that the hardware is made from."""

from cores.arch.error_codes import ERROR_TEXTS
from cores.arch.isa import HEADER, INSTRUCTION_BYTES, Opcode
from cores.arch.registers import BASE_ALIGNMENT, LANES, MAGIC, VERSION, Control, Status, counters_of, registers_of
from cores.config import NpuConfig
from npudriver.machine import ErrorText, Machine

__all__ = ["driver_machine"]


def driver_machine(config: NpuConfig) -> Machine:
    """The machine of ``config`` as the driver sees it."""
    lanes = int.from_bytes(bytes(getattr(config, name) for name in LANES), "little")
    return Machine(
        fingerprint={"id": MAGIC, "version": VERSION, "config": config.digest, "lanes": lanes},
        registers={register.name: register.address for register in registers_of(config)},
        control={bit.name: bit.value for bit in Control if bit.name},
        status={bit.name: bit.value for bit in Status if bit.name},
        errors={code.value: ErrorText(code.name, text) for code, text in ERROR_TEXTS.items()},
        operations={opcode.value: opcode.name for opcode in Opcode},
        counters=list(counters_of(config)), beat_bytes=config.beat_bytes, address_bits=config.address_width,
        instruction_bytes=INSTRUCTION_BYTES, opcode_bits=HEADER[0].bits, alignment=BASE_ALIGNMENT, macs=config.macs)
