"""Device families: how Yosys maps to them, which resource each cell takes, and how long signals are under way."""

import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from boards import ecp5_copies, ecp5_multipliers

__all__ = ["FAMILIES", "HIDE_ELEMENTS", "Delays", "Family", "flat_netlist"]


@dataclass(frozen=True, kw_only=True)
class Delays:
    """Delay model of a speed grade, in nanoseconds. What is not known before placement is a typical value.

    docs/timing.md says where the values are from, and how far estimates are from placed and routed designs.
    """

    #: Speed grade that the values are for.
    grade: str
    lut: float
    #: A multiplexer behind LUTs.
    mux: float
    #: Into a carry chain, along one of its bits, and out of it at a sum.
    carry_in: float
    carry: float
    carry_out: float
    #: A net that a routing channel carries: to one load, and more for each doubling of its loads.
    net: float
    net_doubling: float
    #: Flip-flop: from the clock to its output, and in front of the clock.
    clock_to_output: float
    setup: float
    #: Block RAM: from the clock to its data, without a register inside, and in front of the clock.
    ram_output: float
    ram_setup: float
    #: Multiplier: from its operands to its product.
    multiplier: float
    #: Whether a tool moves registers right in front of a multiplier and right behind it inside, where the netlist has
    #: them outside; nextpnr leaves them.
    multiplier_registers: bool = True
    #: Of a multiplier with registers inside in the netlist: an operand in front of the clock, if it has a register and
    #: if only the product has one, and what comes out of its last register.
    operand_setup: float = 0.0
    product_setup: float = 0.0
    product_output: float = 0.0
    #: Of a slice's adder behind its multiplier: from what is added to the sum, or to the clock, and a sum behind it
    #: where only the product has a register.
    addend: float = 0.0
    addend_setup: float = 0.0
    addend_output: float = 0.0

    def wire(self, loads: int) -> float:
        """Of a net with ``loads`` loads, at least one."""
        return self.net + self.net_doubling * math.log2(loads)


@dataclass(frozen=True)
class Family:
    """How a device family is mapped, and which resource each of its cells costs: cell name -> (resource, count).

    ``library``: Yosys's models of its cells that have delays, as `read_verilog` is given them; None where none have.
    ``timing_options``: Yosys commands in front, where the mapping is for timing. ``rewrites``: what a netlist goes
    through behind Yosys, by ``rewrite`` of modules that are scripts of their own in the boards' projects.
    ``behind_products``: Yosys commands in the midst of ``command``, in front of its label ``coarse``, when products are
    multipliers and all else is still as written.
    """

    command: str
    resources: tuple[str, ...]
    cells: Mapping[str, tuple[str, float]]
    delays: Delays
    library: str | None = None
    timing_options: tuple[str, ...] = ()
    rewrites: tuple[ModuleType, ...] = ()
    behind_products: tuple[str, ...] = ()

    def mapping(self, top: str, *options: str) -> list[str]:
        """Yosys commands from modules that have been read to this family's cells; ``options`` are ``command``'s."""
        command = " ".join([self.command, *options, f"-top {top}"])
        if not self.behind_products:
            return [command]
        return [f"{command} -run begin:coarse", *self.behind_products, f"{command} -run coarse:"]

    def rewrite(self, netlist: Path) -> None:
        """Take a JSON netlist that Yosys wrote through all of ``rewrites``."""
        for module in self.rewrites:
            module.rewrite(netlist, netlist)

    def scripts(self) -> dict[str, str]:
        """File name -> content of ``rewrites``, in order."""
        return {f"{module.__name__.rpartition('_')[2]}.py": inspect.getsource(module) for module in self.rewrites}


def _cells(**resources: str) -> dict[str, tuple[str, float]]:
    """``lut="LUT6 RAM32M:4"`` -> {"LUT6": ("lut", 1), "RAM32M": ("lut", 4)}."""
    table = {}
    for resource, cells in resources.items():
        for cell in cells.split():
            name, _, count = cell.partition(":")
            table[name] = (resource, float(count or 1))
    return table


_XILINX_LUTS = (
    "LUT1 LUT2 LUT3 LUT4 LUT5 LUT6 INV SRL16E SRLC16E SRLC32E RAM32X1S RAM64X1S RAM128X1S:2 RAM256X1S:4 RAM512X1S:8 "
    "RAM16X1D:2 RAM32X1D:2 RAM64X1D:2 RAM128X1D:4 RAM256X1D:8 RAM32M:4 RAM64M:4 RAM32M16:8 RAM64M8:8"
)

#: From how many inputs on a multiplexer uses those behind the LUTs. With 5, the least that would pay, Yosys 0.70 makes
#: netlists that lack registers of the load engine; those made with 9 pass the engines' benches.
_WIDEMUX = "-widemux 9"

#: Picoseconds of a wire that ABC9 reckons with in place of 300. Its look-up tables are those of 7 series, whose inputs
#: differ by 500 ps: with wires as short it takes two tables in a row by fast inputs for quicker than one by a slow one,
#: which on UltraScale+, where a wire takes twice as long as a table, they are not.
_WIRE = "scratchpad -set synth_xilinx.abc9.W 1000"

