"""How Linux on a board's processor finds what is in the fabric beside it: facts of a processor's device tree."""

from dataclasses import dataclass
from typing import Literal

__all__ = ["CYCLONE_V", "LinuxTree", "ZYNQ_7000", "ZYNQ_ULTRASCALE"]


@dataclass(frozen=True, kw_only=True)
class LinuxTree:
    """What an overlay for the fabric refers to, by the labels and paths of Linux's own device trees.

    Raises ValueError for a clock without its provider.
    """

    #: The FPGA region that is the whole device: ``&label`` or ``&{/path}``.
    region: str
    #: Cells of an address, and of a size, of its children.
    cells: int
    #: Label of the interrupt controller, and the number of the fabric's first interrupt among those it shares.
    interrupt_controller: str
    interrupt: int
    #: File of the bitstream as the kernel takes it.
    bitstream: str
    #: Of an address of the processor: which packages there are for it.
    processor_bits: Literal[32, 64]
    #: Its description for programs without an operating system: the variable of npudriver/c/npugen_arm.h.
    c_system: str
    #: Label of the provider of the fabric's clock and the number that it has there; "" where the fabric has its own.
    clock_provider: str = ""
    clock: int | None = None
    #: Registers of ``xlnx,afi-fpga`` that hold the width of the memory port, for reads and for writes.
    port_width_registers: tuple[int, ...] = ()
    #: The same of a second memory port, where reads go over two.
    second_port_width_registers: tuple[int, ...] = ()
    #: Labels of bridges that are opened once the fabric is configured.
    bridges: tuple[str, ...] = ()
    #: What bootgen calls the architecture; "" where the tool writes the file above by itself.
    bootgen: str = ""

    def __post_init__(self) -> None:
        if bool(self.clock_provider) != (self.clock is not None):
            raise ValueError(f"clock {self.clock!r} and its provider {self.clock_provider!r} go together")

    @property
    def controller_interrupt(self) -> int:
        """The number of the fabric's first interrupt at the controller itself, whose shared ones begin at 32."""
        return 32 + self.interrupt


#: Linux's zynqmp.dtsi and zynqmp-clk-ccf.dtsi. UG1085: the first of pl_ps_irq0 is interrupt 121, shared ones begin at
#: 32; S_AXI_HP0_FPD is AFIFM2, S_AXI_HP1_FPD is AFIFM3. Clock 71 is PL0_REF.
ZYNQ_ULTRASCALE = LinuxTree(
    region="&fpga_full", cells=2, interrupt_controller="gic", interrupt=89, bitstream="npu.bit.bin",
    processor_bits=64, c_system="npugen_zynq_ultrascale",
    clock_provider="zynqmp_clk", clock=71, port_width_registers=(4, 5),
    second_port_width_registers=(6, 7), bootgen="zynqmp")
#: Linux's zynq-7000.dtsi. UG585: the first of IRQ_F2P is interrupt 61; the memory port is 64 bits wide after a reset.
#: Clock 15 is FCLK0.
ZYNQ_7000 = LinuxTree(
    region="&fpga_full", cells=1, interrupt_controller="intc", interrupt=29, bitstream="npu.bit.bin",
    processor_bits=32, c_system="npugen_zynq_7000",
    clock_provider="clkc", clock=15, bootgen="zynq")
#: Linux's socfpga.dtsi. Cyclone V Hard Processor System Technical Reference Manual: FPGA_IRQ0 is interrupt 72. The
#: bridges: of the registers, and of the port to memory.
CYCLONE_V = LinuxTree(
    region="&{/soc/base_fpga_region}", cells=1, interrupt_controller="intc", interrupt=40,
    bitstream="npu_system.rbf", processor_bits=32, c_system="npugen_cyclone_v",
    bridges=("fpga_bridge0", "fpga_bridge3"))
