"""Spread words and depthwise windows in the functional simulator and the time model, against direct computation."""

import dataclasses

import numpy as np
import pytest

from cores.arch.error_codes import ErrorCode
from cores.arch.instruction import Instruction, decode, encode
from cores.arch.isa import Opcode, Queue, StepKind, WordForm
from cores.config import NpuConfig
from sim.cycles import estimate
from sim.errors import HazardError, MachineError
from sim.functional import ORDERS, run
from sim.hazards import Hazards, Stage
from sim.rtl import RtlMachine, run_program
from tests.errors import raises
from tests.selection import pairwise, with_full

from .cases import check, place, pool_program, random_layer, requant
from .depthwise import Depthwise, depthwise_program
from .programs import END, assemble, from_blocks
from .test_cycles import spent

ONE = NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=4, input_depth=512, acc_depth=64, depthwise=1)
#: Two groups of output lanes: four banks.
TWO = dataclasses.replace(ONE, oc_lanes=16)
CONFIGS = {
    "one": ONE, "two": TWO, "one-dn2": dataclasses.replace(ONE, nnz_lanes=2),
    "two-dn8": dataclasses.replace(TWO, nnz_lanes=8), "256": NpuConfig.preset(256, depthwise=1),
}
#: Output lanes with taps of their own channel.
OWN = dataclasses.replace(ONE, nnz_lanes=8, select_fanin=1)
OWNS = {
    "own": OWN, "own-dn2": dataclasses.replace(ONE, nnz_lanes=2, select_fanin=4),
    "own-two": dataclasses.replace(TWO, select_fanin=2), "dense-512": NpuConfig.preset(512, "dense", depthwise=1),
}
CONFIGS |= OWNS
NONE, SAME = (0, 0, 0, 0), (1, 1, 1, 1)


def replaced(program: list[Instruction], opcode: Opcode, **fields: int) -> list[Instruction]:
    """The program with ``fields`` changed in all instructions of one kind."""
    return [Instruction(opcode, **{**i.fields, **fields}) if i.opcode == opcode else i for i in program]


# -- results -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["one", "two", "256"])
@pytest.mark.parametrize("kernel,stride,pads,size", [
    ((1, 1), (1, 1), NONE, (4, 6)),
    ((3, 3), (1, 1), SAME, (5, 7)),
    ((3, 3), (2, 2), (0, 0, 1, 1), (9, 12)),
    ((5, 5), (2, 2), (2, 2, 2, 2), (7, 13)),
    ((2, 5), (3, 3), (1, 2, 0, 3), (7, 11)),
])
@pytest.mark.parametrize("indexed", [False, True])
def test_narrow_convolution(seed, name, kernel, stride, pads, size, indexed):
    """At most tn output channels: all groups of output lanes work on them."""
    rng, config = np.random.default_rng(seed), CONFIGS[name]
    channels = int(rng.integers(1, 2 * config.ic_lanes + 1))
    groups = int(rng.integers(1, config.groups_dense + 1)) if indexed else 0
    layer = random_layer(rng, config, channels, kernel=kernel, stride=stride, pads=pads, tile_rows=2, groups=groups,
                         words=WordForm.SPREAD)
    x = rng.integers(-128, 128, (channels, *size)).astype(np.int8)
    check(config, *place(config, [layer, layer] if channels == config.ic_lanes else [layer], x))


def depthwise_case(seed: int, config: NpuConfig, kernel: tuple[int, int], stride: tuple[int, int],
                   pads: tuple[int, int, int, int], size: tuple[int, int], tile_rows: int, **options: int):
    """Instructions, image, write_start and [(beat, expected)] of two blocks of a depthwise layer."""
    rng = np.random.default_rng(seed)
    layer = Depthwise.random(rng, 2 * config.ic_lanes, kernel, stride, pads, tile_rows)
    x = rng.integers(-128, 128, (2 * config.ic_lanes, *size)).astype(np.int8)
    program, image, start, _ = depthwise_program(config, layer, x, **options)
    return program, image, start, [(start, layer.output(x))]


