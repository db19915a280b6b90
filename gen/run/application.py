"""What a command works on: a model or a program, wholly on the accelerator or in segments."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import helper

from cores.config import NpuConfig
from gen.ir.errors import GraphError
from gen.onnx.importer import load_model
from gen.onnx.passes import run_passes
from gen.options import CompileOptions
from gen.partition.partition import Partition, partition
from gen.program.program import ConflictError, Program, ProgramError
from gen.program.segments import ModelInputInfo, SegmentsFile, is_segments_file
from gen.quantize.sessions import Progress
from gen.run.calibration import Calibration, quantize_file
from gen.run.inputs import InputSpec
from gen.run.workload import Workload, is_program, of_model, of_program, open_workload

__all__ = ["Application", "HostSegment", "of_partition", "open_application"]


@dataclass(frozen=True, eq=False)
class HostSegment:
    """A segment of a model that onnxruntime runs on the processor; ``path``: the file that it is from."""

    path: Path
    model: bytes

    @cached_property
    def _session(self) -> ort.InferenceSession:
        options = ort.SessionOptions()
        options.log_severity_level = 4
        # What the model says, and not what comes close to it and is faster: quantised nodes may be among it.
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
        try:
            return ort.InferenceSession(self.model, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # whatever onnxruntime's bindings raise
            raise GraphError(f"{self.path}: onnxruntime does not take what is left to the processor: "
                             f"{_line(error)}") from None

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        return tuple(value.name for value in self._session.get_inputs())

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        return tuple(value.name for value in self._session.get_outputs())

    def run(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs by name, of one sample. Raises GraphError when onnxruntime fails."""
        try:
            results = self._session.run(list(self.outputs), {name: values[name] for name in self.inputs})
        except Exception as error:  # as above
            raise GraphError(f"{self.path}: the processor's part fails on this sample: {_line(error)}") from None
        return dict(zip(self.outputs, results, strict=True))


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


@dataclass(frozen=True, eq=False)
class Application:
    """``segments`` in the order in which they run. ``partition``: how the model was cut, if it was, just now."""

    segments: Sequence[Workload | HostSegment]
    inputs: Mapping[str, InputSpec]
    outputs: Sequence[str]
    partition: Partition | None = None
    #: Of the samples that a float model was quantised on, for people.
    remarks: Sequence[str] = ()

    @property
    def workloads(self) -> list[Workload]:
        """What runs on the accelerator."""
        return [segment for segment in self.segments if isinstance(segment, Workload)]

    def save(self, path: Path) -> None:
        """Write the program. Raises ProgramError."""
        only = self.segments[0]
        if len(self.segments) == 1 and isinstance(only, Workload):
            only.program.save(path)
            return
        inputs = [ModelInputInfo(name, spec.shape, spec.dtype.name) for name, spec in self.inputs.items()]
        contents = [segment.program if isinstance(segment, Workload) else segment.model for segment in self.segments]
        SegmentsFile(inputs, self.outputs, contents).save(path)


def open_application(path: Path, config: NpuConfig | None, options: CompileOptions | None = None, *,
                     calibration: Calibration | None = None, winograd_samples: Path | None = None,
                     board: str | None = None, host: bool = True, rebuild: bool = True,
                     leave: Mapping[str, str] | None = None,
                     progress: Progress = lambda done, total, what: None) -> Application:
    """As `gen.run.workload.open_workload`; what the accelerator does not take of a model is left to the processor.

    ``calibration`` quantises a float model, of which ``progress`` tells; raises FloatModelError where it cannot.
    Without ``host`` a model that needs that is refused. ``rebuild`` and ``leave`` as in
    `gen.partition.partition.partition`.
    """
    options = options or CompileOptions()
    content: bytes | None = None
    remarks: Sequence[str] = ()
    if calibration is not None:
        if is_program(path):
            raise ConflictError(f"{path}: a program is quantised already; --calibrate goes with a float model")
        calibrated = quantize_file(path, calibration, progress)
        content, remarks = calibrated.found.model.SerializeToString(deterministic=True), calibrated.remarks
    if is_program(path) and is_segments_file(path):
        return _of_segments(path, config, options, board=board)
    try:
        if leave:
            raise GraphError(f"{path}: nothing is left for the accelerator")
        whole = open_workload(path, config, options, content=content, winograd_samples=winograd_samples, board=board)
        return Application((whole,), whole.inputs, whole.outputs, remarks=remarks)
    except GraphError as refused:
        if not host or is_program(path):
            raise
        assert config is not None
        try:
            cut = partition(path, content, rebuild=rebuild, leave=leave, shapes=options.shapes)
            application = of_partition(path, cut, config, options, board=board)
        except GraphError:
            raise refused from None     # the model is wrong, and this was the first to see it
        return replace(application, remarks=remarks)


def of_partition(path: Path, cut: Partition, config: NpuConfig, options: CompileOptions, *,
                 board: str | None = None) -> Application:
    """The segments of a model that is named by ``path``, each ready to run.

    Raises GraphError for what onnxruntime does not take of it, CompileError for a machine that cannot.
    """
    segments: list[Workload | HostSegment] = []
    for number, segment in enumerate(cut.segments):
        content = segment.model.SerializeToString(deterministic=True)
        if segment.place == "accelerator":
            named = path.with_name(f"{path.stem}.{number}{path.suffix}") if cut.subgraphs > 1 else path
            segments.append(of_model(load_model(named, content), config, options, board=board))
        else:
            host = HostSegment(path, content)
            _ = host.outputs
            segments.append(host)
    return Application(segments, _input_specs(cut.model.proto), cut.model.outputs, cut)


def _input_specs(model: onnx.ModelProto) -> dict[str, InputSpec]:
    constants = {tensor.name for tensor in model.graph.initializer}
    specs = {}
    for value in model.graph.input:
        if value.name not in constants:
            tensor = value.type.tensor_type
            specs[value.name] = InputSpec((1, *(d.dim_value for d in tensor.shape.dim[1:])),
                                          helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    return specs


def _of_segments(path: Path, config: NpuConfig | None, options: CompileOptions, *, board: str | None) -> Application:
    """Of a program in segments. Raises ProgramError for one whose segments do not fit together."""
    file = SegmentsFile.load(path)
    specs = {info.name: InputSpec(info.shape, np.dtype(info.dtype)) for info in file.inputs}
    segments: list[Workload | HostSegment] = []
    known = set(specs)
    for segment in file.segments:
        if isinstance(segment, Program):
            opened: Workload | HostSegment = of_program(path, segment, config, options, board=board)
        else:
            opened = HostSegment(path, _checked(path, segment))
        if not known.issuperset(opened.inputs):
            raise ProgramError(f"{path}: damaged (a segment reads what none before it makes); compile it again")
        known.update(opened.outputs)
        segments.append(opened)
    if not known.issuperset(file.outputs):
        raise ProgramError(f"{path}: damaged (no segment makes an output of the model); compile it again")
    return Application(segments, specs, file.outputs)


def _checked(path: Path, content: bytes) -> bytes:
    """A model from within a program, which may not ask for other files. Raises ProgramError."""
    try:
        model = run_passes(onnx.load_model_from_string(content), folder=None)
    except (DecodeError, ValueError, TypeError) as error:
        reason = error if isinstance(error, GraphError) else "a model inside is none"
        raise ProgramError(f"{path}: damaged ({reason}); compile it again") from None
    return model.SerializeToString(deterministic=True)
