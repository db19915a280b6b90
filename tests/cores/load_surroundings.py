"""Programs of loads with what they must make, and what stands around a load engine: memory, queue, tokens, buffer."""

import random
from collections import deque
from functools import cache

import cocotb
import numpy as np
from cocotb.triggers import ClockCycles, RisingEdge

from cores.arch.error_codes import ErrorCode
from cores.arch.instruction import Instruction, encode
from cores.arch.instruction_layout import QueuedInstruction
from cores.arch.isa import Opcode
from cores.buffers.input_buffer import LocalBeat
from cores.bus.axi import read_data_layout, read_request_layout
from cores.config import NpuConfig
from cores.load.buffer_writer import BufferWriter
from sim.golden import winograd_input
from sim.storage import entry_places
from tests.bench import bench_parameters
from tests.cores.bus_models import collect, send, start
from tests.cores.pins import reported, value_of

CONFIG = NpuConfig.from_dict(bench_parameters()["config"])
BYTES = CONFIG.beat_bytes
REQUEST, DATA, LOCAL = read_request_layout(CONFIG), read_data_layout(CONFIG), LocalBeat(CONFIG)
BASE = 0x1234_5000
REGION = 5000


def content(beat: int) -> int:
    """What the data region holds at ``beat``."""
    return (beat + 1) * 0x9E3779B97F4A7C15F39CC0605CEDC8341082276BF3A27251F86C6A11D0C18E95 & (1 << 8 * BYTES) - 1


@cache
def answer(beat: int, last: bool, response: int) -> int:
    """The memory's answer with ``beat``, as bits; made once of each, as Amaranth takes its time for it."""
    return DATA.const({"valid": 1, "data": content(beat), "last": last, "response": response}).as_bits()


def pixel(beat: int) -> np.ndarray:
    return np.frombuffer(beat.to_bytes(BYTES, "little"), np.int8)


def entry(values) -> int:
    """An entry of the input buffer."""
    mask = (1 << CONFIG.activation_bits) - 1
    return sum((int(value) & mask) << lane * CONFIG.activation_bits for lane, value in enumerate(values))


class Program:
    """Instructions of the load queue, and what must come of them, written down from docs/architecture.md."""

    def __init__(self) -> None:
        self.instructions: list[Instruction] = []
        self.writes: list[tuple[int, int, int]] = []        # bank, entry, beat
        self.rings: dict[str, list[int]] = {"weights": [], "side": []}
        self.posts: list[tuple[int, int, int]] = []         # what must have been delivered before
        self.geometry: Instruction | None = None
        self.transform: Instruction | None = None

    def add(self, opcode: Opcode, **fields: int) -> None:
        instruction = Instruction(opcode, **fields)
        self.instructions.append(instruction)
        if opcode == Opcode.LOAD_SET:
            self.geometry, self.transform = instruction, None
        elif opcode == Opcode.LOAD_WINOGRAD:
            self.transform = instruction
        elif opcode == Opcode.LOAD_ACT and self.geometry and self.transform:
            self._tiles(self.geometry, self.transform, instruction)
        elif opcode == Opcode.LOAD_ACT and self.geometry:
            self._box(self.geometry, instruction)
        elif opcode == Opcode.LOAD_WGT:
            self.rings["weights"] += [content(instruction["offset"] + beat) for beat in range(instruction["beats"])]
        elif opcode == Opcode.LOAD_SIDE:
            self.rings["side"] += [content(instruction["offset"] + row * instruction["row_pitch"] + col)
                                   for row in range(instruction["rows"]) for col in range(instruction["cols"])]
        if instruction["post_compute"]:
            self.posts.append((len(self.writes), *map(len, self.rings.values())))

    def _pixels(self, geometry: Instruction, act: Instruction) -> np.ndarray:
        """(blocks, rows, cols, BYTES) of the padded box."""
        box = np.full((act["blocks"], act["pad_top"] + act["rows"] + act["pad_bottom"],
                       geometry["pad_left"] + geometry["cols"] + geometry["pad_right"], BYTES), geometry["pad_value"])
        for block, row, col in np.ndindex(act["blocks"], act["rows"], geometry["cols"]):
            source = act["offset"] + block * geometry["block_pitch"] + row * geometry["row_pitch"] + col
            box[block, act["pad_top"] + row, geometry["pad_left"] + col] = pixel(content(source))
        return box

    def _box(self, geometry: Instruction, act: Instruction) -> None:
        box = self._pixels(geometry, act)
        banks, entries = entry_places(CONFIG.banks, geometry["stride"], 0, box.shape[2])
        for block, row, col in np.ndindex(box.shape[:3]):
            place = act["buf_base"] + block * geometry["buf_block_pitch"] + row * geometry["buf_row_pitch"]
            self.writes.append((int(banks[col]), place + int(entries[col]), entry(box[block, row, col])))

    def _tiles(self, geometry: Instruction, transform: Instruction, act: Instruction) -> None:
        box = self._pixels(geometry, act)
        shifts = [transform["shifts"] >> 2 * p & 3 for p in range(16)] if CONFIG.winograd == 1 else None
        blocks, rows, cols = box.shape[0], box.shape[1] // 2 - 1, box.shape[2] // 2 - 1
        for block, row, col in np.ndindex(blocks, rows, cols):
            tile = row * cols + col
            place = act["buf_base"] + block * geometry["buf_block_pitch"] + tile // CONFIG.banks
            d = box[block, 2 * row:2 * row + 4, 2 * col:2 * col + 4].transpose(2, 0, 1)
            for position, values in enumerate(winograd_input(d, shifts).reshape(BYTES, 16).T):
                self.writes.append((tile % CONFIG.banks, place + position * transform["position_pitch"],
                                    entry(values)))


