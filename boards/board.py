"""What the rest of the project needs to know of a board."""

import importlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from boards.linux import LinuxTree
from boards.memory import MemoryPort
from cores.config import PURPOSES, NpuConfig

__all__ = ["Board"]


@dataclass(frozen=True, kw_only=True)
class Board:
    """A board and the device on it. ``resources`` are what the device has, by its family's names."""

    name: str
    #: Name as sold.
    title: str
    #: Name of its family of devices in `gen.families`.
    family: str
    #: Device as the vendor's tool spells it.
    part: str
    #: Nominal clock of the NPU; no promise before place and route.
    clock_mhz: float
    resources: Mapping[str, int]
    #: See `NpuConfig.multiplier_width`.
    multiplier_width: int
    #: See `NpuConfig.hard_block_registers`.
    hard_block_registers: int = 1
    #: Data bus widths that the board's memory ports take without a converter.
    memory_bus_bits: tuple[int, ...]
    #: Bits of a bus address of its memory.
    address_width: int
    memory: MemoryPort
    #: Such ports that the board's project can share reads among, where a beat is wider than the widest (cores/bus,
    #: `ReadPorts`): 1 or 2.
    read_ports: int = 1
    #: What stands between the machine and memory that is not its own: nothing; an IOMMU that is not in use unless the
    #: user's system sets it up; or one that is.
    iommu: Literal["none", "unused", "used"] = "none"
    #: Address at which the board's processor sees the NPU's registers; None where there is no processor but what the
    #: user's design has.
    registers_base: int | None = None
    #: How Linux on that processor finds them.
    linux: LinuxTree | None = None
    #: ``module:class`` of the Amaranth platform: of amaranth-boards where it has the board.
    amaranth_platform: str
    #: Name of the board in the vendor's tool, from which it has the settings of the processor's memory; "" where the
    #: tool knows none.
    vendor_board: str = ""
    #: Where `gen deploy`'s packages look for the machine unless told otherwise, as `npudriver.connect` has it: in the
    #: device tree beside a processor; else what stands between the board and the host.
    driver_device: str = "uio:npu"
    #: Options that name the device to the family's nextpnr; none where that does not know it.
    nextpnr: tuple[str, ...] = ()

    def config(self, macs: int, purpose: str = PURPOSES[0], /, **overrides: int) -> NpuConfig:
        """The preset for ``macs`` and a purpose on this board; ``overrides`` replace single fields.

        Raises ConfigError for what cannot be built.
        """
        return NpuConfig.preset(macs, purpose, **{**self.machine_fields, **overrides})

    @property
    def machine_fields(self) -> dict[str, int]:
        """Fields of `NpuConfig` that are the device's."""
        return {name: getattr(self, name) for name in ("multiplier_width", "hard_block_registers", "address_width")}

    def port_cycles(self, beat_bits: int, *, write: bool) -> int:
        """Cycles of a beat on the port to memory, which a converter cuts where the widest is narrower; the board's
        project shares reads among ``read_ports`` then."""
        ports = self.read_ports if self.shares_reads(beat_bits) and not write else 1
        return max(1, -(-beat_bits // (ports * max(self.memory_bus_bits))))

    def shares_reads(self, beat_bits: int) -> bool:
        """Whether the board's project has several ports for reads, as one brings less than a beat a cycle."""
        return self.read_ports > 1 and beat_bits > max(self.memory_bus_bits)

    def platform(self) -> type:
        """The class of the Amaranth platform."""
        module, name = self.amaranth_platform.split(":")
        return getattr(importlib.import_module(module), name)

    def to_dict(self) -> dict[str, Any]:
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return {**values, "resources": dict(self.resources),
                "memory": self.memory.to_dict(), "linux": None if self.linux is None else asdict(self.linux)}
