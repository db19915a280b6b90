"""What a command works on: a model, or a program compiled from one."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cores.config import NpuConfig
from gen.compiler import (
    CompileError,
    DepthwiseMode,
    FusionMode,
    GatherMode,
    WinogradMode,
    choose_narrow,
    compile_graph,
    narrow_graph,
)
from gen.files.write import is_zip
from gen.ir.graph import Graph
from gen.mapping.pack import prune
from gen.mapping.winograd_calibrate import calibrate
from gen.onnx.importer import Imported, load_model
from gen.program.program import ConflictError, Program, ProgramError
from gen.run.inputs import read_samples

__all__ = ["Workload", "is_program", "open_workload"]


def is_program(path: Path) -> bool:
    """Whether a file is a program, or should be, rather than a model. Raises OSError when it cannot be read."""
    return is_zip(path) or path.suffix == ".npu"


@dataclass(frozen=True, eq=False)
class Workload:
    """A model to run. ``input_shapes`` are the model's own, with 1 for the samples."""

    #: What the program computes: pruned, if a density was asked for, and with narrow Winograd layers.
    graph: Graph
    imported: Imported
    input_shapes: dict[str, tuple[int, ...]]
    _compile: Callable[[], Program]

    @cached_property
    def program(self) -> Program:
        """Compiled when first asked for: the reference does without. Raises CompileError."""
        return self._compile()


def _from_model(imported: Imported, config: NpuConfig, density: float | None, depthwise_mode: DepthwiseMode = "auto",
                fusion_mode: FusionMode = "auto", gather_mode: GatherMode = "auto",
                winograd_mode: WinogradMode = "auto", shifts: Mapping[str, Sequence[int]] | None = None,
                calibration: Path | None = None, board: str | None = None) -> Workload:
    graph = imported.graph if density is None else prune(imported.graph, config, density)
    shapes = {model_input.name: model_input.shape for model_input in imported.model.inputs}
    if winograd_mode == "exact" and config.winograd != 2:
        raise CompileError(f"model {graph.name}: exact Winograd layers need a machine with winograd=2 "
                           f"(--winograd-unit 2), not {config.winograd}")
    if winograd_mode == "narrow":
        shifts = choose_narrow(graph, config, gather_mode)
        if calibration is not None:
            shifts = calibrate(graph, shifts, read_samples(calibration, graph, shapes).inputs)
    if shifts:
        graph = narrow_graph(graph, shifts)

    def compiled() -> Program:
        # The parsed model rather than the file: weights kept in files beside it come along.
        model = imported.model.proto.SerializeToString(deterministic=True)
        program, _ = compile_graph(imported.graph, config, density=density, depthwise_mode=depthwise_mode,
                                   fusion_mode=fusion_mode, gather_mode=gather_mode, winograd_mode=winograd_mode,
                                   winograd_shifts=shifts, model=model)
        return dataclasses.replace(program, board=board)

    return Workload(graph, imported, shapes, compiled)


def open_workload(path: Path, config: NpuConfig | None, *, density: float | None = None,
                  depthwise_mode: DepthwiseMode = "auto", fusion_mode: FusionMode = "auto",
                  gather_mode: GatherMode = "auto", winograd_mode: WinogradMode = "auto",
                  calibration: Path | None = None, board: str | None = None) -> Workload:
    """A model to be compiled for ``config``, on the ``board`` of that name, or a program that was.

    With ``config`` or ``board`` None a program's own is taken. ``density`` and the modes are those of
    `gen.compiler.compile_graph`, for a model; ``calibration`` are samples for narrow Winograd layers.
    Raises GraphError, ProgramError, InputError or OSError; each names the file. ConflictError for a program that is not
    as asked, CompileError for a machine that cannot.
    """
    if not is_program(path):
        if config is None:
            raise ValueError("a model needs a configuration to be compiled for")
        return _from_model(load_model(path), config, density, depthwise_mode, fusion_mode, gather_mode, winograd_mode,
                           None, calibration, board)
    program = Program.load(path)
    if config is not None:
        program.require_config(config)
    if board is not None:
        program.require_board(board)
    if density is not None and density != program.density:
        raise ConflictError(f"{path}: a program cannot be pruned; compile the model with --density {density:g}")
    modes = {"depthwise": depthwise_mode, "fusion": fusion_mode, "gather": gather_mode, "winograd": winograd_mode}
    for option, mode in modes.items():
        if mode != "auto":
            raise ConflictError(f"{path}: a program is what it is; compile the model with --{option} {mode}")
    if program.model is None:
        raise ProgramError(f"{path}: has no model inside to compare with; compile the model again")
    again = _from_model(load_model(path, program.model), program.config, program.density, shifts=program.winograd)
    for names, ends in ((program.inputs, again.graph.inputs), (program.outputs, again.graph.outputs)):
        if names != {name: tensor for name, (tensor, _) in ends.items()}:
            raise ProgramError(f"{path}: damaged (inputs or outputs are not those of the model inside); "
                               "compile it again")
    for name, place in program.tensors.items():
        if name not in again.graph.tensors or again.graph.tensors[name].shape != place.shape:
            raise ProgramError(f"{path}: damaged (tensor {name} is not that of the model inside); compile it again")
    return Workload(again.graph, again.imported, again.input_shapes, lambda: program)
