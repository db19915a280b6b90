"""VGG16 with seeded weights: a network of 138 million, all dense, that no file has to be kept for."""

import numpy as np

from gen.ir.graph import Conv, Graph, Layer, Pool
from gen.ir.tensor import Requantize, Tensor
from gen.ir.verify import verify
from sim.golden import quantize_multiplier

__all__ = ["vgg16_graph"]

#: Output channels of the 3x3 convolutions; a maximum of 2x2 after each stage.
_STAGES = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
_FULLY_CONNECTED = (4096, 4096, 1000)
#: Standard deviation of the weights, whose largest are 127: about that of trained layers.
_DEVIATION = 127 / 5


def vgg16_graph(*, size: int = 224, zero_point: int = -128, deviation: float = _DEVIATION, seed: int = 0) -> Graph:
    """``size``: of the image, a multiple of 32; ``zero_point``: of all activations after a ReLU."""
    rng = np.random.default_rng(seed)
    tensor = Tensor("image", (3, size, size), 1.0, 0)
    tensors, layers = {tensor.name: tensor}, list[Layer]()

    def convolve(name: str, outputs: int, kernel: int, *, pad: int = 0, relu: bool = True) -> None:
        nonlocal tensor
        channels, height, width = tensor.shape
        drawn = rng.normal(0, deviation, (outputs, channels, kernel, kernel)).astype(np.float32)
        weights = np.clip(np.rint(drawn), -127, 127).astype(np.int16)
        shape = (outputs, height + 2 * pad - kernel + 1, width + 2 * pad - kernel + 1)
        # Sums of independent products spread like the root of their number.
        spread = 60 * deviation * np.sqrt(channels * kernel * kernel)
        multiplier, shift = quantize_multiplier(np.full(outputs, 60 / spread))
        target = Tensor(name, shape, 1.0, zero_point if relu else 0)
        bias = -tensor.zero_point * weights.sum(axis=(1, 2, 3), dtype=np.int64)
        low = target.zero_point if relu else -128
        layers.append(Conv(name, tensor.name, name, weights=weights, pads=(pad,) * 4,
                           requantize=Requantize(bias, multiplier, shift, target.zero_point, low, 127)))
        tensors[name] = tensor = target

    def pool(name: str) -> None:
        nonlocal tensor
        channels, height, width = tensor.shape
        multiplier, shift = quantize_multiplier(np.ones(channels))
        target = Tensor(name, (channels, height // 2, width // 2), 1.0, tensor.zero_point)
        layers.append(Pool(name, tensor.name, name, maximum=True, kernel=(2, 2), stride=(2, 2), pad_value=-128,
                           requantize=Requantize(np.full(channels, -tensor.zero_point), multiplier, shift,
                                                 tensor.zero_point, -128, 127)))
        tensors[name] = tensor = target

    for stage, outputs in enumerate(_STAGES, start=1):
        for number, channels in enumerate(outputs, start=1):
            convolve(f"conv{stage}_{number}", channels, 3, pad=1)
        pool(f"pool{stage}")
    for number, channels in enumerate(_FULLY_CONNECTED, start=6):
        convolve(f"fc{number}", channels, tensor.shape[1], relu=number < 8)
    graph = Graph("vgg16", tensors, tuple(layers), {"image": ("image", ())}, {"scores": (tensor.name, ())})
    verify(graph)
    return graph
