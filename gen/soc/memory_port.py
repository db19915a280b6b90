"""The machine's way into LiteDRAM: AXI4 of any width to a port of the crossbar."""

from typing import Any

from litedram.common import LiteDRAMNativePort
from litedram.frontend.axi import LiteDRAMAXI2Native
from litex.gen import If, LiteXModule
from litex.soc.interconnect.axi import AXIInterface
from migen import Signal

__all__ = ["MemoryPort"]

#: Beats that wait in each direction: what the longest latency of a row miss needs.
_BEATS = 32
#: Write commands whose data LiteDRAM's converter may still owe.
_MAX_OWED = 2 * _BEATS


class MemoryPort(LiteXModule):
    """``axi`` reads and writes memory, which begins at ``base_address``, through a port of its own at ``crossbar``.

    LiteDRAM's AXI frontend counts on it that data are taken after their commands only. Its converter to wider memory
    takes the first data before: the frontend's counter then falls below zero, and no write goes out any more. So data
    are held back here until their command has been taken.
    """

    def __init__(self, axi: AXIInterface, crossbar: Any, *, base_address: int) -> None:
        port = crossbar.get_port(data_width=axi.data_width)
        if axi.data_width < crossbar.controller.data_width:
            self.order = _DataBehindCommands(port)
            port = self.order.port
        self.frontend = LiteDRAMAXI2Native(
            axi, port, w_buffer_depth=_BEATS, r_buffer_depth=_BEATS, base_address=base_address)


class _DataBehindCommands(LiteXModule):
    """``port``: as the one after it, but write data wait for their commands."""

    def __init__(self, behind: LiteDRAMNativePort) -> None:
        self.port = port = LiteDRAMNativePort(
            mode="both", address_width=behind.address_width, data_width=behind.data_width)
        owed = Signal(max=_MAX_OWED + 1)

        # # #

        asked = port.cmd.valid & port.cmd.ready & port.cmd.we
        given = port.wdata.valid & port.wdata.ready
        self.comb += [
            port.cmd.connect(behind.cmd),
            port.wdata.connect(behind.wdata, omit={"valid", "ready"}),
            behind.wdata.valid.eq(port.wdata.valid & (owed != 0)),
            port.wdata.ready.eq(behind.wdata.ready & (owed != 0)),
            behind.rdata.connect(port.rdata),
            behind.flush.eq(port.flush),
        ]
        self.sync += If(asked & ~given, owed.eq(owed + 1)).Elif(given & ~asked, owed.eq(owed - 1))
