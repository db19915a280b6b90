"""What each instruction does: the coroutines of the load, compute and store queues of `sim.functional`."""

from collections.abc import Generator
from typing import TYPE_CHECKING

import numpy as np

from cores.isa import FIELD_FEATURES, ErrorCode, Instruction, Opcode, Queue
from cores.numerics import MAX_SHIFT, MIN_SHIFT, PARAMETER_BYTES, POOL_WIDTH

from . import golden
from .binary import BITS, check_binary, multiply_binary, pack_map, pack_signs
from .errors import HazardError, MachineError
from .gather import gather_box
from .hazards import Stage
from .storage import Ring, entry_places
from .weights import dense_weights
from .windows import check_form, multiply_windows
from .winograd import tile_places, write_tiles

if TYPE_CHECKING:
    from .functional import Machine, Steps

__all__ = ["compute_engine", "load_engine", "store_engine"]

#: float32 holds every integer up to here, so products and sums below it are exact in a matrix product.
_EXACT = 1 << 24


# -- load ----------------------------------------------------------------------------------------------------------


def load_engine(machine: "Machine") -> "Steps":
    geometry = tiles = gather = None
    tiled = -1      # the last LOAD_ACT, if it makes tiles: these are transformed behind the loads that follow
    while True:
        index, instruction = yield from machine.fetch(Queue.LOAD)
        match instruction.opcode:
            case Opcode.LOAD_SET:
                geometry, tiles, gather = _supported(machine, index, instruction), None, None
            case Opcode.LOAD_GATHER | Opcode.LOAD_WINOGRAD as mode:
                if (tiles if mode == Opcode.LOAD_GATHER else gather) is not None:
                    raise HazardError(index, "LOAD_GATHER and LOAD_WINOGRAD are behind one LOAD_SET")
                if mode == Opcode.LOAD_GATHER:
                    gather = instruction
                else:
                    tiles = instruction
            case Opcode.LOAD_ACT:
                if geometry is None:
                    raise MachineError(ErrorCode.ILLEGAL, index, "no LOAD_SET is in front of it")
                if gather is not None:
                    _load_runs(machine, index, geometry, gather, instruction)
                else:
                    _load_box(machine, index, geometry, tiles, instruction)
                tiled = -1 if tiles is None else index
            case Opcode.LOAD_WGT:
                offset, beats = instruction["offset"], instruction["beats"]
                machine.check_read(index, offset, offset + beats)
                yield from _fill(machine, index, machine.weights, np.arange(offset, offset + beats), "weight")
            case Opcode.LOAD_SIDE:
                rows = instruction["offset"] + np.arange(instruction["rows"])[:, None] * instruction["row_pitch"]
                places = (rows + np.arange(instruction["cols"])).ravel()
                machine.check_read(index, int(places[0]), int(places[-1]) + 1)
                yield from _fill(machine, index, machine.side, places, "side")
        if instruction.opcode in (Opcode.LOAD_WGT, Opcode.LOAD_SIDE) and instruction["post_compute"]:
            machine.require(tiled <= machine.hazards.clocks[Queue.LOAD][Stage.LOADED], index,
                            f"its token may come before the tiles of instruction {tiled} are there")
        machine.post(Queue.LOAD, index, instruction, "post_compute", Stage.LOADED)
        yield None


def _fill(machine: "Machine", index: int, ring: Ring, beats: np.ndarray, name: str) -> "Steps":
    """Push memory beats into a ring, as many at a time as have room."""
    while len(beats):
        while not ring.room:
            yield f"room in the {name} ring"
        now, beats = beats[:ring.room], beats[ring.room:]
        if machine.strict:
            machine.hazards.load_reads(index, now)
        ring.push(machine.memory[now].view(np.uint8))
        machine.read_beats += len(now)
        yield None


