"""Relative energy of layers: multiplications, reads of the buffer and bytes of memory, by what is published of each.

No watts: docs/decisions/0021 says why, and docs/energy.md what is in these ratios and what is not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gen.mapping.registry import MAPPINGS

__all__ = ["HIGH", "LOW", "UNCOUNTED", "EnergyScale", "energy_of", "energy_shares"]

#: pJ at 45 nm (M. Horowitz, ISSCC 2014): a product of 8 bits and its addition to a sum of 32 bits; a byte of an SRAM of
#: 8 KB, and of 32 KB; a byte of DRAM, from and to.
_MULTIPLICATION = 0.2 + 0.1
_BUFFER_BYTE = (10 / 8, 20 / 8)
_MEMORY_BYTE = (1300 / 8, 2600 / 8)
#: What logic of an FPGA takes of that of a chip with the same function at most (I. Kuon and J. Rose, 2007). Its
#: memories and what is outside of it are no logic.
_FPGA = 14
#: Modes whose products are no multiplications: nothing comparable is published of these.
UNCOUNTED = tuple(mode for mapping in MAPPINGS if not mapping.multiplies for mode in mapping.modes)


@dataclass(frozen=True)
class EnergyScale:
    """What a byte of the buffer, and one of memory, are worth in multiplications of 8 bits."""

    buffer_byte: float
    memory_byte: float


#: Multiplications dear, as in an FPGA's logic, and bytes cheap; and the other way round.
LOW = EnergyScale(_BUFFER_BYTE[0] / (_FPGA * _MULTIPLICATION), _MEMORY_BYTE[0] / (_FPGA * _MULTIPLICATION))
HIGH = EnergyScale(_BUFFER_BYTE[1] / _MULTIPLICATION, _MEMORY_BYTE[1] / _MULTIPLICATION)


def energy_of(layer: Mapping[str, Any], buffer_bytes: int, scale: EnergyScale) -> float:
    """Of a layer of a profile, in multiplications of 8 bits; ``buffer_bytes``: that are read in a cycle of work.

    Products of `UNCOUNTED` modes are left out.
    """
    products = 0 if layer["mode"] in UNCOUNTED else layer["slots"]
    work = layer["useful"] + layer["idle_pixels"] + layer["idle_lanes"]
    return products + scale.buffer_byte * work * buffer_bytes + scale.memory_byte * layer["dram_bytes"]


def energy_shares(layers: Sequence[Mapping[str, Any]], buffer_bytes: int) -> tuple[list[list[float]], list[float]]:
    """Of each layer its share by both scales, the smaller first; and of all the energy in multiplications, by `LOW` and
    by `HIGH`.
    """
    energies = [[energy_of(layer, buffer_bytes, scale) for layer in layers] for scale in (LOW, HIGH)]
    totals = [sum(one) for one in energies]
    return [sorted(part / (total or 1) for part, total in zip(parts, totals, strict=True))
            for parts in zip(*energies, strict=True)], totals
