"""The store queue: sums, requantised, to memory or to the input buffer."""

from collections.abc import Generator, Mapping
from typing import Any

import numpy as np

from cores.arch.error_codes import ErrorCode, LimitCode
from cores.arch.instruction import Instruction
from cores.arch.isa import CHAIN, SECOND_STAGES, Opcode, Queue, WordForm
from cores.arch.numerics import FACTOR_BITS, MAX_SHIFT, MIN_SHIFT, PARAMETER_BYTES

from .. import golden
from ..errors import HazardError, MachineError
from ..hazards import Stage
from ..machine import Machine, Steps
from ..maxima import results_of_maxima
from ..signs import pack_map
from ..storage import entry_places
from ..store_operations import LOADS, OPERATIONS
from ..winograd import tile_places
from .accumulator_layout import sum_places

__all__ = ["store_engine"]


def store_engine(machine: Machine) -> Steps:
    geometry: Instruction | None = None
    chain: dict[Opcode, Instruction] = {}
    loaded: dict[Opcode, Any] = {}      # the latest of each operation that loads
    while True:
        index, instruction = yield from machine.fetch(Queue.STORE)
        match instruction.opcode:
            case Opcode.STORE_SET:
                geometry = instruction
            case Opcode.STORE:
                assert geometry is not None
                yield from _store(machine, index, geometry, chain, instruction, loaded)
                local = bool(geometry["local"])
                machine.require(not (local and instruction["post_load"]), index, "a local STORE has no post_load")
                # STOREs finish in order: a STORE_SET, which changes their kind, waits for those before it.
                machine.post(Queue.STORE, index, instruction, "post_compute", Stage.READ, Stage.KEPT)
                if not local:
                    machine.post(Queue.STORE, index, instruction, "post_load", Stage.READ, Stage.KEPT, Stage.WRITTEN)
            case opcode:
                if load := LOADS.get(opcode):
                    if instruction["load"]:
                        count = load.size // machine.config.beat_bytes
                        beats = yield from _take_side(machine, count, f"what {opcode.name} loads")
                        loaded[opcode] = load.unpack(beats)
                    if opcode not in loaded:
                        raise HazardError(index, f"{opcode.name} uses what was never loaded", code="never-written")
                if opcode == Opcode.STORE_REQUANT:
                    chain.clear()
                chain[opcode] = instruction
                _check_chain(index, chain)
        yield None


def _check_chain(index: int, chain: Mapping[Opcode, Instruction]) -> None:
    """Raise HazardError for operations that do not go together."""
    if sum(opcode in chain for opcode in SECOND_STAGES) > 1:
        raise HazardError(index, "the chain has a second stage already", code="chain-hazard")
    later = [opcode for opcode in chain if opcode not in (Opcode.STORE_REQUANT, *SECOND_STAGES, Opcode.STORE_SIGNS)]
    if Opcode.STORE_SIGNS in chain and later:
        raise HazardError(index, f"signs do not go through {later[0].name}", code="chain-hazard")


def _second_stage(chain: Mapping[Opcode, Instruction]) -> Instruction | None:
    return next((chain[opcode] for opcode in SECOND_STAGES if opcode in chain), None)