def _fetch_box(machine: "Machine", index: int, geometry: Instruction, instruction: Instruction) -> np.ndarray:
    """The beats of LOAD_ACT's data: int8 (blocks, rows, cols, beat_bytes)."""
    blocks, rows, cols = instruction["blocks"], instruction["rows"], geometry["cols"]
    if not rows:
        return np.empty((blocks, 0, cols, machine.config.beat_bytes), np.int8)
    beats = (instruction["offset"] + np.arange(blocks)[:, None, None] * geometry["block_pitch"]
             + np.arange(rows)[:, None] * geometry["row_pitch"] + np.arange(cols))
    machine.check_read(index, int(beats[0, 0, 0]), int(beats[-1, -1, -1]) + 1)
    if machine.strict:
        machine.hazards.load_reads(index, beats)
    machine.read_beats += beats.size
    return machine.memory[beats]


def _load_runs(machine: "Machine", index: int, geometry: Instruction, gather: Instruction,
               instruction: Instruction) -> None:
    """LOAD_ACT behind LOAD_GATHER: runs of bytes into parts of input-buffer entries."""
    config, lanes = machine.config, machine.config.beat_bytes
    length, blocks = gather["length"], instruction["blocks"]
    machine.require(gather["place"] + length <= lanes, index,
                    f"a run of {length} bytes does not fit byte {gather['place']} and following of {lanes}")
    machine.require(blocks == 1 or lanes % length == 0, index,
                    f"blocks of {length} bytes do not fill entries of {lanes}")
    runs = gather_box(config, geometry, gather, instruction, _fetch_box(machine, index, geometry, instruction))
    machine.check_entries(index, int(runs.entries.max()))
    places = runs.entries + runs.banks * config.input_depth
    if machine.strict:
        machine.hazards.load_writes(index, places, runs.places[:, None, None])
    for block in range(blocks):
        first, width = int(runs.places[block]), int(runs.widths[block])
        machine.input[places[block], first:first + width] = runs.values[block, ..., :width]
        if not first:
            machine.zeros[places[block]] = runs.padding[block] & bool(geometry["pad_zero"])


def _load_box(machine: "Machine", index: int, geometry: Instruction, tiles: Instruction | None,
              instruction: Instruction) -> None:
    """LOAD_ACT: a padded box of memory into the input buffer, as it is or in transformed ``tiles``."""
    config = machine.config
    blocks, rows, cols = instruction["blocks"], instruction["rows"], geometry["cols"]
    top, left = instruction["pad_top"], geometry["pad_left"]
    box_rows, box_cols = top + rows + instruction["pad_bottom"], left + cols + geometry["pad_right"]
    box = np.full((blocks, box_rows, box_cols, config.beat_bytes), geometry["pad_value"], np.int8)
    box[:, top:top + rows, left:left + cols] = _fetch_box(machine, index, geometry, instruction)
    if tiles is not None:
        write_tiles(machine, index, geometry, tiles, instruction, box)
        return
    padding = np.full(box.shape[:-1], bool(geometry["pad_zero"]))
    padding[:, top:top + rows, left:left + cols] = False
    bank, entry = entry_places(config.banks, geometry["stride"], 0, box_cols)
    block = np.arange(blocks)[:, None, None]
    to_block, part = np.divmod(block, BITS) if geometry["sign"] else (block, np.zeros_like(block))
    entries = (instruction["buf_base"] + to_block * geometry["buf_block_pitch"]
               + np.arange(box_rows)[:, None] * geometry["buf_row_pitch"] + entry)
    machine.check_entries(index, int(entries.max()))
    places = entries + bank * config.input_depth
    if machine.strict:
        machine.hazards.load_writes(index, places, part)
    if geometry["sign"]:
        count = config.beat_bytes // BITS
        for number, signs in enumerate(pack_signs(box).view(np.int8)):
            start = number % BITS * count
            machine.input[places[number], start:start + count] = signs
    else:
        machine.input[places] = box
    first = part.ravel() == 0
    machine.zeros[places[first]] = padding[first]