@pytest.mark.parametrize("name, kernel, stride, pads, size, slack", pairwise(
    [(name,) for name in CONFIGS],
    [((3, 3), 1, SAME), ((5, 5), 1, (2, 2, 2, 2)), ((3, 3), 2, SAME), ((1, 7), 1, (0, 3, 0, 3)), ((4, 2), 3, NONE),
     ((1, 1), 1, NONE), ((2, 9), 1, (0, 1, 0, 2))],
    [((9, 10), 0), ((8, 13), 1), ((5, 11), 2), ((6, 9), 0)]))
def test_columns(seed, name, kernel, stride, pads, size, slack):
    """Horizontal stride 1; any vertical stride."""
    program, *rest = depthwise_case(seed, CONFIGS[name], kernel, (stride, 1), pads, size, 3, slack=slack)
    check(CONFIGS[name], assemble(*program, END), *rest)


@pytest.mark.parametrize("name, kernel, stride, pads, size, slack", pairwise(
    [(name,) for name in OWNS],
    [((3, 3), (2, 2), SAME), ((3, 3), (1, 3), (0, 0, 1, 2)), ((5, 5), (2, 2), (2, 2, 2, 2)), ((1, 7), (1, 2), NONE),
     ((4, 2), (3, 3), NONE), ((1, 1), (2, 2), NONE), ((2, 9), (1, 2), (0, 1, 0, 2)), ((5, 11), (2, 2), (2, 5, 2, 5))],
    [((9, 11), 0), ((8, 13), 1), ((5, 12), 2), ((6, 15), 0)]))
def test_phases(seed, name, kernel, stride, pads, size, slack):
    """Any horizontal stride: every stride-th column by itself, whose taps neighbour each other."""
    program, *rest = depthwise_case(seed, CONFIGS[name], kernel, stride, pads, size, 3, slack=slack)
    check(CONFIGS[name], assemble(*program, END), *rest)


@pytest.mark.parametrize("name, kernel, pads, shift, size, tile_rows", pairwise(
    [("two",), ("two-dn8",), ("256",)],
    [((3, 3), (0, 0, 1, 1), 0), ((3, 3), (0, 0, 1, 1), 1), ((3, 3), SAME, 1), ((5, 5), (2, 2, 2, 2), 0),
     ((3, 7), (1, 3, 1, 3), 1), ((2, 2), NONE, 0), ((1, 1), NONE, 0), ((3, 12), (1, 6, 1, 6), 0),
     ((3, 12), (1, 6, 1, 6), 1)],
    [((9, 10),), ((13, 13),), ((11, 8),)],
    [(2,), (3,), (5,)]))
def test_alternate_rows(seed, name, kernel, pads, shift, size, tile_rows):
    """Stride 2 both ways; tiles of an odd number of rows leave a row out."""
    program, *rest = depthwise_case(seed, CONFIGS[name], kernel, (2, 2), pads, size, tile_rows, shift=shift,
                                    slack=shift)
    check(CONFIGS[name], assemble(*program, END), *rest)


def test_what_is_left_out_may_be_anything(seed):
    """Weights of lanes without a tap are zero: what their lanes read and the columns left out change nothing."""
    program, image, start, expected = depthwise_case(seed, TWO, (3, 3), (2, 2), SAME, (9, 9), 5, shift=1, slack=2)
    fill = [Instruction(Opcode.LOAD_SET, cols=1, row_pitch=0, block_pitch=0, pad_left=15, pad_right=15, pad_value=-77,
                        stride=1, buf_row_pitch=8),
            Instruction(Opcode.LOAD_ACT, blocks=1, rows=60), Instruction(Opcode.SYNC)]
    check(TWO, assemble(*fill, *program, END), image, start, expected)


# -- errors --------------------------------------------------------------------------------------------------------


