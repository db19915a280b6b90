"""Convolutions, in the forms that machines have."""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Self

import numpy as np

from cores.arch.numerics import COUNT_SHIFT, POSITIONS
from cores.arch.stochastic import LENGTH_BITS, Circuit
from gen.ir.epilogue.base import Range
from gen.ir.host import is_integer
from gen.ir.layers.base import Layer
from gen.ir.rules import are_integers
from gen.ir.tensor import Tensor
from sim.golden import conv2d_accumulate, winograd_accumulate, winograd_output
from sim.stochastic.layers import conv2d_streams, largest_sums
from sim.stochastic.streams import Streams

__all__ = ["Conv", "NarrowWinograd", "Stochastic", "is_binary", "product_range", "sign_sizes"]

#: Weights are int8 or uint8 with a zero point of that type subtracted.
_LARGEST_WEIGHT = 255


@dataclass(frozen=True, eq=False)
class NarrowWinograd:
    """A 3x3 convolution's sums made of int8 tiles and int8 weights, both rounded; see docs/numerics.md.

    ``weights``: (OC, IC, 4, 4) int16 in -128..127; ``shifts``: of the 16 positions, each 0..2. See
    `sim.golden.winograd_accumulate`.
    """

    weights: np.ndarray
    shifts: tuple[int, ...]


@dataclass(frozen=True)
class Stochastic:
    """A convolution's sums made of ``streams``, ``fan_in`` channels of a tap at a time; see
    `sim.stochastic.layers.conv2d_streams`.
    """

    circuit: Circuit
    streams: Streams
    fan_in: int


