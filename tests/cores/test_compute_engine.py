"""Compute engine: see bench_compute_engine."""

import dataclasses

import pytest

from cores.arch.stochastic import Circuit
from cores.compute.compute_engine import ComputeEngine
from cores.compute.engine_pair import EnginePair
from cores.compute.weight_loader import WeightLoader
from cores.config import NpuConfig
from tests.bench import run_bench
from tests.selection import with_full

_SMALL = {"input_depth": 512, "acc_depth": 64}
CONFIGS = {
    "16": NpuConfig.preset(16, **_SMALL),
    "dsp48e1": NpuConfig(oc_lanes=16, ic_lanes=16, nnz_lanes=4, multiplier_width=25, select_fanin=4, **_SMALL),
    "one_pixel": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=2, pixel_lanes=1, **_SMALL),
    "depthwise": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, depthwise=1, input_depth=512, acc_depth=64),
    #: Output lanes have taps of their own channel, beside one channel for each multiplier; two groups of them.
    "own_taps": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=8, select_fanin=1, depthwise=1, **_SMALL),
    "own_taps_two_groups": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, select_fanin=2, depthwise=1, **_SMALL),
    #: Every multiplier has one channel, and indices say nothing.
    "wired": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=8, select_fanin=1, **_SMALL),
    "unpacked": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=4, multiplier_width=18, select_fanin=4, **_SMALL),
}
CONFIGS |= {
    "rows": NpuConfig.preset(16, rows=64, **_SMALL),
    "rows_depthwise": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, depthwise=1, rows=128, **_SMALL),
    "winograd": NpuConfig.preset(16, winograd=1, **_SMALL),
    "exact": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=2, pixel_lanes=1, winograd=2, acc_width=32, **_SMALL),
    "exact_two_pixels": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, multiplier_width=18, winograd=2, acc_width=32,
                                  depthwise=1, **_SMALL),
}
FULL_CONFIGS = {
    "64": NpuConfig.preset(64),
    "256": NpuConfig.preset(256),
    "512": NpuConfig.preset(512),
    "depthwise_64": NpuConfig.preset(64, depthwise=1),
    "depthwise_128": NpuConfig.preset(128, depthwise=1),
    "depthwise_256": NpuConfig.preset(256, depthwise=1),
    "depthwise_dense_256": NpuConfig.preset(256, "dense", depthwise=1),
    "depthwise_dense_512": NpuConfig.preset(512, "dense", depthwise=1),
    "wide": NpuConfig(oc_lanes=32, ic_lanes=32, nnz_lanes=4, acc_width=32, **_SMALL),
}


@pytest.mark.parametrize("name", with_full(
    CONFIGS, "depthwise", "own_taps_two_groups", "exact_two_pixels", "dsp48e1", "one_pixel", "wired", "unpacked"))
def test_compute_engine(name):
    run_bench(ComputeEngine(CONFIGS[name]), module="tests.cores.bench_compute_engine", name=f"compute_engine_{name}",
              parameters={"config": CONFIGS[name].to_dict()})


#: Rows of the binary unit: as many as beats of weights, fewer, more; a unit that is slower than the array, and faster.
BINARY_CONFIGS = {
    "16": NpuConfig.preset(16, gather=1, binary_rows=1, **_SMALL),
    "64": NpuConfig.preset(64, gather=1, binary_rows=4, **_SMALL),
    "one_pixel": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=8, pixel_lanes=1, gather=1, binary_rows=8, **_SMALL),
    "depthwise": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, depthwise=1, gather=1, binary_rows=16, **_SMALL),
}


@pytest.mark.parametrize("name", with_full(BINARY_CONFIGS, "16", "64", "depthwise"))
def test_binary_compute(name):
    config = BINARY_CONFIGS[name]
    run_bench(ComputeEngine(config), module="tests.cores.bench_binary_compute", name=f"binary_compute_{name}",
              parameters={"config": config.to_dict()})


@pytest.mark.full    # test_engine_pair.py has a short form
@pytest.mark.parametrize("name", BINARY_CONFIGS)
def test_engine_pair(name):
    config = dataclasses.replace(BINARY_CONFIGS[name], binary_engine=1)
    for bench in ("binary_compute", "compute_engine"):
        run_bench(EnginePair(config), module=f"tests.cores.bench_{bench}", name=f"engine_pair_{name}",
                  parameters={"config": config.to_dict()})


def _streams(circuit, rows, bits=1, **fields):
    return NpuConfig(**{"oc_lanes": 8, "ic_lanes": 8, "nnz_lanes": 2, "gather": 1, "stochastic_circuit": circuit,
                        "stochastic_rows": rows, "stochastic_bits": bits, **_SMALL, **fields})


#: Every circuit; sums of streams that come later than the array's and earlier; words of a single cycle; other units.
STOCHASTIC_CONFIGS = {
    "and_loop": _streams(Circuit.AND_LOOP, 2),
    "ugemm": _streams(Circuit.UGEMM, 8, pixel_lanes=1, nnz_lanes=1),
    "one_cycle": _streams(Circuit.XNOR_MUX, 4, 8, ic_lanes=16, oc_lanes=16, nnz_lanes=16),
    "units": _streams(Circuit.AND_LOOP, 4, 4, oc_lanes=16, nnz_lanes=4, depthwise=1, binary_rows=8),
    "or_tree": _streams(Circuit.AND_SEP_OR, 1, 2),
    "counter": _streams(Circuit.AND_SEP_COUNTER, 4, depthwise=1),
    "and_acc": _streams(Circuit.AND_ACC, 4, winograd=1),
}


@pytest.mark.parametrize("name", with_full(STOCHASTIC_CONFIGS, *(STOCHASTIC_CONFIGS.keys() - {"and_loop"})))
def test_stochastic_compute(name):
    config = STOCHASTIC_CONFIGS[name]
    run_bench(ComputeEngine(config), module="tests.cores.bench_stochastic_compute", name=f"stochastic_compute_{name}",
              parameters={"config": config.to_dict()})


@pytest.mark.full
@pytest.mark.parametrize("name", FULL_CONFIGS)
def test_compute_engine_full(name):
    config = FULL_CONFIGS[name]
    run_bench(ComputeEngine(config), module="tests.cores.bench_compute_engine", name=f"compute_engine_{name}",
              parameters={"config": config.to_dict(), "tiles": 30})


def test_weights_are_taken_behind_the_first_issue():
    with pytest.raises(ValueError, match="taken must be at least 2, not 1"):
        WeightLoader(NpuConfig.preset(16), taken=1)
