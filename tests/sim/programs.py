"""Small programs written by hand: what the compiler would make of one or two layers, without the compiler.

Slow and plain on purpose: the packing here follows docs/architecture.md byte by byte and shares nothing with gen/.
"""

from dataclasses import dataclass, field

import numpy as np

from cores.arch.instruction import Instruction, encode
from cores.arch.isa import Opcode, StepKind, WordForm
from cores.config import NpuConfig
from sim import golden


def assemble(*instructions: Instruction) -> bytes:
    return b"".join(map(encode, instructions))


@dataclass
class Memory:
    """A data region in the making: beats handed out one after the other."""

    config: NpuConfig
    parts: list[np.ndarray] = field(default_factory=list)
    beats: int = 0

    def put(self, data: np.ndarray | bytes) -> int:
        """Append bytes, filled up to whole beats; returns the first beat."""
        raw = np.frombuffer(data if isinstance(data, bytes) else np.ascontiguousarray(data).tobytes(), np.uint8)
        first, size = self.beats, self.config.beat_bytes
        self.parts.append(np.pad(raw, (0, -len(raw) % size)))
        self.beats += len(self.parts[-1]) // size
        return first

    def reserve(self, beats: int) -> int:
        return self.put(bytes([0x55]) * (beats * self.config.beat_bytes))

    def image(self) -> np.ndarray:
        return np.concatenate(self.parts)


def to_blocks(config: NpuConfig, x: np.ndarray) -> np.ndarray:
    """(C, H, W) -> (blocks, H, W, tn), missing channels zero."""
    lanes = config.ic_lanes
    x = np.pad(x, ((0, -len(x) % lanes), (0, 0), (0, 0)))
    return x.reshape(-1, lanes, *x.shape[1:]).transpose(0, 2, 3, 1)


