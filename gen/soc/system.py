"""Systems of LiteX with the machine in them: of a board, and the same one to be simulated.

The machine has its own port at LiteDRAM's crossbar; the host reaches memory and registers over the system's bus, and
that over the serial line. Without a processor there is no cache that would have to be flushed; one may be there, which
waits until an image is in memory (`gen.soc.processor`).
"""

import importlib
from typing import Any

from litedram.modules import SDRAMModule
from litedram.phy.model import SDRAMPHYModel
from litex.build.generic_platform import Pins, Subsignal
from litex.build.io import CRG
from litex.build.sim import SimPlatform
from litex.soc.cores.uart import RS232PHYModel, UARTBone
from litex.soc.integration.soc import SoCRegion
from litex.soc.integration.soc_core import SoCCore

from cores.arch.registers import port_bits
from cores.config import NpuConfig
from gen.soc.memory_port import MemoryPort
from gen.soc.module import NpuModule
from gen.soc.processor import Processor
from gen.soc.targets import Target

__all__ = ["board_system", "simulated_system"]

#: Name of the registers' region, and where they are: beyond memory, in the part of the bus that is not cached.
NPU_REGION = "npu"
_CONTROL_ADDRESS = 0x9000_0000
#: Bytes of the simulated memory: all of the ULX3S's; of a larger one the address bits above are not there.
_SIMULATED_BYTES = 1 << 25

#: Neither processor nor what only that needs.
_BARE = {"cpu_type": None, "with_uart": False, "with_timer": False, "integrated_sram_size": 0}


def _parts(processor: Processor | None) -> dict[str, Any]:
    """The processor with its read-only memory, and a timer that counts cycles."""
    if processor is None:
        return _BARE
    boot = processor.boot()
    return {**_BARE, "cpu_type": processor.name, "cpu_variant": processor.variant, "with_timer": True,
            "timer_uptime": True, "integrated_rom_size": 4 * len(boot), "integrated_rom_init": boot}


_PADS = [
    ("sys_clk", 0, Pins(1)),
    # Bytes in place of a serial line's bits: `source` is what the system says, `sink` what it hears.
    ("serial", 0, *(Subsignal(f"{end}_{part}", Pins(bits)) for end in ("source", "sink")
                    for part, bits in (("valid", 1), ("ready", 1), ("data", 8)))),
]


def board_system(target: Target, config: NpuConfig, *, clock_mhz: float, baud: int,
                 processor: Processor | None = None) -> SoCCore:
    """The system of litex-boards, with the machine of ``config`` and a ``processor`` or none; not finalized.

    Raises ConfigError for a machine whose addresses are longer than LiteX's.
    """
    base = importlib.import_module(target.module).BaseSoC
    system = base(sys_clk_freq=round(clock_mhz * 1e6), with_uartbone=True, uart_baudrate=baud, l2_size=0,
                  with_led_chaser=False, **_parts(processor), **target.options)
    _add_npu(system, config)
    return system


def simulated_system(target: Target, config: NpuConfig, *, clock_mhz: float,
                     processor: Processor | None = None) -> SoCCore:
    """As `board_system`, with a model of the memory and its PHY, bytes for a serial line, and one clock.

    LiteDRAM's controller has the timings, the phases and the latencies that it has on the board.
    """
    frequency = round(clock_mhz * 1e6)
    platform = SimPlatform("SIM", list(_PADS))
    system = SoCCore(platform, frequency, **_parts(processor))
    system.crg = CRG(platform.request("sys_clk"))
    system.serial = RS232PHYModel(platform.request("serial"))
    system.uartbone = UARTBone(phy=system.serial, clk_freq=frequency)
    system.bus.add_master("uartbone", system.uartbone.wishbone)
    settings = _phy_settings(target, clock_mhz)
    memory = _simulated_memory(target, settings.databits)(frequency, target.memory_rate)
    system.sdrphy = SDRAMPHYModel(memory, settings=settings, clk_freq=frequency)
    system.add_sdram("sdram", phy=system.sdrphy, module=memory, l2_cache_size=0)
    _add_npu(system, config)
    return system


def _add_npu(system: SoCCore, config: NpuConfig) -> None:
    system.npu = npu = NpuModule(config)
    system.bus.add_slave(NPU_REGION, npu.control, SoCRegion(
        origin=_CONTROL_ADDRESS, size=1 << port_bits(config), cached=False))
    if system.irq.enabled:
        system.irq.add(NPU_REGION, use_loc_if_exists=True)
    system.npu_port = MemoryPort(
        npu.memory, system.sdram.crossbar, base_address=system.bus.regions["main_ram"].origin)


def _simulated_memory(target: Target, data_bits: int) -> type[SDRAMModule]:
    module = getattr(importlib.import_module("litedram.modules"), target.memory)
    rows = 8 * _SIMULATED_BYTES // (data_bits * module.nbanks * module.ncols)
    return type(target.memory, (module,), {"nrows": min(module.nrows, rows)})


def _phy_settings(target: Target, clock_mhz: float) -> Any:
    """Phases and latencies of the PHY that the board has."""
    base = importlib.import_module(target.module).BaseSoC
    board = base(sys_clk_freq=round(clock_mhz * 1e6), l2_size=0, with_led_chaser=False, **_BARE, **target.options)
    return board.sdram.controller.settings.phy
