"""Every way a program can fail in the functional simulator, and the hazards that its strict mode finds."""

import dataclasses
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from cores.arch.error_codes import ErrorCode
from cores.arch.instruction import Instruction, encode
from cores.arch.isa import HEADER, Opcode
from cores.config import NpuConfig
from sim.cycles import estimate
from sim.errors import HazardError, MachineError
from sim.functional import ORDERS, run
from sim.machine import TOKEN_MAXIMUM
from tests.errors import raises

from .cases import PARAMETERS, SMALL, chain, check, compute_set, load_set, pool_program, requant, store_set
from .programs import END, assemble

# -- errors --------------------------------------------------------------------------------------------------------


def fails(code: ErrorCode, index: int, *instructions: Instruction, config: NpuConfig = SMALL, beats: int = 1024,
          write_start: int = 512, text: str = "") -> np.ndarray:
    memory = np.zeros(beats * config.beat_bytes, np.uint8)
    for order in ORDERS:
        with pytest.raises(MachineError, match=text or None) as caught:
            run(config, assemble(*instructions), memory, write_start=write_start, order=order)
        assert (caught.value.cause, caught.value.index) == (code, index)
    return memory


@pytest.mark.parametrize("word", [
    0, 127 - 1,                                                         # no such operation
    Opcode.END | 1 << 127,                                              # reserved bit
    Opcode.END | 1 << HEADER[0].bits,                                   # token flag of another queue
    Opcode.LOAD_WGT,                                                    # no beats
    Opcode.COMPUTE | 1 << HEADER[0].bits + 6,                           # stores on the compute queue
    Opcode.LOAD_ACT | 1 << 60,                                          # a block without rows
    *(int.from_bytes(encode(Instruction(opcode, **fields)), "little") for opcode, fields in [
        (Opcode.LOAD_SET, dict(cols=1, stride=1, post_compute=1)),      # a SET operation with a token
        (Opcode.STORE_ADD, dict(wait_compute=1)),
        (Opcode.POOL, dict(blocks=1, post_store=1)),
    ]),
])
def test_illegal(word):
    code = encode(Instruction(Opcode.SYNC)) + int(word).to_bytes(16, "little") + encode(END)
    with pytest.raises(MachineError) as caught:
        run(SMALL, code, np.zeros(64, np.uint8), write_start=0)
    assert (caught.value.cause, caught.value.index) == (ErrorCode.ILLEGAL, 1)


@pytest.mark.parametrize("setter,instruction", [
    ("LOAD_SET", Instruction(Opcode.LOAD_ACT, blocks=1, rows=4)),
    ("LOAD_SET", Instruction(Opcode.LOAD_ACT, blocks=1, pad_top=1)),
    ("COMPUTE_SET", Instruction(Opcode.COMPUTE, blocks=1, groups=1, first=1)),
    ("COMPUTE_SET", Instruction(Opcode.POOL, blocks=1)),
    ("STORE_SET", Instruction(Opcode.STORE, offset=600, blocks=1)),
])
def test_no_geometry(setter, instruction):
    fails(ErrorCode.ILLEGAL, 0, instruction, END, text=f"no {setter}")


def test_no_chain():
    fails(ErrorCode.ILLEGAL, 1, store_set(), Instruction(Opcode.STORE, offset=600, blocks=1), END,
          text="no STORE_REQUANT")


def test_no_end():
    fails(ErrorCode.NO_END, 2, load_set(), Instruction(Opcode.SYNC))
    fails(ErrorCode.NO_END, 0)


@pytest.mark.parametrize("instruction", [
    Instruction(Opcode.LOAD_ACT, offset=1024 - 15, blocks=1, rows=4),
    Instruction(Opcode.LOAD_ACT, offset=1024 - 31, blocks=2, rows=4),
    Instruction(Opcode.LOAD_WGT, offset=1020, beats=5),
    Instruction(Opcode.LOAD_WGT, offset=(1 << 28) - 1, beats=1),
    Instruction(Opcode.LOAD_SIDE, offset=1000, cols=4, rows=3, row_pitch=11),
])
def test_read_range(instruction):
    fails(ErrorCode.READ_RANGE, 1, load_set(), instruction, END)


