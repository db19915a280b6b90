"""Networks that `bench accuracy` trains: they are what the machine has, pruned as far as they say, and kept."""

from pathlib import Path

import msgspec
import numpy as np
import pytest

from cores.config import NpuConfig
from gen.bench import accuracy
from gen.bench.accuracy import Cifar, measure
from gen.bench.accuracy_networks import NETWORKS, TrainedNetwork
from gen.prune.timing import QuantisedCounterpart
from gen.zoo.builder import Builder, Tensor


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.title)
def test_a_network_runs_on_the_machine_as_a_whole(network: TrainedNetwork):
    config = NpuConfig.preset(64)
    found = QuantisedCounterpart.of(network.made(), config, name=network.title)
    assert len(found.imported) == 1 and not found.on_host
    assert found.times(config).total < 250_000


def small(b: Builder, x: Tensor) -> None:
    x = b.relu(b.norm(b.conv(x, 16, 3, stride=4, name="conv1")))
    b.classify(b.relu(b.norm(b.conv(x, 16, 3, stride=2, name="conv2"))), 10)


@pytest.mark.slow
def test_rows_are_pruned_and_kept(tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("torch", reason="PyTorch is an extra: pip install '.[train]'")
    for stage in ("_DENSE", "_TUNED", "_QUANTISED"):
        short = msgspec.structs.replace(getattr(accuracy, stage), epochs=1, batch=16, lr=0.001)
        monkeypatch.setattr(accuracy, stage, short)
    images, labels = rng.normal(size=(32, 3, 32, 32)).astype(np.float32), np.arange(32) % 10
    np.savez(tmp_path / "learnt.npz", image=images, label=labels)
    given = Cifar(tmp_path / "learnt.npz", images, images, labels)
    network = TrainedNetwork(title="small", layers=small, sparsities=(75, 80))
    rows = list(measure(network, given))
    assert [row.sparsity for row in rows] == [75, 80]
    assert all(0 < row.zeros <= row.sparsity / 100 for row in rows) and rows[0].zeros < rows[1].zeros
    assert rows[1].cycles is not None and rows[0].cycles is not None and rows[1].cycles <= rows[0].cycles

    said: list[str] = []
    assert list(measure(network, given, said.append)) == rows
    assert not any("epoch" in line and "going on" not in line for line in said)     # nothing is trained again
