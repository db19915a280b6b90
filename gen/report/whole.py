"""A report from a model alone: it is measured first."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from boards.board import Board
from boards.clock import Clock
from gen.explore.faster import Faster, faster
from gen.report.document import Report
from gen.report.make import Subject, model_digest, report_of
from gen.report.noise import noise_of
from gen.report.values import answers, beside_onnxruntime
from gen.run.application import Application
from gen.run.counted import read_counted
from gen.run.host_time import host_seconds
from gen.run.measure import measured
from gen.run.report import Measured

__all__ = ["whole_report"]


def whole_report(application: Application, path: Path, *, board: Board, clock: Clock,
                 target: Literal["cycles", "rtl"] = "cycles", memory: Board | None = None, command: str = "",
                 samples: Path | None = None, found: Sequence[Measured] | None = None,
                 helpful: Sequence[Faster] | None = None, counters: Path | None = None,
                 progress: Callable[[str], None] = lambda text: None) -> Report:
    """The document of a page.

    Args:
        application: the model on its machine.
        path: its file.
        board: whose device the machine is held against.
        clock: the machine's.
        target: what measures it, the time model or the Verilog.
        memory: None for an ideal one.
        command: how to make the report again.
        found: what that has measured already; it is measured here without.
        samples: for the noise of each layer, and the answers if they have labels; random ones without.
        counters: of a run on a device, as `gen.run.counted` wrote them, to be drawn beside what is measured here.
        helpful: units that would make it faster, if they are known already.
        progress: hears what is done.

    Raises CompileError, MachineError, ToolError; InputError and OSError for ``samples``, CountedError and OSError for
    ``counters``.
    """
    run = None
    if counters is not None:
        config = application.workloads[0].program.config
        run = read_counted(counters, config.digest, model_digest(path))
    if found is None:
        progress("measuring")
        found = measured(application, target, clock.mhz, memory, progress)
    seconds: list[float] = []
    if len(application.segments) > len(found):
        progress("the processor's part")
        seconds = host_seconds(application, progress)
    progress("noise of each layer")
    noise, words = noise_of(application, samples)
    progress("values beside onnxruntime's")
    values, found_there = beside_onnxruntime(application)
    right = answers(application, samples)
    if helpful is None and not application.chosen:      # of which all have been tried
        helpful = faster(application, board, memory=memory, mhz=clock.mhz, progress=progress)
    progress("putting the report together")
    return report_of(Subject(
        application=application, path=path, measured=found, host_seconds=seconds, target=target, board=board,
        clock=clock, memory=memory, command=command, noise=noise, noise_words=words, faster=helpful or (),
        counted=run, onnxruntime=values, onnxruntime_words=found_there, answers=right,
        host={} if application.partition is None else dict(application.partition.host)))
