"""The compute queue: tiles into the accumulators, windows to the store engine."""

import numpy as np

from cores.arch.instruction import Instruction
from cores.arch.isa import ROW_SETTERS, Opcode, Queue, StepKind, WordForm
from cores.arch.numerics import POOL_WIDTH
from cores.arch.rows import RowPass

from ..hazards import Stage
from ..machine import Machine, Steps
from ..storage import entry_places
from ..units import ARRAY_UNITS
from ..units.rows import RowUnit
from ..weights import dense_weights
from ..windows import check_form, multiply_windows
from .accumulator_layout import sum_places

__all__ = ["compute_engine"]

#: float32 holds every integer up to here, so products and sums below it are exact in a matrix product.
_EXACT = 1 << 24
#: Taps that are pooled at once: memory does not grow with the instruction.
_POOLED = 1 << 18


def compute_engine(machine: Machine) -> Steps:
    geometry, rows = None, RowUnit()
    while True:
        index, instruction = yield from machine.fetch(Queue.COMPUTE)
        if instruction.opcode == Opcode.COMPUTE_SET:
            geometry = instruction
        elif instruction.opcode in ROW_SETTERS:
            rows.set(instruction)
        else:
            assert geometry is not None
            if instruction.opcode == Opcode.COMPUTE:
                yield from _compute(machine, index, geometry, instruction)
            elif instruction["row_pass"]:
                yield from _rows(machine, index, geometry, instruction, rows)
            else:
                yield from _pool(machine, index, geometry, instruction)
        machine.post(Queue.COMPUTE, index, instruction, "post_load", Stage.COMPUTED)
        machine.post(Queue.COMPUTE, index, instruction, "post_store", Stage.COMPUTED)
        yield None