def test_last_beat_can_be_read():
    memory = np.zeros(1024 * 8, np.uint8)
    code = assemble(load_set(), Instruction(Opcode.LOAD_ACT, offset=1024 - 16, blocks=1, rows=4),
                    Instruction(Opcode.LOAD_WGT, offset=1020, beats=4), END)
    result = run(SMALL, code, memory, write_start=0)
    assert (result.instructions, result.read_beats, result.write_beats) == (4, 20, 0)


@pytest.mark.parametrize("offset,row_pitch,written", [
    (511, 4, 0), (0, 4, 0), (1009, 4, 3), (1021, 4, 0), (600, 200, 3),
])
def test_write_range(offset, row_pitch, written):
    """Rows are written up to the first that is not wholly inside."""
    compute = Instruction(Opcode.COMPUTE, blocks=1, groups=1, first=1, post_store=1)
    weights = Instruction(Opcode.LOAD_WGT, offset=0, beats=2)
    memory = fails(ErrorCode.WRITE_RANGE, 7, PARAMETERS, weights, compute_set(), compute, Instruction(Opcode.SYNC),
                   store_set(row_pitch=row_pitch), requant(low=1),
                   Instruction(Opcode.STORE, offset=offset, blocks=1, wait_compute=1), END)
    expected = np.zeros((1024, 8), np.uint8)
    for row in range(written):
        expected[offset + row * row_pitch:][:4] = 1
    np.testing.assert_array_equal(memory.reshape(-1, 8), expected)


@pytest.mark.parametrize("instructions", [
    [load_set(), Instruction(Opcode.LOAD_ACT, blocks=1, rows=4, buf_base=249)],
    [load_set(buf_block_pitch=125), Instruction(Opcode.LOAD_ACT, blocks=3, rows=4)],
    [load_set(pad_right=1), Instruction(Opcode.LOAD_ACT, blocks=1, rows=1, buf_base=254)],
    [compute_set(rows=9, cols=15), Instruction(Opcode.COMPUTE, blocks=1, groups=1, first=1)],      # 9 * 8 words
    [store_set(rows=9, cols=15), requant(), Instruction(Opcode.STORE, offset=600, blocks=1)],
    [store_set(), requant(), Instruction(Opcode.STORE, offset=600, blocks=2)],
])
def test_buffer(instructions):
    fails(ErrorCode.BUFFER, len(instructions) - 1, *instructions, END)


def test_buffer_of_windows():
    weights = Instruction(Opcode.LOAD_WGT, offset=0, beats=4)
    compute = Instruction(Opcode.COMPUTE, buf_base=249, blocks=1, groups=1, first=1)
    fails(ErrorCode.BUFFER, 2, weights, compute_set(), compute, END)
    # Columns 0..2 are in entries 0 and 1; the pixel that nobody wants would be in entry 256 of bank 1.
    odd = compute_set(kernel_w=2, rows=1, cols=3)
    compute = Instruction(Opcode.COMPUTE, buf_base=254, blocks=1, groups=1, first=1)
    fails(ErrorCode.BUFFER, 2, weights, odd, compute, END)
    store = Instruction(Opcode.STORE, offset=600, blocks=1, pooled=1)
    fails(ErrorCode.BUFFER, 5, PARAMETERS, compute_set(), store_set(), requant(), store,
          Instruction(Opcode.POOL, buf_base=249, blocks=1), END)


def test_missing_token():
    compute = Instruction(Opcode.COMPUTE, blocks=1, groups=1, first=1, wait_load=1)
    fails(ErrorCode.TIMEOUT, 1, compute_set(), compute, END,
          text="compute 1 waits for 1 token.s. of the load queue")


def test_starved_rings():
    compute, store = Instruction(Opcode.COMPUTE, blocks=1, groups=1), Instruction(Opcode.STORE, offset=600, blocks=1)
    pool = Instruction(Opcode.POOL, blocks=1)
    fails(ErrorCode.TIMEOUT, 1, compute_set(), compute, END, text="weights")
    fails(ErrorCode.TIMEOUT, 2, store_set(), requant(), store, END, text="channel parameters")
    fails(ErrorCode.TIMEOUT, 0, Instruction(Opcode.LOAD_WGT, offset=0, beats=513), END, text="room in the weight ring")
    fails(ErrorCode.TIMEOUT, 1, compute_set(), pool, END, text="a STORE to take pooled pixels")


