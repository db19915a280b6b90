"""Errors of stochastic dot products are the published ones."""

import json

import numpy as np
import pytest

from cores.arch.stochastic import Circuit
from gen.bench import classifier, stochastic, stochastic_digits
from gen.bench.stochastic import PUBLISHED, dot_products, rmse
from gen.cli import main
from gen.stochastic.images import MNIST_FILES
from sim.stochastic.streams import Streams
from tests.cores.simulation import log_seed
from tests.gen.stochastic.few_digits import few_digits

_COUNT = 600


@pytest.mark.parametrize("circuit", [circuit for circuit in Circuit if circuit is not Circuit.AND_ACC])
@pytest.mark.parametrize("inputs, length", [(16, 32), (16, 128), (16, 256), (16, 1024), (64, 256)])
def test_errors_are_those_published(circuit, inputs, length):
    """Within a quarter; from 128 bits on a uGEMM or an AND-LOOP may be better, as int8 operands are not rounded."""
    rng = np.random.default_rng(log_seed())
    found = rmse(circuit, *dot_products(rng, _COUNT, inputs), Streams(length))
    least = 0.5 if length >= 128 and circuit in (Circuit.UGEMM, Circuit.AND_LOOP) else 0.75
    assert least < found / PUBLISHED[circuit][inputs, length] < 1.25


@pytest.mark.parametrize("length", [32, 256])
def test_and_acc_is_between_and_loop_and_the_published(length):
    """What is left over is lost; the published circuit loses more."""
    operands = dot_products(np.random.default_rng(log_seed()), _COUNT, 16)
    loop, acc = (rmse(circuit, *operands, Streams(length)) for circuit in (Circuit.AND_LOOP, Circuit.AND_ACC))
    assert 0.9 * loop < acc < PUBLISHED[Circuit.AND_ACC][16, length]


def test_command(monkeypatch, capsys):
    monkeypatch.setattr(stochastic, "ERRORS", ((16, 8), (16, 32)))
    assert main(["bench", "stochastic", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["stochastic"]
    assert [(row["circuit"], row["length"]) for row in rows] == [
        (circuit.label, length) for circuit in Circuit for length in (8, 32)]
    assert rows[-1]["published"] == PUBLISHED[Circuit.AND_LOOP][16, 32]
    assert rows[-1]["rmse"] == pytest.approx(rows[-1]["published"], rel=0.25)


@pytest.mark.slow
def test_network_without_images(tmp_path, monkeypatch, capsys):
    """What is left is the example of the checkout."""
    few = few_digits()
    monkeypatch.setenv("NPUGEN_BUILD", str(tmp_path / "kept"))
    monkeypatch.setattr(classifier, "digits_classifier", lambda root: few)
    monkeypatch.setattr(stochastic_digits, "lengths_of", lambda circuit: (8,))
    assert main(["bench", "stochastic-network", "--json", "--models", str(tmp_path)]) == 0
    captured = capsys.readouterr()
    assert {row["backbone"] for row in json.loads(captured.out)["stochastic-network"]} == {"digits"}
    assert MNIST_FILES[0] in captured.err


def test_damaged_images(tmp_path, capsys):
    pytest.importorskip("torch", reason="training needs PyTorch")
    for name in MNIST_FILES:
        (tmp_path / name).write_bytes(b"not packed")
    assert main(["bench", "stochastic-network", "--models", str(tmp_path)]) == 1
    assert capsys.readouterr().err.count("\n") == 1
