"""Compute engine against plain NumPy: sums of random tiles, windows of the pool unit, tokens, rate and bounds."""

import random

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge

from cores.axi import ErrorReport
from cores.compute_engine import ComputeEngine
from cores.config import NpuConfig
from cores.instruction_layout import QueueEntry
from cores.isa import ErrorCode, Instruction, Opcode, encode
from cores.numerics import POOL_WIDTH
from tests.bench import bench_parameters

CONFIG = NpuConfig.from_dict(bench_parameters()["config"])
PX, TN, TM, DN = CONFIG.pixel_lanes, CONFIG.ic_lanes, CONFIG.oc_lanes, CONFIG.nnz_lanes


class Tile:
    """A random tile in the input buffer: its geometry, its values and what each tap of each output pixel reads."""

    def __init__(self, rng: np.random.Generator, *, pool: bool):
        while True:
            self.blocks = int(rng.integers(1, 4))
            self.kernel = rng.integers(1, 5, 2)
            self.stride = rng.integers(1, 4, 2)
            self.rows, self.cols = (int(n) for n in rng.integers(1, 7, 2))
            height, width = (self.rows, self.cols) * self.stride - self.stride + self.kernel
            self.row_pitch = self._entries(int(width)) + int(rng.integers(0, 3))
            self.block_pitch = self.row_pitch * int(height) + int(rng.integers(0, 3))
            room = CONFIG.input_depth - self.blocks * self.block_pitch
            if room >= 0 and self.rows * -(-self.cols // PX) <= CONFIG.acc_depth:
                break
        self.base = int(rng.integers(0, room + 1))
        self.values = rng.integers(-128, 128, (self.blocks, height, width, TN), dtype=np.int8)
        self.values.flat[rng.integers(0, self.values.size, 3)] = [-128, 127, -128]

    def _entries(self, width: int) -> int:
        stride = int(self.stride[1])
        return width if PX == 1 else -(-width // (2 * stride)) * stride

    def place(self, column: int) -> tuple[int, int]:
        """Bank and entry of a column; docs/architecture.md, "Loading"."""
        if PX == 1:
            return 0, column
        stride = int(self.stride[1])
        return column // stride % 2, column // (2 * stride) * stride + column % stride

    def writes(self):
        for block, row, column in np.ndindex(self.values.shape[:3]):
            bank, entry = self.place(column)
            entry += self.base + block * self.block_pitch + row * self.row_pitch
            yield bank, entry, self.values[block, row, column]

    def set_instruction(self) -> Instruction:
        return Instruction(
            Opcode.COMPUTE_SET, kernel_h=int(self.kernel[0]), kernel_w=int(self.kernel[1]), stride=int(self.stride[1]),
            rows=self.rows, cols=self.cols, buf_row_pitch=self.row_pitch,
            buf_row_step=self.row_pitch * int(self.stride[0]), buf_block_pitch=self.block_pitch)

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


def random_weights(rng: np.random.Generator, tile: Tile, *, indexed: bool, groups: int):
    """Beats for all steps, and the sums (TM, rows, cols) that they make."""
    beats: list[int] = []
    sums = np.zeros((TM, tile.rows, tile.cols), np.int64)
    lanes = np.arange(DN)
    for block, ky, kx in np.ndindex(tile.blocks, *tile.kernel):
        inputs = tile.tap(block, ky, kx)
        for group in range(groups):
            weights = rng.integers(-128, 128, (TM, DN))
            weights.flat[rng.integers(weights.size)] = -128
            beats += beats_of(weights.ravel(), 8)
            if indexed:
                indices = rng.integers(0, CONFIG.select_fanin, (TM, DN))
                beats += beats_of(indices.ravel(), CONFIG.index_bits)
                channels = indices + np.array([CONFIG.window_base(int(lane)) for lane in lanes])
            else:
                channels = np.broadcast_to(lanes * CONFIG.groups_dense + group, (TM, DN))
            sums += np.einsum("oj,rcoj->orc", weights, inputs[:, :, channels])
    return beats, sums


class Environment:
    """All around the engine; inputs change behind the rising edge, outputs are read at the falling."""

    def __init__(self, dut, *, stall: float):
        self.dut, self.stall = dut, stall
        self.queue, self.weights, self.pooled = [], [], []
        self.load_level = self.store_level = 0
        self.loads_posted = self.stores_posted = self.cycle = 0
        self.errors: list[tuple[int, int]] = []
        self.index = 0

    async def reset(self):
        dut = self.dut
        for name in ("queue__valid", "weights__valid", "pooled__ready", "halt", "load_level", "store_level",
                     "write_enable", "read_enable"):
            getattr(dut, name).value = 0
        dut.rst.value = 1
        for _ in range(3):
            await RisingEdge(dut.clk)
        dut.rst.value = 0

    def push(self, instruction: Instruction) -> None:
        word = int.from_bytes(encode(instruction), "little")
        self.queue.append(QueueEntry.const({"index": self.index, "word": word}).as_bits())
        self.index += 1

    async def fill(self, tile: Tile):
        dut = self.dut
        for bank, entry, value in tile.writes():
            dut.write_enable.value, dut.write_address.value = 1 << bank, entry
            dut.write_data.value = int.from_bytes(value.tobytes(), "little")
            await RisingEdge(dut.clk)
        dut.write_enable.value = 0

    async def step(self):
        dut = self.dut
        offers = {}
        for name in ("queue", "weights"):
            feed = getattr(self, name)
            # A stream that has offered a payload keeps it until it is taken.
            offers[name] = bool(feed) and (random.random() >= self.stall or getattr(dut, f"{name}__valid").value == 1)
            getattr(dut, f"{name}__valid").value = int(offers[name])
            if offers[name]:
                getattr(dut, f"{name}__payload").value = feed[0]
        dut.pooled__ready.value = int(random.random() >= self.stall)
        dut.load_level.value, dut.store_level.value = self.load_level, self.store_level
        await FallingEdge(dut.clk)
        self.cycle += 1
        for name, offered in offers.items():
            if offered and getattr(dut, f"{name}__ready").value == 1:
                getattr(self, name).pop(0)
        if dut.pooled__valid.value == 1 and dut.pooled__ready.value == 1:
            word = int(dut.pooled__payload.value)
            fields = [word >> lane * POOL_WIDTH & (1 << POOL_WIDTH) - 1 for lane in range(TN)]
            self.pooled.append([field - (field >> POOL_WIDTH - 1 << POOL_WIDTH) for field in fields])
        self.load_level -= int(dut.load_take.value)
        self.store_level -= int(dut.store_take.value)
        assert self.load_level >= 0 and self.store_level >= 0
        self.loads_posted += int(dut.post_load.value)
        self.stores_posted += int(dut.post_store.value)
        report = ErrorReport.from_bits(int(dut.error.value))
        if report.valid:
            self.errors.append((report.code, report.index))
        await RisingEdge(dut.clk)

    async def until(self, condition, limit: int = 60_000):
        for _ in range(limit):
            if condition():
                return
            await self.step()
        raise AssertionError("the engine stands still")

    async def read_bank(self, bank: int, tile: Tile) -> np.ndarray:
        """(TM, rows, cols) sums."""
        dut, width = self.dut, CONFIG.acc_width
        words_a_row = -(-tile.cols // PX)
        sums = np.zeros((TM, tile.rows, tile.cols), np.int64)
        for row, column in np.ndindex(tile.rows, words_a_row):
            dut.read_enable.value, dut.read_bank.value = 1, bank
            dut.read_address.value = row * words_a_row + column
            await RisingEdge(dut.clk)
            dut.read_enable.value = 0
            await FallingEdge(dut.clk)
            word = int(dut.read_data.value)
            for pixel in range(PX):
                if column * PX + pixel < tile.cols:
                    for oc in range(TM):
                        value = word >> (pixel * TM + oc) * width & (1 << width) - 1
                        sums[oc, row, column * PX + pixel] = value - (value >> width - 1 << width)
        return sums


async def start(dut, *, stall: float) -> tuple[Environment, np.random.Generator]:
    cocotb.start_soon(Clock(dut.clk, 10, unit="ns").start())
    environment = Environment(dut, stall=stall)
    await environment.reset()
    return environment, np.random.default_rng(random.getrandbits(32))


@cocotb.test()
@cocotb.parametrize(stall=[0.0, 0.5])
async def sums(dut, stall):
    """COMPUTEs of random tiles, alternating banks, some continuing the sums of the one before."""
    environment, rng = await start(dut, stall=stall)
    for number in range(int(bench_parameters().get("tiles", 8))):
        tile = Tile(rng, pool=False)
        await environment.fill(tile)
        bank, expected = number % 2, 0
        environment.push(tile.set_instruction())
        parts = int(rng.integers(1, 3))
        for part in range(parts):
            indexed = bool(rng.integers(2))
            groups = int(rng.integers(1, CONFIG.groups_dense + 1))
            beats, part_sums = random_weights(rng, tile, indexed=indexed, groups=groups)
            environment.weights += beats
            expected = expected + part_sums
            environment.push(Instruction(
                Opcode.COMPUTE, buf_base=tile.base, blocks=tile.blocks, groups=groups, indexed=int(indexed),
                first=int(part == 0), bank=bank, wait_load=int(part == 0), wait_store=int(part == 0),
                post_load=int(part == parts - 1), post_store=int(part == parts - 1)))
        for _ in range(random.randrange(20)):
            await environment.step()
        assert environment.stores_posted == number, "a COMPUTE ran without its tokens"
        environment.load_level += 1
        for _ in range(random.randrange(20)):
            await environment.step()
        environment.store_level += 1
        await environment.until(lambda count=number + 1: environment.stores_posted == count)
        assert environment.loads_posted == number + 1
        np.testing.assert_array_equal(await environment.read_bank(bank, tile), expected)
        assert not environment.weights and not environment.errors
    await environment.until(lambda: dut.idle.value == 1, 100)


@cocotb.test()
@cocotb.parametrize(stall=[0.0, 0.6])
async def windows(dut, stall):
    """POOLs, maximum and sum, in the order block, row, column."""
    environment, rng = await start(dut, stall=stall)
    for number in range(int(bench_parameters().get("tiles", 8))):
        tile = Tile(rng, pool=True)
        await environment.fill(tile)
        maximum = bool(rng.integers(2))
        environment.push(tile.set_instruction())
        environment.push(Instruction(Opcode.POOL, buf_base=tile.base, blocks=tile.blocks, maximum=int(maximum),
                                     post_load=1))
        taps = [[tile.tap(block, ky, kx) for ky, kx in np.ndindex(*tile.kernel)] for block in range(tile.blocks)]
        reduce = np.max if maximum else np.sum
        expected = np.stack([reduce(np.stack(block), axis=0) for block in taps]).reshape(-1, TN)
        await environment.until(lambda expected=expected: len(environment.pooled) >= len(expected))
        np.testing.assert_array_equal(np.array(environment.pooled), expected)
        environment.pooled.clear()
        await environment.until(lambda count=number + 1: environment.loads_posted == count, 100)
    await environment.until(lambda: dut.idle.value == 1, 100)
    assert not environment.errors and not environment.pooled


@cocotb.test()
async def rate(dut):
    """A word every cycle, across steps and instructions, once weights are there in time."""
    environment, rng = await start(dut, stall=0.0)
    tile = Tile(rng, pool=False)
    step = CONFIG.weight_beats + CONFIG.index_beats + ComputeEngine.HANDOVER
    tile.kernel, tile.stride, tile.blocks = np.array([2, 2]), np.array([1, 1]), 1
    tile.rows, tile.cols = 2, PX * -(-step // 2)
    height, width = tile.rows + 1, tile.cols + 1
    tile.row_pitch = tile._entries(width)
    tile.block_pitch, tile.base = tile.row_pitch * height, 0
    tile.values = rng.integers(-128, 128, (1, height, width, TN), dtype=np.int8)
    await environment.fill(tile)
    environment.push(tile.set_instruction())
    count = 6
    for number in range(count):
        beats, _ = random_weights(rng, tile, indexed=True, groups=1)
        environment.weights += beats
        environment.push(Instruction(Opcode.COMPUTE, buf_base=0, blocks=1, groups=1, indexed=1, first=1,
                                     bank=number % 2, post_store=1))
    await environment.until(lambda: environment.stores_posted == 1)
    began = environment.cycle
    await environment.until(lambda: environment.stores_posted == count)
    words = tile.rows * tile.cols // PX
    assert environment.cycle - began == (count - 1) * 4 * words


@cocotb.test()
async def bounds(dut):
    """An input-buffer or accumulator address out of bounds is reported with the instruction's index."""
    for base, cols in ((CONFIG.input_depth - 1, 4 * PX), (0, PX * (CONFIG.acc_depth + 1))):
        environment, rng = await start(dut, stall=0.0)
        environment.push(Instruction(Opcode.COMPUTE_SET, kernel_h=1, kernel_w=1, stride=1, rows=1, cols=cols))
        environment.push(Instruction(Opcode.COMPUTE, blocks=1, groups=1, first=1, buf_base=base))
        environment.weights += [0] * CONFIG.weight_beats
        await environment.until(lambda errors=environment.errors: bool(errors), 5000)
        assert environment.errors[0] == (ErrorCode.BUFFER, 1)