def fails(config: NpuConfig, program: list[Instruction], image: np.ndarray, start: int, error: type, text: str, *,
          strict: bool = True) -> None:
    for order in ORDERS:
        with pytest.raises(error, match=text):
            run(config, assemble(*program, END), image.copy(), write_start=start, strict=strict, order=order)


def test_needs_the_configuration(seed):
    program, image, start, _ = depthwise_case(seed, ONE, (3, 3), (1, 1), SAME, (5, 7), 2)
    plain = dataclasses.replace(ONE, depthwise=0)
    with pytest.raises(MachineError, match="COMPUTE_SET has no (words SPREAD|reads)") as caught:
        run(plain, assemble(*program, END), image.copy(), write_start=start)
    assert caught.value.cause == ErrorCode.ILLEGAL


@pytest.mark.parametrize("opcode,fields,text", [
    (Opcode.COMPUTE, dict(kind=StepKind.DENSE), "rows alternate that are no windows"),
    (Opcode.COMPUTE_SET, dict(words=WordForm.SPREAD), "its rows do not alternate"),
    (Opcode.COMPUTE_SET, dict(words=WordForm.PIXELS, shift=0), "spread, or alternate"),
    (Opcode.COMPUTE_SET, dict(stride=2), "stride 1"),
    (Opcode.COMPUTE, dict(blocks=2), "one block"),
    (Opcode.COMPUTE, dict(groups=2), "one group"),
    (Opcode.COMPUTE_SET, dict(reads=2), "2 reads make 3 words|2 reads end before"),
    (Opcode.STORE_SET, dict(words=WordForm.SPREAD), "never computed|no longer"),
])
def test_without_meaning(seed, opcode, fields, text):
    program, image, start, _ = depthwise_case(seed, TWO, (3, 3), (2, 2), SAME, (9, 9), 4, shift=1)
    fails(TWO, replaced(program, opcode, **fields), image, start, HazardError, text)


@pytest.mark.parametrize("program", [
    [Instruction(Opcode.COMPUTE_SET, kernel_h=1, kernel_w=1, stride=1, rows=1, cols=4, reads=4,
                 words=WordForm.ALTERNATE),
     Instruction(Opcode.COMPUTE, blocks=1, groups=1, first=1, kind=StepKind.WINDOW)],
    [Instruction(Opcode.STORE_SET, rows=1, cols=4, words=WordForm.ALTERNATE), requant(),
     Instruction(Opcode.STORE, blocks=1)],
])
@pytest.mark.parametrize("name", ["one", "own-two"])
def test_cannot_alternate(name, program):
    """One group of output lanes; two of which each lane has taps of its own channel alone."""
    fails(CONFIGS[name], program, np.zeros(512, np.uint8), 0, HazardError, "alternate between two groups")


def test_weights_without_taps(seed):
    """Only the first reduction lanes have taps of their own channel."""
    program, image, start, _ = depthwise_case(seed, OWN, (3, 3), (1, 1), SAME, (5, 8), 4)
    first = next(i["offset"] for i in program if i.opcode == Opcode.LOAD_WGT) * OWN.beat_bytes
    assert image[first] and not image[first + OWN.own_taps]
    image[first + OWN.own_taps] = 1
    fails(OWN, program, image, start, HazardError, "weights in lanes from 4 on, without taps")


def read_to_the_end(config, geometry, last):
    """A COMPUTE of windows that reads up to entry ``last`` after its first: at the buffer's end, and one beyond it."""
    for base, good in [(config.input_depth - 1 - last, True), (config.input_depth - last, False)]:
        steps = geometry["kernel_h"] * geometry["kernel_w"]
        program = [Instruction(Opcode.LOAD_WGT, offset=0, beats=steps * config.weight_beats),
                   Instruction(Opcode.COMPUTE_SET, **geometry),
                   Instruction(Opcode.COMPUTE, buf_base=base, blocks=1, groups=1, first=1, kind=StepKind.WINDOW)]
        memory = np.zeros(512 * 8, np.uint8)
        if good:
            run(config, assemble(*program, END), memory, write_start=0)
        else:
            with raises(MachineError, "machine-buffer", index=2):
                run(config, assemble(*program, END), memory, write_start=0)


