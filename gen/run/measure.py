"""What a model takes on a machine, instruction by instruction."""

from collections.abc import Callable
from typing import Literal

from boards.board import Board
from gen.run.application import Application
from gen.run.inputs import zero_samples
from gen.run.memory import bus_of
from gen.run.report import Measured
from gen.run.runner import run_model
from sim import cycles
from sim.rtl.machine import RtlMachine

__all__ = ["measured"]


def measured(application: Application, target: Literal["cycles", "rtl"], mhz: float, memory: Board | None,
             progress: Callable[[str], None] = lambda text: None) -> list[Measured]:
    """What happens when in each segment of the accelerator, in one inference.

    ``target``: the time model, or the Verilog; ``mhz``: the machine's clock, for ``memory``, None for an ideal one.
    ``progress`` hears the segment or the cycles that are done. Raises CompileError, MachineError, ToolError.
    """
    programs = [workload.program for workload in application.workloads]
    bus = bus_of(memory, programs[0].config, mhz)
    if target == "cycles":
        timings = []
        for name, workload in application.named_workloads:
            progress(name)
            program = workload.program
            timings.append(cycles.estimate(program.config, program.code, dram=bus.dram))
        return [Measured(program, timing, timing.cycles)
                for program, timing in zip(programs, timings, strict=True)]
    progress("building the simulation (once, a minute or two)")
    with RtlMachine(programs[0].config, bus=bus) as machine:
        # The time does not depend on the values.
        result = run_model(application, zero_samples(application.inputs), "rtl", machine=machine,
                           progress=lambda _, present: progress(present))
    return [Measured(program, rtl.trace, rtl.cycles)
            for program, rtl in zip(programs, result.inferences[0].rtl, strict=True)]
