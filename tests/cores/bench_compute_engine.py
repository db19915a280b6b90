"""Compute engine against plain NumPy: sums of random tiles, windows of the pool unit, tokens, rate and bounds."""

import random

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge

from cores.arch.error_codes import ErrorCode
from cores.arch.instruction import Instruction, encode
from cores.arch.instruction_layout import QueueEntry
from cores.arch.isa import Opcode
from cores.arch.numerics import POOL_WIDTH
from cores.bus.axi import ErrorReport
from cores.compute.compute_engine import ComputeEngine
from cores.config import NpuConfig
from tests.bench import bench_parameters
from tests.cores.binary_values import pack_bits
from tests.cores.bus_models import watch_streams
from tests.cores.pins import Pins

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
            # A read brings all banks' pixels, those behind a row's end too; alternate rows come in pairs.
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


def random_weights(rng: np.random.Generator, tile: Tile, *, indexed: bool, groups: int):
    """Beats for all steps, and the sums (TM, rows, cols) that they make."""
    beats: list[int] = []
    sums = np.zeros((TM, tile.rows, tile.cols), np.int64)
    lanes = np.arange(DN)
    for block, ky, kx in np.ndindex(tile.blocks, *tile.kernel):
        inputs = tile.tap(block, ky, kx)
        for group in range(groups):
            weights = rng.integers(-W_LIMIT, W_LIMIT, (TM, DN))
            weights.flat[rng.integers(weights.size)] = -W_LIMIT
            beats += beats_of(weights.ravel(), CONFIG.weight_bits)
            if indexed:
                indices = rng.integers(0, CONFIG.select_fanin, (TM, DN))
                beats += beats_of(indices.ravel(), CONFIG.index_bits)
                channels = indices + np.array([CONFIG.window_base(int(lane)) for lane in lanes])
            else:
                channels = np.broadcast_to(lanes * CONFIG.groups_dense + group, (TM, DN))
            sums += np.einsum("oj,rcoj->orc", weights, inputs[:, :, channels])
    return beats, sums


class Environment(Pins):
    """All around the engine; inputs change behind the rising edge, outputs are read at the falling."""

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
        self.queue.append(QueueEntry.const({"index": self.index, "word": word}).as_bits())
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
        report = self.sample("error")
        if report & 1:      # valid
            error = ErrorReport.from_bits(report)
            self.errors.append((error.code, error.index))
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


