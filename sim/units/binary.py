"""What a binary COMPUTE adds (docs/binary.md): counts of bits that equal those of the weights."""

import numpy as np

from cores.arch.instruction import Instruction
from cores.arch.isa import StepKind
from sim import golden
from sim.machine import Machine
from sim.units.array import UnitModel

__all__ = ["MODEL"]


def _sums(machine: Machine, _instruction: Instruction, places: np.ndarray, rows: np.ndarray) -> np.ndarray:
    bits = np.unpackbits(machine.input[places].astype(np.uint8), axis=-1, bitorder="little")
    weights = np.unpackbits(rows, axis=-1, bitorder="little")
    return golden.binary_sums(bits, weights, machine.zeros[places])


MODEL = UnitModel(StepKind.BINARY, _sums)