def _store(machine: Machine, index: int, geometry: Instruction, chain: Mapping[Opcode, Instruction],
           instruction: Instruction, loaded: Mapping[Opcode, Any]) -> Steps:
    """STORE: for each block its parameters, then its pixels with their residual beats. ``loaded``: by operations.

    With ``repeats`` neighbouring columns have the same sums, unless these are the two rows of STORE_MAXIMUM.
    """
    config, accumulators = machine.config, machine.accumulators
    rows, bank = geometry["rows"], instruction["bank"]
    columns = np.arange(geometry["cols"]) // (1 + instruction["repeats"])
    if Opcode.STORE_MAXIMUM in chain:
        rows, columns = results_of_maxima(machine, index, geometry, chain, instruction)
    cols, count = int(columns[-1]) + 1, rows * len(columns)
    signs_alone, tiles = Opcode.STORE_SIGNS in chain, geometry["words"] == WordForm.TILES
    if geometry["local"] and signs_alone:
        raise HazardError(index, "signs are not stored to the input buffer", code="chain-hazard")
    if tiles and instruction["pooled"]:
        raise HazardError(index, "pooled pixels are not sums of tiles", code="chain-hazard")
    if not instruction["pooled"]:
        held = 1 if geometry["words"] in (WordForm.SPREAD, WordForm.ALTERNATE) else config.oc_groups
        if instruction["blocks"] > held:
            raise MachineError(ErrorCode.BUFFER, index, f"{instruction['blocks']} blocks of a bank of {held}")
        if tiles:
            places, signs = tile_places(machine, index, geometry, rows, cols)
        else:
            places, signs = sum_places(machine, index, geometry, rows, cols), None
    second = _second_stage(chain)
    adds = second is not None and second.opcode != Opcode.STORE_LEAKY
    common = adds and second is not None and bool(second["broadcast"])
    for block in range(instruction["blocks"]):
        parameters = yield from _take_side(machine, PARAMETER_BYTES, "channel parameters")
        residual = None
        if adds and (common or not instruction["pooled"]):
            residual = yield from _take_side(machine, 1 if common else count, "residual pixels")
        if instruction["pooled"]:
            sums, beside = yield from _take_pooled(machine, rows, columns, adds and not common)
            residual = beside if residual is None else residual
        else:
            if machine.strict:
                machine.hazards.store_reads(index, bank, places[:, block])
            sums = accumulators.sums[bank, places[:, block]]
            if signs is not None:
                sums = accumulators.wrap((sums * signs[..., None]).sum(axis=1))
        sums = sums.reshape(rows, cols, -1)[:, columns].reshape(count, -1)
        values = _activations(machine, index, (rows, len(columns)), chain, parameters, sums, residual, loaded)
        if signs_alone:
            values = pack_map(values).view(np.int8)
        write = _keep_rows if geometry["local"] else _write_rows
        write(machine, index, geometry, instruction["offset"] + block * geometry["block_pitch"], values)
        yield None


def _take_side(machine: Machine, count: int, name: str) -> Generator[str | None, None, np.ndarray]:
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


def _take_pooled(machine: Machine, rows: int, columns: np.ndarray,
                 add: bool) -> Generator[str | None, None, tuple[np.ndarray, np.ndarray | None]]:
    """Pixels of the pool unit, each with the residual beats of its columns, if it ``add``s; returns both, or None.

    ``columns``: for each beat of a row, which of the pixels it is made of.
    """
    pooled: list[np.ndarray] = []
    residual: list[np.ndarray] = []
    #: Beats up to each pixel's last.
    ends = np.cumsum(np.tile(np.bincount(columns), rows))
    taken = used = 0

    def demand() -> int:
        if machine.pool_pixels:
            return 0
        served = int(np.searchsorted(ends, used + machine.side.level, "right")) if add else len(ends)
        return served - taken

    machine.pool_demand = demand
    yield None
    while taken < len(ends):
        while not machine.pool_pixels:
            yield "the pool unit, or residual pixels in the side ring" if add else "the pool unit"
        values, clock = machine.pool_pixels.popleft()
        # They come out of what is done by then.
        machine.hazards.taken(Queue.STORE, clock)
        pooled.append(values)
        taken += len(values)
        if add:
            residual.append(machine.side.take(int(ends[taken - 1]) - used))
            used = int(ends[taken - 1])
        yield None
    machine.pool_demand = lambda: 0
    return np.concatenate(pooled), np.concatenate(residual) if add else None


