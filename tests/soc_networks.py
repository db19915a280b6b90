"""Runs networks of tests/c_networks.py, one sample each, on the processor of a simulated system (`gen soc --cpu`).

    python -m tests.soc_networks NAME [--json]

The model is loaded without its digests, which for a network of some million weights take most of an hour of simulation.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

import numpy as np

from gen import cli
from gen.zoo.builder import pictures
from tests.c_networks import NETWORKS_OF_C, made_network

__all__: list[str] = []


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soc_networks", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=NETWORKS_OF_C)
    parser.add_argument("--json", action="store_true", help="print one object")
    arguments = parser.parse_args()
    os.environ["CFLAGS"] = "-O2 -DNPUGEN_MODEL_UNCHECKED"
    with tempfile.TemporaryDirectory() as folder:
        path, sample = made_network(arguments.name, Path(folder)), Path(folder) / "sample.npy"
        np.save(sample, pictures(np.random.default_rng(1), 1, NETWORKS_OF_C[arguments.name][1]))
        return cli.main(["soc", "--cpu", "vexriscv", "--simulate", str(path), "--input", str(sample),
                         *(["--json"] if arguments.json else [])])


if __name__ == "__main__":
    sys.exit(main())