def random_program(count: int) -> Program:
    """``count`` loads of all kinds, with tokens; boxes and rows of a single beat among them."""
    program = Program()

    def tokens() -> dict[str, int]:
        return dict(wait_compute=random.randrange(2), stores=random.choice([0, 0, 1, 3]),
                    post_compute=random.randrange(2))

    for number in range(count):
        kind = "act" if number == 0 else random.choice(["act", "act", "wgt", "side"])
        if kind == "act" and CONFIG.winograd and random.randrange(2):
            _random_tiles(program, tokens())
            continue
        if kind == "wgt":
            beats = random.choice([1, 7, 256, 257, 700])
            program.add(Opcode.LOAD_WGT, offset=random.randrange(REGION - beats + 1), beats=beats, **tokens())
        elif kind == "side":
            cols, rows = random.choice([(1, 1), (8, 1), (1, 9), (random.randint(1, 20), random.randint(1, 9))])
            pitch = random.randint(0, 50)
            end = (rows - 1) * pitch + cols
            program.add(Opcode.LOAD_SIDE, offset=random.choice([0, REGION - end]), cols=cols, rows=rows,
                        row_pitch=pitch, **tokens())
        else:
            _random_box(program, tokens())
    return program


def _random_box(program: Program, tokens: dict[str, int]) -> None:
    while True:
        cols, rows, blocks = random.randint(1, 12), random.randint(0, 5), random.randint(1, 3)
        left, right, top, bottom = (random.choice([0, 0, 1, 3]) for _ in range(4))
        stride = random.randint(1, 4)
        _, entries = entry_places(CONFIG.banks, stride, 0, left + cols + right)
        row_pitch = int(entries.max()) + 1 + random.randint(0, 2)
        block_pitch = row_pitch * (top + rows + bottom) + random.randint(0, 2)
        room = CONFIG.input_depth - blocks * block_pitch
        if rows + top + bottom and room >= 0:
            break
    pitches = dict(row_pitch=random.randint(0, 60), block_pitch=random.randint(0, 400))
    end = (blocks - 1) * pitches["block_pitch"] + (rows - 1) * pitches["row_pitch"] + cols if rows else 0
    program.add(Opcode.LOAD_SET, cols=cols, pad_left=left, pad_right=right, pad_value=random.randint(-128, 127),
                stride=stride, buf_row_pitch=row_pitch, buf_block_pitch=block_pitch, **pitches)
    program.add(Opcode.LOAD_ACT, offset=random.choice([0, REGION - end]), buf_base=random.choice([0, room]),
                blocks=blocks, rows=rows, pad_top=top, pad_bottom=bottom, **tokens)


