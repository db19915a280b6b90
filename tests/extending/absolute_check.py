"""Run in a copy of the tree with absolute values: a convolution and the Abs after it are one layer on the Verilog."""

import tempfile
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

from cores.config import NpuConfig
from gen.onnx.importer import load_model
from sim.cycles import estimate
from sim.rtl import Bus, RtlMachine
from tests.compiled import compile_kept
from tests.sim.on_rtl import check_on_rtl

MACHINE = NpuConfig.preset(16, input_depth=512)


def model(path: Path) -> None:
    """QLinearConv to 8 channels, then Abs between DequantizeLinear and QuantizeLinear of one scale."""
    rng = np.random.default_rng(5)
    constants = {
        "one": np.float32(0.05), "zero": np.int8(0), "scale": np.float32(0.02),
        "weights": rng.integers(-127, 128, (8, 5, 3, 3)).astype(np.int8),
    }
    nodes = [
        helper.make_node("QLinearConv", ["x", "one", "zero", "weights", "scale", "zero", "one", "zero"], ["c"],
                         pads=[1] * 4),
        helper.make_node("DequantizeLinear", ["c", "one", "zero"], ["d"]),
        helper.make_node("Abs", ["d"], ["a"]),
        helper.make_node("QuantizeLinear", ["a", "one", "zero"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "absolute", [helper.make_tensor_value_info("x", TensorProto.INT8, [1, 5, 7, 6])],
        [helper.make_tensor_value_info("y", TensorProto.INT8, [1, 8, 7, 6])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "absolute.onnx"
        model(path)
        graph = load_model(path).graph
    program, compiled = compile_kept(graph, MACHINE)
    layer, = compiled.layers
    assert [op.name for op in layer.epilogue] == ["abs"], layer.epilogue
    with RtlMachine(MACHINE, seed=1) as machine:
        result = check_on_rtl(machine, program, compiled, 1, bus=Bus())
    modelled, measured = estimate(MACHINE, program.code).cycles, result.counters["cycles"]
    assert abs(modelled - measured) <= 0.02 * measured, (modelled, measured)
    print(f"{measured} cycles on the Verilog, {modelled} by the time model")


if __name__ == "__main__":
    main()
