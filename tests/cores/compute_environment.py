"""Tiles of random work for a compute engine, and what stands around it: loads, weights, instructions, tokens, banks."""

import random

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge

from cores.arch.instruction import Instruction, encode
from cores.arch.instruction_layout import QueuedInstruction
from cores.arch.isa import Opcode, StepKind
from cores.arch.numerics import POOL_WIDTH
from cores.config import NpuConfig
from tests.bench import bench_parameters
from tests.cores.binary_values import pack_bits
from tests.cores.bus_models import watch_streams
from tests.cores.pins import Pins, reported

CONFIG = NpuConfig.from_dict(bench_parameters()["config"])
PX, TN, TM, DN = CONFIG.pixel_lanes, CONFIG.ic_lanes, CONFIG.oc_lanes, CONFIG.nnz_lanes
BANKS, GROUPS = CONFIG.banks, CONFIG.oc_groups
#: Ends of the ranges of activations and weights.
X_LIMIT, W_LIMIT = 1 << CONFIG.activation_bits - 1, 1 << CONFIG.weight_bits - 1
X_TYPE = np.int8 if X_LIMIT == 128 else np.int16


class Tile:
    """A random tile in the input buffer: its geometry, its values and what each tap of each output pixel reads.

    ``bank_stride``: the stride it is loaded with, the tile's own if None. ``limit``: of the values' range.
    """

    def __init__(self, rng: np.random.Generator, *, blocks: int | None = None, stride: tuple[int, int] | None = None,
                 bank_stride: int | None = None, limit: int = X_LIMIT):
        while True:
            self.blocks = blocks or int(rng.integers(1, 4))
            self.kernel = rng.integers(1, 6, 2)
            self.stride = rng.integers(1, 4, 2) if stride is None else np.array(stride)
            self.bank_stride = bank_stride or int(self.stride[1])
            self.rows, self.cols = (int(n) for n in rng.integers(1, 10, 2))
            height, width = (self.rows, self.cols) * self.stride - self.stride + self.kernel
            self.row_pitch = self._entries(int(width)) + int(rng.integers(0, 3))
            self.block_pitch = self.row_pitch * int(height) + int(rng.integers(0, 3))
            # A read brings all banks' pixels, those past a row's end too; alternate rows come in pairs.
            room = CONFIG.input_depth - self.blocks * self.block_pitch - 4 * self.bank_stride - 2 * self.row_pitch
            if room >= 0 and self.rows * -(-self.cols // PX) <= CONFIG.acc_depth:
                break
        self.base = int(rng.integers(0, room + 1))
        self.values = rng.integers(-limit, limit, (self.blocks, height, width, TN), dtype=X_TYPE)
        self.values.flat[rng.integers(0, self.values.size, 3)] = [-limit, limit - 1, -limit]
        # Halves of pixels that a binary COMPUTE takes for zero.
        self.zeros = rng.random((*self.values.shape[:3], 2)) < 0.2

    @classmethod
    def line(cls, rng: np.random.Generator, words: int) -> "Tile":
        """A row of whole words of output, four taps, one block, from the first entry on."""
        tile = cls(rng, blocks=1, stride=(1, 1))
        tile.kernel, tile.rows, tile.cols, tile.base = np.array([2, 2]), 1, words * PX, 0
        tile.row_pitch = tile._entries(tile.cols + 1)
        tile.block_pitch = 2 * tile.row_pitch
        tile.values = rng.integers(-128, 128, (1, 2, tile.cols + 1, TN), dtype=X_TYPE)
        tile.zeros = np.zeros((*tile.values.shape[:3], 2), bool)
        return tile

    def _entries(self, width: int) -> int:
        return width if BANKS == 1 else -(-width // (BANKS * self.bank_stride)) * self.bank_stride

    def place(self, column: int) -> tuple[int, int]:
        """Bank and entry of a column; docs/architecture.md, "Loading"."""
        stride = self.bank_stride
        if BANKS == 1:
            return 0, column
        return column // stride % BANKS, column // (BANKS * stride) * stride + column % stride

    def writes(self):
        for block, row, column in np.ndindex(self.values.shape[:3]):
            bank, entry = self.place(column)
            first = self.base + block * self.block_pitch + row * self.row_pitch
            yield bank, first + entry, self.values[block, row, column], self.zeros[block, row, column]

    def set_instruction(self, **changes: int) -> Instruction:
        fields = {
            "kernel_h": int(self.kernel[0]), "kernel_w": int(self.kernel[1]), "stride": self.bank_stride,
            "rows": self.rows, "cols": self.cols, "buf_row_pitch": self.row_pitch,
            "buf_row_step": self.row_pitch * int(self.stride[0]), "buf_block_pitch": self.block_pitch}
        return Instruction(Opcode.COMPUTE_SET, **(fields | changes))

    def tap(self, block: int, ky: int, kx: int) -> np.ndarray:
        """(rows, cols, TN) inputs under a tap."""
        down, right = (int(s) for s in self.stride)
        return self.values[block, ky:ky + down * self.rows:down, kx:kx + right * self.cols:right].astype(np.int64)


def beats_of(values: np.ndarray, bits: int) -> list[int]:
    """Numbers of ``bits`` bits side by side, cut into beats."""
    word = 0
    for position, value in enumerate(values):
        word |= (int(value) & (1 << bits) - 1) << position * bits
    count = -(-len(values) * bits // CONFIG.beat_bits)
    return [word >> beat * CONFIG.beat_bits & (1 << CONFIG.beat_bits) - 1 for beat in range(count)]


#: Kinds of steps of which `random_weights` makes the weights.
WEIGHT_KINDS = (StepKind.DENSE, StepKind.INDEXED)


def random_weights(rng: np.random.Generator, tile: Tile, kind: StepKind, *, groups: int):
    """Beats for all steps, and the sums (TM, rows, cols) that they make."""
    beats: list[int] = []
    sums = np.zeros((TM, tile.rows, tile.cols), np.int64)
    lanes = np.arange(DN)
    for block, ky, kx in np.ndindex(tile.blocks, *tile.kernel):
        inputs = tile.tap(block, ky, kx)
        for group in range(groups):
            weights = rng.integers(-W_LIMIT, W_LIMIT, (TM, DN))
            weights.flat[rng.integers(weights.size)] = -W_LIMIT
            if kind == StepKind.INDEXED:
                indices = rng.integers(0, CONFIG.select_fanin, (TM, DN))
                beats += beats_of(indices.ravel(), CONFIG.index_bits)
                channels = indices + np.array([CONFIG.window_base(int(lane)) for lane in lanes])
            else:
                channels = np.broadcast_to(lanes * CONFIG.groups_dense + group, (TM, DN))
            beats += beats_of(weights.ravel(), CONFIG.weight_bits)
            sums += np.einsum("oj,rcoj->orc", weights, inputs[:, :, channels])
    return beats, sums


class Environment(Pins):
    """All around the engine; inputs change after the rising edge, outputs are read at the falling."""

    def __init__(self, dut, *, stall: float):
        self.dut, self.stall = dut, stall
        self.queue, self.weights, self.pooled = [], [], []
        #: How many of the weights are in the ring: what is there can be taken without a pause.
        self.level = 0
        self.load_level = self.store_level = 0
        self.loads_posted = self.stores_posted = self.cycle = 0
        self.errors: list[tuple[int, int]] = []
        self.index = 0
        self.driven: dict[str, int] = {}
        #: A word of sums comes in this step.
        self.reading, self.word = False, 0

    def stand(self) -> None:
        """Offer and take nothing."""
        for port in ("queue__valid", "weights__valid", "pooled__ready"):
            self.drive(port, 0)

    async def reset(self):
        dut = self.dut
        self.stand()
        for port in ("weights_level", "load_level", "store_level"):
            self.drive(port, 0)
        for name in ("halt", "write__enable", "read_enable"):
            getattr(dut, name).value = 0
        dut.rst.value = 1
        for _ in range(3):
            await RisingEdge(dut.clk)
        dut.rst.value = 0

    def push(self, instruction: Instruction) -> None:
        word = int.from_bytes(encode(instruction), "little")
        self.queue.append(QueuedInstruction.const({"index": self.index, "word": word}).as_bits())
        self.index += 1

    async def fill(self, tile: Tile):
        dut = self.dut
        for bank, entry, value, zero in tile.writes():
            dut.write__enable.value, dut.write__address.value = 1 << bank, entry
            if CONFIG.binary_rows:
                dut.write__zero.value = pack_bits(np.tile(zero, CONFIG.write_lanes))
            if CONFIG.gather:
                dut.write__bytes.value = (1 << TN) - 1
            entry = sum((int(x) & (1 << CONFIG.activation_bits) - 1) << lane * CONFIG.activation_bits
                        for lane, x in enumerate(value))
            dut.write__data.value = sum(entry << number * CONFIG.entry_bits for number in range(CONFIG.write_lanes))
            await RisingEdge(dut.clk)
        dut.write__enable.value = 0

    async def step(self):
        dut = self.dut
        if self.level < min(len(self.weights), CONFIG.weight_depth) and random.random() >= self.stall:
            self.level += 1
        # A stream that has offered a payload keeps it until it is taken.
        offers = {
            "queue": bool(self.queue) and (random.random() >= self.stall or self.driven.get("queue__valid") == 1),
            "weights": self.level > 0,
        }
        for name, offered in offers.items():
            self.drive(f"{name}__valid", int(offered))
            if offered:
                self.drive(f"{name}__payload", getattr(self, name)[0])
        self.drive("weights_level", self.level)
        self.drive("pooled__ready", int(random.random() >= self.stall))
        self.drive("load_level", self.load_level)
        self.drive("store_level", self.store_level)
        await FallingEdge(dut.clk)
        self.cycle += 1
        for name, offered in offers.items():
            if offered and self.sample(f"{name}__ready"):
                getattr(self, name).pop(0)
                self.level -= name == "weights"
        if self.driven["pooled__ready"] and self.sample("pooled__valid"):
            word = self.sample("pooled__payload")
            fields = [word >> lane * POOL_WIDTH & (1 << POOL_WIDTH) - 1 for lane in range(TN)]
            self.pooled.append([field - (field >> POOL_WIDTH - 1 << POOL_WIDTH) for field in fields])
        if self.reading:
            self.word = self.sample("read_data")
        self.load_level -= self.sample("load_take")
        self.store_level -= self.sample("store_take")
        assert self.load_level >= 0 and self.store_level >= 0
        self.loads_posted += self.sample("post_load")
        self.stores_posted += self.sample("post_store")
        if error := reported(self.sample("error")):
            self.errors.append(error)
        await RisingEdge(dut.clk)

    async def until(self, condition, limit: int = 60_000):
        for _ in range(limit):
            if condition():
                return
            await self.step()
        raise AssertionError("the engine stands still")

    async def read_bank(self, bank: int, tile: Tile, base: int = 0) -> np.ndarray:
        """(TM, rows, cols) sums."""
        words_a_row = -(-tile.cols // PX)
        words = await self.read_words(bank, tile.rows, words_a_row, base)
        return words.transpose(3, 0, 1, 2).reshape(TM, tile.rows, words_a_row * PX)[:, :, :tile.cols]

    async def read_words(self, bank: int, rows: int, words_a_row: int, base: int = 0) -> np.ndarray:
        """(rows, words, PX, TM) sums from word ``base`` on. What is offered meanwhile stays: these are steps too."""
        dut, width = self.dut, CONFIG.acc_width
        words = np.zeros((rows, words_a_row, PX, TM), np.int64)
        for row, column in np.ndindex(rows, words_a_row):
            dut.read_enable.value, dut.read_bank.value = 1, bank
            dut.read_address.value = base + row * words_a_row + column
            await self.step()
            dut.read_enable.value, self.reading = 0, True
            await self.step()
            word, self.reading = self.word, False
            for pixel, oc in np.ndindex(PX, TM):
                value = word >> (pixel * TM + oc) * width & (1 << width) - 1
                words[row, column, pixel, oc] = value - (value >> width - 1 << width)
        return words


async def start(dut, *, stall: float) -> tuple[Environment, np.random.Generator]:
    cocotb.start_soon(Clock(dut.clk, 10, unit="ns").start())
    watch_streams(dut)
    environment = Environment(dut, stall=stall)
    await environment.reset()
    return environment, np.random.default_rng(random.getrandbits(32))