def _random_tiles(program: Program, tokens: dict[str, int]) -> None:
    """A box of tiles, all but its padding from memory, and a load that may go on while it is transformed."""
    tile_rows, tile_cols, blocks = random.randint(1, 3), random.randint(1, 5), random.randint(1, 3)
    left, right, top, bottom = (random.randint(0, 3) for _ in range(4))
    cols, rows = 2 * tile_cols + 2 - left - right, 2 * tile_rows + 2 - top - bottom
    if cols < 1 or rows < 0:
        left = right = top = bottom = 0
        cols, rows = 2 * tile_cols + 2, 2 * tile_rows + 2
    words = -(-tile_rows * tile_cols // CONFIG.banks)
    block_pitch, position_pitch = words + random.randint(0, 2), words + random.randint(0, 10)
    room = CONFIG.input_depth - 15 * position_pitch - (blocks - 1) * block_pitch - words
    pitches = dict(row_pitch=random.randint(0, 60), block_pitch=random.randint(0, 400))
    end = (blocks - 1) * pitches["block_pitch"] + (rows - 1) * pitches["row_pitch"] + cols if rows else 0
    program.add(Opcode.LOAD_SET, cols=cols, pad_left=left, pad_right=right, pad_value=random.randint(-128, 127),
                stride=1, buf_block_pitch=block_pitch, **pitches)
    program.add(Opcode.LOAD_WINOGRAD, shifts=sum(random.randrange(3) << 2 * p for p in range(16)),
                tile_cols=tile_cols, position_pitch=position_pitch)
    program.add(Opcode.LOAD_ACT, offset=random.choice([0, REGION - end]), buf_base=random.randint(0, room),
                blocks=blocks, rows=rows, pad_top=top, pad_bottom=bottom, **tokens)


class Surroundings:
    """Memory, rings, tokens and buffer around the engine; notes what they see."""

    def __init__(self, dut, program: Program, *, stall: float = 0.0, latency: int = 40, region: int = REGION,
                 fail=lambda beat: 0) -> None:
        self.dut, self.program, self.stall, self.latency = dut, program, stall, latency
        self.region, self.fail = region, fail
        self.writes: list[tuple[int, int, int]] = []
        self.write_cycles: list[int] = []
        self.rings: dict[str, list[int]] = {"weights": [], "side": []}
        self.posts: list[tuple[int, int, int]] = []
        self.errors: list[tuple[ErrorCode, int]] = []
        self.requested = self.cycle = 0

    async def begin(self) -> None:
        dut = self.dut
        if CONFIG.local_store:
            dut.kept.value = 0
        await start(dut, queue__valid=0, compute_level=0, store_level=0, response=0, request__ready=0, weights__ready=0,
                    side__ready=0, halt=0, data_address=BASE, data_beats=self.region)
        words = [int.from_bytes(encode(instruction), "little") for instruction in self.program.instructions]
        entries = [QueuedInstruction.const({"index": number, "word": word}) for number, word in enumerate(words, 100)]
        self.tasks = [cocotb.start_soon(task) for task in (
            self._memory(), self._watch(), self._tokens("compute", "wait_compute"), self._tokens("store", "stores"),
            *(collect(dut, name, ring.append, stall=self.stall) for name, ring in self.rings.items()),
            send(dut, "queue", [entry.as_bits() for entry in entries], idle=self.stall))]

    async def end(self, condition, limit: int = 60_000) -> None:
        """Wait for ``condition``, then a little longer, in which nothing may happen."""
        for _ in range(limit):
            await RisingEdge(self.dut.clk)
            if condition():
                break
        else:
            raise AssertionError("nothing came")
        await ClockCycles(self.dut.clk, 60)
        for task in self.tasks:
            task.cancel()
        if CONFIG.local_store:
            self.dut.kept.value = 0
            await ClockCycles(self.dut.clk, 5)

    async def _memory(self) -> None:
        dut, pending = self.dut, deque()
        while True:
            ready = random.random() >= self.stall
            dut.request__ready.value = ready
            value = 0
            if pending and pending[0][0] <= self.cycle and random.random() >= self.stall:
                _, beat, last = pending.popleft()
                value = answer(beat, last, self.fail(beat))
            dut.response.value = value
            await RisingEdge(dut.clk)
            self.cycle += 1
            if ready and value_of(dut.request__valid):
                request = REQUEST.from_bits(value_of(dut.request__payload))
                first, rest = divmod(request.address - BASE, BYTES)
                beats = request.length + 1
                assert not rest
                assert 0 <= first and first + beats <= self.region, "a request outside the region"
                self.requested += beats
                pending.extend((self.cycle + self.latency, first + beat, beat == beats - 1) for beat in range(beats))

    async def _tokens(self, source: str, field: str) -> None:
        """Gives all tokens that the program takes, one by one."""
        level_port, take_port = getattr(self.dut, f"{source}_level"), getattr(self.dut, f"{source}_take")
        left = sum(instruction[field] for instruction in self.program.instructions)
        level = 0
        while True:
            await RisingEdge(self.dut.clk)
            taken = value_of(take_port)
            assert taken <= level, f"takes {taken} tokens of {level}"
            given = int(left > 0 and random.random() < 0.05 + 0.95 * (self.stall == 0))
            level, left = level - taken + given, left - given
            level_port.value = level

    def _keep(self) -> dict[str, int] | None:
        """A beat of the store engine, now and then, which must be written whatever else goes on."""
        beat = None
        if random.random() < self.stall:
            beat = {"enable": 1 << random.randrange(CONFIG.banks), "address": random.randrange(CONFIG.input_depth),
                    "payload": random.getrandbits(CONFIG.beat_bits)}
        self.dut.kept.value = LOCAL.const(beat).as_bits() if beat else 0
        return beat

    async def _watch(self) -> None:
        dut, kept = self.dut, deque([None] * (1 + BufferWriter.latency(CONFIG)))
        while True:
            await RisingEdge(dut.clk)
            enable = value_of(dut.write__enable)
            if CONFIG.local_store:
                kept.append(self._keep())
                if wanted := kept.popleft():
                    shift = wanted["enable"].bit_length() - 1
                    data = value_of(dut.write__data) >> shift % CONFIG.write_lanes * CONFIG.entry_bits
                    found = enable, value_of(dut.write__address), data & (1 << CONFIG.entry_bits) - 1
                    beat = entry(pixel(wanted["payload"]))
                    assert found == (wanted["enable"], wanted["address"], beat), f"{found}, not {wanted}"
                    if CONFIG.gather:
                        assert value_of(dut.write__bytes) == (1 << BYTES) - 1
                    enable = 0
            if enable:
                assert enable.bit_count() == 1
                bank = enable.bit_length() - 1
                beat = value_of(dut.write__data) >> bank % CONFIG.write_lanes * CONFIG.entry_bits
                self.writes.append((bank, value_of(dut.write__address), beat & (1 << CONFIG.entry_bits) - 1))
                if CONFIG.gather and self.program.geometry:
                    assert value_of(dut.write__bytes) == (1 << BYTES) - 1
                self.write_cycles.append(self.cycle)
            if value_of(dut.post_compute):
                self.posts.append((len(self.writes), *map(len, self.rings.values())))
            self.note_error()

    def note_error(self) -> None:
        report = reported(value_of(self.dut.error))
        if report and not self.errors:
            self.errors.append((report[0], report[1] - 100))

    def check(self) -> None:
        program = self.program
        assert not self.errors, self.errors
        assert self.writes == program.writes
        assert self.rings == program.rings
        assert len(self.posts) == len(program.posts)
        if CONFIG.winograd:     # other loads overtake one that is being transformed
            return
        for found, expected in zip(self.posts, program.posts, strict=True):
            assert all(a >= b for a, b in zip(found, expected, strict=True)), f"token after {found}, not {expected}"


async def run(dut, program: Program, **options) -> Surroundings:
    around = Surroundings(dut, program, **options)
    await around.begin()
    expected = [program.writes, program.posts, *program.rings.values()]
    found = [around.writes, around.posts, *around.rings.values()]
    await around.end(lambda: all(len(seen) >= len(wanted) for seen, wanted in zip(found, expected, strict=True)))
    around.check()
    assert value_of(dut.idle)
    return around


async def fails(dut, code: ErrorCode, index: int, program: Program, surroundings: type[Surroundings] | None = None,
                **options) -> Surroundings:
    around = (surroundings or Surroundings)(dut, program, **options)
    await around.begin()
    await around.end(lambda: around.errors, limit=2000)
    assert around.errors == [(code, index)]
    return around
