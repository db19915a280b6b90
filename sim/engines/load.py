"""The load queue: activations into the input buffer, weights and side data into their rings."""

import numpy as np

from cores.arch.instruction import Instruction
from cores.arch.isa import EntryForm, Opcode, Queue

from ..errors import HazardError
from ..gather import gather_box
from ..hazards import Stage, blocks_of_entry, check_box
from ..machine import Machine, Steps
from ..signs import sign_runs
from ..storage import Ring, entry_places
from ..turn import turned
from ..winograd import check_tiles, write_tiles

__all__ = ["load_engine"]


def load_engine(machine: Machine) -> Steps:
    geometry = tiles = gather = turn = None
    sums = np.zeros((2, machine.config.oc_lanes), np.int64)     # of turned weights
    tiled = -1      # the last LOAD_ACT, if it makes tiles: these are transformed after the loads that follow
    while True:
        index, instruction = yield from machine.fetch(Queue.LOAD)
        match instruction.opcode:
            case Opcode.LOAD_SET:
                geometry, tiles, gather, turn = instruction, None, None, None
            case Opcode.LOAD_GATHER | Opcode.LOAD_WINOGRAD as mode:
                if (tiles if mode == Opcode.LOAD_GATHER else gather) is not None:
                    raise HazardError(index, "LOAD_GATHER and LOAD_WINOGRAD are after one LOAD_SET",
                                      code="chain-hazard")
                if mode == Opcode.LOAD_GATHER:
                    gather = instruction
                else:
                    tiles = instruction
            case Opcode.LOAD_TURN:
                machine.require(gather is None, index, "LOAD_GATHER and LOAD_TURN are after one LOAD_SET")
                turn = instruction
            case Opcode.LOAD_ACT if turn is not None:
                assert geometry is not None
                yield from _load_turned(machine, index, geometry, turn, instruction, sums[turn["bank"]])
            case Opcode.LOAD_ACT:
                assert geometry is not None
                if gather is not None:
                    _load_runs(machine, index, geometry, gather, instruction)
                else:
                    _load_box(machine, index, geometry, tiles, instruction)
                tiled = -1 if tiles is None else index
            case Opcode.LOAD_WGT:
                offset, beats = instruction["offset"], instruction["beats"]
                machine.check_read(index, np.array([offset]), beats)
                yield from _fill(machine, index, machine.weights, np.arange(offset, offset + beats), "weight")
            case Opcode.LOAD_SIDE:
                tn = machine.config.ic_lanes
                rows = instruction["offset"] + np.arange(instruction["rows"])[:, None] * instruction["row_pitch"]
                places = (rows + np.arange(instruction["cols"])).ravel()
                machine.check_read(index, rows.ravel(), instruction["cols"])
                bias = instruction["zero_point"] * sums[instruction["bank"], instruction["group"] * tn:]
                yield from _fill(machine, index, machine.side, places, "side", bias)
        if instruction.opcode in (Opcode.LOAD_WGT, Opcode.LOAD_SIDE) and instruction["post_compute"]:
            machine.require(tiled <= machine.hazards.clocks[Queue.LOAD][Stage.LOADED], index,
                            f"its token may come before the tiles of instruction {tiled} are there")
        machine.post(Queue.LOAD, index, instruction, "post_compute", Stage.LOADED)
        yield None