def test_full_queue_blocks_the_dispatcher():
    """Loads that wait for a COMPUTE after them fill their queue, so it is never dispatched."""
    many = [Instruction(Opcode.LOAD_WGT, offset=0, beats=1, wait_compute=int(i == 0))
            for i in range(SMALL.queue_depth + 2)]
    tail = [compute_set(), Instruction(Opcode.COMPUTE, blocks=1, groups=1, first=1, post_load=1), END]
    fails(ErrorCode.TIMEOUT, 0, *many, *tail, text="dispatcher waits for room in the load queue")


def test_residual_behind_the_pool_that_waits_for_it(seed):
    """The pool unit cannot run ahead of the residual: it ends only when its last pixel has been added."""
    rng = np.random.default_rng(seed)
    instructions, image, start, _ = pool_program(rng, SMALL, maximum=True, add=True, kernel=(1, 1),
                                                 stride=(1, 1), late_residual=True)
    with pytest.raises(MachineError, match="TIMEOUT"):
        run(SMALL, assemble(*instructions), image, write_start=start)


def test_token_overflow():
    weights = [Instruction(Opcode.LOAD_WGT, offset=0, beats=1, post_compute=1)] * TOKEN_MAXIMUM
    memory = np.zeros(64 * 8, np.uint8)
    run(SMALL, assemble(*weights, END), memory, write_start=0)
    fails(ErrorCode.TOKEN, TOKEN_MAXIMUM, *weights, weights[0], END)


@pytest.mark.parametrize("memory", [
    np.zeros(63, np.uint8), np.zeros(64, np.int8), np.zeros((8, 8), np.uint8), np.zeros(128, np.uint8)[::2],
])
def test_bad_memory(memory):
    with pytest.raises(ValueError, match="memory must be"):
        run(SMALL, assemble(END), memory, write_start=0)


def test_bad_code_and_write_start():
    memory = np.zeros(64, np.uint8)
    with pytest.raises(ValueError, match="multiple of 16 bytes"):
        run(SMALL, b"123", memory, write_start=0)
    with pytest.raises(ValueError, match="write_start must be in 0..8"):
        run(SMALL, assemble(END), memory, write_start=9)


# -- hazards -------------------------------------------------------------------------------------------------------


def legal_parameters() -> np.ndarray:
    """A data region of 1024 beats of `SMALL`, zero but for the shifts of the first block's channel parameters."""
    memory = np.zeros((1024, 8), np.uint8)
    memory[:8, 7] = 12
    return memory.ravel()


def hazard(text: str, *instructions: Instruction, config: NpuConfig = SMALL) -> None:
    for order in ORDERS:
        with pytest.raises(HazardError, match=text):
            run(config, assemble(*instructions, END), legal_parameters(), write_start=512, strict=True, order=order)


def test_chains_that_are_none():
    config = replace(SMALL, table=1, gather=1, binary_rows=SMALL.oc_lanes)
    table, signs = Instruction(Opcode.STORE_TABLE), Instruction(Opcode.STORE_SIGNS)
    hazard("STORE_TABLE uses what was never loaded", requant(), table, config=config)
    fill = Instruction(Opcode.LOAD_SIDE, offset=0, cols=32, rows=1)
    loaded = Instruction(Opcode.STORE_TABLE, load=1)
    hazard("signs do not go through STORE_TABLE", fill, requant(), loaded, signs, config=config)


def test_maxima_that_are_none():
    """Of pooled pixels, of two tensors, to the buffer, of columns in another order, or of rows that lie elsewhere."""
    config = replace(SMALL, maximum=1, local_store=1, gather=1, binary_rows=SMALL.oc_lanes)
    maximum, words = Instruction(Opcode.STORE_MAXIMUM, row_words=2), 2 * SMALL.pixel_lanes

    def found(text, *chain, store=(), **geometry):
        hazard(text, PARAMETERS, store_set(**{"rows": 1, "cols": 2 * words, **geometry}), requant(), *chain,
               Instruction(Opcode.STORE, **{"offset": 600, "blocks": 1, "repeats": 1, **dict(store)}), config=config)

    found("sums whose rows are in words of their own", maximum, store={"pooled": 1})
    found("not of two tensors", Instruction(Opcode.STORE_ADD, shift=20), maximum)
    found("not stored to the input buffer", maximum, local=1)
    found("of two rows, a column after the other", maximum, store={"repeats": 0})
    found("of two rows, a column after the other", maximum, cols=2 * words + 2)
    found("of rows 2 words apart", Instruction(Opcode.STORE_MAXIMUM, row_words=1))
    hazard("signs do not go through STORE_MAXIMUM", requant(), maximum, Instruction(Opcode.STORE_SIGNS), config=config)


