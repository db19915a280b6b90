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
def test_predictions_of_each_output(capsys: pytest.CaptureFixture):
    """Those that are scores have a column each, up to a few; a single output has one in any case."""
    def rows(**outputs: np.ndarray) -> list[list[str]]:
        show(_run(outputs, labels=[0]))
        lines = capsys.readouterr().out.splitlines()
        return [[cell.strip() for cell in line.strip("│┃").replace("┃", "│").split("│")]
                for line in lines if line.startswith(("│", "┃"))]

    vector, column, image = np.array([1.0, 2.0]), np.array([[3.0], [1.0]]), np.zeros((2, 4, 4))
    heading, names, row = rows(a=vector, map=image, b=column)
    assert heading[2:4] == ["prediction", "prediction"] and names[:4] == ["sample", "label", "by a", "by b"]
    assert row[:4] == ["0", "0", "1", "0"]
    heading, row = rows(a=vector)
    assert heading[:4] == ["sample", "label", "prediction", "seconds"] and row[2] == "1"
    assert rows(map=image)[1][2] == "-"
    assert rows(map=image, other=image)[0][:3] == ["sample", "label", "seconds"]
    assert [name for name in rows(**{f"y{n}": vector for n in range(9)})[1] if name.startswith("by")] == [
        f"by y{n}" for n in range(4)]
