"""What a command works on: a model, or a program compiled from one."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from cores.config import NpuConfig
from gen.compiler import MappedGraph, generate, map_graph, of_all_samples, prepare, require_room, zeros_between_taps
from gen.files.read import is_zip
from gen.ir.errors import UnfitError
from gen.ir.graph import Graph
from gen.onnx.importer import Imported, load_model
from gen.onnx.machine import Machine
from gen.options import CompileOptions
from gen.partition.unfit import UnfitNodesError
from gen.passes.batch import of_sample, without_samples
from gen.program.file import load_program
from gen.program.program import ConflictError, Program, ProgramError
from gen.run.inputs import InputSpec, input_specs, model_specs, read_samples

__all__ = ["Workload", "is_program", "of_model", "of_program", "open_workload", "winograd_inputs"]


def is_program(path: Path) -> bool:
    """Whether a file is a program, or should be, rather than a model. Raises OSError when it cannot be read."""
    return is_zip(path) or path.suffix == ".npu"


@dataclass(frozen=True, eq=False)
class Workload:
    """A model to run. ``input_shapes`` are the model's own, with 1 for the samples."""

    #: What the program computes of a sample: pruned, if a density was asked for, and with narrow Winograd layers and
    #: streams.
    graph: Graph
    imported: Imported
    input_shapes: dict[str, tuple[int, ...]]
    config: NpuConfig
    options: CompileOptions
    board: str | None = None
    #: What the graph was compiled to, where that was done before.
    compiled: Program | None = None

    @property
    def batch(self) -> int:
        """Samples of a run."""
        return self.options.batch

    @cached_property
    def whole(self) -> Graph:
        """The graph of all samples of a run."""
        return of_all_samples(self.graph, self.config, self.options)

    @property
    def segments(self) -> "tuple[Workload]":
        """All of it runs on the accelerator; see `gen.run.application`."""
        return (self,)

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(self.graph.outputs)

    @property
    def inputs(self) -> dict[str, InputSpec]:
        """What the model's inputs take."""
        return input_specs(self.graph, self.input_shapes)

    @cached_property
    def mapped(self) -> MappedGraph:
        """The graph as the machine computes it. Raises UnfitError for layers that it cannot."""
        return map_graph(self.whole, self.config, self.options)

    @cached_property
    def multiplied_zeros(self) -> str:
        """For people: layers with columns of zeros that the machine multiplies, too; "" without any."""
        return zeros_between_taps(layer for step in self.mapped.steps for layer in step.layers)

    @cached_property
    def program(self) -> Program:
        """Compiled when first asked for: the reference does without. Raises CompileError."""
        if self.compiled is not None:
            return self.compiled
        # The parsed model rather than the file: weights kept in files beside it come along.
        model = self.imported.model.proto.SerializeToString(deterministic=True)
        shapes = self.input_shapes if self.batch == 1 else {
            of_sample(name, n): shape for name, shape in self.input_shapes.items() for n in range(self.batch)}
        program = generate(self.whole, self.config, self.options, model=model, mapped=self.mapped, shapes=shapes)
        _ = self.multiplied_zeros       # kept, as it is of the mapping
        self.__dict__.pop("mapped")     # it holds the packed weights, as the program does
        return dataclasses.replace(program, board=self.board)

    def require_fit(self) -> None:
        """Raises UnfitNodesError for what the machine cannot compute of the graph; a program fits."""
        if self.compiled is not None:
            return
        try:
            require_room(self.mapped, keep_all=self.options.keep_all)
        except UnfitError as error:
            raise UnfitNodesError(error, self.graph, self.imported.model) from None


