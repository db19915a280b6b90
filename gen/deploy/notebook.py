"""A Jupyter notebook (nbformat 4.5) that runs a package on a PYNQ board."""

import json
from typing import Any

from gen.hw.logs import standing
from npudriver import Deployment

__all__ = ["notebook"]

_SETUP = '''\
import time

import numpy as np

from npudriver import Deployment, Device, Registers, open_backend

deployment = Deployment.load(".")
print("inputs", ", ".join(deployment.inputs), "outputs", ", ".join(deployment.outputs))
'''
_SAMPLES = '''\
with np.load("sample.npz", allow_pickle=False) as file:
    arrays = dict(file)
samples = [{name: arrays[name][number] for name in deployment.inputs}
           for number in range(len(arrays[next(iter(deployment.inputs))]))]
print(len(samples), "samples")
'''
_DEVICE = '''\
# PYNQ loads the bitstream.
backend = open_backend("pynq:hardware/npu.bit")
device = Device(backend, deployment.machine)
model = deployment.load_into(device)
'''
_RUN = '''\
began = time.perf_counter()
results = list(model.stream(samples))
seconds = time.perf_counter() - began
print(f"{len(results) / seconds:.1f} inferences a second, processor's part included")
'''
_COMPARE = '''\
differing = 0
for name in deployment.outputs:
    if "expected/" + name in arrays:
        for result, wanted in zip(results, arrays["expected/" + name]):
            differing += int(np.count_nonzero(np.asarray(result[name]) != wanted))
print("differing", differing)
'''
_COUNTERS = '''\
for name, value in Registers(backend, deployment.machine).counters().items():
    print(f"{name:24} {value:,}")
'''
_END = '''\
model.unload()
device.close()
'''


def notebook(deployment: Deployment) -> str:
    """JSON. The notebook lies in the package's folder, and Jupyter must run as root, as PYNQ's does."""
    cells = [
        _text(f"# {deployment.name} on {deployment.board}\n\n{standing(deployment.board)}\n\n"
              "Run the cells from the first to the last, in the folder of the package."),
        _code(_SETUP),
        _text("The enclosed samples, and what the reference makes of them."), _code(_SAMPLES),
        _text("The device."), _code(_DEVICE),
        _text("All samples, two at a time: one is loaded while the other runs."), _code(_RUN),
        _text("`differing 0` says that all is well."), _code(_COMPARE),
        _text("Where the cycles of the last program went."), _code(_COUNTERS),
        _text("Leave the device to others."), _code(_END),
    ]
    values = {
        "cells": [{**cell, "id": f"cell{number}"} for number, cell in enumerate(cells)],
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4, "nbformat_minor": 5,
    }
    return json.dumps(values, indent=1) + "\n"


def _text(source: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": source.splitlines(keepends=True)}


def _code(source: str) -> dict[str, Any]:
    return {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [],
            "source": source.rstrip("\n").splitlines(keepends=True)}
