"""Products of two activations, and the copy of one of them that has the order in which a machine takes weights."""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gen.ir.epilogue.base import Range
from gen.ir.layers.base import Layer
from gen.ir.tensor import Tensor

__all__ = ["MatMul", "Turn", "WeightOrder"]


@dataclass(frozen=True)
class WeightOrder:
    """The order in which a multiplier array takes the weights of single pixels (docs/architecture.md, Computing).

    A beat has ``beat`` bytes, weights of ``reduction_lanes`` channels for each of its output lanes; ``output_lanes``
    are computed at once. Of the channels of a block, ``window`` neighbouring ones are within reach of a reduction lane.
    """

    beat: int
    output_lanes: int
    reduction_lanes: int
    window: int

    @property
    def steps(self) -> int:
        """Steps of a block: beats that have all of its channels for the same outputs."""
        return self.beat // self.reduction_lanes

    @property
    def outputs_of_beat(self) -> int:
        """Output lanes that a beat has weights for."""
        return self.beat // self.reduction_lanes

    @property
    def run(self) -> int:
        """Neighbouring channels that a step takes of each window."""
        return self.reduction_lanes * self.window // self.beat

    @property
    def windows(self) -> int:
        return self.beat // self.window

    def rows(self, outputs: int) -> int:
        """Beats of a step for so many outputs, those of whole sets of output lanes."""
        return -(-outputs // self.output_lanes) * (self.output_lanes // self.outputs_of_beat)

    def blocks(self, channels: int) -> int:
        return -(-channels // self.beat)

    def steps_of(self, channels: int) -> int:
        """Steps that so many channels of a block take."""
        return -(-min(channels, self.window) // self.run)

    def places(self, channels: int, outputs: int) -> tuple[np.ndarray, np.ndarray]:
        """Channel and output of each byte: (steps * beat, blocks * rows) each, some beyond the last."""
        byte = np.arange(self.beat)
        lane, first = byte % self.reduction_lanes, byte // self.reduction_lanes
        in_block = (lane // self.run * self.window + lane % self.run
                    + np.arange(self.steps)[:, None] * self.run)
        block = np.arange(self.blocks(channels))
        row = np.arange(self.rows(outputs))
        channel = in_block[:, :, None, None] + (block * self.beat)[:, None]
        output = first[:, None, None] + row * self.outputs_of_beat
        shape = self.steps, self.beat, len(block), len(row)
        flat = self.steps * self.beat, len(block) * len(row)
        return (np.broadcast_to(channel, shape).reshape(flat), np.broadcast_to(output, shape).reshape(flat))


@dataclass(frozen=True, eq=False, kw_only=True)
class Turn(Layer):
    """A matrix in the order in which it is taken as weights: what an operand of a `MatMul` becomes.

    The matrix has ``outputs`` rows: pixels of the input, whose channels are multiplied, or, ``by_channels``, channels,
    whose pixels are. Rows and columns beyond the last are 0. The result is (steps * beat, blocks * rows, 1), one pixel
    of a step's block a beat.
    """

    order: WeightOrder
    #: Rows of the matrix, those that are 0 included.
    outputs: int
    #: Values of a row.
    reduced: int
    by_channels: bool = False

    op = "turn"
    summands = 1
    keeps_sums = False

    def channels(self, source: Tensor) -> int:
        return self.order.steps * self.order.beat

    def size(self, source: Tensor) -> tuple[int, int]:
        rows, width = self.order.rows(self.outputs), self.order.reduction_lanes if self.by_channels else 1
        return self.order.blocks(self.reduced) * rows // width, width

    def problems(self, sources: Sequence[Tensor]) -> Iterator[str]:
        channels, height, width = sources[0].shape
        found, least = (height * width, channels) if self.by_channels else (channels, height * width)
        if found != self.reduced or self.outputs < least:
            yield f"turns {self.outputs} rows of {self.reduced}, and its input has {least} of {found}"

    def _turned(self, values: np.ndarray) -> np.ndarray:
        """(..., C, H, W) -> the result's arrangement, 0 where nothing is."""
        *before, channels, height, width = values.shape
        matrix = values.reshape(*before, channels, height * width)
        if self.by_channels:
            matrix = matrix.swapaxes(-1, -2)
        reduced, outputs = matrix.shape[-2:]
        channel, output = self.order.places(self.reduced, self.outputs)
        inside = (channel < reduced) & (output < outputs)
        turned = np.where(inside, matrix[..., np.where(inside, channel, 0), np.where(inside, output, 0)], 0)
        rows = self.order.reduction_lanes if self.by_channels else 1
        return turned.reshape(*before, channel.shape[0], -1, rows)

    def accumulate(self, operands: Sequence[np.ndarray], zero_point: int) -> np.ndarray:
        return self._turned(operands[0].astype(np.int64))

    def sum_range(self, operands: Sequence[Range]) -> Range:
        low, high = operands[0]
        channels = self.order.steps * self.order.beat
        return np.full(channels, min(0, low.min())), np.full(channels, max(0, high.max()))

    def sum_distance(self, apart: Sequence[np.ndarray]) -> np.ndarray:
        return self._turned(apart[0])


@dataclass(frozen=True, eq=False, kw_only=True)
class MatMul(Layer):
    """A product of two activations: for every pixel of the input the products of its channels with the rows of a
    matrix, tensor ``matrix``.

    Row k is pixel k of that tensor, which has as many channels as the input. With ``by_channels`` it is channel k, and
    the tensor has as many pixels as the input has channels. Sums are ``(a - zero_points[0]) * (b - zero_points[1])``
    without the products of both zero points, which are in the bias. Outputs beyond the last row have sums of 0.
    ``turned``: the tensor is that of a `Turn`, in this order. With several ``parts`` the pixels of input and matrix are
    as many runs of equal length, and each run of the input is multiplied with the matrix of the same run.
    """

    matrix: str
    #: Its output channels, and the rows of the matrix.
    outputs: int
    rows: int
    #: Channels of the input.
    reduced: int
    zero_points: tuple[int, int]
    by_channels: bool = False
    turned: WeightOrder | None = None
    parts: int = 1

    op = "matmul"

    @property
    def operands(self) -> tuple[str, ...]:
        return self.input, self.matrix

    def channels(self, source: Tensor) -> int:
        return self.outputs

    @property
    def summands(self) -> int:
        return self.reduced

    def turn(self, order: WeightOrder, turned: str) -> tuple["MatMul", "Turn"]:
        """The layer with a tensor ``turned`` that is its matrix in this order, and the layer that makes that one. The
        requantisation of this is the caller's.
        """
        turn = Turn(f"{self.name}/turn", self.matrix, turned, requantize=self.requantize, order=order,
                    outputs=self.outputs, reduced=self.reduced, by_channels=self.by_channels)
        return replace(self, matrix=turned, turned=order), turn

    def problems(self, sources: Sequence[Tensor]) -> Iterator[str]:
        first, second = sources
        channels, height, width = second.shape
        if first.shape[0] != self.reduced or not 1 <= self.rows <= self.outputs:
            yield f"multiplies {self.reduced} channels with {self.rows} rows, of {self.outputs} outputs"
        pixels, rest = divmod(height * width, self.parts)
        if rest or first.shape[1] * first.shape[2] % self.parts or self.turned and self.parts > 1:
            yield f"multiplies {self.parts} parts, which its pixels are not"
        elif self.turned is None:
            rows, reduced = (channels, pixels) if self.by_channels else (pixels, channels)
            if (rows, reduced) != (self.rows, self.reduced):
                yield f"multiplies with {self.rows} rows of {self.reduced}, and there are {rows} of {reduced}"
        elif (channels, height * width) != (self.turned.steps * self.turned.beat,
                                            self.turned.blocks(self.reduced) * self.turned.rows(self.outputs)):
            yield "its matrix is not turned as it says"

    def _parts(self, values: np.ndarray) -> np.ndarray:
        """(..., C, H, W) as (..., parts, C, pixels of a part)."""
        *before, channels, height, width = values.shape
        parts = values.reshape(*before, channels, self.parts, height * width // self.parts)
        return np.moveaxis(parts, -2, -3)

    def _rows(self, values: np.ndarray) -> np.ndarray:
        """The matrix of each part, (..., parts, rows, reduced), of its tensor's values."""
        flat = self._parts(values)
        if self.turned is None:
            return flat if self.by_channels else flat.swapaxes(-1, -2)
        before = flat.shape[:-2]
        channel, output = self.turned.places(self.reduced, self.outputs)
        inside = (channel < self.reduced) & (output < self.rows)
        matrix = np.zeros((*before, self.rows, self.reduced), values.dtype)
        matrix[..., output[inside], channel[inside]] = flat[..., inside]
        return matrix

    def _outputs(self, sums: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """(..., parts, rows, pixels of a part) as (..., outputs, H, W)."""
        sums = np.moveaxis(sums, -3, -2)
        more = [(0, 0)] * (sums.ndim - 3) + [(0, self.outputs - self.rows), (0, 0), (0, 0)]
        return np.pad(sums, more).reshape(*sums.shape[:-3], self.outputs, *shape)

    def accumulate(self, operands: Sequence[np.ndarray], zero_point: int) -> np.ndarray:
        x, (first, second) = operands[0], self.zero_points
        a = self._parts(x).astype(np.int64) - first
        b = self._rows(operands[1]).astype(np.int64) - second
        return self._outputs(b @ a - self.reduced * first * second, x.shape[-2:])

    def sum_range(self, operands: Sequence[Range]) -> Range:
        (low, high), (least, most), (first, second) = operands[0], operands[1], self.zero_points
        a = np.stack([low - first, high - first])
        if self.by_channels:        # each row has a range
            ends = [end[:, None] * (other - second) for end in a for other in (least.min(), most.max())]
        else:
            ends = [end * (other - second) for end in a
                    for other in ((least, most) if self.turned is None else (least.min(), most.max()))]
        constant = self.reduced * first * second
        channels = np.arange(self.outputs) < self.rows
        lowest, highest = (int(pick(np.stack([np.ravel(end) for end in ends]), axis=0).sum()) - constant
                           for pick in (np.min, np.max))
        return np.where(channels, lowest, 0), np.where(channels, highest, 0)

    def sum_distance(self, apart: Sequence[np.ndarray]) -> np.ndarray:
        a = self._parts(apart[0]).sum(axis=-2, keepdims=True)
        b = self._rows(apart[1]).sum(axis=-1, keepdims=True)
        return self._outputs(255 * (a + b), apart[0].shape[-2:])

    def macs(self, target: Tensor) -> int:
        return self.reduced * self.rows * target.shape[1] * target.shape[2]

    @property
    def summed_channels(self) -> int:
        return self.reduced

    @property
    def form(self) -> Hashable:
        return *super().form, self.parts    # type: ignore[misc]
