"""Quantised models, what onnxruntime makes of models, and what machines make of them."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort

from cores.config import NpuConfig
from gen.check.compare import compare_model
from gen.onnx.importer import Imported, load_model
from gen.onnx.machine import Machine
from gen.quantize.options import QuantizeOptions
from gen.quantize.quantize import Quantized, quantize
from tests.compiled import compile_kept
from tests.gen.test_compiler import run_and_compare

__all__ = ["on_machine", "outputs_of", "quantized"]


def outputs_of(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    """By onnxruntime as a user runs it."""
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.concatenate([session.run(None, {"x": sample[None]})[0] for sample in x])


def quantized(model: onnx.ModelProto, x: np.ndarray, **options: object) -> Quantized:
    return quantize(model, {"x": x}, QuantizeOptions(**{"method": "mse", **options}))  # type: ignore[arg-type]


def on_machine(model: onnx.ModelProto, x: np.ndarray, config: NpuConfig, seed: int, folder: Path) -> Imported:
    """A quantised ``model`` as a machine has it: one graph, whose layers are onnxruntime's but for a step, and whose
    bytes the functional simulator has.
    """
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    imported = load_model(folder / "m.onnx", machine=Machine.of(config))
    assert max(row.largest for row in compare_model(imported, {"x": x[:2]}).layers) <= 1
    run_and_compare(*compile_kept(imported.graph, config), seed, ("load", "store"))
    return imported