@dataclass(frozen=True, eq=False, kw_only=True)
class Conv(Layer):
    """Convolution (a matrix product is one whose kernel covers its input).

    ``weights``: (OC, IC, KH, KW) int16, or (C, 1, KH, KW) if ``depthwise``; real integer weights with their zero point
    subtracted, so -255..255. Unless depthwise, its outputs may be in ``groups`` of as many neighbours each, which have
    weights for as many inputs each, and zeros for all others. ``counted``: its products for a pixel, where some weights
    are zeros of channels that the model does not have. A convolution whose input has ``signs`` and whose weights have
    `sign_sizes` is binary. With ``winograd`` its sums are those of that form, which ``requantize`` goes with; with
    ``stochastic`` they are near the layer's own.
    """

    weights: np.ndarray
    depthwise: bool = False
    groups: int = 1
    counted: int | None = None
    winograd: NarrowWinograd | None = None
    stochastic: Stochastic | None = None

    op = "conv"

    @property
    def kernel(self) -> tuple[int, int]:
        rows, cols = self.weights.shape[2:]
        return rows, cols

    # -- rules ---------------------------------------------------------------------------------------------------

    def channels(self, source: Tensor) -> int:
        return len(self.weights)

    def problems(self, sources: Sequence[Tensor]) -> Iterator[str]:
        weights, (source,) = self.weights, sources
        if weights.ndim != 4 or not weights.size:
            yield f"weights must be (OC, IC, KH, KW), not of shape {weights.shape}"
        if weights.dtype != np.int16 or max(-int(weights.min()), int(weights.max())) > _LARGEST_WEIGHT:
            yield f"weights must be int16 in -{_LARGEST_WEIGHT}..{_LARGEST_WEIGHT}"
        oc, ic, *kernel = weights.shape
        if not ((oc, ic) == (source.shape[0], 1) if self.depthwise else ic == source.shape[0]):
            yield "weights do not fit the input's channels"
        yield from self._group_problems()
        if self.winograd:
            if (kernel, tuple(self.stride), self.depthwise) != ([3, 3], (1, 1), False):
                yield "only dense 3x3 layers of stride 1 have a narrow Winograd form"
            yield from _winograd_problems(self.winograd, oc, ic)
        if self.stochastic:
            yield from self._stochastic_problems(self.stochastic, source)

    def _group_problems(self) -> Iterator[str]:
        groups, (oc, ic) = self.groups, self.weights.shape[:2]
        if not is_integer(groups, 1, min(oc, ic)) or oc % groups or ic % groups:
            yield f"{oc} output and {ic} input channels are not in {groups!r} groups of as many each"
        if groups > 1:
            read = self.weights.reshape(groups, oc // groups, ic, -1).any(axis=(1, 3)).sum(axis=1)
            if read.max() > ic // groups:
                yield f"a group has weights for {read.max()} input channels, not for {ic // groups} of {ic}"

    def _stochastic_problems(self, form: Stochastic, source: Tensor) -> Iterator[str]:
        if self.winograd or self.depthwise:
            yield "sums of streams are those of a dense layer, in no other form"
        if int(self.weights.min()) < -128 or int(self.weights.max()) > 127:
            yield "weights of streams must be in -128..127"
        if source.zero_point or self.padding(source.zero_point):
            yield "streams stand for numbers around 0: the input's zero point and the padding must be that"
        if form.fan_in not in (8, 16, 32):
            yield f"a unit has 8, 16 or 32 inputs, not {form.fan_in!r}"

    # -- arithmetic ----------------------------------------------------------------------------------------------

    def accumulate(self, operands: Sequence[np.ndarray], zero_point: int) -> np.ndarray:
        (x,), padding, form = operands, self.padding(zero_point), self.stochastic
        if self.winograd is not None:
            return winograd_accumulate(x, self.winograd.weights, self.pads, padding, self.winograd.shifts)
        if form is not None:
            return conv2d_streams(x, self.weights, self.stride, self.pads, form.circuit, form.streams, form.fan_in)
        return conv2d_accumulate(x, self.weights, self.depthwise, self.stride, self.pads, padding)

    @property
    def summands(self) -> int:
        return prod(self.weights.shape[1:])

    @property
    def is_exact(self) -> bool:
        return self.winograd is None and self.stochastic is None

    def sum_range(self, operands: Sequence[Range]) -> Range:
        return product_range(self.weights, self.depthwise, operands[0])

    def sum_distance(self, apart: Sequence[np.ndarray]) -> np.ndarray:
        return conv2d_accumulate(apart[0], np.abs(self.weights), self.depthwise, self.stride, self.pads, 0)

    # -- room ----------------------------------------------------------------------------------------------------

    def reach(self, operands: Sequence[Range]) -> Range:
        if self.winograd:
            # Of each of a tile's four pixels. Tiles may hold anything here, which is more than they do.
            signs = winograd_output(np.eye(16, dtype=np.int64).reshape(16, 4, 4)).reshape(16, 4)
            weights = self.winograd.weights.reshape(*self.weights.shape[:2], 16)
            positive = np.maximum(weights, 0).sum(1, dtype=np.int64)
            negative = np.minimum(weights, 0).sum(1, dtype=np.int64)
            up = positive @ (signs > 0) - negative @ (signs < 0)
            down = negative @ (signs > 0) - positive @ (signs < 0)
            return (127 * down - 128 * up).min(axis=1), (127 * up - 128 * down).max(axis=1)
        if form := self.stochastic:
            # Of streams of any length that `stream_shift` leaves.
            most = np.max([largest_sums(self.weights, form.circuit, form.streams.shortened(shift), form.fan_in)
                           for shift in range(1 << LENGTH_BITS)], axis=0)
            return -most, most
        return self.sum_range(operands)

    def without(self, channels: np.ndarray) -> Self | None:
        if self.stochastic:
            return None
        dead = channels[:, None, None, None]
        winograd = self.winograd and replace(
            self.winograd, weights=np.where(dead, 0, self.winograd.weights).astype(np.int16))
        return replace(self, weights=np.where(dead, 0, self.weights).astype(np.int16), winograd=winograd)

    def macs(self, target: Tensor) -> int:
        return self.products * target.shape[1] * target.shape[2]

    @property
    def summed_channels(self) -> int:
        return 0 if self.depthwise else self.weights.shape[1]

    @property
    def products(self) -> int:
        """Those of a pixel of all outputs, of the weights that the model has."""
        return self.weights.size // self.groups if self.counted is None else self.counted

    @property
    def form(self) -> Hashable:
        return *super().form, self.groups, self.products    # type: ignore[misc]


def _winograd_problems(form: NarrowWinograd, oc: int, ic: int) -> Iterator[str]:
    if (form.weights.shape != (oc, ic, 4, 4) or form.weights.dtype != np.int16
            or int(form.weights.min()) < -128 or int(form.weights.max()) > 127):
        yield "transformed weights must be (OC, IC, 4, 4) int16 in -128..127"
    if not are_integers(form.shifts, POSITIONS, 0, 2):
        yield f"narrow Winograd has {POSITIONS} shifts of 0..2"


def product_range(weights: np.ndarray, depthwise: bool, inputs: Range) -> Range:
    """Lowest and highest sum of each channel, where the inputs are in ``inputs``."""
    low, high = inputs
    positive = np.maximum(weights, 0).sum(axis=(2, 3), dtype=np.int64)
    negative = weights.sum(axis=(2, 3), dtype=np.int64) - positive
    if depthwise:
        positive, negative = positive[:, 0], negative[:, 0]
        return positive * low + negative * high, positive * high + negative * low
    return positive @ low + negative @ high, positive @ high + negative @ low


def is_binary(layer: Conv, source: Tensor) -> bool:
    """Whether a convolution only multiplies signs with signs, padding aside; see `sign_sizes`."""
    return source.signs and not layer.depthwise and sign_sizes(layer.weights) is not None


def sign_sizes(weights: np.ndarray) -> np.ndarray | None:
    """Of each output channel the power of two, 2**(COUNT_SHIFT - 1) at most, that its weights are plus or minus, int64
    (OC,); None if there is none.

    A bias counts in its steps, so that it need not be a whole sum of signs.
    """
    sizes = np.abs(weights.reshape(len(weights), -1)).astype(np.int64)
    size = sizes[:, 0]
    if (sizes != size[:, None]).any() or (size < 1).any() or (size > 1 << COUNT_SHIFT - 1).any():
        return None
    return None if (size & size - 1).any() else size
