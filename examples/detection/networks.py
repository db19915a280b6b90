"""Small detectors with random weights, for the pictures of canvases.py:

    python examples/detection/networks.py -o build/detection

writes `yolo.onnx`, a narrow YOLOv3-tiny with maps of strides 8 and 16, and `ssd.onnx`, SSD heads on a narrow
MobileNetV1, with maps of the same strides. `yolo.json` and `ssd.json` beside this script train them. Both end at the
convolutions of their heads.
"""

import argparse
from pathlib import Path

import onnx

from gen.zoo.builder import Builder, Tensor, floats

CLASSES, SIZE, SEED = 20, 64, 1
#: Boxes of each place of a map.
ANCHORS = 3
#: Output channels and stride of MobileNetV1's pairs.
PAIRS = ((32, 1), (64, 2), (128, 2), (128, 1), (192, 2), (192, 1))


def layer(b: Builder, x: Tensor, channels: int, kernel: int, name: str) -> Tensor:
    return b.leaky(b.norm(b.conv(x, channels, kernel, name=name)))


def yolo(b: Builder, x: Tensor, classes: int) -> None:
    for number, channels in enumerate((8, 16, 48, 96)):
        route = layer(b, x, channels, 3, f"c{number}")
        x = b.max_pool(route, 2, name=f"pool{number}") if number < 3 else route
    x = layer(b, b.max_pool(x, 2, name="pool3"), 128, 3, "c4")
    x = layer(b, x, 64, 1, "c5")
    b.output(b.biased_conv(layer(b, x, 96, 3, "c6"), ANCHORS * (5 + classes), 1, name="coarse"))
    x = layer(b, x, 32, 1, "up")
    x = b.node("Resize", x, floats([]), floats([1, 1, 2, 2]), name="up.resize", mode="nearest",
               coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    x = layer(b, b.node("Concat", x, route, name="up.concat", axis=1), 48, 3, "c7")
    b.output(b.biased_conv(x, ANCHORS * (5 + classes), 1, name="fine"))


def ssd(b: Builder, x: Tensor, classes: int) -> None:
    x = b.relu6(b.norm(b.conv(x, 16, 3, stride=2, name="conv0")))
    maps = []
    for number, (channels, stride) in enumerate(PAIRS, start=1):
        if stride == 2:
            maps.append(x)
        x = b.relu6(b.norm(b.conv(x, x.channels, 3, stride=stride, groups=x.channels, name=f"dw{number}")))
        x = b.relu6(b.norm(b.conv(x, channels, 1, name=f"pw{number}")))
    for name, tensor in (("fine", maps[-1]), ("coarse", x)):
        b.output(b.biased_conv(tensor, ANCHORS * 4, 3, name=f"{name}_boxes"))
        b.output(b.biased_conv(tensor, ANCHORS * (1 + classes), 3, name=f"{name}_scores"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=Path("build/detection"))
    parser.add_argument("--classes", type=int, default=CLASSES)
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    for name, layers in (("yolo", yolo), ("ssd", ssd)):
        builder = Builder(name=name, seed=SEED)
        layers(builder, builder.image((3, SIZE, SIZE), 16), arguments.classes)
        onnx.save(builder.model, arguments.output / f"{name}.onnx")
        print(f"{name}: {builder.weights:,} weights, {builder.macs:,} MACs")


if __name__ == "__main__":
    main()
