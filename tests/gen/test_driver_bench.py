"""The rates that `bench driver` prints: bounded by the device, and of results that are right."""

from pathlib import Path

import pytest

from boards.clock import Clock
from cores.config import NpuConfig
from gen.bench import driver
from gen.options import CompileOptions
from gen.run.application import open_application
from gen.run.inputs import read_samples

CONFIG = NpuConfig.preset(16)


def test_a_row(digits: Path, monkeypatch: pytest.MonkeyPatch):
    """At 10 MHz a digit takes 35 ms: the device bounds both rates, and with one slot the host's part comes on top."""
    monkeypatch.setattr(driver, "_INFERENCES", 4)
    monkeypatch.setattr(driver, "_ROUNDS", 1)
    application = open_application(digits / "digits_int8.onnx", CONFIG, CompileOptions(keep_all=True))
    samples = read_samples(digits / "digits_test.npz", application.inputs, limit=1)
    row = driver._row("digits", application, samples.inputs, Clock(10.0, "given"))
    assert row.device_ms == pytest.approx(row.cycles / 10e3, rel=0.01)
    assert row.single <= 1e3 / row.device_ms and row.double <= 1e3 / row.device_ms
    assert row.host_ms > 0


def test_wrong_results_are_noticed(digits: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(driver, "_put_results", lambda *arguments: None)
    application = open_application(digits / "digits_int8.onnx", CONFIG, CompileOptions(keep_all=True))
    samples = read_samples(digits / "digits_test.npz", application.inputs, limit=1)
    with pytest.raises(AssertionError, match="gives another"):
        driver._row("digits", application, samples.inputs, Clock(10.0, "given"))