def test_never_there():
    weights = Instruction(Opcode.LOAD_WGT, offset=0, beats=2)
    compute = Instruction(Opcode.COMPUTE, blocks=1, groups=1, first=1)
    act = Instruction(Opcode.LOAD_ACT, blocks=1, rows=4)
    store = Instruction(Opcode.STORE, offset=600, blocks=1)
    hazard("never loaded", weights, compute_set(), compute)
    hazard("accumulators that were never computed", load_set(), act, weights, Instruction(Opcode.SYNC), compute_set(),
           Instruction(Opcode.COMPUTE, blocks=1, groups=1))
    hazard("stores accumulators that were never computed", PARAMETERS, store_set(), requant(),
           store)
    leaky = Instruction(Opcode.STORE_LEAKY, shift=20)
    hazard("a second stage already", requant(), Instruction(Opcode.STORE_ADD, shift=20), leaky)
    pool = (load_set(), Instruction(Opcode.LOAD_ACT, blocks=1, rows=1), PARAMETERS, Instruction(Opcode.SYNC),
            compute_set(rows=1, cols=1), Instruction(Opcode.POOL, blocks=1))
    pooled = Instruction(Opcode.STORE, offset=600, blocks=1, pooled=1)
    hazard("bounds are not in order", *pool, store_set(rows=1, cols=1), requant(low=5, high=4), pooled)
    hazard("bounds beyond int8", *pool, store_set(rows=1, cols=1), requant(high=128), pooled)
    hazard("bounds beyond int8", *pool, store_set(rows=1, cols=1), requant(low=-129), pooled)


def test_leftovers_and_oddities():
    hazard("1 beats are left in the weight ring", Instruction(Opcode.LOAD_WGT, offset=0, beats=1))
    hazard("8 beats are left in the side ring", PARAMETERS)
    hazard("an input-buffer entry twice", load_set(buf_row_pitch=1), Instruction(Opcode.LOAD_ACT, blocks=1, rows=4))
    part = compute_set(rows=1, cols=1)
    loads = load_set(), Instruction(Opcode.LOAD_ACT, blocks=1, rows=4), Instruction(Opcode.SYNC)
    begun = Instruction(Opcode.POOL, blocks=1, open=1)
    hazard("resumes no window", *loads, part, Instruction(Opcode.POOL, blocks=1, resume=1))
    hazard("does not resume the window that is open", *loads, part, begun, begun)
    hazard("goes on with a sum as a maximum", *loads, part, begun,
           Instruction(Opcode.POOL, blocks=1, resume=1, maximum=1))
    hazard("a window is still open at END", *loads, part, begun)
    hazard("only a POOL with one window", *loads, compute_set(), begun)
    hazard("5 groups of a dense block of 4", compute_set(), Instruction(Opcode.COMPUTE, blocks=1, groups=5, first=1))


@pytest.mark.parametrize(("cols", "mode"), [
    (500, []), (4095, [Instruction(Opcode.LOAD_GATHER, outputs=500, length=1)]),
    (4, [Instruction(Opcode.LOAD_WINOGRAD, tile_cols=1)])], ids=["plain", "gather", "winograd"])
@pytest.mark.parametrize("data", [dict(rows=200), dict(pad_top=60)])
def test_boxes_that_the_input_buffer_does_not_hold(cols, mode, data):
    """Legal, but of no use; they must not take gigabytes and hours either."""
    config = dataclasses.replace(SMALL, gather=1, winograd=1)
    code = assemble(load_set(cols=cols, row_pitch=0, block_pitch=0, buf_row_pitch=0, buf_block_pitch=0), *mode,
                    Instruction(Opcode.LOAD_ACT, blocks=1023, **data), END)
    memory = np.zeros(5000 * config.beat_bytes, np.uint8)
    with raises(HazardError, "written-twice"):
        run(config, code, memory, write_start=0)
    with raises(HazardError, "written-twice"):
        estimate(config, code)


