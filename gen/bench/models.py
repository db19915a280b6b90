"""Every quantised model of a folder: compiled, run on the instruction-level simulator, compared with onnxruntime."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cores.config import NpuConfig
from gen.check.compare import compare_layers
from gen.ir.errors import GraphError
from gen.options import CompileOptions
from gen.run.application import open_application
from gen.run.inputs import random_samples, read_samples
from gen.run.runner import run_model
from sim.cycles import estimate

__all__ = ["Row", "measure"]


@dataclass(frozen=True, kw_only=True)
class Row:
    """``differing`` of ``values`` of all layers, each on the inputs that the reference has, are others than
    onnxruntime's, by ``largest`` at most; ``wrong`` values of the simulator are others than the reference's.
    """

    model: str
    layers: int
    host_nodes: int
    cycles: int
    values: int
    differing: int
    largest: int
    wrong: int


def measure(folder: Path, config: NpuConfig,
            progress: Callable[[str], None] = lambda remark: None) -> Iterator[Row]:
    """A row for each model; those that are refused, as float ones are, are left out. One sample each: the first of the
    file ``NAME.golden.npz`` beside the model, else a random one.
    """
    for path in sorted(folder.glob("*.onnx")):
        progress(path.stem)
        try:
            application = open_application(path, config, CompileOptions(keep_all=True))
        except GraphError:
            continue
        golden = path.with_suffix(".golden.npz")
        if golden.exists():
            samples = read_samples(golden, application.inputs, limit=1)
        else:
            (only,) = application.workloads
            samples = random_samples(only.graph, only.input_shapes, seed=0)
        run = run_model(application, samples, "functional")
        rows = []
        for workload in application.workloads:
            inputs = samples.inputs if len(application.segments) == 1 else random_samples(
                workload.graph, workload.input_shapes, seed=0).inputs
            rows += compare_layers(workload.imported, inputs)
        programs = [workload.program for workload in application.workloads]
        yield Row(
            model=path.stem, layers=sum(len(program.layers) for program in programs),
            host_nodes=len(application.partition.host) if application.partition else 0,
            cycles=sum(estimate(program.config, program.code).cycles for program in programs),
            values=sum(row.values for row in rows), differing=sum(row.differing for row in rows),
            largest=max(row.largest for row in rows), wrong=run.mismatches or 0)