@pytest.mark.parametrize("stride", [2, 3])
def test_phases_stay_inside_the_buffer(stride):
    """A row's reads are a stride apart, in each phase and for the taps beyond the first ones."""
    geometry = dict(kernel_h=2, kernel_w=stride + 1, stride=stride, rows=2, cols=8, buf_row_pitch=16, reads=5,
                    buf_row_step=32, words=WordForm.SPREAD)
    # Rows 0 to 3; there the second part's first phase ends after the first part's last one.
    last = 3 * 16 + 2 * stride + 4 * stride
    read_to_the_end(OWN, geometry, last)


@pytest.mark.parametrize("kernel,pads", [((3, 3), SAME), ((3, 2), (1, 0, 1, 1))])
def test_reads_too_few(seed, kernel, pads):
    """Eight outputs need columns 0..9 or 0..8: three reads of four."""
    program, image, start, _ = depthwise_case(seed, TWO, kernel, (1, 1), pads, (5, 8), 4)
    assert program[1]["reads"] == 3
    fails(TWO, replaced(program, Opcode.COMPUTE_SET, reads=2), image, start, HazardError, "2 reads end before")


@pytest.mark.parametrize("stride,shift", [(1, 0), (2, 0), (2, 1)])
def test_reads_stay_inside_the_buffer(stride, shift):
    """Every read counts, also those that nobody needs."""
    geometry = dict(kernel_h=3 + 2 * (stride - 1) - shift, kernel_w=1, stride=1, rows=1 + stride // 2, cols=8,
                    buf_row_pitch=4, reads=5 - stride // 2, shift=shift, buf_row_step=4 * stride ** 2,
                    words=WordForm.SPREAD if stride == 1 else WordForm.ALTERNATE)
    last = 2 * 4 + 4 if stride == 1 else 16 + 4 * geometry["kernel_h"] - 1
    if shift:
        last = max(last, 2 * 16 + 3)
    read_to_the_end(TWO, geometry, last)


@pytest.mark.parametrize("kind,words,shift,rows,good", [
    (StepKind.DENSE, WordForm.PIXELS, 0, 33, False), (StepKind.DENSE, WordForm.PIXELS, 0, 32, True),
    (StepKind.DENSE, WordForm.SPREAD, 0, 64, True), (StepKind.DENSE, WordForm.SPREAD, 0, 65, False),
    (StepKind.WINDOW, WordForm.SPREAD, 0, 64, True), (StepKind.WINDOW, WordForm.SPREAD, 0, 65, False),
    (StepKind.WINDOW, WordForm.ALTERNATE, 0, 32, True), (StepKind.WINDOW, WordForm.ALTERNATE, 0, 33, False),
    (StepKind.WINDOW, WordForm.ALTERNATE, 1, 32, True),
])
def test_words_stay_inside_the_bank(kind, words, shift, rows, good):
    """Four columns: one spread word, two others; a pair of rows shares its words."""
    program = [Instruction(Opcode.LOAD_WGT, offset=0, beats=TWO.weight_beats),
               Instruction(Opcode.COMPUTE_SET, kernel_h=1, kernel_w=1, stride=1, rows=rows, cols=4, reads=2,
                           words=words, shift=shift),
               Instruction(Opcode.COMPUTE, blocks=1, groups=1, first=1, kind=kind)]
    memory = np.zeros(64 * 8, np.uint8)
    if good:
        run(TWO, assemble(*program, END), memory, write_start=0)
    else:
        with raises(MachineError, "machine-buffer", index=2):
            run(TWO, assemble(*program, END), memory, write_start=0)


