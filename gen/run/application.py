"""What a command works on: a model or a program, wholly on the accelerator or in segments."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from pathlib import Path

import numpy as np

from cores.config import NpuConfig
from cores.errors import Reason
from gen.ir import reference
from gen.ir.errors import CompileError, GraphError
from gen.ir.graph import MAX_VALUES
from gen.onnx.importer import import_model
from gen.onnx.machine import Machine
from gen.onnx.model import Model
from gen.onnx.read import open_model
from gen.onnx.runtime import OnnxruntimeError
from gen.options import CompileOptions
from gen.partition.advice import of_float_model
from gen.partition.limits import require_bounded
from gen.partition.partition import Partition, called, partition
from gen.partition.settle import require_taken
from gen.partition.unfit import UnfitNodesError
from gen.passes.batch import names_of
from gen.passes.streams import of_segment, require_streams
from gen.program.file import ProgramFile
from gen.program.program import ConflictError, Program, ProgramError
from gen.run.calibration import Calibrated, Calibration, FloatModelError, SampledRanges, calibrated
from gen.run.host import HostSegment
from gen.run.inputs import InputSpec, model_specs, read_samples
from gen.run.workload import Workload, is_program, of_model, of_program, winograd_inputs

__all__ = ["Application", "HostOptions", "of_partition", "open_application"]


@dataclass(frozen=True, kw_only=True)
class HostOptions:
    """What is left to the processor of a model."""

    #: Whether anything may be.
    allowed: bool = True
    #: Whether results are quantised so that less is (`gen.partition.reconstruct`).
    rebuild: bool = True
    #: Nodes that are in any case -> why.
    leave: Mapping[str, Reason] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Application:
    """The model ``name``; its ``segments`` in the order in which they run. ``partition``: how it was cut, if it was,
    just now.
    """

    name: str
    segments: Sequence[Workload | HostSegment]
    inputs: Mapping[str, InputSpec]
    outputs: Sequence[str]
    partition: Partition | None = None
    #: Of the samples that a float model was quantised on, and of what is not as a model says, for people.
    remarks: Sequence[str] = ()
    #: Cuts the model, if that was cut, for another machine. Raises GraphError.
    cut_again: Callable[[Machine], Partition] | None = None
    #: What of the machine was chosen for the model: its ``units``, the whole ``machine``, or nothing that is known.
    chosen: str = ""

    @property
    def batch(self) -> int:
        """Samples of a run."""
        return self.workloads[0].batch

    @property
    def workloads(self) -> list[Workload]:
        """What runs on the accelerator."""
        return [segment for segment in self.segments if isinstance(segment, Workload)]

    @property
    def named_workloads(self) -> list[tuple[str, Workload]]:
        """Each with what it is called while something is done with it, "" where it is all of the model."""
        count = len(self.segments)
        return [(called(number, count), segment) for number, segment in enumerate(self.segments)
                if isinstance(segment, Workload)]

    def programs(self, progress: Callable[[str], None] = lambda text: None) -> list[Program]:
        """Of the workloads; compiled, if they were not before. ``progress`` hears which. Raises CompileError."""
        found = []
        for name, workload in self.named_workloads:
            progress(f"lowering {name}".rstrip())
            found.append(workload.program)
        return found

    @property
    def file(self) -> ProgramFile:
        """What there is to be kept of it. Raises CompileError."""
        contents = [segment.program if isinstance(segment, Workload) else segment.model for segment in self.segments]
        names = partial(names_of, samples=self.batch)
        return ProgramFile(
            name=self.name, board=self.workloads[0].board, segments=contents,
            outputs=[own for name in self.outputs for own in names(name)],
            inputs={own: (spec.dtype.name, list(spec.shape[1:])) for name, spec in self.inputs.items()
                    for own in names(name)})

    def save(self, path: Path) -> None:
        """Write the program. Raises ProgramError, CompileError."""
        self.file.save(path)


def open_application(path: Path, config: NpuConfig | None, options: CompileOptions | None = None, *,
                     content: bytes | None = None, calibration: Calibration | None = None,
                     winograd_samples: Path | None = None, board: str | None = None,
                     host: HostOptions | None = None,
                     progress: Callable[[str], None] = lambda text: None) -> Application:
    """As `gen.run.workload.open_workload`; what the accelerator does not take of a model is left to the processor.

    That is what the importer refuses, and what turns out later to be more than the machine can compute. Each round
    leaves all of it that it finds to the processor, so there is seldom a second one.

    ``content`` is a quantised model in place of the one at ``path``, which names it; ``calibration`` does not go with
    it. ``calibration`` quantises a float model. Of a model that is quantised in part it adds the ranges without which
    layers would leave the accelerator. ``progress`` hears what is done.

    Raises FloatModelError where the calibration cannot do so, or has nothing to do; UnfitNodesError where nothing would
    be left for the accelerator.
    """
    options, host = options or CompileOptions(), host or HostOptions()
    if content is None and is_program(path):
        if calibration is not None:
            raise ConflictError(f"{path}: a program is quantised already; --calibrate goes with a float model")
        return _of_program(path, config, options, host, board=board)
    if config is None:
        raise ValueError("a model needs a configuration to be compiled for")
    source = None if calibration is None else calibrated(path, calibration, options.shapes)
    progress("importing")
    model = open_model(path, content if source is None else source.content, options.shapes)
    refused: UnfitNodesError | None = None
    while True:
        try:
            application = _of_model(path, model, config, options, source, host, winograd_samples=winograd_samples,
                                    board=board, progress=progress)
            found, first = _unfit(application, progress)
        except UnfitNodesError as error:
            found, first = error.reasons, error
        except GraphError:
            if refused is not None:
                raise refused from None
            raise
        if first is None:
            return application
        if not host.allowed or found.keys() <= host.leave.keys():
            raise first
        refused, host = refused or first, replace(host, leave={**found, **host.leave})


def _unfit(application: Application,
           progress: Callable[[str], None]) -> tuple[dict[str, Reason], UnfitNodesError | None]:
    """The nodes on the accelerator that turn out to be too much for it, and the first error that says so."""
    found: dict[str, Reason] = {}
    first: UnfitNodesError | None = None
    for name, workload in application.named_workloads:
        progress(f"mapping {name}".rstrip())
        try:
            workload.require_fit()
        except UnfitNodesError as error:
            found |= error.reasons
            first = first or error
    return found, first


def _of_model(path: Path, model: Model, config: NpuConfig, options: CompileOptions,
              source: Calibrated | SampledRanges | None, host: HostOptions, *, winograd_samples: Path | None,
              board: str | None, progress: Callable[[str], None]) -> Application:
    """A model, without what ``host`` leaves to the processor; ``source``: what samples have made of it."""
    remarks = () if source is None else source.remarks
    ranges = source if isinstance(source, SampledRanges) else None
    machine = Machine.of(config)
    if host.allowed:
        cut_for = partial(partition, model, rebuild=host.rebuild, ranges=ranges, leave=host.leave)
        cut = cut_for(machine=machine, progress=progress)
        cut = of_float_model(cut) if isinstance(source, Calibrated) else cut
        imported = cut.whole
    else:
        imported = import_model(model, machine)
    if imported is not None:
        if ranges is not None:
            raise FloatModelError(f"{path}: the model is quantised already; leave out --calibrate (samples for narrow "
                                  "Winograd layers are --winograd-calibrate)")
        progress("preparing its layers")
        whole = of_model(imported, config, options, samples=winograd_inputs(imported, winograd_samples), board=board)
        return Application(path.stem, (whole,), whole.inputs, whole.outputs, remarks=(*remarks, *_remarks([whole])))

    if options.batch > 1:
        raise CompileError(f"{path}: a part of the model is the processor's, which takes single samples; compile it "
                           "without --batch", code="option-conflict")

    def cut_again(machine: Machine) -> Partition:
        try:
            return cut_for(machine=machine, compare=False, progress=lambda text: progress(f"with more units, {text}"))
        except FloatModelError as error:    # of values whose ranges this machine does not ask for
            raise GraphError.of(error, str(error)) from None

    try:
        application = of_partition(path, cut, config, options, winograd_samples=winograd_samples, board=board,
                                   progress=progress)
    except OnnxruntimeError:
        if not host.leave:
            import_model(model, machine)    # the model is wrong: what the importer says of it is more to the point
        raise
    if ranges is not None and not ranges.found:
        line = f"{path}: --calibrate changes nothing: no layer lacks only the range of what it makes or reads"
        remarks = (*remarks, line)
    return replace(application, remarks=(*remarks, *_remarks(application.workloads)), cut_again=cut_again)


def _remarks(workloads: Sequence[Workload]) -> list[str]:
    return [remark for workload in workloads for remark in workload.imported.remarks]


def of_partition(path: Path, cut: Partition, config: NpuConfig, options: CompileOptions, *,
                 winograd_samples: Path | None = None, board: str | None = None,
                 progress: Callable[[str], None] = lambda text: None) -> Application:
    """The segments of a model that is named by ``path``, each ready to run.

    Raises OnnxruntimeError for what onnxruntime does not take of it, GraphError for what it is not given
    (`gen.partition.limits`), CompileError for a machine that cannot.
    """
    values: list[dict[str, np.ndarray]] = []    # of each sample what has been computed
    if winograd_samples is not None:
        samples = read_samples(winograd_samples, model_specs(cut.model.inputs))
        values = [{name: array[n:n + 1] for name, array in samples.inputs.items()} for n in range(len(samples))]
    found: list[Workload | HostSegment] = []
    for number, segment in enumerate(cut.segments):
        progress(f"preparing {called(number, len(cut.segments), host=segment.place == 'host')}".rstrip())
        if segment.place == "accelerator":
            require_taken(segment, cut.model)
            imported = segment.imported
            inputs = {name: np.concatenate([one[name] for one in values]) for name in imported.graph.inputs if values}
            own = replace(options, stochastic=of_segment(imported.graph, config, options.stochastic))
            workload = of_model(imported, config, own, samples=inputs or None, board=board)
            found.append(workload)
            for one in values:
                one.update(reference.run(workload.graph, {name: one[name] for name in workload.inputs})[0])
            continue
        try:
            require_bounded(segment.model)
        except GraphError as error:
            raise GraphError.of(error, f"{path}: {error}", file=str(path)) from None
        host = HostSegment(path, segment.model.SerializeToString(deterministic=True))
        _ = host.outputs
        found.append(host)
        for one in values:
            one.update(host.run(one))
    require_streams(path.stem, [one.graph for one in found if isinstance(one, Workload)], options.stochastic)
    return Application(path.stem, found, model_specs(cut.model.inputs), cut.model.outputs, cut)


def _of_program(path: Path, config: NpuConfig | None, options: CompileOptions, host: HostOptions, *,
                board: str | None) -> Application:
    """Raises ProgramError for a program whose segments do not fit together, ConflictError for one made otherwise."""
    if not host.rebuild:
        raise ConflictError(f"{path}: a program is what it is; compile the model with --reconstruct off")
    file = ProgramFile.load(path)
    if not host.allowed and len(file.programs) < len(file.segments):
        raise ConflictError(f"{path}: a part of the program is the processor's; compile the model with --host off")
    if any(prod(shape) > MAX_VALUES for _, shape in file.inputs.values()):
        raise ProgramError(f"{path}: damaged (an input has no shape of a sample); compile it again")
    segments: list[Workload | HostSegment] = []
    known = set(file.inputs)
    for segment in file.segments:
        if isinstance(segment, Program):
            workload = of_program(path, segment, config, options, board=board)
            if segment.batch > 1 and len(file.segments) == 1:
                return Application(file.name, (workload,), workload.inputs, workload.outputs)
            opened: Workload | HostSegment = workload
        else:
            opened = HostSegment.checked(path, segment)
        if not known.issuperset(opened.inputs):
            raise ProgramError(f"{path}: damaged (a segment reads what none before it makes); compile it again")
        known.update(opened.outputs)
        segments.append(opened)
    if not known.issuperset(file.outputs):
        raise ProgramError(f"{path}: damaged (no segment makes an output of the model); compile it again")
    specs = {name: InputSpec((1, *shape), np.dtype(dtype)) for name, (dtype, shape) in file.inputs.items()}
    return Application(file.name, segments, specs, file.outputs)
