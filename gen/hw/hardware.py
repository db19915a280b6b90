"""Which state of the hardware, and of the way it is mapped, a measurement is of."""

import hashlib

from gen.files.sources import sources_digest

from .families import FAMILIES, pack_source

__all__ = ["hardware_digest"]


def hardware_digest(family: str) -> str:
    """Changes with the sources that the hardware is made from, and with what maps it to a device family; 64 hexadecimal
    digits.
    """
    target = FAMILIES[family]
    parts = (sources_digest("cores"), target.command, *target.behind_products, pack_source(family))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
