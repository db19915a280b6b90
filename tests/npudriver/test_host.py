"""The processor's part of a model, by onnxruntime."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from npudriver import PackageError
from npudriver.host import HostModel


def identity(weights: onnx.TensorProto) -> bytes:
    graph = helper.make_graph(
        [helper.make_node("Identity", ["w"], ["y"])], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, [8])], [weights])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


@pytest.mark.parametrize("in_file", [False, True])
def test_weights_in_other_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_file: bool):
    """Nothing has their digests, and a model could read any file of the folder where the driver is called."""
    monkeypatch.chdir(tmp_path)
    weights = helper.make_tensor("w", TensorProto.UINT8, [8], b"contents", raw=True)

    def source(content: bytes) -> Path | bytes:
        (tmp_path / "s.onnx").write_bytes(content)
        return tmp_path / "s.onnx" if in_file else content

    inside = HostModel("s.onnx", source(identity(weights)))
    assert inside.run({"x": np.zeros(1, np.float32)})["y"].tobytes() == b"contents"
    (tmp_path / "weights").write_bytes(weights.raw_data)
    weights.ClearField("raw_data")
    weights.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "weights"), ("offset", "0"), ("length", "8")):
        weights.external_data.add(key=key, value=value)
    with pytest.raises(PackageError, match="s.onnx: onnxruntime does not take it"):
        HostModel("s.onnx", source(identity(weights)))