#: Registers and sums behind products move into slices, which Yosys does for 7 series alone. UltraScale+'s slices have
#: the same by the same names, so they go through that pass (of Yosys 0.70) under the older name. What must not go in:
#: sums in front of products, whose settings differ, and comparisons of sums, which are no longer the same; the slices'
#: own are marked as used. Choices between addends, whose sense is lost; their multiplexers are not selected.
#: What the pass has wrong beyond that, the parts with multipliers do not have (tests/gen/test_slices.py): a sum with a
#: part of a product whose upper bits are left out, or with a signed one whose upper bits are zeros there; a register
#: behind a product that a reset sets to anything but 0; a register wider than its sum, whose copies of the sign are
#: left without a driver: `check` finds these.
_INTO_SLICES = (
    "chtype -set DSP48E1 t:DSP48E2",
    'setparam -set USE_DPORT "TRUE" -set USE_PATTERN_DETECT "PATDET" t:DSP48E1',
    "xilinx_dsp -family xc7 t:* t:$mux %d",
    "setparam -unset USE_DPORT -unset USE_PATTERN_DETECT t:DSP48E1",
    "chtype -set DSP48E2 t:DSP48E1",
    "opt_clean", "check -assert",
)

FAMILIES: Mapping[str, Family] = {
    "xcup": Family(
        f"synth_xilinx -family xcup {_WIDEMUX} -flatten -noiopad -noclkbuf", ("lut", "ff", "dsp", "bram36"),
        _cells(lut=_XILINX_LUTS, ff="FDRE FDSE FDCE FDPE", dsp="DSP48E2", bram36="RAMB36E2 RAMB18E2:0.5"),
        Delays(grade="-1", lut=0.15, mux=0.08, carry_in=0.18, carry=0.01, carry_out=0.12, net=0.30, net_doubling=0.03,
               clock_to_output=0.10, setup=0.05, ram_output=1.20, ram_setup=0.30, multiplier=1.60,
               operand_setup=0.14, product_setup=0.78, product_output=0.18,
               addend=0.73, addend_setup=0.69, addend_output=0.92),
        library="+/xilinx/cells_sim.v", timing_options=(_WIRE,), behind_products=_INTO_SLICES),
    "xc7": Family(
        f"synth_xilinx -family xc7 {_WIDEMUX} -flatten -noiopad -noclkbuf", ("lut", "ff", "dsp", "bram36"),
        _cells(lut=_XILINX_LUTS, ff="FDRE FDSE FDCE FDPE", dsp="DSP48E1", bram36="RAMB36E1 RAMB18E1:0.5"),
        Delays(grade="-1", lut=0.12, mux=0.25, carry_in=0.50, carry=0.03, carry_out=0.33, net=0.60, net_doubling=0.08,
               clock_to_output=0.46, setup=0.10, ram_output=2.45, ram_setup=0.57, multiplier=2.90,
               operand_setup=0.25, product_setup=1.42, product_output=0.33,
               addend=1.33, addend_setup=1.25, addend_output=1.67),
        library="+/xilinx/cells_sim.v"),
    "cyclonev": Family(
        "synth_intel_alm -family cyclonev -noiopad -noclkbuf", ("lut", "ff", "dsp", "m10k"),
        _cells(lut="MISTRAL_ALUT2 MISTRAL_ALUT3 MISTRAL_ALUT4 MISTRAL_ALUT5 MISTRAL_ALUT6 MISTRAL_ALUT_ARITH "
                   "MISTRAL_NOT MISTRAL_MLAB",
               ff="MISTRAL_FF", dsp="MISTRAL_MUL27X27 MISTRAL_MUL18X18:0.5 MISTRAL_MUL9X9:0.333", m10k="MISTRAL_M10K"),
        Delays(grade="-7", lut=0.40, mux=0.10, carry_in=0.70, carry=0.06, carry_out=0.40, net=0.60, net_doubling=0.10,
               clock_to_output=0.30, setup=0.20, ram_output=2.60, ram_setup=0.30, multiplier=3.60),
        library="-D cyclonev " + " ".join(f"+/intel_alm/common/{name}_sim.v" for name in ("alm", "dff", "dsp", "mem"))),
    "ecp5": Family(
        "synth_ecp5", ("lut", "ff", "dsp", "ebr"),
        _cells(lut="LUT4 CCU2C:2 TRELLIS_DPR16X4:6", ff="TRELLIS_FF", dsp="MULT18X18D", ebr="DP16KD"),
        Delays(grade="-6", lut=0.24, mux=0.18, carry_in=0.45, carry=0.04, carry_out=0.45, net=0.62, net_doubling=0.12,
               clock_to_output=0.52, setup=0.0, ram_output=5.73, ram_setup=0.2, multiplier=3.95,
               multiplier_registers=False, operand_setup=0.08, product_setup=3.49, product_output=0.74),
        rewrites=(ecp5_multipliers, ecp5_copies)),
}


#: A wire named ``x[0]``, an array's element, has the name that Yosys gives bit 0 of a wire ``x`` when it takes back
#: what ABC9 made of it: an assertion fails if both are there. Such names are replaced; what they stand for is the same.
HIDE_ELEMENTS = "rename -hide w:*[[]*"


def flat_netlist(top: str, family: str, output: str) -> list[str]:
    """Yosys commands from a design that has been read to a netlist ``output`` without hierarchy.

    Raises ValueError for a family that is not known.
    """
    if family not in FAMILIES:
        raise ValueError(f"family must be one of {', '.join(FAMILIES)}, not {family!r}")
    target = FAMILIES[family]
    return [*target.timing_options, f"hierarchy -check -top {top}", "flatten", HIDE_ELEMENTS,
            *target.mapping(top), f"write_json {output}"]
