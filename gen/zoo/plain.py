"""Networks that are one chain of convolutions, pools and fully connected layers: LeNet-5, AlexNet, VGG16."""

from functools import partial

from gen.zoo.builder import Builder, Tensor
from gen.zoo.network import Network

__all__ = ["NETWORKS"]


def _head(b: Builder, x: Tensor, hidden: dict[str, int], last: str, classes: int) -> None:
    """Fully connected layers, the last of which gives the scores."""
    for name, outputs in hidden.items():
        x = b.relu(b.dense(x, outputs, name=name))
    b.output(b.dense(x, classes, name=last))


def _lenet5(b: Builder, x: Tensor, classes: int) -> None:
    """LeCun et al. (1998), as it is built today: maxima and ReLU."""
    for number, (channels, pad) in enumerate(((6, 2), (16, 0)), start=1):
        x = b.relu(b.biased_conv(x, channels, 5, pad=pad, name=f"c{number}"))
        x = b.max_pool(x, 2, name=f"pool{number}")
    _head(b, x, {"f3": 120, "f4": 84}, "f5", classes)


def _lenet5_caffe(b: Builder, x: Tensor, classes: int) -> None:
    """The one that came with Caffe: no activation after its convolutions."""
    for number, channels in enumerate((20, 50), start=1):
        x = b.max_pool(b.biased_conv(x, channels, 5, pad=0, name=f"c{number}"), 2, name=f"pool{number}")
    _head(b, x, {"f3": 500}, "f4", classes)


def _alexnet(b: Builder, x: Tensor, classes: int) -> None:
    """Krizhevsky (2014), the form on one device, without local response normalisation."""
    table = ((64, 11, 4, 2), (192, 5, 1, 2), (384, 3, 1, 1), (256, 3, 1, 1), (256, 3, 1, 1))
    for number, (channels, kernel, stride, pad) in enumerate(table, start=1):
        x = b.relu(b.biased_conv(x, channels, kernel, stride=stride, pad=pad, name=f"conv{number}"))
        if number in (1, 2, 5):
            x = b.max_pool(x, 3, name=f"pool{number}")
    _head(b, x, {"fc6": 4096, "fc7": 4096}, "fc8", classes)


def _alexnet_cifar(b: Builder, x: Tensor, classes: int) -> None:
    """Five convolutions without pools, their strides found by a search for stochastic computing on small images."""
    table = ((256, 5, 1), (32, 3, 2), (16, 7, 2), (16, 5, 2), (256, 3, 1))
    for number, (channels, kernel, stride) in enumerate(table, start=1):
        x = b.relu(b.biased_conv(x, channels, kernel, stride=stride, name=f"conv{number}"))
    _head(b, x, {"fc6": 512, "fc7": 1024}, "fc8", classes)


def _vgg16(b: Builder, x: Tensor, classes: int) -> None:
    """Simonyan and Zisserman (2014), configuration D."""
    stages = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
    for stage, outputs in enumerate(stages, start=1):
        for number, channels in enumerate(outputs, start=1):
            x = b.relu(b.biased_conv(x, channels, 3, name=f"conv{stage}_{number}"))
        x = b.max_pool(x, 2, name=f"pool{stage}")
    _head(b, x, {"fc6": 4096, "fc7": 4096}, "fc8", classes)


#: A fully connected layer of all pixels grows with them.
_network = partial(Network, largest=448)
_digits = partial(_network, size=(28, 28), least=20, step=4, channels=1, classes=10)

NETWORKS = (
    _network(name="vgg16", title="VGG16", layers=_vgg16, step=32),
    _network(name="alexnet", title="AlexNet", layers=_alexnet, least=63),
    _network(name="alexnet-cifar", title="AlexNet for CIFAR-10", layers=_alexnet_cifar, size=(32, 32), classes=10),
    _digits(name="lenet5", title="LeNet-5", layers=_lenet5),
    _digits(name="lenet5-caffe", title="LeNet-5 as with Caffe", layers=_lenet5_caffe),
)
