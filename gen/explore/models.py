"""Models on their way to many machines: read once, quantised once, imported once."""

import hashlib
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from gen.ir.errors import GraphError
from gen.ir.graph import Graph
from gen.onnx.importer import import_model
from gen.onnx.machine import Machine
from gen.onnx.read import Shapes, open_model, read
from gen.partition.partition import partition
from gen.run.calibration import Calibration, FloatModelError, SampledRanges, calibrated
from gen.run.workload import is_program

from .errors import ExploreError

__all__ = ["ModelGraphs", "ModelFile", "read_model_file"]


@dataclass(frozen=True, eq=False)
class ModelFile:
    """A quantised model. ``name``: of its file, for messages; ``content``: the ONNX file, with its weights inside."""

    name: str
    content: bytes

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


def read_model_file(path: Path, calibration: Calibration | None, shapes: Shapes, *, partly: bool = False
                    ) -> tuple[ModelFile, tuple[str, ...]]:
    """A model, quantised if it is float, and remarks for people; ``partly``: one that is quantised in part is taken,
    with what samples quantise of it for a complete machine, unless that computes all of it without them.

    Raises ExploreError for what is no model, FloatModelError, GraphError, OSError.
    """
    if is_program(path):
        raise ExploreError(f"{path}: a program or another zip file, where an ONNX model is needed", code="not-a-model")
    if calibration is None:
        return ModelFile(str(path), read(path, shapes).proto.SerializeToString(deterministic=True)), ()
    source = calibrated(path, calibration, shapes)
    if isinstance(source, SampledRanges):
        if not (partly and _is_partly_quantised(path, shapes)):
            raise FloatModelError(f"{path}: the model is quantised already; leave out --calibrate")
        cut = partition(open_model(path, shapes=shapes), machine=Machine.complete(), compare=False,
                        ranges=replace(source, found={}))
        return ModelFile(str(path), cut.model.proto.SerializeToString(deterministic=True)), source.remarks
    return ModelFile(str(path), source.content), source.remarks


def _is_partly_quantised(path: Path, shapes: Shapes) -> bool:
    try:
        import_model(open_model(path, shapes=shapes), Machine.complete())
    except GraphError:
        return True
    return False


@dataclass(frozen=True, eq=False)
class ModelGraphs:
    """A model as graphs, before any machine."""

    file: ModelFile
    _cuts: dict[Machine, tuple[tuple[Graph, ...], frozenset[str]]] = field(default_factory=dict)

    def graphs(self, machine: Machine) -> tuple[Graph, ...]:
        """The parts of the model that the accelerator computes.

        Raises GraphError for a model of which it could have nothing, and for one of which it has less than a complete
        machine would: cycles are not to be compared then.
        """
        graphs, host = self._cut(machine)
        left = sorted(host - self.host)
        if left:
            others = f" and {len(left) - 1} more nodes" if len(left) > 1 else ""
            raise GraphError(f"{self.file.name}: {left[0]}{others} would be left to the processor; a machine with "
                             f"{' and '.join(machine.lacks)} takes them", code="needs-unit")
        return graphs

    @property
    def host(self) -> frozenset[str]:
        """Nodes that no machine takes."""
        return self._cut(Machine.complete())[1]

    def _cut(self, machine: Machine) -> tuple[tuple[Graph, ...], frozenset[str]]:
        if machine not in self._cuts:
            self._cuts[machine] = self._imported(machine)
        return self._cuts[machine]

    def _imported(self, machine: Machine) -> tuple[tuple[Graph, ...], frozenset[str]]:
        cut = partition(open_model(self.file.name, self.file.content), machine=machine, compare=False)
        graphs = [segment.imported.graph for segment in cut.segments if segment.place == "accelerator"]
        return tuple(graphs), frozenset(cut.host)