def _row_places(machine: Machine, index: int, geometry: Instruction, bases: np.ndarray, kys: np.ndarray,
                kxs: np.ndarray) -> np.ndarray:
    """Where the machine reads: (cols, taps) places in ``machine.input`` of the taps of the first row's output pixels.

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
    machine.check_entries(index, int(entries.max()) + (geometry["rows"] - 1) * geometry["buf_row_step"])
    return (entries + banks * config.input_depth)[:cols]


def _all_rows(geometry: Instruction, places: np.ndarray, rows: range) -> np.ndarray:
    """(rows * cols, taps) places of output ``rows``, from those of the first row."""
    return (np.array(rows)[:, None, None] * geometry["buf_row_step"] + places).reshape(-1, places.shape[1])


def _compute(machine: Machine, index: int, geometry: Instruction, instruction: Instruction) -> Steps:
    """COMPUTE: for block, ky, kx, group: all pixels; as far as the weight ring allows at a time."""
    config, accumulators = machine.config, machine.accumulators
    check_form(machine, index, geometry, instruction)
    kind = StepKind(instruction["kind"])
    rows = geometry["rows"] * (2 if geometry["words"] == WordForm.ALTERNATE else 1)
    places = sum_places(machine, index, geometry, rows, geometry["cols"], instruction["acc_base"])
    multiply, groups = multiply_windows if kind == StepKind.WINDOW else _multiply, instruction["groups"]
    if unit := ARRAY_UNITS.get(kind):
        unit.check(machine, index, geometry, instruction)
    else:
        machine.require(kind.has_indices or groups <= config.groups_dense, index,
                        f"{groups} groups of a dense block of {config.groups_dense}")
    bank = instruction["bank"]
    if machine.strict:
        machine.hazards.compute_writes(index, bank, places, bool(instruction["first"]))
    if instruction["first"]:
        accumulators.sums[bank, places] = 0
    step_beats = config.step_beats(kind)
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


def _multiply(machine: Machine, index: int, geometry: Instruction, instruction: Instruction, first: int,
              steps: np.ndarray, places: np.ndarray) -> None:
    """Add the products of steps ``first``... (uint8 (n, bytes of a step), as streamed) to the accumulators.

    ``places``: (output pixels, groups of output lanes that make one), where their sums are.
    """
    config, groups, bank = machine.config, instruction["groups"], instruction["bank"]
    taps = np.arange(first // groups, (first + len(steps) - 1) // groups + 1)
    block, tap = np.divmod(taps, geometry["kernel_h"] * geometry["kernel_w"])
    ky, kx = np.divmod(tap, geometry["kernel_w"])
    bases = instruction["buf_base"] + block * geometry["buf_block_pitch"]
    inputs = _all_rows(geometry, _row_places(machine, index, geometry, bases, ky, kx), range(geometry["rows"]))
    if machine.strict:
        machine.hazards.compute_reads(index, inputs)
    kind = StepKind(instruction["kind"])
    if unit := ARRAY_UNITS.get(kind):
        unit.multiply(machine, instruction, places, inputs, first % groups, steps)
        return
    weights = dense_weights(config, steps, first % groups, groups, kind)
    # As many taps at a time as keep float32 exact.
    largest = max(1, int(np.abs(weights).max())) * 128 * config.ic_lanes
    many = max(1, _EXACT // largest)
    total = np.zeros((len(inputs), config.oc_lanes), np.int64)
    for begin in range(0, len(taps), many):
        activations = machine.input[inputs[:, begin:begin + many]].astype(np.float32).reshape(len(inputs), -1)
        factors = weights[begin:begin + many].astype(np.float32).reshape(-1, config.oc_lanes)
        total += (activations @ factors).astype(np.int64)
    of_groups = total.reshape(-1, config.oc_groups, config.ic_lanes)
    if geometry["words"] == WordForm.SPREAD:
        of_groups = np.take_along_axis(of_groups, (places % config.oc_groups)[:, :, None], axis=1)
    sums = machine.accumulators.sums
    sums[bank, places] = machine.accumulators.wrap(sums[bank, places] + of_groups)


def _pool(machine: Machine, index: int, geometry: Instruction, instruction: Instruction) -> Steps:
    """POOL: windows of one block after the other, as many pixels at a time as the store engine takes."""
    resume, still_open, maximum = (bool(instruction[name]) for name in ("resume", "open", "maximum"))
    if resume or still_open:
        machine.require(instruction["blocks"] * geometry["rows"] * geometry["cols"] == 1, index,
                        "only a POOL with one window takes a part of it")
    machine.require(resume == (machine.pool_part is not None), index,
                    "resumes no window" if resume else "does not resume the window that is open")
    machine.require(machine.pool_part is None or machine.pool_part[0] == maximum, index,
                    "goes on with a sum as a maximum, or the other way round")
    ky, kx = np.divmod(np.arange(geometry["kernel_h"] * geometry["kernel_w"]), geometry["kernel_w"])
    combine = np.maximum if maximum else np.add
    together = max(1, _POOLED // (geometry["cols"] * len(ky)))
    for block in range(instruction["blocks"]):
        bases = np.full(len(ky), instruction["buf_base"] + block * geometry["buf_block_pitch"])
        row = _row_places(machine, index, geometry, bases, ky, kx)
        for begin in range(0, geometry["rows"], together):
            places = _all_rows(geometry, row, range(begin, min(begin + together, geometry["rows"])))
            while len(places):
                while not machine.pool_demand() and not still_open:
                    yield "a STORE to take pooled pixels"
                many = 1 if still_open else min(machine.pool_demand(), max(1, _POOLED // len(ky)))
                now, places = places[:many], places[many:]
                if machine.strict:
                    machine.hazards.compute_reads(index, now)
                values = combine.reduce(machine.input[now].astype(np.int64), axis=1)
                if machine.pool_part is not None:
                    values = combine(machine.pool_part[1], values)
                machine.pool_part = (maximum, values) if still_open else None
                if not still_open:
                    machine.pool_pixels.append((_wrapped(values), machine.hazards.clocks[Queue.COMPUTE]))
                yield None


def _wrapped(values: np.ndarray) -> np.ndarray:
    """Results as the store engine gets them."""
    half = 1 << POOL_WIDTH - 1
    return (values + half & 2 * half - 1) - half


def _rows(machine: Machine, index: int, geometry: Instruction, instruction: Instruction, unit: RowUnit) -> Steps:
    """POOL of rows: a pass over all channels of each pixel; results as many pixels at a time as the store takes."""
    pixels, blocks = geometry["rows"] * geometry["cols"], instruction["blocks"]
    machine.require(pixels == unit.pixels <= machine.config.rows, index,
                    f"passes over {pixels} pixels; {unit.pixels} are set, and {machine.config.rows} at most")
    machine.require((geometry["kernel_h"], geometry["kernel_w"]) == (1, 1), index, "rows are of single pixels")
    bases = instruction["buf_base"] + np.arange(blocks) * geometry["buf_block_pitch"]
    none = np.zeros_like(bases)
    places = _all_rows(geometry, _row_places(machine, index, geometry, bases, none, none), range(geometry["rows"]))
    if machine.strict:
        machine.hazards.compute_reads(index, places)
    values = machine.input[places.T].swapaxes(-1, -2).reshape(-1, pixels)      # (channels, pixels)
    results = unit.run(RowPass(instruction["row_pass"]), values)
    yield None
    if results is None:
        return
    beats = _wrapped(results).reshape(blocks, -1, pixels).swapaxes(-1, -2).reshape(blocks * pixels, -1)
    while len(beats):
        while not machine.pool_demand():
            yield "a STORE to take pooled pixels"
        now, beats = beats[:machine.pool_demand()], beats[machine.pool_demand():]
        machine.pool_pixels.append((now, machine.hazards.clocks[Queue.COMPUTE]))
        yield None
