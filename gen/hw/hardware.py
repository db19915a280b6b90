"""Which state of the hardware, of the way it is mapped and of the delay model a measurement is of."""

import hashlib
import inspect
import sys
from pathlib import Path

from gen.families.registry import get_family
from gen.files.sources import sources_digest

__all__ = ["delay_model_digest", "hardware_digest"]

_ROOT = Path(__file__).resolve().parents[2]


def hardware_digest(family: str) -> str:
    """Changes with the sources that the hardware is made from, and with what maps it to a device family; 64 hexadecimal
    digits.
    """
    target = get_family(family)
    scripts = "".join(target.scripts().values())
    parts = (sources_digest("cores"), target.synthesis.command, *target.synthesis.after_products, scripts)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _source(module: str) -> str:
    """The file of a module of this project."""
    return str(Path(inspect.getfile(sys.modules[module])).relative_to(_ROOT))


def delay_model_digest(family: str) -> str:
    """Changes with what makes a timing report out of a netlist; 64 hexadecimal digits."""
    target = get_family(family)
    # Which cell is timed how, the family says; the functions may be those that several have.
    modules = {target.package, *(timing.__module__ for timing in target.timing.values())}
    sources = sources_digest("gen/hw/timing.py", "gen/hw/sta.py", "gen/netlist/graph.py", "gen/netlist/delays.py",
                             *(_source(module) for module in sorted(modules)))
    parts = (sources, repr(target.delays), *target.synthesis.for_timing,
             *target.synthesis.luts_for_timing, target.synthesis.library or "")
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
