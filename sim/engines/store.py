"""The store queue: sums, requantised, to memory or to the input buffer."""

from collections.abc import Generator

import numpy as np

from cores.arch.error_codes import ErrorCode
from cores.arch.instruction import Instruction
from cores.arch.isa import Opcode, Queue
from cores.arch.numerics import FACTOR_BITS, MAX_SHIFT, MIN_SHIFT, PARAMETER_BYTES, TABLE_BYTES

from .. import golden
from ..errors import HazardError, MachineError
from ..hazards import Stage
from ..machine import Machine, Steps
from ..signs import pack_map
from ..storage import entry_places
from ..table import unpack_table
from ..winograd import tile_places
from .sums import sum_places

__all__ = ["store_engine"]


def store_engine(machine: Machine) -> Steps:
    geometry = second = None
    table = used = None     # the one that is there; the one that results are looked up in
    while True:
        index, instruction = yield from machine.fetch(Queue.STORE)
        match instruction.opcode:
            case Opcode.STORE_SET:
                geometry = instruction
            case Opcode.STORE_ADD:
                second = instruction
            case Opcode.STORE_TABLE:
                if instruction["load"]:
                    beats = yield from _take_side(machine, TABLE_BYTES // machine.config.beat_bytes, "a table")
                    table = unpack_table(beats)
                if instruction["use"] and table is None:
                    raise HazardError(index, "it looks up in a table that was never loaded")
                used = table if instruction["use"] else None
            case _:
                assert geometry is not None
                if geometry["add"] and second is None:
                    raise HazardError(index, "no STORE_ADD is in front of it")
                yield from _store(machine, index, geometry, second, instruction, used)
                local = bool(geometry["local"])
                machine.require(not (local and instruction["post_load"]), index, "a local STORE has no post_load")
                # STOREs finish in order: a STORE_SET, which changes their kind, waits for those before it.
                machine.post(Queue.STORE, index, instruction, "post_compute", Stage.READ, Stage.KEPT)
                if not local:
                    machine.post(Queue.STORE, index, instruction, "post_load", Stage.READ, Stage.KEPT, Stage.WRITTEN)
        yield None


def _store(machine: Machine, index: int, geometry: Instruction, second: Instruction | None,
           instruction: Instruction, table: np.ndarray | None) -> Steps:
    """STORE: for each block its parameters, then its pixels with their residual beats. ``table``: that of its results.

    With ``repeats`` neighbouring columns have the same sums.
    """
    config, accumulators = machine.config, machine.accumulators
    rows, bank = geometry["rows"], instruction["bank"]
    columns = np.arange(geometry["cols"]) // (1 + instruction["repeats"])
    cols, count = int(columns[-1]) + 1, rows * len(columns)
    if geometry["local"] and geometry["binary"]:
        raise HazardError(index, "signs are not stored to the input buffer")
    if table is not None and geometry["binary"]:
        raise HazardError(index, "signs are not looked up")
    if geometry["winograd"] and instruction["pooled"]:
        raise HazardError(index, "pooled pixels are not sums of tiles")
    if not instruction["pooled"]:
        held = 1 if geometry["spread"] or geometry["alternate"] else config.oc_groups
        if instruction["blocks"] > held:
            raise MachineError(ErrorCode.BUFFER, index, f"{instruction['blocks']} blocks of a bank of {held}")
        if geometry["winograd"]:
            places, signs = tile_places(machine, index, geometry, cols)
        else:
            places, signs = sum_places(machine, index, geometry, rows, cols), None
    adds = bool(geometry["add"]) and second is not None and not second["bend"]
    common = second is not None and bool(second["broadcast"])
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
        values = _requantize(machine, index, geometry, second, parameters, sums, residual)
        if table is not None:
            values = golden.look_up(values, table)
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
    """Pixels of the pool unit, each with the residual beats of its columns if ``add``; returns both, or None.

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


def _requantize(machine: Machine, index: int, geometry: Instruction, second: Instruction | None,
                parameters: np.ndarray, sums: np.ndarray, residual: np.ndarray | None) -> np.ndarray:
    """(rows, cols, tn) int8 of ``sums`` (rows * cols, tn)."""
    words = np.ascontiguousarray(parameters).reshape(-1).view("<u4").reshape(-1, 2)
    bias, multiplier, shift = words[:, 0].view("<i4").astype(np.int64), words[:, 1] & 0x1FFFF, words[:, 1] >> 24 & 0x3F
    shape = (-1, geometry["rows"], geometry["cols"])
    if machine.strict:
        half = 1 << machine.config.acc_width - 1
        biased = sums + bias
        machine.require(-half <= biased.min() and biased.max() < half, index, "an accumulator overflows with its bias")
        stages = [geometry, second] if geometry["add"] and second else [geometry]
        machine.require(all(stage["low"] <= stage["high"] for stage in stages), index,
                        "a clip's bounds are not in order")
        machine.require(bool(geometry["add"]) or -128 <= geometry["low"] and geometry["high"] <= 127, index,
                        "clip bounds beyond int8 are for a result that has a second stage")
        shifts = [*shift, second["shift"]] if geometry["add"] and second else shift
        if geometry["add"] and second and second["product"]:
            machine.require(not second["bend"] and _fits_product(second), index,
                            f"a product has no bend, and factors of {FACTOR_BITS} bits")
        machine.require(MIN_SHIFT <= min(shifts) and max(shifts) <= MAX_SHIFT, index,
                        f"shifts must be in {MIN_SHIFT}..{MAX_SHIFT}")
    # A shift below MIN_SHIFT has no meaning; the golden model still needs one it can compute.
    values = golden.requantize(sums.T.reshape(shape), bias, multiplier, np.maximum(shift, 1),
                               geometry["zero_point"], geometry["low"], geometry["high"])
    if geometry["add"] and second:
        factors = second["multiplier_a"], second["multiplier_b"]
        last = max(second["shift"], 1), second["zero_point"], second["low"], second["high"]
        if residual is None:
            values = golden.bend(values, *factors, *last)
        else:
            other = residual.view(np.int8).T.reshape(-1, 1, 1) if second["broadcast"] else (
                residual.view(np.int8).T.reshape(shape))
            if second["product"]:
                values = golden.product(values, other, factors[1], second["constant"], *last)
                return values.astype(np.int8).transpose(1, 2, 0)
            values = golden.residual_add(values, other, *factors, second["constant"], *last)
    return values.astype(np.int8).transpose(1, 2, 0)


def _fits_product(second: Instruction) -> bool:
    """Whether every factor that a STORE_ADD with ``product`` makes of an int8 value has FACTOR_BITS."""
    limit = 1 << FACTOR_BITS - 1
    return all(-limit <= value * second["multiplier_b"] - second["constant"] < limit for value in (-128, 127))


def _keep_rows(machine: Machine, index: int, geometry: Instruction, first: int, values: np.ndarray) -> None:
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
    machine.put(index, places, values)


def _write_rows(machine: Machine, index: int, geometry: Instruction, first: int, values: np.ndarray) -> None:
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
    machine.write(index, beats, values[:good])
    if good < len(starts):
        raise MachineError(ErrorCode.WRITE_RANGE, index,
                           f"writes beats {starts[good]}..{starts[good] + cols - 1}, outside "
                           f"{machine.write_start}..{len(machine.memory) - 1}")
