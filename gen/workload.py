"""What a command works on: a model, or a program compiled from one."""

import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from cores.config import NpuConfig
from gen.compiler import compile_graph
from gen.ir import Graph
from gen.onnx_import import Imported, load_model
from gen.program import Program, ProgramError

__all__ = ["Workload", "open_workload"]


@dataclass(frozen=True, eq=False)
class Workload:
    """``graph`` is what ``program`` computes. ``input_shapes`` are the model's own, with 1 for the samples."""

    graph: Graph
    program: Program
    input_shapes: dict[str, tuple[int, ...]]


def _from_model(imported: Imported, config: NpuConfig, density: float | None) -> Workload:
    # The parsed model rather than the file: weights kept in files beside it come along.
    model = imported.model.proto.SerializeToString(deterministic=True)
    program, graph = compile_graph(imported.graph, config, density=density, model=model)
    return Workload(graph, program, {model_input.name: model_input.shape for model_input in imported.model.inputs})


def open_workload(path: Path, config: NpuConfig | None, *, density: float | None = None) -> Workload:
    """Compile an ONNX model for ``config``, or open a program that was compiled for it.

    With ``config`` None a program's own configuration is taken. ``density`` is for models only.
    Raises GraphError, CompileError or ProgramError, in one line that names the file.
    """
    if not zipfile.is_zipfile(path):
        if config is None:
            raise ValueError("a model needs a configuration to be compiled for")
        return _from_model(load_model(path), config, density)
    program = Program.load(path)
    if config is not None:
        program.require_config(config)
    if density is not None and density != program.density:
        raise ProgramError(f"{path}: a program cannot be pruned any more; compile the model with --density {density:g}")
    if program.model is None:
        raise ProgramError(f"{path}: has no model inside, so there is nothing to compare with; compile it with `gen compile`")
    with tempfile.TemporaryDirectory(prefix="npugen-") as folder:
        model = Path(folder) / f"{program.name}.onnx"
        model.write_bytes(program.model)
        again = _from_model(load_model(model), program.config, program.density)
    if (again.program.code, again.program.constants) != (program.code, program.constants):
        raise ProgramError(f"{path}: its model now compiles to another program; compile it again")
    return Workload(again.graph, program, again.input_shapes)
