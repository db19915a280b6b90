"""Networks as PyTorch exports them, by both of its exporters: quantised, compiled, and run as onnxruntime runs them."""

import contextlib
import importlib.util
import logging
import warnings
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from cores.config import NpuConfig
from gen.run.application import open_application
from gen.run.calibration import Calibration
from gen.run.inputs import Samples
from gen.run.runner import run_model

torch = pytest.importorskip("torch", reason="PyTorch is an extra: pip install '.[train]'")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

CONFIG = NpuConfig.preset(16, table=1, product=1)


def unit(inputs: int, outputs: int, *, stride: int = 1, groups: int = 1) -> nn.Sequential:
    kernel = 3 if groups > 1 or stride > 1 else 1
    return nn.Sequential(nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
                         nn.BatchNorm2d(outputs), nn.SiLU())


class Excited(nn.Module):
    """An EfficientNet block, a residual around it, a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.wide, self.deep = unit(3, 8, stride=2), unit(8, 16), unit(16, 16, groups=16)
        self.inner, self.outer = nn.Conv2d(16, 4, 1), nn.Conv2d(4, 16, 1)
        self.narrow, self.classify = nn.Conv2d(16, 8, 1), nn.Linear(8, 5)

    def forward(self, x: "torch.Tensor") -> "torch.Tensor":
        x = self.stem(x)
        y = self.deep(self.wide(x))
        mean = functional.adaptive_avg_pool2d(y, 1)
        x = x + self.narrow(y * torch.sigmoid(self.outer(functional.relu(self.inner(mean)))))
        x = functional.adaptive_avg_pool2d(x, 1)
        return self.classify(functional.dropout(x.view(len(x), -1), 0.1, self.training))


class Divided(nn.Module):
    """Halves of channels, a difference, attention to places, upsampling beside what it began with."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.left, self.place = unit(3, 8), unit(4, 4), nn.Conv2d(1, 1, 3, padding=1)
        self.last = nn.Conv2d(12, 3, 3, padding=1)

    def forward(self, x: "torch.Tensor") -> "torch.Tensor":
        x = self.stem(x)
        a, b = functional.max_pool2d(x, 2).chunk(2, 1)
        a = self.left(a) - b
        a = a * torch.sigmoid(self.place(a.mean(1, keepdim=True)))
        return self.last(torch.cat([x, functional.interpolate(a, scale_factor=2)], 1))


@contextlib.contextmanager
def quiet():
    """Exporters warn of what is to come in later versions."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.ERROR)
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)


def export(network: nn.Module, path: Path, form: str) -> None:
    options = dict(dynamo=False, opset_version=17)
    if form == "open":
        options["dynamic_axes"] = {"image": {0: "n"}}
    elif form == "open sizes":
        options["dynamic_axes"] = {"image": {0: "n", 2: "h", 3: "w"}}
    elif form == "new":
        if importlib.util.find_spec("onnxscript") is None:
            pytest.skip("PyTorch's newer exporter needs onnxscript")
        options = dict(dynamo=True, opset_version=18, verbose=False)
    with quiet():
        torch.onnx.export(network, (torch.zeros(1, 3, 16, 16),), str(path), input_names=["image"],
                          output_names=["result"], **options)


@pytest.mark.parametrize("form", ["fixed", "open", "open sizes", "new"])
@pytest.mark.parametrize("kind", [Excited, Divided])
def test_exported(kind: type[nn.Module], form: str, seed: int, rng: np.random.Generator, tmp_path: Path) -> None:
    torch.manual_seed(seed)
    network, path = kind().eval(), tmp_path / "model.onnx"
    images = rng.normal(size=(24, 3, 16, 16)).astype(np.float32)
    with torch.no_grad():
        network.train()(torch.from_numpy(images))      # statistics for the batch norms
    export(network.eval(), path, form)
    np.savez(tmp_path / "images.npz", image=images)
    application = open_application(path, CONFIG, calibration=Calibration(tmp_path / "images.npz"))
    assert application.partition is None, application.partition.host
    run = run_model(application, Samples({"image": images[:2]}, None), "functional")
    assert run.mismatches == 0 and run.compared
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    wanted = np.concatenate([session.run(None, {"image": image[None]})[0] for image in images[:2]])
    noise = np.square(run.outputs["result"] - wanted).sum() / np.square(wanted).sum()
    assert run.outputs["result"].shape == wanted.shape and noise < 0.01
