"""A program by hand that hands a map on through the input buffer, copied twice by the pool unit."""

import numpy as np

from cores.arch.instruction import Instruction
from cores.arch.isa import Opcode
from cores.config import NpuConfig

from .programs import END, Memory, Requantize, to_blocks

__all__ = ["copy_program"]

#: Where the first copy goes, if it is not said otherwise.
_PLACE = 100


def copy_program(rng: np.random.Generator, config: NpuConfig, *, rows: int = 3, cols: int = 5, pitch: int = 0,
                 place: int = _PLACE, last: tuple[Instruction, ...] = (), **flags: dict[str, int]):
    """(instructions, image, write_start, [(target, expected)]): two blocks are loaded, copied to the input buffer at
    entry ``place`` with ``pitch`` between rows (0: as one), read there, and stored.

    ``flags``: fields of instructions to replace, by what they are: load, first, keep_set, keep, second, store.
    """
    def made(name: str, opcode: Opcode, **fields: int) -> Instruction:
        return Instruction(opcode, **(fields | flags.get(name, {})))

    lanes, blocks = config.ic_lanes, 2
    x = rng.integers(-128, 128, (blocks * lanes, rows, cols)).astype(np.int8)
    requantize = [Requantize.random(rng, blocks * lanes, 0.9) for _ in range(2)]
    expected = requantize[1].apply(requantize[0].apply(x.astype(np.int64)).astype(np.int64))
    memory = Memory(config)
    parameters = [memory.put(stage.pack()) for stage in requantize]
    source = memory.put(to_blocks(config, x))
    start = memory.beats
    target = memory.reserve(blocks * rows * cols)
    banks = config.banks
    row = -(-cols // banks)
    if pitch:
        lines, width, line, block = rows, cols, pitch, rows * pitch
    else:
        lines, width, line, block = 1, rows * cols, 0, -(-rows * cols // banks)
    loaded = dict(kernel_h=1, kernel_w=1, stride=1, rows=rows, cols=cols, buf_row_pitch=row, buf_row_step=row,
                  buf_block_pitch=rows * row)
    kept = dict(kernel_h=1, kernel_w=1, stride=1, rows=lines, cols=width, buf_row_pitch=line, buf_row_step=line,
                buf_block_pitch=block)
    local, first = requantize[0].set(rows, cols, pitch, block)
    instructions = [
        Instruction(Opcode.LOAD_SET, cols=cols, row_pitch=cols, block_pitch=rows * cols, stride=1, buf_row_pitch=row,
                    buf_block_pitch=rows * row),
        made("load", Opcode.LOAD_ACT, offset=source, blocks=blocks, rows=rows, post_compute=1),
        *[Instruction(Opcode.LOAD_SIDE, offset=stage + 8 * number, cols=8, rows=1)
          for stage in parameters for number in range(blocks)],
        Instruction(Opcode.COMPUTE_SET, **loaded),
        made("first", Opcode.POOL, blocks=blocks, maximum=1, wait_load=1),
        made("keep_set", Opcode.STORE_SET, **{**local.fields, "local": 1}),
        first,
        made("keep", Opcode.STORE, offset=place, blocks=blocks, pooled=1, post_compute=1),
        Instruction(Opcode.COMPUTE_SET, **kept),
        made("second", Opcode.POOL, buf_base=place, blocks=blocks, maximum=1, wait_store=1, post_load=1),
        *requantize[1].set(lines, width, width if pitch else 0, rows * cols),
        made("store", Opcode.STORE, offset=target, blocks=blocks, pooled=1),
        *last, END,
    ]
    return instructions, memory.image(), start, [(target, expected)]