@pytest.mark.parametrize("words", [WordForm.SPREAD, WordForm.ALTERNATE])
def test_store_of_two_blocks(words):
    program = [Instruction(Opcode.STORE_SET, rows=1, cols=4, words=words), requant(),
               Instruction(Opcode.STORE, blocks=2)]
    fails(TWO, program, np.zeros(512, np.uint8), 0, MachineError, "BUFFER.*2 blocks of a bank of 1")


# -- hazards -------------------------------------------------------------------------------------------------------


def test_row_left_out_must_not_be_stored(seed):
    """A tile of three rows computes a fourth from what was never loaded; a STORE of it is refused."""
    program, image, start, expected = depthwise_case(seed, TWO, (3, 3), (2, 2), SAME, (6, 9), 3)
    check(TWO, assemble(*program, END), image, start, expected)
    fails(TWO, replaced(program, Opcode.STORE_SET, rows=4), image, start, HazardError, "not there yet, or no longer")


@pytest.fixture
def hazards():
    """Instruction 0 has loaded entries 0 and 1, which COMPUTE 1 reads for sums that a STORE may want."""
    hazards = Hazards(TWO, 16)
    hazards.load_writes(0, np.array([0, 1]))
    hazards.taken(Queue.COMPUTE, hazards.posted(Queue.LOAD, 0, Stage.LOADED))
    optional_read(hazards, 1, [0, 1])
    return hazards


def optional_read(hazards: Hazards, index: int, entries: list[int]) -> None:
    hazards.compute_writes(index, 0, np.array([4]), True)
    hazards.compute_may_read(index, np.array(entries), 0, np.array([4]))
    hazards.taken(Queue.STORE, hazards.posted(Queue.COMPUTE, index, Stage.COMPUTED))


def test_optional_read_before_a_load_that_is_not_ordered(hazards):
    hazards.store_reads(2, 0, np.array([4]))
    with raises(HazardError, "unordered", index=3):
        hazards.load_writes(3, np.array([1]))


def test_optional_read_behind_a_load_that_is_not_ordered(hazards):
    hazards.load_writes(3, np.array([1]))
    with raises(HazardError, "never-written", index=4):
        hazards.store_reads(4, 0, np.array([4]))


def test_optional_read_that_a_load_waits_for(hazards):
    hazards.taken(Queue.LOAD, hazards.posted(Queue.COMPUTE, 1, Stage.COMPUTED))
    hazards.load_writes(3, np.array([1]))
    hazards.store_reads(4, 0, np.array([4]))


def test_optional_read_that_nobody_wants(hazards):
    """The next sums at the same place are judged by their own reads."""
    hazards.load_writes(3, np.array([1]))
    optional_read(hazards, 5, [0])
    hazards.load_writes(6, np.array([1]))
    hazards.store_reads(7, 0, np.array([4]))


def test_optional_read_that_does_not_wait_for_its_load(hazards):
    hazards.load_writes(3, np.array([2]))
    hazards.taken(Queue.COMPUTE, hazards.posted(Queue.STORE, 2, Stage.READ))
    optional_read(hazards, 5, [2])
    with raises(HazardError, "never-written", index=7):
        hazards.store_reads(7, 0, np.array([4]))


@pytest.mark.slow
@pytest.mark.parametrize("stride,shift", [(1, 0), (2, 0), (2, 1)])
@pytest.mark.parametrize("tile_rows", [2, 3])
def test_every_token_matters(seed, stride, shift, tile_rows):
    program, image, start, expected = depthwise_case(seed, TWO, (3, 3), (stride, stride), SAME, (12, 9), tile_rows,
                                                     shift=shift)
    check(TWO, assemble(*program, END), image, start, expected)
    dropped = 0
    for at, instruction in enumerate(program):
        for name in ("wait_load", "wait_compute", "wait_store"):
            if instruction[name]:
                broken = program.copy()
                broken[at] = Instruction(instruction.opcode, **{**instruction.fields, name: 0})
                fails(TWO, broken, image, start, HazardError, "no token orders|never|not there yet")
                dropped += 1
    assert dropped > 10