@cocotb.test()
@cocotb.parametrize(stall=[0.0, 0.5])
async def sums(dut, stall):
    """COMPUTEs of random tiles, alternating banks, some continuing the sums of the one before."""
    environment, rng = await start(dut, stall=stall)
    for number in range(int(bench_parameters().get("tiles", 8))):
        tile = Tile(rng)
        await environment.fill(tile)
        bank, expected = number % 2, 0
        base = {}
        if CONFIG.winograd:
            base["acc_base"] = int(rng.integers(CONFIG.acc_depth - tile.rows * -(-tile.cols // PX) + 1))
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
                first=int(part == 0), bank=bank, **base, wait_load=int(part == 0), wait_store=int(part == 0),
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
        np.testing.assert_array_equal(await environment.read_bank(bank, tile, *base.values()), expected)
        assert not environment.weights and not environment.errors
    await environment.until(lambda: dut.idle.value == 1, 100)


@cocotb.test()
@cocotb.parametrize(stall=[0.0, 0.6])
async def windows(dut, stall):
    """POOLs, maximum and sum, in the order block, row, column."""
    environment, rng = await start(dut, stall=stall)
    for number in range(int(bench_parameters().get("tiles", 8))):
        tile = Tile(rng, limit=128)
        await environment.fill(tile)
        maximum = bool(rng.integers(2))
        environment.push(tile.set_instruction())
        environment.push(Instruction(Opcode.POOL, buf_base=tile.base, blocks=tile.blocks, maximum=int(maximum),
                                     post_load=1))
        taps = [[tile.tap(block, ky, kx) for ky, kx in np.ndindex(*tile.kernel)] for block in range(tile.blocks)]
        reduce = np.max if maximum else np.sum
        expected = np.stack([reduce(np.stack(block), axis=0) for block in taps]).reshape(-1, TN)
        await environment.until(lambda want=expected: len(environment.pooled) >= len(want))
        np.testing.assert_array_equal(np.array(environment.pooled), expected)
        environment.pooled.clear()
        await environment.until(lambda count=number + 1: environment.loads_posted == count, 100)
    await environment.until(lambda: dut.idle.value == 1, 100)
    assert not environment.errors and not environment.pooled


@cocotb.test()
@cocotb.parametrize(stall=[0.0, 0.6])
async def windows_in_pieces(dut, stall):
    """A window's rows of taps by POOLs of their own, one result for all; whole windows between."""
    environment, rng = await start(dut, stall=stall)
    for _ in range(int(bench_parameters().get("tiles", 8))):
        tile = Tile(rng, limit=128)
        await environment.fill(tile)
        maximum, last = int(rng.integers(2)), int(tile.kernel[0]) - 1
        reduce = np.max if maximum else np.sum
        environment.push(tile.set_instruction(kernel_h=1, rows=1, cols=1))
        for ky in range(last + 1):
            environment.push(Instruction(Opcode.POOL, buf_base=tile.base + ky * tile.row_pitch, blocks=1,
                                         maximum=maximum, resume=int(ky > 0), open=int(ky < last)))
        environment.push(Instruction(Opcode.POOL, buf_base=tile.base, blocks=1, maximum=maximum))
        rows = [np.stack([tile.tap(0, ky, kx)[0, 0] for kx in range(tile.kernel[1])]) for ky in range(last + 1)]
        await environment.until(lambda: len(environment.pooled) >= 2)
        np.testing.assert_array_equal(environment.pooled, [reduce(np.concatenate(rows), axis=0),
                                                           reduce(rows[0], axis=0)])
        environment.pooled.clear()
    await environment.until(lambda: dut.idle.value == 1, 100)
    assert not environment.errors and not environment.pooled


@cocotb.test(skip=not CONFIG.depthwise)
@cocotb.parametrize(form=["spread", "columns", "alternate", "shift"], stall=[0.0, 0.5])
async def spread_words(dut, form, stall):
    """Groups of output lanes on different pixels, windows of taps, and plain COMPUTEs and POOLs between them."""
    if form in ("alternate", "shift") and GROUPS == 1:
        return
    environment, rng = await start(dut, stall=stall)
    environment.load_level = environment.store_level = 200
    for _ in range(int(bench_parameters().get("tiles", 8))):
        if form == "spread":
            tile, fields, beats, expected = spread_tile(rng)
        else:
            tile, fields, beats, expected = window_tile(rng, alternate=form != "columns", shift=form == "shift")
        await environment.fill(tile)
        environment.weights += beats
        environment.push(tile.set_instruction(**fields))
        indexed = int(form == "spread")
        environment.push(Instruction(Opcode.COMPUTE, buf_base=tile.base, blocks=tile.blocks, groups=1, indexed=indexed,
                                     first=1, post_store=1))
        # What follows at once must neither disturb it nor be disturbed.
        after = Instruction(Opcode.COMPUTE_SET, kernel_h=1, kernel_w=1, stride=1, rows=1, cols=PX)
        environment.push(after)
        pool = bool(rng.integers(2))
        if pool:
            environment.push(Instruction(Opcode.POOL, buf_base=tile.base, blocks=1))
        else:
            weights = rng.integers(-W_LIMIT, W_LIMIT, (TM, DN))
            environment.weights += beats_of(weights.ravel(), CONFIG.weight_bits)
            environment.push(Instruction(Opcode.COMPUTE, buf_base=tile.base, blocks=1, groups=1, first=1, bank=1,
                                         post_store=1))
        await environment.until(lambda: environment.stores_posted + len(environment.pooled) // PX == 2)
        words = await environment.read_words(0, *expected.shape[:2])
        valid = expected != INVALID
        np.testing.assert_array_equal(words[valid], expected[valid])
        inputs = [tile.values[0, 0, column] if column < tile.values.shape[2] else None for column in range(PX)]
        got = np.array(environment.pooled) if pool else (await environment.read_words(1, 1, 1))[0, 0]
        for pixel, x in enumerate(inputs):
            if x is not None and tile.bank_stride == 1:
                want = x.astype(np.int8) if pool else weights @ x[np.arange(DN) * CONFIG.groups_dense].astype(np.int64)
                np.testing.assert_array_equal(got[pixel], want)
        environment.stores_posted = 0
        environment.pooled.clear()
        assert not environment.weights and not environment.errors
    await environment.until(lambda: dut.idle.value == 1, 100)


#: Marks accumulators that no output pixel belongs to.
INVALID = 1 << 40


def spread_tile(rng: np.random.Generator):
    """A tile of a narrow layer; the groups have weights of their own, which is more than the compiler uses."""
    tile = Tile(rng)
    beats, sums = random_weights(rng, tile, indexed=True, groups=1)
    words = -(-tile.cols // BANKS)
    expected = np.full((tile.rows, words, PX, TM), INVALID, np.int64)
    for column in range(tile.cols):
        group, pixel = column % BANKS // PX, column % PX
        lanes = slice(group * TN, (group + 1) * TN)
        expected[:, column // BANKS, pixel, lanes] = sums[lanes, :, column].T
    return tile, {"spread": 1}, beats, expected


def window_tile(rng: np.random.Generator, *, alternate: bool, shift: bool):
    """A depthwise tile: stride 1, or 2 with ``alternate``."""
    stride = (2, 2) if alternate else (int(rng.integers(1, 3)), 1)
    while True:
        tile = Tile(rng, blocks=1, stride=stride, bank_stride=1)
        height, width = (int(k) for k in tile.kernel)
        if not shift or height == 3:
            break
    taps = -(-width // DN)
    weights = rng.integers(-W_LIMIT, W_LIMIT, (TN, height, taps * DN))
    weights[:, :, width:] = 0
    reach = (tile.cols - 1) * stride[1] + min(DN, width)
    words = -(-tile.cols // (PX if alternate else BANKS))
    reads = max(words, -(-reach // BANKS))
    steps = height if not alternate else 4 if shift else height + 2
    beats: list[int] = []
    for ky, t in np.ndindex(steps, taps):
        lanes = np.zeros((GROUPS, TN, DN), np.int64)
        for group in range(GROUPS):
            row = ky
            if alternate and group:
                row = 2 if shift and ky == 0 else ky - 2
            if 0 <= row < height:
                lanes[group] = weights[:, row, t * DN:(t + 1) * DN]
        beats += beats_of(lanes.ravel(), CONFIG.weight_bits)
    sums = np.zeros((TN, tile.rows, tile.cols), np.int64)
    for ky, kx in np.ndindex(height, width):
        sums += weights[:, ky, kx, None, None] * tile.tap(0, ky, kx).transpose(2, 0, 1)
    pairs = -(-tile.rows // 2) if alternate else tile.rows
    expected = np.full((pairs, words, PX, TM), INVALID, np.int64)
    for row, column in np.ndindex(tile.rows, tile.cols):
        if alternate:
            place, group = (row // 2, column // PX, column % PX), row % 2
        else:
            place, group = (row, column // BANKS, column % PX), column % BANKS // PX
        expected[place][group * TN:(group + 1) * TN] = sums[:, row, column]
    fields = {"kernel_h": steps, "kernel_w": taps, "rows": pairs, "window": 1, "reads": reads,
              "spread": int(not alternate), "alternate": int(alternate), "shift": int(shift)}
    if alternate:
        fields["buf_row_step"] = 4 * tile.row_pitch
    return tile, fields, beats, expected


@cocotb.test()
async def rate(dut):
    """A word every cycle, across steps and instructions, once weights are there in time."""
    environment, rng = await start(dut, stall=0.0)
    tile = Tile(rng)
    step = CONFIG.weight_beats + CONFIG.index_beats + ComputeEngine.handover(CONFIG)
    tile.kernel, tile.stride, tile.blocks = np.array([2, 2]), np.array([1, 1]), 1
    tile.rows, tile.cols = 2, PX * -(-step // 2)
    height, width = tile.rows + 1, tile.cols + 1
    tile.row_pitch = tile._entries(width)
    tile.block_pitch, tile.base = tile.row_pitch * height, 0
    tile.values = rng.integers(-128, 128, (1, height, width, TN), dtype=X_TYPE)
    tile.zeros = np.zeros((1, height, width, 2), bool)
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
    cases = [(CONFIG.input_depth - 1, 4 * BANKS, 0), (0, PX * (CONFIG.acc_depth + 1), 0)]
    if CONFIG.winograd:
        cases += [(0, PX * 3, CONFIG.acc_depth - 2), (0, 1, (1 << 12) - 1), (0, 1, CONFIG.acc_depth)]
    for base, cols, word in cases:
        environment, _ = await start(dut, stall=0.0)
        environment.push(Instruction(Opcode.COMPUTE_SET, kernel_h=1, kernel_w=1, stride=1, rows=1, cols=cols))
        environment.push(Instruction(Opcode.COMPUTE, buf_base=base, blocks=1, groups=1, first=1,
                                     acc_base=word))
        environment.weights += [0] * CONFIG.weight_beats
        await environment.until(lambda errors=environment.errors: bool(errors), 5000)
        assert environment.errors[0] == (ErrorCode.BUFFER, 1)
