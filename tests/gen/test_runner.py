"""What is said of a run: predictions and accuracies."""

import numpy as np
import pytest

from gen.cli.run import show
from gen.run.runner import Inference, Run


def _run(*outputs: dict[str, np.ndarray], labels: list[int] | None) -> Run:
    return Run("reference", [Inference(one, 0.1) for one in outputs], None if labels is None else np.array(labels), 0)


def test_accuracy_of_each_output(capsys: pytest.CaptureFixture):
    """Of two, one is right on both samples, the other on one; what is no vector of scores has none."""
    first = {"a": np.array([1.0, 2.0]), "b": np.array([3.0, 1.0]), "map": np.zeros((2, 4, 4))}
    second = {"a": np.array([2.0, 1.0]), "b": np.array([3.0, 1.0]), "map": np.zeros((2, 4, 4))}
    result = _run(first, second, labels=[1, 0])
    assert (result.accuracy, result.accuracies) == (None, {"a": 1.0, "b": 0.5})
    show(result)
    assert "accuracy 100.00 % by a, 50.00 % by b" in capsys.readouterr().out
    result = _run({"map": first["map"]}, labels=[1])
    show(result)
    assert "accuracy not known, as no output is one vector of scores" in capsys.readouterr().out
    result = _run({"a": first["a"]}, {"a": second["a"]}, labels=[1, -1])
    assert (result.accuracy, result.accuracies) == (1.0, {"a": 1.0})
    result = _run(first, labels=None)
    show(result)
    assert "accuracy" not in capsys.readouterr().out
