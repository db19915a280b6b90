"""Networks of today's activation functions: quantised, compiled for a machine with tables, against onnxruntime."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from cores.config import NpuConfig
from gen.check.compare import compare_layers
from gen.compiler import compile_graph
from gen.ir import reference
from gen.ir.epilogue.multiply import Multiply
from gen.ir.epilogue.table import Table
from gen.ir.graph import is_broadcast
from gen.onnx.importer import Imported, load_model
from gen.onnx.machine import Machine
from gen.onnx.read import read
from gen.onnx.runtime import RuntimeModel
from gen.options import CompileOptions
from gen.partition.partition import partition
from gen.quantize.options import QuantizeOptions
from gen.quantize.quantize import quantize
from sim.rtl import RtlMachine
from tests.compiled import compile_kept
from tests.epilogues import operation
from tests.gen.float_models import mobile_network, yolo_network
from tests.gen.test_compiler import run_and_compare
from tests.sim.on_rtl import check_on_rtl

Rng = np.random.Generator
CONFIG = NpuConfig.preset(16, table=1)


@pytest.fixture(params=[mobile_network, yolo_network])
def imported(request: pytest.FixtureRequest, rng: Rng, tmp_path: Path) -> tuple[Imported, np.ndarray]:
    """A network, wholly on the accelerator, and samples of its input."""
    make: Callable[[Rng], onnx.ModelProto] = request.param
    samples = rng.normal(size=(64, 3, 32, 32)).astype(np.float32)
    model = quantize(make(rng), {"x": samples[:8]}, QuantizeOptions(method="mse")).model
    onnx.save(model, tmp_path / "q.onnx")
    return load_model(tmp_path / "q.onnx", machine=Machine.having("table")), samples


def test_networks(imported: tuple[Imported, np.ndarray], seed: int) -> None:
    """A table after each convolution that has a function, no layer for the function alone, no value of a table off."""
    model, samples = imported
    functions = sum(node.op in ("Sigmoid", "HardSwish") for node in model.model.nodes)
    tables = [layer for layer in model.graph.layers if operation(layer, Table)]
    assert functions <= len(tables) and {layer.op for layer in tables} == {"conv"}
    rows = compare_layers(model, {"x": samples[:2]})
    assert all(row.differing == 0 for row in rows if row.op == "table") and max(row.largest for row in rows) <= 1
    # Of all samples: of a few there are too few outputs to say how many are off by one.
    runtime = RuntimeModel(model.model.proto)
    theirs = [runtime.run({"x": sample[None]})[0] for sample in samples]
    ours = [next(iter(reference.run(model.graph, {"x": sample[None]})[0].values())) for sample in samples]
    assert np.equal(ours, theirs).mean() > 0.9
    run_and_compare(*compile_kept(model.graph, CONFIG), seed, ("load", "store"))


@pytest.mark.slow
def test_squeeze_and_excitation(rng: Rng, seed: int, tmp_path: Path) -> None:
    """One program of a machine with tables and products; without products each block goes to the processor and back."""
    samples = rng.normal(size=(8, 3, 32, 32)).astype(np.float32)
    onnx.save(quantize(mobile_network(rng, excited=True), {"x": samples}, QuantizeOptions(method="mse")).model,
              tmp_path / "q.onnx")
    model = load_model(tmp_path / "q.onnx", machine=Machine.complete())
    products = [layer for layer in model.graph.layers if operation(layer, Multiply)]
    assert len(products) == 2 and all(is_broadcast(model.graph, layer) for layer in products)
    assert max(row.largest for row in compare_layers(model, {"x": samples[:2]})) <= 1
    run_and_compare(*compile_kept(model.graph, NpuConfig.preset(16, table=1, product=1)), seed, ("load", "store"))
    assert partition(read(tmp_path / "q.onnx"), machine=Machine.having("table")).subgraphs == 3


@pytest.mark.full
def test_networks_on_the_rtl(imported: tuple[Imported, np.ndarray], seed: int) -> None:
    program, graph = compile_graph(imported[0].graph, CONFIG, CompileOptions(keep_all=True))
    with RtlMachine(CONFIG) as machine:
        check_on_rtl(machine, program, graph, seed)