def of_model(imported: Imported, config: NpuConfig, options: CompileOptions, *,
             samples: Mapping[str, np.ndarray] | None = None, board: str | None = None) -> Workload:
    """As `open_workload`, of a model that has been imported.

    ``samples`` (model input -> (N, ...)) choose the shifts of narrow Winograd layers. Raises UnfitNodesError.
    """
    shapes = {model_input.name: model_input.shape for model_input in imported.model.inputs}
    try:
        graph = prepare(imported.graph, config, options, samples)
    except UnfitError as error:
        raise UnfitNodesError(error, imported.graph, imported.model) from None
    return Workload(graph, imported, shapes, config, options, board)


def winograd_inputs(imported: Imported, samples: Path | None) -> dict[str, np.ndarray] | None:
    """The arrays in a file of ``samples`` for the inputs of a model. Raises InputError or OSError."""
    return None if samples is None else read_samples(samples, model_specs(imported.model.inputs)).inputs


def open_workload(path: Path, config: NpuConfig | None, options: CompileOptions | None = None, *,
                  content: bytes | None = None, board: str | None = None) -> Workload:
    """A model to be compiled for ``config``, on the ``board`` of that name, or a program that was.

    With ``config`` or ``board`` None a program's own is taken. ``content`` is a model in place of the one at ``path``,
    which names it. ``options`` are for a model, which the accelerator has to take as a whole
    (`gen.run.application.open_application` takes any).

    Raises GraphError, ProgramError, InputError or OSError; each names the file. ConflictError for a program that is not
    as asked, CompileError for a machine that cannot.
    """
    options = options or CompileOptions()
    if content is None and is_program(path):
        return of_program(path, load_program(path), config, options, board=board)
    if config is None:
        raise ValueError("a model needs a configuration to be compiled for")
    imported = load_model(path, content, shapes=options.shapes, machine=Machine.of(config))
    return of_model(imported, config, options, board=board)


def of_program(path: Path, program: Program, config: NpuConfig | None, options: CompileOptions, *,
               board: str | None = None) -> Workload:
    """As `open_workload`, of a program that is in the file at ``path``."""
    if config is not None:
        program.require_config(config)
    if board is not None:
        program.require_board(board)
    _require_options(path, program, options)
    if program.model is None:
        raise ProgramError(f"{path}: has no model inside to compare with; compile the model again",
                           code="no-model-inside")
    again = of_model(load_model(path, program.model, machine=Machine.of(program.config)), program.config,
                     CompileOptions(density=program.density, batch=program.batch,
                                    winograd_shifts=without_samples(program.winograd, program.batch),
                                    stochastic=without_samples(program.streams, program.batch) or None))
    for names, ends in ((program.inputs, again.whole.inputs), (program.outputs, again.whole.outputs)):
        if names != {name: tensor for name, (tensor, _) in ends.items()}:
            raise ProgramError(f"{path}: damaged (inputs or outputs are not those of the model inside); "
                               "compile it again")
    for name, place in program.tensors.items():
        if name not in again.whole.tensors or again.whole.tensors[name].shape != place.shape:
            raise ProgramError(f"{path}: damaged (tensor {name} is not that of the model inside); compile it again")
    return dataclasses.replace(again, compiled=program)


def _require_options(path: Path, program: Program, options: CompileOptions) -> None:
    """Raises ConflictError if a program is asked for what only the compiler can do."""
    if options.density is not None and options.density != program.density:
        raise ConflictError(f"{path}: a program cannot be pruned; compile the model with --density {options.density:g}")
    for field in dataclasses.fields(options):
        if field.default == "auto" and (mode := getattr(options, field.name)) != "auto":
            raise ConflictError(f"{path}: a program is what it is; compile the model with --{field.name} {mode}")
    if options.stochastic is not None:
        raise ConflictError(f"{path}: a program is what it is; compile the model with --stochastic")
    if options.keep_all:
        raise ConflictError(f"{path}: a program is what it is; compile the model with --keep-all")
    if options.batch not in (1, program.batch):
        raise ConflictError(f"{path}: a program is what it is; compile the model with --batch {options.batch}")
    if options.shapes:
        raise ConflictError(f"{path}: a program is what it is; compile the model with --shape")
