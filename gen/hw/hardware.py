"""Which state of the hardware, of the way it is mapped and of the delay model a measurement is of."""

import hashlib

from gen.files.sources import sources_digest

from .families import FAMILIES

__all__ = ["delay_model_digest", "hardware_digest"]


def hardware_digest(family: str) -> str:
    """Changes with the sources that the hardware is made from, and with what maps it to a device family; 64 hexadecimal
    digits.
    """
    target = FAMILIES[family]
    scripts = "".join(target.scripts().values())
    parts = (sources_digest("cores"), target.command, *target.behind_products, scripts)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def delay_model_digest(family: str) -> str:
    """Changes with what makes a timing report out of a netlist; 64 hexadecimal digits."""
    target = FAMILIES[family]
    sources = sources_digest("gen/hw/timing.py", "gen/hw/netlist.py", "gen/hw/sta.py")
    parts = (sources, repr(target.delays), *target.timing_options, target.library or "")
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
