"""Float networks of backbones, trained in PyTorch without regard to streams, and kept for the next time."""

import hashlib
import io
import zipfile
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gen.files.sources import sources_digest
from gen.files.write import write_file

from .backbone import Backbone
from .errors import DataError
from .images import Images
from .network import Float
from .repeatable import repeatable

if TYPE_CHECKING:
    import torch

__all__ = ["trained"]

_BATCH, _EPOCHS, _RATE, _DECAY = 100, 12, 2e-3, 1e-4
#: What a network depends on beside its images.
_SOURCES = ("gen/stochastic",)


def trained(backbone: Backbone, images: Images, folder: Path | None) -> list[Float]:
    """The network that the images to learn from make; kept in ``folder``, if there is one.

    Raises BackboneError for images of another size, DataError without PyTorch.
    """
    key = hashlib.sha256(repr((backbone.word, images.digest, images.trained,
                               sources_digest(*_SOURCES))).encode()).hexdigest()
    kept = None if folder is None else folder / f"{key[:32]}.npz"
    x, labels = images.for_backbone(backbone, images.learnt)
    if kept is not None:
        with suppress(OSError, ValueError, KeyError, zipfile.BadZipFile):   # not there, or damaged: made again
            return _read(kept, backbone)
    if find_spec("torch") is None:
        raise DataError("training needs PyTorch: pip install 'npugen[train]'")
    network = _train(backbone, x, labels)
    if kept is not None:
        arrays = {f"{name}{number}": values for number, layer in enumerate(network)
                  for name, values in zip(("weights", "bias"), layer, strict=True)}
        packed = io.BytesIO()
        np.savez(packed, allow_pickle=False, **arrays)
        with suppress(OSError):     # trained again the next time
            write_file(kept, packed.getvalue())
    return network


def _read(path: Path, backbone: Backbone) -> list[Float]:
    with np.load(path) as arrays:
        return [(arrays[f"weights{number}"], arrays[f"bias{number}"]) for number in range(len(backbone.layers))]


def _train(backbone: Backbone, x: np.ndarray, labels: np.ndarray) -> list[Float]:
    import torch

    with repeatable(seed=0):
        return _fitted(backbone, torch.from_numpy(np.moveaxis(x, 3, 1).copy()), torch.from_numpy(labels))


def _fitted(backbone: Backbone, inputs: "torch.Tensor", wanted: "torch.Tensor") -> list[Float]:
    import torch

    network, products = _network(backbone)
    optimizer = torch.optim.Adam(network.parameters(), lr=_RATE, weight_decay=_DECAY)
    for _ in range(_EPOCHS):
        for batch in torch.randperm(len(inputs)).split(_BATCH):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(network(inputs[batch]).flatten(1), wanted[batch]).backward()
            optimizer.step()
    weights = [product.weight.detach().numpy() for product in products]
    # (O, C, kh, kw) -> (O, taps, C)
    return [(np.moveaxis(values, 1, 3).reshape(len(values), -1, values.shape[1]), product.bias.detach().numpy())
            for values, product in zip(weights, products, strict=True)]


def _network(backbone: Backbone) -> "tuple[torch.nn.Sequential, list[torch.nn.Conv2d]]":
    """Matrix products too are convolutions, whose kernels cover their inputs."""
    import torch

    parts: list[torch.nn.Module] = []
    products = [torch.nn.Conv2d(layer.input.channels, layer.outputs, layer.kernel, layer.stride, layer.padding)
                for layer in backbone.layers]
    for layer, product in zip(backbone.layers, products, strict=True):
        parts += [product, torch.nn.ReLU()]
        if layer.pool > 1:
            parts.append(torch.nn.MaxPool2d(layer.pool))
    return torch.nn.Sequential(*parts[:-1]), products
