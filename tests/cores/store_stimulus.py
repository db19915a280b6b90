"""Random programs of the store queue with all that flows in beside them, and what must come out."""

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from cores.arch.instruction import Instruction, encode
from cores.arch.isa import Opcode, WordForm
from cores.arch.numerics import POOL_WIDTH
from cores.config import NpuConfig
from sim.golden import winograd_output
from tests.cores.store_chain import (
    chain_of,
    chain_result,
    random_chain,
    random_second_stage,
    second_stage,
    takes_residuals,
)
from tests.cores.store_values import pack, pack_parameters, random_channels, random_clip, random_sources

__all__ = ["StoreStimulus"]


def _beat(values: np.ndarray) -> int:
    return int.from_bytes(values.astype(np.uint8).tobytes(), "little")


@dataclass
class StoreStimulus:
    """Call `geometry` and `chain`, then `store` as often as wanted; the lists then hold what to feed and to expect, in
    order.

    ``banks[n]``: the accumulators that STORE n reads, {word: its bits}, None for a pooled one. They appear when its
    token is given, so a STORE that starts early reads others.
    """

    config: NpuConfig
    rng: np.random.Generator
    instructions: list[int] = field(default_factory=list)
    side: list[int] = field(default_factory=list)
    pooled: list[int] = field(default_factory=list)
    banks: list[dict[int, np.ndarray] | None] = field(default_factory=list)
    flags: list[dict[str, int]] = field(default_factory=list)
    runs: list[dict[str, int]] = field(default_factory=list)
    beats: list[int] = field(default_factory=list)
    #: What local STOREs write, in order: (bank, entry, beat).
    entries: list[tuple[int, int, int]] = field(default_factory=list)

    def emit(self, opcode: Opcode, **fields: int) -> int:
        """An instruction of which nothing is expected; returns its index."""
        return self.give(Instruction(opcode, **fields))

    def give(self, instruction: Instruction) -> int:
        """The same of an instruction that is there."""
        self.instructions.append(int.from_bytes(encode(instruction), "little"))
        return len(self.instructions) - 1

    def geometry(self, *, rows: int, cols: int, words: WordForm = WordForm.PIXELS, local: bool = False,
                 position_words: int | None = None) -> None:
        self.words = words
        self.fields = {"rows": rows, "cols": cols, "row_pitch": int(self.rng.integers(0, 1 << 12)),
                       "block_pitch": int(self.rng.integers(0, 1 << 16)), "words": words}
        if local:
            pitch = int(self.rng.integers(0, 5))
            self.fields |= {"local": 1, "row_pitch": pitch, "block_pitch": int(self.rng.integers(0, 20))}
        if words == WordForm.TILES:
            tiles = -(-rows // 2) * -(-cols // 2)
            words = -(-tiles // self.config.pixel_lanes)
            most = (self.config.acc_depth - words) // 15
            self.fields["position_words"] = position_words or int(self.rng.integers(words, most + 1))
        self.emit(Opcode.STORE_SET, **self.fields)

    def chain(self, *, add: bool, signs: bool = False) -> None:
        """``add``: with a second stage, of any kind."""
        others = (Instruction(Opcode.STORE_SIGNS),) if signs else ()
        self.operations = random_chain(self.config, self.rng, add=add, others=others)
        for operation in self.operations.values():
            self.give(operation)

    def maxima(self, *, rows: int, cols: int, words: WordForm) -> None:
        """Geometry and chain of maxima, ``rows`` of ``cols`` each; they may bend before."""
        tiles = -(-rows * cols // self.config.pixel_lanes)
        self.geometry(rows=rows, cols=4 * cols, words=words, position_words=tiles + int(self.rng.integers(3)))
        across = 1 if words == WordForm.TILES else self.config.word_columns(spread=words == WordForm.SPREAD)
        apart = 0 if words == WordForm.TILES else -(-2 * cols // across)
        stage = random_second_stage(self.config, self.rng)
        self.operations = chain_of(
            Instruction(Opcode.STORE_REQUANT, **random_clip(self.rng)),
            *([stage] if stage.opcode == Opcode.STORE_LEAKY else []),
            Instruction(Opcode.STORE_MAXIMUM, row_words=apart))
        for operation in self.operations.values():
            self.give(operation)

    @property
    def bends(self) -> bool:
        return Opcode.STORE_LEAKY in self.operations

    def _place(self, block: int, row: int, col: int, cols: int) -> tuple[int, int, int]:
        """(word, group, pixel lane) of a pixel in the bank; ``cols``: of a row there."""
        pixels = self.config.pixel_lanes
        if self.words == WordForm.SPREAD:
            banks = self.config.banks
            return row * -(-cols // banks) + col // banks, col % banks // pixels, col % pixels
        if self.words == WordForm.ALTERNATE:
            return row // 2 * -(-cols // pixels) + col // pixels, row % 2, col % pixels
        return row * -(-cols // pixels) + col // pixels, block, col % pixels

    def store(self, *, blocks: int, bank: int = 0, pooled: bool = False, offset: int | None = None,
              repeats: int = 0, **flags: int) -> None:
        config, rng, geometry = self.config, self.rng, self.fields
        rows, cols, lanes, width = geometry["rows"], geometry["cols"], config.ic_lanes, config.acc_width
        local = geometry.get("local", 0)
        if offset is None:
            # Rows and blocks of a local one stay inside the buffer.
            reach = (rows - 1) * geometry["row_pitch"] + (blocks - 1) * geometry["block_pitch"] + rows * cols
            offset = int(rng.integers(0, config.input_depth - reach if local else 1 << 27))
        index = self.emit(Opcode.STORE, offset=offset, blocks=blocks, bank=bank, pooled=int(pooled), repeats=repeats,
                          **flags)
        columns = np.arange(cols) // (1 + repeats)
        if Opcode.STORE_MAXIMUM in self.operations:
            rows, columns = 2 * rows, np.arange(cols // 2)
        pixels = int(columns[-1]) + 1
        self.flags.append({"index": index, "bank": bank, **flags})
        limit = 1 << width - 1
        words: dict[int, np.ndarray] = defaultdict(lambda: rng.integers(-limit, limit, config.acc_lanes))
        for block in range(blocks):
            channels = random_channels(rng, lanes, width)
            self.side += pack_parameters(*channels, config.beat_bytes)
            source = random_sources(rng, (lanes, rows, pixels), channels, POOL_WIDTH if pooled else width, width)
            if pooled:
                self.pooled += [pack(pixel, POOL_WIDTH) for pixel in source.reshape(lanes, -1).T]
            elif self.words == WordForm.TILES:
                self._fill_tiles(words, block, source)
            else:
                for row, col in np.ndindex(rows, pixels):
                    word, group, pixel = self._place(block, row, col, pixels)
                    start = pixel * config.oc_lanes + group * lanes
                    words[word][start:start + lanes] = source[:, row, col]
            residual = None
            if takes_residuals(self.operations):
                common = second_stage(self.operations)["broadcast"]
                residual = rng.integers(-128, 128, (lanes, 1, 1) if common else (lanes, rows, cols))
                self.side += [_beat(pixel) for pixel in residual.reshape(lanes, -1).T]
            result = chain_result(self.operations, source[..., columns], channels, residual)
            results = [_beat(beat) for beat in result.reshape(lanes, -1).T]
            if local:
                for beat, (row, col) in zip(results, np.ndindex(rows, cols), strict=True):
                    col += 0 if geometry["row_pitch"] else row * cols
                    entry = offset + block * geometry["block_pitch"] + row * geometry["row_pitch"]
                    self.entries.append((col % config.banks, entry + col // config.banks, beat))
                continue
            self.beats += results
            for row in range(result.shape[1]):
                start = offset + block * geometry["block_pitch"] + row * geometry["row_pitch"]
                self.runs.append({"start": start, "beats": result.shape[2], "index": index,
                                  "post": flags.get("post_load", 0),
                                  "last": int(block == blocks - 1 and row == result.shape[1] - 1)})
        self.banks.append(None if pooled else {word: pack(values, width) for word, values in words.items()})

    def _fill_tiles(self, words: dict[int, np.ndarray], block: int, source: np.ndarray) -> None:
        """Words of a block's tiles that add up to ``source``, wrapping."""
        config, (lanes, rows, cols), px = self.config, source.shape, self.config.pixel_lanes
        limit, tile_cols = 1 << config.acc_width - 1, -(-cols // 2)
        wanted = np.zeros((lanes, -(-rows // 2) * 2, tile_cols * 2), np.int64)
        wanted[:, :rows, :cols] = source
        for row, col in np.ndindex(wanted.shape[1] // 2, tile_cols):
            sums = self.rng.integers(-limit, limit, (lanes, 4, 4))
            # Each corner is in one pixel's sum alone.
            corners = (slice(None), slice(None, None, 3), slice(None, None, 3))
            sums[corners] = 0
            rest = wanted[:, 2 * row:2 * row + 2, 2 * col:2 * col + 2] - winograd_output(sums)
            sums[corners] = (rest * [[1, -1], [-1, 1]] + limit) % (2 * limit) - limit
            tile = row * tile_cols + col
            start = tile % px * config.oc_lanes + block * lanes
            for position in range(16):
                place = position * self.fields["position_words"] + tile // px
                words[place][start:start + lanes] = sums[:, position // 4, position % 4]