def _activations(machine: Machine, index: int, size: tuple[int, int], chain: Mapping[Opcode, Instruction],
                 parameters: np.ndarray, sums: np.ndarray, residual: np.ndarray | None,
                 loaded: Mapping[Opcode, Any]) -> np.ndarray:
    """What the chain makes of ``sums`` (rows * cols, tn), ``size`` (rows, cols): int8 (..., ..., tn)."""
    words = np.ascontiguousarray(parameters).reshape(-1).view("<u4").reshape(-1, 2)
    bias, multiplier, shift = words[:, 0].view("<i4").astype(np.int64), words[:, 1] & 0x1FFFF, words[:, 1] >> 24 & 0x3F
    shape = (-1, *size)
    first, second = chain[Opcode.STORE_REQUANT], _second_stage(chain)
    if machine.strict:
        half = 1 << machine.config.acc_width - 1
        biased = sums + bias
        machine.require(-half <= biased.min() and biased.max() < half, index, "an accumulator overflows with its bias")
        stages = [first, second] if second else [first]
        machine.require(all(stage["low"] <= stage["high"] for stage in stages), index,
                        "a clip's bounds are not in order")
        machine.require(second is not None or -128 <= first["low"] and first["high"] <= 127, index,
                        "clip bounds beyond int8 are for a result that has a second stage")
        shifts = [*shift, second["shift"]] if second else shift
        if Opcode.STORE_MULTIPLY in chain:
            machine.require(_fits_product(chain[Opcode.STORE_MULTIPLY]), index,
                            f"a product has factors of {FACTOR_BITS} bits")
        machine.require(MIN_SHIFT <= min(shifts) and max(shifts) <= MAX_SHIFT, index,
                        f"shifts must be in {MIN_SHIFT}..{MAX_SHIFT}")
    # A shift below MIN_SHIFT has no meaning; the golden model still needs one it can compute.
    values = golden.requantize(sums.T.reshape(shape), bias, multiplier, np.maximum(shift, 1),
                               first["zero_point"], first["low"], first["high"])
    # One beat is for all pixels of the block.
    other = None if residual is None else residual.view(np.int8).T.reshape(
        len(values), *((1, 1) if len(residual) == 1 else values.shape[1:]))
    for opcode in (opcode for opcode in CHAIN if opcode in chain and opcode in OPERATIONS):
        values = OPERATIONS[opcode](chain[opcode], values, other, loaded.get(opcode))
    return values.astype(np.int8).transpose(1, 2, 0)


def _fits_product(second: Instruction) -> bool:
    """Whether every factor that a STORE_MULTIPLY makes of an int8 value has FACTOR_BITS."""
    limit = 1 << FACTOR_BITS - 1
    return all(-limit <= value * second["multiplier"] - second["constant"] < limit for value in (-128, 127))


def _keep_rows(machine: Machine, index: int, geometry: Instruction, first: int, values: np.ndarray) -> None:
    """Write a block's rows (rows, cols, tn) to the input buffer, each from a bank on; without a pitch they follow each
    other as one.
    """
    config = machine.config
    if not geometry["row_pitch"]:
        values = values.reshape(1, -1, config.ic_lanes)
    bank, entry = entry_places(config.banks, 1, geometry["bank"] % config.banks, values.shape[1])
    entries = first + np.arange(len(values))[:, None] * geometry["row_pitch"] + entry
    machine.check_entries(index, int(entries.max()))
    places = entries + bank * config.input_depth
    if machine.strict:
        machine.hazards.store_keeps(index, places)
    machine.put(index, places, values)


def _write_rows(machine: Machine, index: int, geometry: Instruction, first: int, values: np.ndarray) -> None:
    """Write a block's rows (rows, cols, tn), up to the first that is outside the writable part or the limits."""
    cols = values.shape[1]
    starts = first + np.arange(geometry["rows"]) * geometry["row_pitch"]
    outside = (starts < machine.write_start) | (starts + cols > len(machine.memory))
    bad = outside | (starts < machine.reach.start) | (starts + cols > machine.reach.stop)
    good = int(np.argmax(bad)) if bad.any() else len(starts)
    beats = starts[:good, None] + np.arange(cols)
    if machine.strict:
        machine.hazards.store_writes(index, beats)
    machine.write(index, beats, values[:good])
    if good < len(starts) and not outside[good]:
        machine.check_reach(LimitCode.STORE_LIMIT, index, starts[good:], cols)
    if good < len(starts):
        raise MachineError(ErrorCode.WRITE_RANGE, index,
                           f"writes beats {starts[good]}..{starts[good] + cols - 1}, outside "
                           f"{machine.write_start}..{len(machine.memory) - 1}")
