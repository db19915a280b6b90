"""Depthwise windows (docs/architecture.md, "Spread words"): what a COMPUTE of windows reads and adds."""

import numpy as np

from cores.arch.instruction import Instruction
from cores.arch.isa import StepKind, WordForm

from .errors import HazardError
from .machine import Machine
from .weights import step_lanes

__all__ = ["check_form", "multiply_windows"]


def check_form(machine: Machine, index: int, geometry: Instruction, instruction: Instruction) -> None:
    """Raise HazardError for a COMPUTE whose fields have no meaning together."""
    config = machine.config
    window, alternate = instruction["kind"] == StepKind.WINDOW, geometry["words"] == WordForm.ALTERNATE
    words = -(-geometry["cols"] // config.word_columns(spread=geometry["words"] == WordForm.SPREAD))
    one_block = (instruction["blocks"], instruction["groups"]) == (1, 1)
    for wrong, message in [
        (alternate and not window, "rows alternate that are no windows"),
        (geometry["shift"] and not alternate, "it has shift, and its rows do not alternate"),
        (window and geometry["words"] == WordForm.PIXELS, "a window's words are spread, or alternate"),
        (window and not one_block, "a window has one block and one group"),
        (window and not config.own_taps and geometry["stride"] != 1, "a window has stride 1"),
        (window and geometry["reads"] < words, f"{geometry['reads']} reads make {words} words"),
    ]:
        if wrong:
            raise HazardError(index, message)


def multiply_windows(machine: Machine, index: int, geometry: Instruction, instruction: Instruction, first: int,
                     steps: np.ndarray, places: np.ndarray) -> None:
    """Add the products of steps ``first``... (uint8 (n, bytes of a step), as streamed) to the accumulators.

    ``places``: (output pixels, 1), where their sums are. A tap whose weights are all zero is not looked at.
    """
    config, bank, stride = machine.config, instruction["bank"], geometry["stride"]
    rows, cols, reads = (geometry[name] for name in ("rows", "cols", "reads"))
    alternate = geometry["words"] == WordForm.ALTERNATE
    weights = step_lanes(config, steps, StepKind.WINDOW)[0].astype(np.int64)
    weights = weights.reshape(len(steps), config.oc_groups, config.ic_lanes, config.nnz_lanes)
    outputs = np.arange(cols)
    sums = machine.accumulators.sums[bank]
    for number, of_step in enumerate(weights, start=first):
        ky, part = divmod(number, geometry["kernel_w"])
        part, phase = divmod(part, stride)
        shifted = bool(geometry["shift"]) and ky == 0
        lines = (instruction["buf_base"] + ky * geometry["buf_row_pitch"]
                 + part * (config.window_taps // config.banks) * stride + phase
                 + np.arange(rows + shifted) * geometry["buf_row_step"])
        machine.check_entries(index, int(lines[-1]) + (reads - 1) * stride)
        for group, of_group in enumerate(of_step):
            lanes = np.flatnonzero(of_group.any(axis=0))
            if (lanes >= config.window_taps).any():
                raise HazardError(index, f"a window has weights in lanes from {config.window_taps} on, without taps")
            if alternate:
                own = places.reshape(rows, 2, cols)[:, group]
                columns = 2 * outputs[:, None] + lanes
            else:
                mine = outputs // config.pixel_lanes % config.oc_groups == group
                own = places.reshape(rows, cols)[:, mine]
                columns = outputs[mine, None] + lanes
            if not columns.size:
                continue
            if columns.max() >= reads * config.banks:
                raise HazardError(index, f"{reads} reads end before the taps of the last column")
            # With ``shift`` the upper group works for the row above.
            begin = int(shifted and group == 1)
            entries = (lines[begin:begin + rows, None, None] + columns // config.banks * stride
                       + columns % config.banks * config.input_depth)
            if machine.strict:
                # Whether the last pair's second row is stored, the COMPUTE does not know.
                sure = rows - int(bool(alternate) and group == 1)
                machine.hazards.compute_reads(index, entries[:sure])
                machine.hazards.compute_may_read(index, entries[sure:], bank, own[sure:])
            sums[own] += np.einsum("rcjn,nj->rcn", machine.input[entries].astype(np.int64), of_group[:, lanes])
    sums[places] = machine.accumulators.wrap(sums[places])
