"""What a stochastic COMPUTE adds (docs/stochastic.md): sums of products that streams make."""

from collections.abc import Iterator

import numpy as np

from cores.arch.instruction import Instruction
from cores.arch.isa import StepKind
from sim.machine import Machine
from sim.stochastic.fast import accumulate
from sim.stochastic.streams import Streams
from sim.units.array import UnitModel

__all__ = ["MODEL"]


def _sums(machine: Machine, instruction: Instruction, places: np.ndarray, rows: np.ndarray) -> np.ndarray:
    config = machine.config
    return accumulate(config.circuit, machine.input[places], rows.view(np.int8), Streams.of_fields(instruction.fields),
                      fan_in=config.ic_lanes)


def _problems(instruction: Instruction) -> Iterator[str]:
    if instruction["made"] > instruction["length"]:
        yield "more bits are made than streams have"


MODEL = UnitModel(StepKind.STOCHASTIC, _sums, _problems)
