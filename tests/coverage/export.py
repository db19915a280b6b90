"""Architectures as ONNX files, by one of PyTorch's exporters. Needs the packages of the extra `coverage`."""

import importlib.metadata
import json
import os
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.coverage.architectures import ARCHITECTURES

__all__ = ["VERSIONS", "export"]

#: File beside the models: the packages that they were exported with.
VERSIONS = "versions.json"

_PACKAGES = ("torch", "torchvision", "timm", "ultralytics")
_SEED = 0
#: Of the older exporter; the newer one takes its own.
_OPSET = 17


def export(folder: Path, names: Sequence[str], *, dynamo: bool, said: Callable[[str], None]) -> None:
    """Write ``folder``/NAME.onnx for each of the ``names`` that is not there. ``dynamo``: by the newer exporter."""
    folder.mkdir(parents=True, exist_ok=True)
    versions = {package: importlib.metadata.version(package) for package in _PACKAGES}
    (folder / VERSIONS).write_text(json.dumps(versions, indent=1) + "\n")
    for name in names:
        path = folder / f"{name}.onnx"
        if path.exists():
            continue
        said(f"{name} ...")
        # Whole or not at all: the newer exporter writes weights into a second file, named as the first.
        with tempfile.TemporaryDirectory(dir=folder, prefix=f".{name}.") as made:
            _export(Path(made) / path.name, name, dynamo=dynamo)
            for part in sorted(Path(made).iterdir(), key=lambda part: part.name == path.name):
                os.replace(part, folder / part.name)


def _export(path: Path, name: str, *, dynamo: bool) -> None:
    # Ultralytics sends statistics and writes settings to the home folder otherwise.
    os.environ.setdefault("YOLO_OFFLINE", "true")
    os.environ.setdefault("YOLO_CONFIG_DIR", tempfile.gettempdir())
    import torch

    architecture = ARCHITECTURES[name]
    torch.manual_seed(_SEED)
    model = architecture.make().eval()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")     # of tracing, and that the exporter is the older one
        torch.onnx.export(model, (torch.rand(architecture.shape),), str(path), input_names=["x"],
                          **{"dynamo": True} if dynamo else {"dynamo": False, "opset_version": _OPSET})
