"""What is replaced in onnxruntime's quantiser while it works: it is put back, whatever happens."""

import time
from threading import Thread

import onnx
import pytest
from onnxruntime.quantization import base_quantizer, qdq_quantizer
from onnxruntime.quantization.onnx_model import ONNXModel

from gen.quantize.insert import _initializers_by_name

MODULES = base_quantizer, qdq_quantizer


def replacing(seconds: float = 0.0) -> None:
    with _initializers_by_name(ONNXModel(onnx.ModelProto())):
        time.sleep(seconds)


def test_two_threads() -> None:
    """Each would put back what it found: the second one, that of the first."""
    before = [module.find_by_name for module in MODULES]
    threads = [Thread(target=replacing, args=(seconds,)) for seconds in (0.1, 0.2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [module.find_by_name for module in MODULES] == before


def test_errors() -> None:
    before = [module.find_by_name for module in MODULES]
    with pytest.raises(KeyError), _initializers_by_name(ONNXModel(onnx.ModelProto())):
        assert [module.find_by_name for module in MODULES] != before
        raise KeyError
    assert [module.find_by_name for module in MODULES] == before


@pytest.mark.parametrize("module", MODULES)
def test_other_versions(module: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """One without that function is as it is, only slower."""
    monkeypatch.delattr(module, "find_by_name")
    replacing()
    assert not hasattr(module, "find_by_name")