def test_pools_of_many_windows_take_little_memory():
    code = assemble(
        load_set(), Instruction(Opcode.LOAD_ACT, blocks=1, rows=1, post_compute=1), PARAMETERS,
        compute_set(kernel_h=20, kernel_w=20, rows=300, cols=100, buf_row_pitch=0, buf_row_step=0, buf_block_pitch=0),
        Instruction(Opcode.POOL, blocks=1, maximum=1, wait_load=1),
        store_set(rows=300, cols=100, row_pitch=0), requant(),
        Instruction(Opcode.STORE, offset=600, blocks=1, pooled=1), END)
    memory = np.zeros(1024 * SMALL.beat_bytes, np.uint8)
    tracemalloc.start()
    try:
        run(SMALL, code, memory, write_start=512)
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()


def test_every_token_of_a_chain_matters(seed):
    """Without any one of the waits of a correct program, strict mode refuses it in every order."""
    code, image, start, expected = chain(seed)
    check(SMALL, code, image, start, expected)
    dropped = 0
    for at in range(len(code) // 16):
        word = int.from_bytes(code[16 * at:16 * at + 16], "little")
        position = HEADER[0].bits
        for field in HEADER[1:]:
            mask = (1 << field.bits) - 1 << position
            position += field.bits
            if not field.name.startswith(("wait", "stores")) or not word & mask:
                continue
            dropped += 1
            broken = code[:16 * at] + (word & ~mask).to_bytes(16, "little") + code[16 * at + 16:]
            for order in ORDERS:
                with pytest.raises(HazardError):
                    run(SMALL, broken, image.copy(), write_start=start, strict=True, order=order)
    assert dropped > 15


#: A tile of one pixel row, stored to beats 512..515.
ROW = [
    load_set(), Instruction(Opcode.LOAD_ACT, blocks=1, rows=1, post_compute=1), PARAMETERS,
    Instruction(Opcode.LOAD_WGT, offset=0, beats=2), compute_set(rows=1), store_set(rows=1), requant(),
    Instruction(Opcode.COMPUTE, blocks=1, groups=1, first=1, wait_load=1, post_store=1),
]


def test_load_of_what_is_being_stored():
    store = Instruction(Opcode.STORE, offset=512, blocks=1, wait_compute=1, post_load=1)
    load = dict(offset=512, blocks=1, rows=1, buf_base=64)
    hazard("which stores what it loads|which loads the memory it overwrites", *ROW, store,
           Instruction(Opcode.LOAD_ACT, **load))
    code = assemble(*ROW, store, Instruction(Opcode.LOAD_ACT, **load, stores=1), END)
    for order in ORDERS:
        run(SMALL, code, legal_parameters(), write_start=512, strict=True, order=order)


def test_read_accumulators_do_not_mean_written_memory():
    """A token that came by way of the compute queue says that the bank was read, not that the data is in memory."""
    second = [
        Instruction(Opcode.STORE, offset=512, blocks=1, wait_compute=1, post_compute=1),
        Instruction(Opcode.LOAD_WGT, offset=0, beats=2),
        Instruction(Opcode.COMPUTE, blocks=1, groups=1, first=1, wait_store=1, post_load=1),
    ]
    hazard("which stores what it loads", *ROW, *second,
           Instruction(Opcode.LOAD_ACT, offset=512, blocks=1, rows=1, buf_base=64, wait_compute=1))


def test_too_few_stores_awaited(seed):
    """Taking two of three store tokens lets the next layer begin while the last tile is still under way."""
    code, image, start, _ = chain(seed)
    words = [code[i:i + 16] for i in range(0, len(code), 16)]
    position = sum(field.bits for field in HEADER[:-1])
    at = next(i for i, word in enumerate(words) if int.from_bytes(word, "little") >> position & 255)
    assert int.from_bytes(words[at], "little") >> position & 255 == 3
    words[at] = (int.from_bytes(words[at], "little") - (1 << position)).to_bytes(16, "little")
    for order in ORDERS:
        with raises(HazardError, "unordered"):
            run(SMALL, b"".join(words), image.copy(), write_start=start, strict=True, order=order)
