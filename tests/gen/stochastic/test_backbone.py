"""Backbones: words, sizes of their layers, and words that are none."""

import pytest

from gen.stochastic.backbone import Backbone, Shape
from gen.stochastic.errors import BackboneError


def test_an_mlp():
    layers = Backbone("784-200-32-10").layers
    assert [(layer.taps, layer.input.channels, layer.outputs) for layer in layers] == [
        (1, 784, 200), (1, 200, 32), (1, 32, 10)]
    assert sum(layer.macs for layer in layers) == 784 * 200 + 200 * 32 + 32 * 10


def test_a_lenet():
    backbone = Backbone("28x28-c6k3-p2-c64k7s2-p2-32-10")
    assert [layer.output for layer in backbone.layers] == [
        Shape(14, 14, 6), Shape(3, 3, 64), Shape(1, 1, 32), Shape(1, 1, 10)]
    first, second, matrix, _ = backbone.layers
    assert (first.rows, first.padding, first.macs) == (28, 1, 28 * 28 * 6 * 9)
    assert (second.rows, second.cols, second.taps) == (7, 7, 49)
    assert (matrix.kernel, matrix.weights) == ((3, 3), 32 * 9 * 64)
    assert backbone.input == Shape(28, 28, 1) and backbone.classes == 10


def test_the_published_alexnet_for_cifar():
    backbone = Backbone("32x32x3-c256k5-c32k3s2-c16k7s2-c16k5s2-c256k3-512-1024-10")
    assert backbone.layers[4].output == Shape(4, 4, 256)


@pytest.mark.parametrize("word, message", [
    ("", "1 to 16 layers"), ("784", "1 to 16 layers"), ("784-", "'' is no layer"), ("784-x-10", "'x' is no layer"),
    ("784-10-p2", "a pool stands after a convolution"), ("28x28-p2-10", "'p2' is no layer"),
    ("28x28-c6k3", "must be a number of classes"), ("28x28-c6k4-10", "odd kernel"), ("28x28-c0k3-10", "odd kernel"),
    ("28x28-c6k3s0-10", "odd kernel"), ("28x28-c6k3-p1-10", "p2 to p9"), ("2x2-c6k3-p9-10", "nothing is left"),
    ("0-10", "is no input"), ("784-0", "'0' is no layer"), ("4096-4096-4096-10", "more than 16,777,216 weights"),
    ("784-" + "9-" * 16 + "10", "1 to 16 layers"), ("7" * 100 + "-10", "is no input"), ("٣-10", "is no input")])
def test_words_that_are_none(word: str, message: str):
    with pytest.raises(BackboneError, match=message):
        Backbone(word)
