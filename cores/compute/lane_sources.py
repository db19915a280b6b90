"""What the multipliers of an array choose from."""

from typing import Any

from amaranth.hdl import Cat, Module, Value
from amaranth.lib import data, wiring

from ..config import NpuConfig
from ..lib.component import record
from ..timing.compute import packed_products

__all__ = ["LaneSources", "channel_layout"]


def channel_layout(config: NpuConfig) -> data.StructLayout:
    """A channel's pixels on their way to the multipliers: packed, x0 and above it x1 less x0's borrow; or singly."""
    parts = [17] if packed_products(config) else [config.activation_bits] * config.pixel_lanes
    return data.StructLayout({f"part{number}": bits for number, bits in enumerate(parts)})


class LaneSources:
    """All rows and lanes work on the pixels read, the channels of a block. Sources that are not the same for all derive
    from this.
    """

    def __init__(self, config: NpuConfig):
        self.config = config

    def ports(self) -> dict[str, wiring.Member]:
        """Ports that a `MacArray` has for these sources, beside those of every array."""
        return {}

    def layout(self) -> data.ArrayLayout:
        """What a row selects from."""
        return data.ArrayLayout(channel_layout(self.config), self.config.ic_lanes)

    def of_lane(self, channels: Any, lane: int) -> Any:
        """Of what a row selects from, the channels of one of its lanes."""
        return channels

    def row_ports(self) -> dict[str, wiring.Member]:
        """Of a `MacRow`, beside those that all have; the array's ports of these names feed them."""
        return {}

    def own_tap(self, channels: Any, lane: int) -> Any:
        """Of what a row selects from, what one of its lanes takes in windows, whatever it selects; None for nothing."""
        return None

    def of_row(self, sources: list[Any], row: int) -> Any:
        """Of what was built, what a row selects from."""
        return sources[row // self.config.ic_lanes % len(sources)]

    def follow(self, array: Any, word: Any) -> list[Any]:
        """The statements that tell the ``array`` what it has to know of the ``word`` whose pixels came a cycle ago."""
        return []

    def build(self, m: Module, array: Any, ordered: list[list[Value]]) -> list[Any]:
        """What the rows of each group of output lanes select from, or those of all; ``ordered``: the pixels read, in
        order, by channel.
        """
        channels = record(self.layout(), reset_less=True)
        for channel, x in enumerate(ordered):
            m.d.sync += Value.cast(channels[channel]).eq(self.pair([value.as_signed() for value in x]))
        return [channels]

    def pair(self, x: list[Value]) -> Value:
        """A channel's pixels as `channel_layout` has them."""
        if packed_products(self.config):
            return Cat(x[0], (x[1] - x[0][7])[:9])
        return Cat(*x)