def _places(machine: "Machine", index: int, geometry: Instruction, rows: int, base: int = 0) -> np.ndarray:
    """(output pixels, groups of output lanes that make one) places of a tile's sums in an accumulator bank.

    ``base``: the tile's first word.
    """
    accumulators, cols = machine.accumulators, geometry["cols"]
    spread, alternate = bool(geometry["spread"]), bool(geometry["alternate"])
    if alternate and (spread or machine.config.oc_groups != 2):
        raise HazardError(index, "rows alternate between two groups of output lanes, and are not spread")
    words = base + accumulators.words(rows, cols, spread=spread, alternate=alternate)
    if words > machine.config.acc_depth:
        raise MachineError(ErrorCode.BUFFER, index, f"{words} accumulator words of {machine.config.acc_depth}")
    if spread:
        places = accumulators.spread_places(rows, cols)
    else:
        places = accumulators.alternate_places(rows, cols) if alternate else accumulators.places(rows, cols)
    return places + base * machine.config.pixel_lanes * machine.config.oc_groups


def _supported(machine: "Machine", index: int, instruction: Instruction) -> Instruction:
    """The instruction without the fields of units that the configuration does not have."""
    absent = {name: feature for name, feature in FIELD_FEATURES.get(instruction.opcode, {}).items()
              if instruction[name] and not getattr(machine.config, feature)}
    if not absent:
        return instruction
    if machine.strict:
        name, feature = next(iter(absent.items()))
        raise MachineError(ErrorCode.ILLEGAL, index, f"{name} needs {feature} in the configuration")
    return Instruction(instruction.opcode, **{**instruction.fields, **dict.fromkeys(absent, 0)})


# -- compute -------------------------------------------------------------------------------------------------------


def compute_engine(machine: "Machine") -> "Steps":
    geometry = None
    while True:
        index, instruction = yield from machine.fetch(Queue.COMPUTE)
        instruction = _supported(machine, index, instruction)
        if instruction.opcode == Opcode.COMPUTE_SET:
            geometry = instruction
        elif geometry is None:
            raise MachineError(ErrorCode.ILLEGAL, index, "no COMPUTE_SET is in front of it")
        elif instruction.opcode == Opcode.COMPUTE:
            yield from _compute(machine, index, geometry, instruction)
        else:
            yield from _pool(machine, index, geometry, instruction)
        machine.post(Queue.COMPUTE, index, instruction, "post_load", Stage.COMPUTED)
        machine.post(Queue.COMPUTE, index, instruction, "post_store", Stage.COMPUTED)
        yield None