def test_missing_rows_are_seen(seed):
    """The last row loaded is needed: without it a tap of the last output row reads what was never loaded."""
    for stride, text in [(1, "never loaded"), (2, "never loaded|not there yet")]:
        program, image, start, _ = depthwise_case(seed, TWO, (3, 3), (stride, stride), SAME, (5, 9), 5)
        at = next(n for n, instruction in enumerate(program) if instruction.opcode == Opcode.LOAD_ACT)
        assert program[at]["pad_bottom"] == 1
        program[at] = Instruction(Opcode.LOAD_ACT, **{**program[at].fields, "pad_bottom": 0})
        fails(TWO, program, image, start, HazardError, text)


# -- time ----------------------------------------------------------------------------------------------------------


def works(code: bytes) -> list[int]:
    return [n for n in range(len(code) // 16) if decode(code[16 * n:16 * n + 16]).opcode == Opcode.COMPUTE]


@pytest.mark.parametrize("stride,shift", [(1, 0), (2, 0), (2, 1)])
def test_busy_for_every_read(seed, stride, shift):
    program, *_ = depthwise_case(seed, TWO, (3, 3), (stride, stride), SAME, (12, 16), 12)
    if shift:
        program, *_ = depthwise_case(seed, TWO, (3, 3), (2, 2), SAME, (12, 16), 12, shift=1)
    code = assemble(*program, END)
    # Columns 0 .. 17 or 0 .. 16 are five reads.
    reads = {(1, 0): 12 * 5 * 3, (2, 0): 3 * 5 * 5, (2, 1): (3 * 4 + 1) * 5}[stride, shift]
    timing = estimate(TWO, code)
    for index in works(code):
        assert spent(timing, Queue.COMPUTE, "busy", index) == reads


def test_narrow_convolution_is_twice_as_fast(seed):
    rng = np.random.default_rng(seed)
    times = []
    for words in (WordForm.PIXELS, WordForm.SPREAD):
        layer = random_layer(rng, TWO, 8, kernel=(3, 3), stride=(1, 1), pads=SAME, tile_rows=6, words=words)
        x = rng.integers(-128, 128, (8, 12, 16)).astype(np.int8)
        code, *_ = place(TWO, [layer], x)
        timing = estimate(TWO, code)
        times.append([spent(timing, Queue.COMPUTE, "busy", index) for index in works(code)])
    assert times == [[6 * 8 * 18] * 2, [6 * 4 * 18] * 2]


def test_windows_keep_their_distance():
    """A step of something else waits until a window's words are complete."""
    def last(second: StepKind) -> int:
        beats = 2 * TWO.weight_beats
        loads = [Instruction(Opcode.LOAD_WGT, offset=0, beats=beats), Instruction(Opcode.SYNC)]
        work = []
        for kind in (StepKind.WINDOW, second):
            work += [Instruction(Opcode.COMPUTE_SET, kernel_h=1, kernel_w=1, stride=1, rows=8, cols=16, reads=4,
                                 words=WordForm.SPREAD),
                     Instruction(Opcode.COMPUTE, blocks=1, groups=1, first=1, kind=kind)]
        timing = estimate(TWO, b"".join(map(encode, [*loads, *work, END])))
        return int(timing.last[Queue.COMPUTE - 1, 5]) - int(timing.last[Queue.COMPUTE - 1, 3])
    assert last(StepKind.WINDOW) == 32
    assert last(StepKind.DENSE) == 32 + TWO.window_reads + 2


# -- against the RTL -----------------------------------------------------------------------------------------------


def programs(seed: int, config: NpuConfig):
    """Name, code, image, write_start and expected outputs of layers of every kind."""
    windows = [((3, 3), (1, 1), SAME, 0, 0), ((5, 5), (2, 1), (2, 2, 2, 2), 0, 2)]
    if config.own_taps:
        windows += [((3, 3), (2, 2), SAME, 0, 0), ((5, 5), (2, 2), (2, 2, 2, 2), 0, 1), ((3, 12), (1, 2), SAME, 0, 0),
                    ((2, 2), (3, 3), NONE, 0, 0)]
    elif config.oc_groups == 2:
        windows += [((3, 3), (2, 2), SAME, 1, 0), ((5, 5), (2, 2), (2, 2, 2, 2), 0, 1),
                    ((3, 12), (2, 2), (1, 6, 1, 6), 1, 0)]
    for kernel, stride, pads, shift, slack in windows:
        program, *rest = depthwise_case(seed, config, kernel, stride, pads, (11, 13), 3, shift=shift, slack=slack)
        yield f"window {kernel} {stride}", assemble(*program, END), *rest
    rng = np.random.default_rng(seed)
    pixels, spread = WordForm.PIXELS, WordForm.SPREAD
    for words, stride, groups in [(pixels, 1, 1), (pixels, 3, 0), (spread, 1, 0), (spread, 2, 1), (spread, 3, 0)]:
        layer = random_layer(rng, config, config.ic_lanes, kernel=(3, 3), stride=(stride, stride), pads=SAME,
                             tile_rows=2, groups=groups, words=words)
        x = rng.integers(-128, 128, (config.ic_lanes, 9, 11)).astype(np.int8)
        yield f"{words.name}, stride {stride}", *place(config, [layer], x)
    for stride in (1, 2):
        instructions, *rest = pool_program(rng, config, maximum=True, add=False, kernel=(3, 2), stride=(2, stride))
        yield f"pool, stride {stride}", assemble(*instructions), *rest


@pytest.mark.parametrize("name", with_full(
    ["two", "own", "one-dn2", "own-two", "256", "dense-512"], "one-dn2", "own-two", "256", "dense-512"))
def test_equals_the_rtl(seed, name):
    """The same bytes, and a time that is off only by where the instruction fetch cuts in."""
    config = CONFIGS[name]
    with RtlMachine(config) as machine:
        for case, code, image, start, expected in programs(seed, config):
            result = run_program(machine, code, image, write_start=start)
            simulated = image.copy()
            run(config, code, simulated, write_start=start)
            np.testing.assert_array_equal(result.image, simulated, err_msg=case)
            for beat, value in expected:
                np.testing.assert_array_equal(from_blocks(config, simulated, beat, value.shape), value, err_msg=case)
            timing = estimate(config, code)
            assert timing.cycles == pytest.approx(result.counters["cycles"], rel=0.02), case
            late = timing.counts[1, 1] - result.trace.counts[1, 1]
            assert not late.any(), f"{case}: busy {late}"


def test_distances_equal_the_rtl():
    """Windows and others in turn, all weights there: every COMPUTE ends in the cycle that the model says."""
    window, dense = StepKind.WINDOW, StepKind.DENSE
    forms = [(window, WordForm.SPREAD, 0), (dense, WordForm.SPREAD, 0), (window, WordForm.ALTERNATE, 1),
             (dense, WordForm.PIXELS, 0), (window, WordForm.SPREAD, 0), (window, WordForm.ALTERNATE, 0)]
    program = [Instruction(Opcode.LOAD_WGT, offset=0, beats=2 * len(forms) * TWO.weight_beats)]
    for kind, words, shift in forms:
        program += [Instruction(Opcode.COMPUTE_SET, kernel_h=2, kernel_w=1, stride=1, rows=4, cols=16, reads=9,
                                words=words, shift=shift),
                    Instruction(Opcode.COMPUTE, blocks=1, groups=1, first=1, kind=kind)]
    code = assemble(*program, END)
    with RtlMachine(TWO) as machine:
        result = run_program(machine, code, np.zeros(1024 * 8, np.uint8), write_start=0)
    # The trace begins with the write of START, two cycles earlier.
    last = estimate(TWO, code).last[Queue.COMPUTE - 1, works(code)] + 2
    assert last.tolist() == result.trace.last[Queue.COMPUTE - 1, works(code)].tolist()