def from_blocks(config: NpuConfig, image: np.ndarray, offset: int, shape: tuple[int, int, int]) -> np.ndarray:
    channels, height, width = shape
    blocks = -(-channels // config.ic_lanes)
    begin, count = offset * config.beat_bytes, blocks * height * width * config.beat_bytes
    data = image[begin:begin + count].view(np.int8).reshape(blocks, height, width, config.ic_lanes)
    return data.transpose(0, 3, 1, 2).reshape(-1, height, width)[:channels]


def pack_dense(config: NpuConfig, weights: np.ndarray) -> bytes:
    """``weights`` (tm, blocks * tn, KH, KW) int8, every channel in its place."""
    stream = bytearray()
    for block in range(weights.shape[1] // config.ic_lanes):
        for ky in range(weights.shape[2]):
            for kx in range(weights.shape[3]):
                for group in range(config.groups_dense):
                    for output in range(config.oc_lanes):
                        for lane in range(config.nnz_lanes):
                            channel = block * config.ic_lanes + lane * config.groups_dense + group
                            stream += int(weights[output, channel, ky, kx]).to_bytes(1, "little", signed=True)
    return bytes(stream)


def pack_indexed(config: NpuConfig, weights: np.ndarray, groups: int) -> bytes:
    """Non-zeros of ``weights`` (tm, blocks * tn, KH, KW) int8 on lanes that reach them; ValueError without one."""
    stream = bytearray()
    for block in range(weights.shape[1] // config.ic_lanes):
        for ky in range(weights.shape[2]):
            for kx in range(weights.shape[3]):
                slots = np.zeros((groups, config.oc_lanes, config.nnz_lanes, 2), np.int64)
                for output in range(config.oc_lanes):
                    free = [(group, lane) for group in range(groups) for lane in range(config.nnz_lanes)]
                    part = weights[output, block * config.ic_lanes:(block + 1) * config.ic_lanes, ky, kx]
                    for channel in np.flatnonzero(part):
                        reach = [slot for slot in free
                                 if 0 <= channel - config.window_base(slot[1]) < config.select_fanin]
                        if not reach:
                            raise ValueError(f"no slot for channel {channel}")
                        free.remove(reach[0])
                        group, lane = reach[0]
                        slots[group, output, lane] = part[channel], channel - config.window_base(lane)
                for group in range(groups):
                    word = 0
                    for position, index in enumerate(slots[group, :, :, 1].ravel()):
                        word |= int(index) << position * config.index_bits
                    stream += word.to_bytes(config.index_beats * config.beat_bytes, "little")
                    stream += slots[group, :, :, 0].astype(np.int8).tobytes()
    return bytes(stream)


@dataclass
class Requantize:
    """First stage of a store; arrays (C,)."""

    bias: np.ndarray
    multiplier: np.ndarray
    shift: np.ndarray
    zero_point: int = 0
    low: int = -128
    high: int = 127

    @classmethod
    def random(cls, rng: np.random.Generator, channels: int, gain: float = 2.0 ** -9) -> "Requantize":
        multiplier, shift = golden.quantize_multiplier(gain * rng.uniform(0.2, 1.0, channels))
        return cls(rng.integers(-3000, 3000, channels), multiplier, shift, int(rng.integers(-20, 20)), -100, 110)

    def pack(self) -> bytes:
        """8 bytes a channel: int32 bias, then the multiplier in bits 0..16 and the shift in 24..29."""
        return b"".join(int(b).to_bytes(4, "little", signed=True) + int(m | s << 24).to_bytes(4, "little")
                        for b, m, s in zip(self.bias, self.multiplier, self.shift, strict=True))

    def apply(self, sums: np.ndarray) -> np.ndarray:
        return golden.requantize(sums, self.bias, self.multiplier, self.shift, self.zero_point, self.low, self.high)

    def set(self, rows: int, cols: int, row_pitch: int, block_pitch: int, **fields: int) -> list[Instruction]:
        """STORE_SET, with further ``fields``, and the beginning of a chain."""
        return [Instruction(Opcode.STORE_SET, rows=rows, cols=cols, row_pitch=row_pitch, block_pitch=block_pitch,
                            **fields),
                Instruction(Opcode.STORE_REQUANT, zero_point=self.zero_point, low=self.low, high=self.high)]


def entries(config: NpuConfig, width: int, stride: int) -> int:
    """Entries of a bank that a padded row of ``width`` pixels takes."""
    return -(-width // (config.banks * stride)) * stride


def pad(x: np.ndarray, pads: tuple[int, int, int, int], value: int) -> np.ndarray:
    top, left, bottom, right = pads
    return np.pad(x, ((0, 0), (top, bottom), (left, right)), constant_values=value)


def windows(x: np.ndarray, kernel: tuple[int, int], stride: tuple[int, int]) -> np.ndarray:
    """(C, H, W) -> (C, OH, OW, KH, KW) int64."""
    view = np.lib.stride_tricks.sliding_window_view(x.astype(np.int64), kernel, axis=(1, 2))
    return view[:, ::stride[0], ::stride[1]]


def convolve(x: np.ndarray, weights: np.ndarray, stride: tuple[int, int]) -> np.ndarray:
    return np.einsum("chwyx,ocyx->ohw", windows(x, weights.shape[2:], stride), weights.astype(np.int64))


@dataclass
class Layer:
    """One convolution with at most tm output channels, cut in tiles of ``tile_rows`` output rows."""

    weights: np.ndarray                  # (tm, or tn if words are spread, blocks * tn, KH, KW) int8
    stride: tuple[int, int]
    pads: tuple[int, int, int, int]
    pad_value: int
    requantize: Requantize               # of as many channels
    tile_rows: int
    groups: int = 0                      # 0: dense, else indexed
    words: WordForm = WordForm.PIXELS

    def output(self, x: np.ndarray) -> np.ndarray:
        padded = pad(x, self.pads, self.pad_value)
        padded = np.pad(padded, ((0, self.weights.shape[1] - len(x)), (0, 0), (0, 0)))
        return self.requantize.apply(convolve(padded, self.weights, self.stride))


def layer_program(config: NpuConfig, layer: Layer, memory: Memory, source: int, size: tuple[int, int], target: int, *,
                  stores: int = 0, banks_used: int = 0) -> tuple[list[Instruction], int]:
    """Instructions of a layer, double-buffered, and the number of its STOREs.

    ``size``: height and width of the input at beat ``source``; ``stores``: tokens its first load must take;
    ``banks_used``: tiles that a layer before it ran (their tokens are still there to be taken).
    """
    height, width = size
    top, left, bottom, right = layer.pads
    kernel_h, kernel_w = layer.weights.shape[2:]
    out_h = (height + top + bottom - kernel_h) // layer.stride[0] + 1
    out_w = (width + left + right - kernel_w) // layer.stride[1] + 1
    blocks = layer.weights.shape[1] // config.ic_lanes
    # Spread words: all groups of output lanes have the same weights.
    of_lanes = np.concatenate([layer.weights] * (config.oc_lanes // len(layer.weights)))
    stream = pack_indexed(config, of_lanes, layer.groups) if layer.groups else pack_dense(config, of_lanes)
    stored = len(layer.weights) // config.ic_lanes
    weights, parameters = memory.put(stream), memory.put(layer.requantize.pack())
    step = config.weight_beats + (config.index_beats if layer.groups else 0)
    weight_beats = blocks * kernel_h * kernel_w * (layer.groups or config.groups_dense) * step
    assert weight_beats * config.beat_bytes == len(stream)
    row_pitch = entries(config, left + width + right, layer.stride[1])
    tall = (layer.tile_rows - 1) * layer.stride[0] + kernel_h
    block_pitch = tall * row_pitch
    half = blocks * block_pitch
    assert 2 * half <= config.input_depth
    program = [Instruction(Opcode.LOAD_SET, cols=width, row_pitch=width, block_pitch=height * width, pad_left=left,
                           pad_right=right, pad_value=layer.pad_value, stride=layer.stride[1], buf_row_pitch=row_pitch,
                           buf_block_pitch=block_pitch)]
    tiles = -(-out_h // layer.tile_rows)
    for tile in range(tiles):
        rows = min(layer.tile_rows, out_h - tile * layer.tile_rows)
        number = banks_used + tile
        first = tile * layer.tile_rows * layer.stride[0] - top        # input row, padding counted
        last = first + (rows - 1) * layer.stride[0] + kernel_h
        begin, end = min(max(first, 0), height), min(max(last, 0), height)
        program += [
            Instruction(Opcode.LOAD_ACT, offset=source + begin * width, buf_base=tile % 2 * half, blocks=blocks,
                        rows=end - begin, pad_top=begin - first, pad_bottom=last - end, post_compute=1,
                        wait_compute=int(number >= 2), stores=stores if tile == 0 else 0),
            Instruction(Opcode.LOAD_WGT, offset=weights, beats=weight_beats),
            Instruction(Opcode.LOAD_SIDE, offset=parameters, cols=8, rows=stored, row_pitch=8),
            Instruction(Opcode.COMPUTE_SET, kernel_h=kernel_h, kernel_w=kernel_w, stride=layer.stride[1], rows=rows,
                        cols=out_w, buf_row_pitch=row_pitch, buf_row_step=layer.stride[0] * row_pitch,
                        buf_block_pitch=block_pitch, words=layer.words),
            Instruction(Opcode.COMPUTE, buf_base=tile % 2 * half, blocks=blocks, bank=number % 2, first=1,
                        groups=layer.groups or config.groups_dense, wait_load=1,
                        kind=StepKind.INDEXED if layer.groups else StepKind.DENSE,
                        wait_store=int(number >= 2), post_load=1, post_store=1),
            *layer.requantize.set(rows, out_w, out_w, out_h * out_w, words=layer.words),
            Instruction(Opcode.STORE, offset=target + tile * layer.tile_rows * out_w, blocks=stored,
                        bank=number % 2, wait_compute=1, post_compute=1, post_load=1),
        ]
    return program, tiles


END = Instruction(Opcode.END)