def _fill(machine: Machine, index: int, ring: Ring, beats: np.ndarray, name: str,
          bias: np.ndarray | None = None) -> Steps:
    """Load beats of memory into a ring; of channel parameters, take ``bias`` from each channel's."""
    if machine.strict:
        machine.hazards.load_reads(index, beats)
    machine.read_beats += len(beats)
    data = machine.memory[beats].view(np.uint8)
    if bias is not None and bias.any():
        words = data.reshape(-1).view(np.uint32).copy()
        machine.require(len(words) <= 2 * len(bias), index, "it loads parameters of more channels than there are lanes")
        words[::2] -= bias[:len(words) // 2].astype(np.uint32)
        data = words.view(np.uint8).reshape(data.shape)
    yield from _push(ring, data, name)


def _push(ring: Ring, data: np.ndarray, name: str) -> Steps:
    """Push beats into a ring, as many at a time as have room."""
    while len(data):
        while not ring.room:
            yield f"room in the {name} ring"
        now, data = data[:ring.room], data[ring.room:]
        ring.push(now)
        yield None


def _load_turned(machine: Machine, index: int, geometry: Instruction, turn: Instruction, instruction: Instruction,
                 sums: np.ndarray) -> Steps:
    """LOAD_ACT after LOAD_TURN: a box becomes weights, whose ``sums`` are kept."""
    config = machine.config
    rows, cols = instruction["rows"], geometry["cols"]
    padding = ("pad_left", "pad_right"), ("pad_top", "pad_bottom", "post_compute")
    machine.require(not any(fields[name] for fields, names in zip((geometry, instruction), padding, strict=True)
                            for name in names), index, "weights have no padding and post no token")
    machine.require(rows * -(-cols // config.ic_lanes) * config.ic_lanes <= config.oc_lanes, index,
                    f"a block of {rows} rows of {cols} pixels is more than oc_lanes={config.oc_lanes}")
    _check_range(machine, index, geometry, instruction)
    weights, added = turned(config, turn, _fetch_box(machine, index, geometry, instruction))
    sums[:] = added + (0 if turn["first"] else sums)
    yield from _push(machine.weights, weights.view(np.uint8), "weight")


def _check_range(machine: Machine, index: int, geometry: Instruction, instruction: Instruction) -> None:
    """Raise READ_RANGE for a LOAD_ACT whose data is not in the data region."""
    first, blocks, rows = instruction["offset"], instruction["blocks"], instruction["rows"]
    if rows:
        starts = (first + np.arange(blocks)[:, None] * geometry["block_pitch"]
                  + np.arange(rows) * geometry["row_pitch"]).ravel()
        machine.check_read(index, starts, geometry["cols"])


def _fetch_box(machine: Machine, index: int, geometry: Instruction, instruction: Instruction) -> np.ndarray:
    """The beats of LOAD_ACT's data, of which `_check_range` is true: int8 (blocks, rows, cols, beat_bytes)."""
    blocks, rows, cols = instruction["blocks"], instruction["rows"], geometry["cols"]
    if not rows:
        return np.empty((blocks, 0, cols, machine.config.beat_bytes), np.int8)
    beats = (instruction["offset"] + np.arange(blocks)[:, None, None] * geometry["block_pitch"]
             + np.arange(rows)[:, None] * geometry["row_pitch"] + np.arange(cols))
    if machine.strict:
        machine.hazards.load_reads(index, beats)
    machine.read_beats += beats.size
    return machine.memory[beats]


def _load_runs(machine: Machine, index: int, geometry: Instruction, gather: Instruction,
               instruction: Instruction) -> None:
    """LOAD_ACT after LOAD_GATHER: runs of bytes into parts of input-buffer entries."""
    config, lanes = machine.config, machine.config.beat_bytes
    length, blocks = gather["length"], instruction["blocks"]
    machine.require(gather["place"] + length <= lanes, index,
                    f"a run of {length} bytes does not fit byte {gather['place']} and following of {lanes}")
    machine.require(blocks == 1 or lanes % length == 0, index,
                    f"blocks of {length} bytes do not fill entries of {lanes}")
    _check_range(machine, index, geometry, instruction)
    check_box(config, index, geometry, instruction, gather)
    runs = gather_box(config, geometry, gather, instruction, _fetch_box(machine, index, geometry, instruction))
    machine.check_entries(index, int(runs.entries.max()))
    places = runs.entries + runs.banks * config.input_depth
    if machine.strict:
        machine.hazards.load_writes(index, places, runs.places[:, None, None])
    for block in range(blocks):
        first, width = int(runs.places[block]), int(runs.widths[block])
        machine.put(index, places[block], runs.values[block, ..., :width],
                    runs.padding[block] & bool(geometry["pad_zero"]), first=first)


def _load_box(machine: Machine, index: int, geometry: Instruction, tiles: Instruction | None,
              instruction: Instruction) -> None:
    """LOAD_ACT: a padded box of memory into the input buffer, as it is or in transformed ``tiles``."""
    config = machine.config
    blocks, rows, cols = instruction["blocks"], instruction["rows"], geometry["cols"]
    top, left = instruction["pad_top"], geometry["pad_left"]
    box_rows, box_cols = top + rows + instruction["pad_bottom"], left + cols + geometry["pad_right"]
    sign, pair = geometry["form"] != EntryForm.BYTES, geometry["form"] == EntryForm.SIGN_PAIRS
    machine.require(box_cols > int(pair), index, "a row of one pixel has no pairs")
    _check_range(machine, index, geometry, instruction)
    bank, entry = entry_places(config.banks, geometry["stride"], 0, box_cols - int(pair))
    together = blocks_of_entry(geometry)
    if tiles is not None:
        check_tiles(machine, index, geometry, tiles, instruction, box_rows, box_cols)
    else:
        last = (blocks - 1) // together * geometry["buf_block_pitch"]
        machine.check_entries(index, instruction["buf_base"] + last + (box_rows - 1) * geometry["buf_row_pitch"]
                              + int(entry.max()))
    check_box(config, index, geometry, instruction)
    box = np.full((blocks, box_rows, box_cols, config.beat_bytes), geometry["pad_value"], np.int8)
    box[:, top:top + rows, left:left + cols] = _fetch_box(machine, index, geometry, instruction)
    if tiles is not None:
        write_tiles(machine, index, geometry, tiles, instruction, box)
        return
    padding = np.full(box.shape[:-1], bool(geometry["pad_zero"]))
    padding[:, top:top + rows, left:left + cols] = False
    to_block, part = np.divmod(np.arange(blocks)[:, None, None], together)
    entries = (instruction["buf_base"] + to_block * geometry["buf_block_pitch"]
               + np.arange(box_rows)[:, None] * geometry["buf_row_pitch"] + entry)
    places = entries + bank * config.input_depth
    if machine.strict:
        machine.hazards.load_writes(index, places, part)
    if not sign:
        machine.put(index, places, box, padding[..., None])
        return
    values, flags = sign_runs(box, padding, pair=pair)
    width = values.shape[-1]
    for number in range(blocks):
        machine.put(index, places[number], values[number], flags[number], first=number % together * width)
