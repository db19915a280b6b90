"""Float networks of backbones, trained in PyTorch."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from .backbone import Backbone
from .network import Float
from .recipe import Recipe
from .repeatable import repeatable

if TYPE_CHECKING:
    import torch

__all__ = ["fitted"]


def fitted(backbone: Backbone, pixels: np.ndarray, labels: np.ndarray, recipe: Recipe,
           remark: Callable[[str], None] = lambda step: None) -> list[Float]:
    """What float32 ``pixels`` (n, H, W, C) and int64 ``labels`` (n,) make; the same every time."""
    import torch

    with repeatable(seed=0):
        return _fitted(backbone, torch.from_numpy(np.moveaxis(pixels, 3, 1).copy()), torch.from_numpy(labels), recipe,
                       remark)


def _fitted(backbone: Backbone, inputs: "torch.Tensor", wanted: "torch.Tensor", recipe: Recipe,
            remark: Callable[[str], None]) -> list[Float]:
    import torch

    network, products = _network(backbone)
    if recipe.for_relu:
        for product in products:
            torch.nn.init.kaiming_normal_(product.weight, nonlinearity="relu")
            torch.nn.init.zeros_(product.bias)
    optimizer = torch.optim.Adam(network.parameters(), lr=recipe.rate, weight_decay=recipe.decay)
    steps = recipe.epochs * -(-len(inputs) // recipe.batch)
    cycle = torch.optim.lr_scheduler.OneCycleLR(optimizer, recipe.rate, steps) if recipe.one_cycle else None
    if recipe.shift:    # large maps: convolutions are faster with channels last
        network = network.to(memory_format=torch.channels_last)
    for epoch in range(1, recipe.epochs + 1):
        total = 0.0
        for batch in torch.randperm(len(inputs)).split(recipe.batch):
            optimizer.zero_grad()
            images = _moved(inputs[batch], recipe.shift) if recipe.shift else inputs[batch]
            with torch.autocast("cpu", torch.bfloat16, enabled=recipe.bfloat16):
                scores = network(images).flatten(1)
            loss = torch.nn.functional.cross_entropy(scores.float(), wanted[batch])
            loss.backward()
            optimizer.step()
            if cycle is not None:
                cycle.step()
            total += loss.item() * len(batch)
        remark(f"epoch {epoch} of {recipe.epochs}: loss {total / len(inputs):.3f}")
    weights = [product.weight.detach().contiguous().numpy() for product in products]
    # (O, C, kh, kw) -> (O, taps, C)
    return [(np.moveaxis(values, 1, 3).reshape(len(values), -1, values.shape[1]), product.bias.detach().numpy())
            for values, product in zip(weights, products, strict=True)]


def _moved(images: "torch.Tensor", shift: int) -> "torch.Tensor":
    """(n, C, H, W), mirrored or not and moved by up to ``shift`` pixels each way, zeros where nothing was."""
    import torch

    height, width = images.shape[2:]
    mirrored = torch.where(torch.rand(len(images), 1, 1, 1) < 0.5, images.flip(3), images)
    padded = torch.nn.functional.pad(mirrored, (shift,) * 4)
    corners = torch.randint(2 * shift + 1, (len(images), 2)).tolist()
    moved = torch.stack([image[:, top:top + height, left:left + width]
                         for image, (top, left) in zip(padded, corners, strict=True)])
    return moved.contiguous(memory_format=torch.channels_last)


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
