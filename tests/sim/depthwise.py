"""Depthwise layers by hand (docs/architecture.md, "Spread words"): slow and plain, sharing nothing with gen/."""

from dataclasses import dataclass

import numpy as np

from cores.arch.instruction import Instruction
from cores.arch.isa import Opcode, StepKind, WordForm
from cores.config import NpuConfig

from .programs import Memory, Requantize, entries, pad, to_blocks, windows

__all__ = ["Depthwise", "depthwise_program"]


@dataclass
class Depthwise:
    """One depthwise convolution, cut in tiles of ``tile_rows`` output rows and into channel blocks."""

    weights: np.ndarray                  # (blocks * tn, KH, KW) int8
    stride: int                          # across: 1; with own taps any, in phases; 2 with two groups that alternate
    stride_y: int                        # where rows alternate also 2
    pads: tuple[int, int, int, int]
    pad_value: int
    requantize: Requantize
    tile_rows: int

    @classmethod
    def random(cls, rng: np.random.Generator, channels: int, kernel: tuple[int, int], stride: tuple[int, int],
               pads: tuple[int, int, int, int], tile_rows: int) -> "Depthwise":
        weights = rng.integers(-128, 128, (channels, *kernel)).astype(np.int8)
        requantize = Requantize.random(rng, channels, 2.0 ** -8)
        return cls(weights, stride[1], stride[0], pads, int(rng.integers(-128, 128)), requantize, tile_rows)

    def output(self, x: np.ndarray) -> np.ndarray:
        taps = windows(pad(x, self.pads, self.pad_value), self.weights.shape[1:], (self.stride_y, self.stride))
        return self.requantize.apply(np.einsum("chwyx,cyx->chw", taps, self.weights.astype(np.int64)))


def first_taps(config: NpuConfig, width: int, phases: int) -> list[int]:
    """The column of the first tap of each step of a kernel row; a step's taps are ``phases`` apart."""
    return [kx for kx in range(width) if kx % (config.window_taps * phases) < phases]


def pack(config: NpuConfig, weights: np.ndarray, tap_rows: list[list[int | None]], phases: int) -> bytes:
    """``weights`` (tn, KH, KW) int8; ``tap_rows``: for each ky the tap row of each group of output lanes."""
    stream = bytearray()
    width = weights.shape[2]
    for groups in tap_rows:
        for first in first_taps(config, width, phases):
            for output in range(config.oc_lanes):
                row = groups[output // config.ic_lanes]
                for lane in range(config.nnz_lanes):
                    kx = first + lane * phases if lane < config.window_taps else width
                    value = int(weights[output % config.ic_lanes, row, kx]) if row is not None and kx < width else 0
                    stream += value.to_bytes(1, "little", signed=True)
    return bytes(stream)


def depthwise_program(config: NpuConfig, layer: Depthwise, x: np.ndarray, *, shift: int = 0, slack: int = 0,
                      ) -> tuple[list[Instruction], np.ndarray, int, int]:
    """Instructions without END, data region, ``write_start`` (also the output's first beat), and tiles.

    Only what outputs need is loaded: the reads after it find what was there before. ``shift``: 3 rows in 4 steps.
    ``slack``: reads of a row beyond those needed.
    """
    memory = Memory(config)
    source = memory.put(to_blocks(config, x))
    channels, kernel_h, kernel_w = layer.weights.shape
    blocks = channels // config.ic_lanes
    phases = layer.stride if config.own_taps else 1
    if layer.stride == phases:
        tap_rows: list[list[int | None]] = [[ky] * config.oc_groups for ky in range(kernel_h)]
    else:
        assert layer.stride_y == 2 and config.oc_groups == 2 and (not shift or kernel_h == 3)
        tap_rows = [[ky if ky < kernel_h else None, ky - 2 if ky >= 2 else None] for ky in range(kernel_h + 2)]
        if shift:
            tap_rows[0][1] = 2
            del tap_rows[4]
    weights = [memory.put(pack(config, layer.weights[b * config.ic_lanes:][:config.ic_lanes], tap_rows, phases))
               for b in range(blocks)]
    parts = len(first_taps(config, kernel_w, phases))
    weight_beats = len(tap_rows) * parts * config.weight_beats
    parameters = memory.put(layer.requantize.pack())
    target = memory.beats
    out_h, out_w = layer.output(x).shape[1:]
    memory.reserve(blocks * out_h * out_w)

    height, width = x.shape[1:]
    top, left, _, right = layer.pads
    row_pitch = entries(config, left + width + right, phases)
    tall = (layer.tile_rows - 1) * layer.stride_y + kernel_h
    half = tall * row_pitch
    taps = min(config.window_taps, -(-kernel_w // phases))
    reads = -(-(layer.stride * (out_w - 1) // phases + taps) // config.banks) + slack
    program = [Instruction(Opcode.LOAD_SET, cols=width, row_pitch=width, block_pitch=0, pad_left=left, pad_right=right,
                           pad_value=layer.pad_value, stride=phases, buf_row_pitch=row_pitch)]
    number = 0
    for first_row in range(0, out_h, layer.tile_rows):
        rows = min(layer.tile_rows, out_h - first_row)
        first = first_row * layer.stride_y - top
        last = first + (rows - 1) * layer.stride_y + kernel_h
        begin, end = min(max(first, 0), height), min(max(last, 0), height)
        words = WordForm.SPREAD if layer.stride == phases else WordForm.ALTERNATE
        lines = rows if layer.stride == phases else -(-rows // 2)
        program += [
            Instruction(Opcode.COMPUTE_SET, kernel_h=len(tap_rows), kernel_w=parts, stride=phases, rows=lines,
                        cols=out_w, buf_row_pitch=row_pitch, words=words, shift=shift, reads=reads,
                        buf_row_step=(layer.stride_y if layer.stride == phases else 4) * row_pitch),
            *layer.requantize.set(rows, out_w, out_w, 0, words=words),
        ]
        for block in range(blocks):
            base, late = number % 2 * half, int(number >= 2)
            program += [
                Instruction(Opcode.LOAD_ACT, offset=source + (block * height + begin) * width, buf_base=base, blocks=1,
                            rows=end - begin, pad_top=begin - first, pad_bottom=last - end, post_compute=1,
                            wait_compute=late),
                Instruction(Opcode.LOAD_WGT, offset=weights[block], beats=weight_beats),
                Instruction(Opcode.LOAD_SIDE, offset=parameters + 8 * block, cols=8, rows=1),
                Instruction(Opcode.COMPUTE, buf_base=base, blocks=1, bank=number % 2, first=1, groups=1,
                            kind=StepKind.WINDOW, wait_load=1, wait_store=late, post_load=1, post_store=1),
                Instruction(Opcode.STORE, offset=target + (block * out_h + first_row) * out_w, blocks=1,
                            bank=number % 2, wait_compute=1, post_compute=1, post_load=1),
            ]
            number += 1
    return program, memory.image(), target, number
