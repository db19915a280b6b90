"""Winograd F(2x2, 3x3) for dense 3x3 layers of stride 1 (docs/architecture.md, "Winograd tiles").

Four output pixels take 16 products instead of 36. The exact form multiplies 10-bit tiles by 12-bit weights and changes
no value; the narrow form rounds both to int8, which does (docs/numerics.md).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cores.arch.isa import MAX_TILE_COLS, Opcode
from cores.arch.numerics import MAX_SHIFT, POSITIONS
from cores.config import NpuConfig
from gen.ir.graph import Conv, NarrowWinograd, Requantize, Tensor
from gen.mapping.pack import PackedWeights, pack_conv
from gen.tiling.geometry import Geometry, Window, input_range, largest_field
from sim.golden import quantize_multiplier, winograd_input, winograd_weights

__all__ = ["SAFE_SHIFTS", "WinogradGeometry", "exact_requantize", "is_eligible", "narrow_layer", "pack_tiles"]

#: Shifts that lose no tile's high bits.
SAFE_SHIFTS = (2,) * POSITIONS

_MAX_TILES = largest_field(Opcode.COMPUTE_SET, "cols")


def is_eligible(layer: Conv) -> bool:
    """Whether a layer has a Winograd form at all."""
    return layer.weights.shape[2:] == (3, 3) and tuple(layer.stride) == (1, 1) and not layer.depthwise


# -- values ----------------------------------------------------------------------------------------------------------


def narrow_layer(layer: Conv, zero_point: int, shifts: Sequence[int] = SAFE_SHIFTS) -> Conv:
    """A layer in the narrow form; ``zero_point`` is its input's.

    The transformed weights of an output channel have one scale, so large that the largest is 127 once each position is
    weighted with ``2**shift``, which the tiles have lost: products then have the same scale at all positions. The bias
    takes back exactly what an input of nothing but zero points sums to.

    Raises ValueError for a layer whose multipliers become too large.
    """
    first = layer.requantize
    exact = winograd_weights(layer.weights)
    weighted = exact << np.asarray(shifts, np.int64).reshape(4, 4)
    largest = np.abs(weighted).max(axis=(1, 2, 3))
    largest = np.where(largest == 0, 127, largest)
    weights = np.rint(weighted * (127 / largest[:, None, None, None])).astype(np.int16)
    # Sums of the exact form are 4 * y; these are 127 / largest times those.
    gain = 127 / largest * 4
    constant = winograd_input(np.full((4, 4), zero_point), shifts).astype(np.int64)
    answer = (weights * constant).sum(axis=(1, 2, 3), dtype=np.int64)
    offset = first.bias + zero_point * layer.weights.sum(axis=(1, 2, 3), dtype=np.int64)
    live = first.multiplier > 0
    scale = first.multiplier / 2.0**first.shift / gain
    multiplier, shift = quantize_multiplier(np.where(live, scale, 1.0))
    requantize = Requantize(
        bias=np.rint(offset * gain).astype(np.int64) - answer, multiplier=np.where(live, multiplier, 0),
        shift=np.where(live, shift, first.shift), zero_point=first.zero_point, low=first.low, high=first.high)
    return replace(layer, requantize=requantize, winograd=NarrowWinograd(weights, tuple(int(s) for s in shifts)))


def exact_requantize(requantize: Requantize) -> Requantize | None:
    """Parameters for sums of the exact form, which are four times the layer's; None where there is no such shift."""
    if (requantize.shift > MAX_SHIFT - 2).any():
        return None
    return replace(requantize, bias=4 * requantize.bias, shift=requantize.shift + 2)


def pack_tiles(layer: Conv, config: NpuConfig) -> PackedWeights:
    """Transformed weights, packed like those of a kernel of 16 taps: block, position, group."""
    weights = winograd_weights(layer.weights).astype(np.int16) if layer.winograd is None else layer.winograd.weights
    return pack_conv(replace(layer, weights=weights), config)


# -- tiles -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WinogradGeometry(Geometry):
    """A window's output in tiles of 2x2 pixels, numbered row by row without gaps, ``px`` to an accumulator word.

    Words come 16 times, once for each position; so do the entries of a block, of which a row is a position's.
    """

    #: Of the narrow form.
    shifts: tuple[int, ...] = ()

    @classmethod
    def fitting(cls, layer: Conv, source: Tensor, target: Tensor) -> "WinogradGeometry | None":
        """The geometry of a layer that has a Winograd form; None for others.

        Raises CompileError where `Geometry.of` does.
        """
        if not is_eligible(layer):
            return None
        plain = Geometry.of(layer, source, target)
        return cls(plain.kernel, plain.stride, plain.pads, plain.input_size, plain.output_size,
                   shifts=layer.winograd.shifts if layer.winograd else ())

    @staticmethod
    def tiles(window: Window) -> int:
        return -(-window.rows // 2) * -(-window.cols // 2)

    def window(self, y: int, rows: int, x: int, cols: int, config: NpuConfig) -> Window:
        tile_rows, tile_cols = -(-rows // 2), -(-cols // 2)
        row, data_rows, pad_top, pad_bottom = input_range(y - self.pads[0], 2 * tile_rows + 2, self.input_size[0])
        col, data_cols, pad_left, pad_right = input_range(x - self.pads[1], 2 * tile_cols + 2, self.input_size[1])
        return Window(y, rows, x, cols, row, data_rows, col, data_cols, pad_top, pad_bottom, pad_left, pad_right,
                      -(-tile_rows * tile_cols // config.banks), POSITIONS)

    def steps(self, config: NpuConfig, rows: range | None = None) -> int:
        return POSITIONS

    def word_columns(self, config: NpuConfig, *, narrow: bool = False) -> int:
        return 2

    @property
    def word_rows(self) -> int:
        return 2

    def words(self, window: Window, config: NpuConfig, *, narrow: bool = False) -> int:
        """Accumulator words of a position."""
        return -(-self.tiles(window) // config.pixel_lanes)

    def compute_fields(self, window: Window, config: NpuConfig, *, narrow: bool = False,
                       rows: range | None = None) -> Mapping[str, int]:
        """Fields of COMPUTE_SET: a position's tiles are a row of pixels."""
        return {
            "kernel_h": 1, "kernel_w": 1, "stride": 1, "rows": 1, "cols": self.tiles(window),
            "buf_row_pitch": 0, "buf_row_step": 0, "buf_block_pitch": window.entries, "spread": 0,
        }

    def tile_fields(self, window: Window) -> Mapping[str, int]:
        return {
            "shifts": sum(shift << 2 * position for position, shift in enumerate(self.shifts)),
            "tile_cols": -(-window.cols // 2), "position_pitch": window.row_pitch,
        }

    def store_fields(self, window: Window, config: NpuConfig, *, narrow: bool = False) -> Mapping[str, int]:
        return {"spread": 0, "alternate": 0, "winograd": 1, "position_words": self.words(window, config)}

    def fits(self, window: Window, config: NpuConfig) -> bool:
        tiles = self.tiles(window)
        return (self.loads(window) and -(-window.cols // 2) <= MAX_TILE_COLS and tiles <= _MAX_TILES
                and window.entries <= min(config.input_depth, largest_field(Opcode.LOAD_SET, "buf_block_pitch"))
                and POSITIONS * self.words(window, config) <= config.acc_depth)
