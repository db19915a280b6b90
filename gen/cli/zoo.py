"""``gen zoo``"""

import argparse
import io
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from gen.cli.common import add_json_option, console, messages, print_json, status
from gen.cli.errors import UsageError
from gen.files.write import require_writable, write_file
from gen.name import called

if TYPE_CHECKING:
    import onnx

    from gen.zoo.network import Network

#: Of --pictures.
_PICTURES = 16

EXAMPLE = """example:
  %(prog)s --list
  %(prog)s resnet18 -o build/resnet18.onnx --pictures build/pictures.npz
  %(prog)s yolov3-tiny --classes 2 --size 256x320 --seed 7 -o build/tiny.onnx"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("network", nargs="?", metavar="NAME", help="which network; --list names them all")
    parser.add_argument("-o", "--output", type=Path, metavar="F.onnx", help="the float model")
    parser.add_argument("--seed", type=_seed, default=0, metavar="N",
                        help="of the weights: the same seed gives the same model (default 0)")
    parser.add_argument("--classes", type=int, metavar="N",
                        help="how many it tells apart, for an SSD with the background (default: as --list says)")
    parser.add_argument("--size", type=_size, metavar="HxW", help="of its image (default: as --list says)")
    parser.add_argument("--pictures", type=Path, metavar="X.npz",
                        help=f"write {_PICTURES} seeded pictures for it too, to calibrate with and to run")
    parser.add_argument("--list", action="store_true", help="list the networks and do nothing else")
    add_json_option(parser)


def _seed(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise argparse.ArgumentTypeError(f"must be a whole number from 0 on, not {text}")
    return int(text)


def _size(text: str) -> tuple[int, int]:
    if not (sides := re.fullmatch(r"([0-9]{1,9})x([0-9]{1,9})", text)):
        raise argparse.ArgumentTypeError(f"must be height and width, such as 224x224, not {text}")
    return int(sides[1]), int(sides[2])


def run(arguments: argparse.Namespace) -> None:
    from gen.zoo.registry import NETWORKS, get_network

    if arguments.list:
        if arguments.network or arguments.output or arguments.pictures:
            raise UsageError("--list goes without NAME, -o and --pictures", code="option-conflict")
        _list(list(NETWORKS.values()), as_json=arguments.json)
        return
    if not (arguments.network and arguments.output):
        raise UsageError(f"give NAME and -o F.onnx; `{called()} zoo --list` has the names")
    _write(get_network(arguments.network), arguments)


def _list(networks: list["Network"], *, as_json: bool) -> None:
    if as_json:
        print_json({"networks": [{"name": n.name, "title": n.title, "input": [n.channels, *n.size],
                                  "classes": n.classes} for n in networks]})
        return
    from rich.table import Table

    table = Table("name", "network", "image", "classes", box=None)
    for network in networks:
        table.add_row(network.name, network.title, "x".join(map(str, network.size)), str(network.classes))
    console.print(table)


def _write(network: "Network", arguments: argparse.Namespace) -> None:
    import numpy as np

    from gen.zoo.builder import pictures
    from gen.zoo.network import make

    if arguments.pictures and os.path.realpath(arguments.output) == os.path.realpath(arguments.pictures):
        raise UsageError(f"-o and --pictures are both {arguments.output}", code="option-conflict")
    for path in filter(None, (arguments.output, arguments.pictures)):
        require_writable(path)
    with status(f"making {network.title}"):
        made = make(network, seed=arguments.seed, classes=arguments.classes, size=arguments.size)
        write_file(arguments.output, made.model.SerializeToString())
    graph = made.model.graph
    if arguments.pictures:
        file, rng = io.BytesIO(), np.random.default_rng([arguments.seed, 1])    # not those that the weights are from
        np.savez(file, image=pictures(rng, _PICTURES, (network.channels, *(arguments.size or network.size))))
        write_file(arguments.pictures, file.getbuffer())
    facts = {
        "model": str(arguments.output), "network": network.name, "seed": arguments.seed,
        "inputs": {value.name: _shape(value) for value in graph.input},
        "outputs": {value.name: _shape(value) for value in graph.output},
        "nodes": len(graph.node), "weights": made.weights, "macs": made.macs,
    }
    if arguments.json:
        print_json(facts)
        return
    messages.print(f"{arguments.output}: {network.title}, {facts['nodes']} nodes, {made.weights:,} weights, "
                   f"{made.macs:,} MACs", soft_wrap=True)


def _shape(value: "onnx.ValueInfoProto") -> list[int | None]:
    """None: as many as there happen to be."""
    return [dim.dim_value if dim.HasField("dim_value") else None for dim in value.type.tensor_type.shape.dim]
