"""The words that make a pixel of a Winograd layer."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib.wiring import In, Out

from ..arch.numerics import POSITIONS
from ..lib.component import Component
from ..timing.winograd import WinogradSumsTiming

__all__ = ["WinogradSums"]


class WinogradSums(WinogradSumsTiming, Component):
    """Counts through the nine positions (i, j) that pixel (row k, column l) of a tile is summed up from.

    i goes down from k + 2 to k, for each j from l + 2 to l: the last one has a positive sign, as `Requantizer` wants
    it.

    Golden model: ``sim.golden.winograd_output``.
    """

    def __init__(self):
        super().__init__({
            "enable": In(1),    # count; else every step is ``first`` and ``last``
            "restart": In(1),   # begin with pixel (0, 0)
            "step": In(1),      # go on by a position
            "next_row": In(1),  # row in its tile of the pixel after this one
            "next_col": In(1),  # column in its tile of that pixel
            "row": Out(1),      # of this pixel in its tile
            "col": Out(1),      # of this pixel in its tile
            "position": Out(range(POSITIONS)),  # 4 * i + j
            "first": Out(1),    # it is the first of the sum
            "negate": Out(1),   # its sign is not that of the one before
            "last": Out(1),     # it is the last of the sum
        })

    def elaborate(self, platform):
        m = Module()
        k, l = self.row, self.col  # noqa: E741 - as in the formulas
        i, j = Signal(2), Signal(2)
        down, right = Signal(2), Signal(2)      # i - k and j - l
        sign, sign_before = Signal(), Signal()
        m.d.comb += [
            self.position.eq(Cat(j, i)),
            # Row k of A^T is 1 1 1 0 or 0 1 -1 -1.
            sign.eq((k & i[1]) ^ (l & j[1])),
            self.negate.eq(sign ^ sign_before),
        ]
        with m.If(self.restart):
            m.d.sync += [
                k.eq(0), l.eq(0), i.eq(2), j.eq(2), down.eq(2), right.eq(2),
                self.first.eq(1), self.last.eq(~self.enable),
            ]
        with m.Elif(self.step & self.enable):
            m.d.sync += [sign_before.eq(sign), self.first.eq(self.last), self.last.eq((down == 0) & (right == 1))]
            with m.If(right != 0):
                m.d.sync += [right.eq(right - 1), j.eq(j - 1)]
            with m.Elif(down != 0):
                m.d.sync += [right.eq(2), j.eq(l + 2), down.eq(down - 1), i.eq(i - 1)]
            with m.Else():
                m.d.sync += [
                    right.eq(2), j.eq(self.next_col + 2), l.eq(self.next_col),
                    down.eq(2), i.eq(self.next_row + 2), k.eq(self.next_row),
                ]
        return m
