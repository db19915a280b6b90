"""All networks of the zoo, by name."""

import difflib

from gen.zoo import convnext, ghostnet, mobilenet, mobilevit, plain, regnet, resnet, shufflenet, ssd, vit, yolo, yolo11
from gen.zoo.errors import ZooError
from gen.zoo.network import Network

__all__ = ["NETWORKS", "get_network"]

NETWORKS: dict[str, Network] = {
    network.name: network for family in (
        plain, resnet, regnet, mobilenet, shufflenet, ghostnet, ssd, yolo, vit, convnext, mobilevit, yolo11)
    for network in family.NETWORKS}


def get_network(name: str) -> Network:
    """Raises ZooError for a name that there is not."""
    try:
        return NETWORKS[name]
    except KeyError:
        near = difflib.get_close_matches(name, NETWORKS, 1)
        meant = f" (is {near[0]} meant?)" if near else ""
        raise ZooError(f"no network {name!r} in the zoo{meant}; it has {', '.join(NETWORKS)}") from None
