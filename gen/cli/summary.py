"""What people ask first of a compiled model: does it all run on the machine, how fast, how exact, what would help."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from boards.board import Board
from gen.cli.common import messages, status

if TYPE_CHECKING:
    from gen.explore.faster import Faster
    from gen.run.application import Application

__all__ = ["helpful_units", "say_accuracy", "say_speed", "say_work", "speed_of", "work_of"]

#: The share of the time from which on lanes without work, and layers of no node of the model, are worth a word.
_MUCH, _SOME = 0.2, 0.05
#: Multiplications issued for each of the model's from which on they are worth a word.
_MANY_SLOTS = 1.2
#: Instructions of a program that takes few seconds to be timed on another machine.
_QUICK = 50_000


def work_of(application: "Application") -> dict[str, Any]:
    """`gen.partition.work.Work` as a mapping, ``nodes`` None where all are on the accelerator; with ``segments``."""
    if application.partition is not None:
        from gen.partition.work import Work

        return {**dataclasses.asdict(Work.of(application.partition)), "segments": application.partition.subgraphs}
    added = _added(application)
    macs = sum(layer.macs for workload in application.workloads for layer in workload.program.layers
               if layer.name not in added)
    return {"multiplications": macs, "nodes": None, "accelerated_multiplications": macs, "accelerated_nodes": None,
            "segments": len(application.workloads)}


def _added(application: "Application") -> set[str]:
    """The layers that stand for no node of the model."""
    return {layer.name for workload in application.workloads for layer in workload.whole.layers if not layer.onnx_nodes}


def say_work(work: dict[str, Any]) -> None:
    segments = f"{work['segments']} segment{'' if work['segments'] == 1 else 's'}"
    if work["nodes"] is None:
        messages.print(f"on the accelerator: the whole model, {_large(work['multiplications'])} multiplications, "
                       f"{segments}", soft_wrap=True)
    else:
        messages.print(f"on the accelerator: {_large(work['accelerated_multiplications'])} of "
                       f"{_large(work['multiplications'])} multiplications and {work['accelerated_nodes']:,} of "
                       f"{work['nodes']:,} nodes, {segments}", soft_wrap=True)


def _large(count: int) -> str:
    return next((f"{count / unit:.3g} {name}" for unit, name in ((1e9, "G"), (1e6, "M")) if count >= unit),
                f"{count:,}")


def speed_of(application: "Application", board: Board) -> dict[str, Any]:
    """Totals of the profile, by the time model on ideal memory; with the ``clock`` in words, and the cycles of layers
    ``added`` by the compiler, which move values, repeat them or turn their signs.
    """
    from gen.hw.clock import clock_of
    from gen.run.report import Measured, profile_of
    from sim import cycles

    programs = [workload.program for workload in application.workloads]
    with status("timing"):
        timings = [cycles.estimate(program.config, program.code) for program in programs]
    clock = clock_of(board, programs[0].config)
    profile = profile_of([Measured(program, timing, timing.cycles)
                          for program, timing in zip(programs, timings, strict=True)], clock)
    added = _added(application)
    return {**profile["total"], "clock": str(clock),
            "added": sum(layer["cycles"] for layer in profile["layers"] if layer["name"] in added)}


def helpful_units(application: "Application", board: Board, speed: dict[str, Any]) -> list["Faster"]:
    """By trial on the time model, where lanes have much time without work; those that save most first."""
    instructions = sum(len(workload.program.instruction_layers) for workload in application.workloads)
    if speed["idle_lanes"] <= _MUCH * speed["cycles"] or instructions > _QUICK:
        return []
    from gen.explore.faster import faster

    with status("units that would help") as remark:
        return faster(application, board, progress=remark)


def say_speed(speed: dict[str, Any], board: str, *, choosable: bool, helpful: Sequence["Faster"]) -> None:
    """``board``: whose clock that is; ``choosable``: whether the user has left the machine's units open, of which some
    are ``helpful``.
    """
    idle = speed["idle_lanes"] / speed["cycles"]
    batch = (f" for a batch of {speed['batch']}, {speed['cycles_per_sample']:,.0f} a sample"
             if speed["batch"] > 1 else "")
    messages.print(f"speed: {speed['cycles']:,} cycles by the time model on ideal memory{batch}, "
                   f"{100 * speed['utilisation']:.0f} % of the multipliers: {speed['fps']:,.0f} inferences a second of "
                   f"the accelerator at {speed['clock']} ({board})", soft_wrap=True)
    if (speed["slots_per_mac"] or 0) > _MANY_SLOTS:
        messages.print(f"{speed['slots_per_mac']:.2f} multiplications are issued for each of the model's, "
                       f"{speed['slots_per_lane_mac']:.2f} with channels rounded up to lanes; `profile` has each "
                       "layer's", soft_wrap=True)
    added = speed["added"] / speed["cycles"]
    if added > _SOME:
        messages.print(f"{100 * added:.0f} % of the cycles are layers that the compiler adds to move values, repeat "
                       "them or turn their signs; `profile` has them by name", soft_wrap=True)
    if choosable and idle > _MUCH:
        messages.print(f"lanes have no work {100 * idle:.0f} % of the time; --features auto finds units that help",
                       soft_wrap=True)
    for one in helpful:
        messages.print(f"  with {one}", soft_wrap=True)


def say_accuracy(check: dict[str, Any]) -> None:
    """Of a comparison that found nothing to warn of."""
    layers = check["layers"]
    off = sum(layer["differing"] > 0 for layer in layers)
    what = "as onnxruntime has it" if not off else (
        f"{off} of {len(layers)} layers differ from onnxruntime, by {check['largest']} at most, as rounding explains")
    messages.print(f"values: {what}, on a random sample", soft_wrap=True)