def _window_places(machine: "Machine", index: int, geometry: Instruction, bases: np.ndarray, kys: np.ndarray,
                   kxs: np.ndarray) -> np.ndarray:
    """Where the machine reads: (rows * cols, taps) places in ``machine.input`` of every output pixel's taps.

    ``bases`` (first entry of the tap's block), ``kys``, ``kxs``: (taps,). All banks are read in every cycle, so the
    pixels that complete the last read of a row must lie inside the buffer too.
    """
    config, stride, cols = machine.config, geometry["stride"], geometry["cols"]
    banks = np.empty((-(-cols // config.banks) * config.banks, len(kxs)), np.int64)
    entries = np.empty_like(banks)
    for kx in np.unique(kxs):
        bank, entry = entry_places(config.banks, stride, int(kx), len(banks), stride)
        banks[:, kxs == kx], entries[:, kxs == kx] = bank[:, None], entry[:, None]
    entries = entries + bases + kys * geometry["buf_row_pitch"]
    rows = np.arange(geometry["rows"])[:, None, None] * geometry["buf_row_step"]
    machine.check_entries(index, int(entries.max() + rows.max()))
    return (rows + (entries + banks * config.input_depth)[:cols]).reshape(-1, len(kxs))


def _compute(machine: "Machine", index: int, geometry: Instruction, instruction: Instruction) -> "Steps":
    """COMPUTE: for block, ky, kx, group: all pixels; as far as the weight ring allows at a time."""
    config, accumulators = machine.config, machine.accumulators
    check_form(machine, index, geometry, instruction)
    rows = geometry["rows"] * (2 if geometry["alternate"] else 1)
    places = _places(machine, index, geometry, rows, instruction["acc_base"])
    multiply = multiply_windows if geometry["window"] else _multiply
    groups, indexed, binary = instruction["groups"], bool(instruction["indexed"]), bool(instruction["binary"])
    if binary:
        check_binary(machine, index, geometry, instruction)
    else:
        machine.require(indexed or groups <= config.groups_dense, index,
                        f"{groups} groups of a dense block of {config.groups_dense}")
    bank = instruction["bank"]
    if machine.strict:
        machine.hazards.compute_writes(index, bank, places, bool(instruction["first"]))
    if instruction["first"]:
        accumulators.sums[bank, places] = 0
    step_beats = config.binary_rows if binary else config.weight_beats + (config.index_beats if indexed else 0)
    steps = instruction["blocks"] * geometry["kernel_h"] * geometry["kernel_w"] * groups
    held = np.empty((0, config.beat_bytes), np.uint8)
    done = 0
    while done < steps:
        while not machine.weights.level:
            yield f"weights (step {done} of {steps})"
        beats = min(machine.weights.level, (steps - done) * step_beats - len(held))
        held = np.concatenate([held, machine.weights.take(beats)])
        ready = len(held) // step_beats
        if ready:
            multiply(machine, index, geometry, instruction, done, held[:ready * step_beats].reshape(ready, -1), places)
            held, done = held[ready * step_beats:], done + ready
        yield None


def _multiply(machine: "Machine", index: int, geometry: Instruction, instruction: Instruction, first: int,
              steps: np.ndarray, places: np.ndarray) -> None:
    """Add the products of steps ``first``... (uint8 (n, bytes of a step), as streamed) to the accumulators.

    ``places``: (output pixels, groups of output lanes that make one), where their sums are.
    """
    config, groups, bank = machine.config, instruction["groups"], instruction["bank"]
    taps = np.arange(first // groups, (first + len(steps) - 1) // groups + 1)
    block, tap = np.divmod(taps, geometry["kernel_h"] * geometry["kernel_w"])
    ky, kx = np.divmod(tap, geometry["kernel_w"])
    bases = instruction["buf_base"] + block * geometry["buf_block_pitch"]
    inputs = _window_places(machine, index, geometry, bases, ky, kx)
    if machine.strict:
        machine.hazards.compute_reads(index, inputs)
    if instruction["binary"]:
        multiply_binary(machine, bank, places, inputs, first % groups, steps)
        return
    weights = dense_weights(config, steps, first % groups, groups, indexed=bool(instruction["indexed"]))
    # As many taps at a time as keep float32 exact.
    largest = max(1, int(np.abs(weights).max())) * 128 * config.ic_lanes
    many = max(1, _EXACT // largest)
    total = np.zeros((len(inputs), config.oc_lanes), np.int64)
    for begin in range(0, len(taps), many):
        activations = machine.input[inputs[:, begin:begin + many]].astype(np.float32).reshape(len(inputs), -1)
        factors = weights[begin:begin + many].astype(np.float32).reshape(-1, config.oc_lanes)
        total += (activations @ factors).astype(np.int64)
    of_groups = total.reshape(-1, config.oc_groups, config.ic_lanes)
    if geometry["spread"]:
        of_groups = np.take_along_axis(of_groups, (places % config.oc_groups)[:, :, None], axis=1)
    sums = machine.accumulators.sums
    sums[bank, places] = machine.accumulators.wrap(sums[bank, places] + of_groups)


def _pool(machine: "Machine", index: int, geometry: Instruction, instruction: Instruction) -> "Steps":
    """POOL: windows of one block after the other, as many pixels at a time as the store engine takes."""
    ky, kx = np.divmod(np.arange(geometry["kernel_h"] * geometry["kernel_w"]), geometry["kernel_w"])
    half = 1 << POOL_WIDTH - 1
    for block in range(instruction["blocks"]):
        bases = np.full(len(ky), instruction["buf_base"] + block * geometry["buf_block_pitch"])
        places = _window_places(machine, index, geometry, bases, ky, kx)
        while len(places):
            while not machine.pool_demand():
                yield "a STORE to take pooled pixels"
            count = min(machine.pool_demand(), len(places))
            if machine.strict:
                machine.hazards.compute_reads(index, places[:count])
            windows = machine.input[places[:count]].astype(np.int64)
            values = windows.max(axis=1) if instruction["maximum"] else windows.sum(axis=1)
            machine.pool_pixels.append((values + half & 2 * half - 1) - half)
            places = places[count:]
            yield None


# -- store ---------------------------------------------------------------------------------------------------------


def store_engine(machine: "Machine") -> "Steps":
    geometry = second = None
    while True:
        index, instruction = yield from machine.fetch(Queue.STORE)
        match instruction.opcode:
            case Opcode.STORE_SET:
                geometry = _supported(machine, index, instruction)
            case Opcode.STORE_ADD:
                second = instruction
            case _:
                if geometry is None:
                    raise MachineError(ErrorCode.ILLEGAL, index, "no STORE_SET is in front of it")
                if geometry["add"] and second is None:
                    raise HazardError(index, "no STORE_ADD is in front of it")
                yield from _store(machine, index, geometry, second, instruction)
                local = bool(geometry["local"])
                machine.require(not (local and instruction["post_load"]), index, "a local STORE has no post_load")
                # STOREs finish in order: a STORE_SET, which changes their kind, waits for those before it.
                machine.post(Queue.STORE, index, instruction, "post_compute", Stage.READ, Stage.KEPT)
                if not local:
                    machine.post(Queue.STORE, index, instruction, "post_load", Stage.READ, Stage.KEPT, Stage.WRITTEN)
        yield None


def _store(machine: "Machine", index: int, geometry: Instruction, second: Instruction | None,
           instruction: Instruction) -> "Steps":
    """STORE: for each block its parameters, then its pixels with their residual beats."""
    config, accumulators = machine.config, machine.accumulators
    rows, cols, bank = geometry["rows"], geometry["cols"], instruction["bank"]
    count = rows * cols
    if geometry["local"] and geometry["binary"]:
        raise HazardError(index, "signs are not stored to the input buffer")
    if geometry["winograd"] and instruction["pooled"]:
        raise HazardError(index, "pooled pixels are not sums of tiles")
    if not instruction["pooled"]:
        held = 1 if geometry["spread"] or geometry["alternate"] else config.oc_groups
        if instruction["blocks"] > held:
            raise MachineError(ErrorCode.BUFFER, index, f"{instruction['blocks']} blocks of a bank of {held}")
        if geometry["winograd"]:
            places, signs = tile_places(machine, index, geometry)
        else:
            places, signs = _places(machine, index, geometry, rows), None
    for block in range(instruction["blocks"]):
        parameters = yield from _take_side(machine, PARAMETER_BYTES, "channel parameters")
        if instruction["pooled"]:
            sums, residual = yield from _take_pooled(machine, count, bool(geometry["add"]))
        else:
            residual = (yield from _take_side(machine, count, "residual pixels")) if geometry["add"] else None
            if machine.strict:
                machine.hazards.store_reads(index, bank, places[:, block])
            sums = accumulators.sums[bank, places[:, block]]
            if signs is not None:
                sums = accumulators.wrap((sums * signs[..., None]).sum(axis=1))
        values = _requantize(machine, index, geometry, second, parameters, sums, residual)
        write = _keep_rows if geometry["local"] else _write_rows
        write(machine, index, geometry, instruction["offset"] + block * geometry["block_pitch"], values)
        yield None


def _take_side(machine: "Machine", count: int, name: str) -> Generator[str | None, None, np.ndarray]:
    """Beats of the side ring as they come; returns uint8 (count, beat_bytes)."""
    taken, missing = [], count
    while missing:
        while not machine.side.level:
            yield f"{name} in the side ring"
        now = min(machine.side.level, missing)
        taken.append(machine.side.take(now))
        missing -= now
        yield None
    return np.concatenate(taken)


def _take_pooled(machine: "Machine", count: int,
                 add: bool) -> Generator[str | None, None, tuple[np.ndarray, np.ndarray | None]]:
    """Pixels of the pool unit, each with its residual beat if ``add``; returns the two, each (count, tn) or None."""
    pooled: list[np.ndarray] = []
    residual: list[np.ndarray] = []
    missing = count
    machine.pool_demand = lambda: 0 if machine.pool_pixels else min(missing, machine.side.level) if add else missing
    yield None
    while missing:
        while not machine.pool_pixels:
            yield "the pool unit, or residual pixels in the side ring" if add else "the pool unit"
        pooled.append(machine.pool_pixels.popleft())
        missing -= len(pooled[-1])
        if add:
            residual.append(machine.side.take(len(pooled[-1])))
        yield None
    machine.pool_demand = lambda: 0
    return np.concatenate(pooled), np.concatenate(residual) if add else None


def _requantize(machine: "Machine", index: int, geometry: Instruction, second: Instruction | None,
                parameters: np.ndarray, sums: np.ndarray, residual: np.ndarray | None) -> np.ndarray:
    """(rows, cols, tn) int8 of ``sums`` (rows * cols, tn)."""
    words = np.ascontiguousarray(parameters).reshape(-1).view("<u4").reshape(-1, 2)
    bias, multiplier, shift = words[:, 0].view("<i4").astype(np.int64), words[:, 1] & 0x1FFFF, words[:, 1] >> 24 & 0x3F
    shape = (-1, geometry["rows"], geometry["cols"])
    if machine.strict:
        half = 1 << machine.config.acc_width - 1
        biased = sums + bias
        machine.require(-half <= biased.min() and biased.max() < half, index, "an accumulator overflows with its bias")
        shifts = [*shift, second["shift"]] if geometry["add"] and second else shift
        machine.require(MIN_SHIFT <= min(shifts) and max(shifts) <= MAX_SHIFT, index,
                        f"shifts must be in {MIN_SHIFT}..{MAX_SHIFT}")
    # A shift below MIN_SHIFT has no meaning; the golden model still needs one it can compute.
    values = golden.requantize(sums.T.reshape(shape), bias, multiplier, np.maximum(shift, 1),
                               geometry["zero_point"], geometry["low"], geometry["high"])
    if residual is not None and second is not None:
        other = residual.view(np.int8).T.reshape(shape)
        values = golden.residual_add(values, other, second["multiplier_a"], second["multiplier_b"], second["constant"],
                                     max(second["shift"], 1), second["zero_point"], second["low"], second["high"])
    return values.transpose(1, 2, 0)


def _keep_rows(machine: "Machine", index: int, geometry: Instruction, first: int, values: np.ndarray) -> None:
    """Write a block's rows (rows, cols, tn) to the input buffer; without a pitch they follow each other as one."""
    config = machine.config
    if not geometry["row_pitch"]:
        values = values.reshape(1, -1, config.ic_lanes)
    bank, entry = entry_places(config.banks, 1, 0, values.shape[1])
    entries = first + np.arange(len(values))[:, None] * geometry["row_pitch"] + entry
    machine.check_entries(index, int(entries.max()))
    places = entries + bank * config.input_depth
    if machine.strict:
        machine.hazards.store_keeps(index, places)
    machine.input[places] = values
    machine.zeros[places] = False


def _write_rows(machine: "Machine", index: int, geometry: Instruction, first: int, values: np.ndarray) -> None:
    """Write a block's rows (rows, cols, tn), stopping before the first that is outside the writable region."""
    if geometry["binary"]:
        values = pack_map(values).view(np.int8)
    cols = values.shape[1]
    starts = first + np.arange(geometry["rows"]) * geometry["row_pitch"]
    bad = (starts < machine.write_start) | (starts + cols > len(machine.memory))
    good = int(np.argmax(bad)) if bad.any() else len(starts)
    beats = starts[:good, None] + np.arange(cols)
    if machine.strict:
        machine.hazards.store_writes(index, beats)
    machine.memory[beats] = values[:good]
    machine.write_beats += beats.size
    if good < len(starts):
        raise MachineError(ErrorCode.WRITE_RANGE, index,
                           f"writes beats {starts[good]}..{starts[good] + cols - 1}, outside "
                           f"{machine.write_start}..{len(machine.memory) - 1}")
