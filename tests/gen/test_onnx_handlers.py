"""The front end's order: one handler an operator, all of them in the documents, no circle of imports."""

import ast
import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from gen.onnx.handlers import HANDLERS
from gen.onnx.registry import Registry

ROOT = Path(__file__).resolve().parents[2]


def test_an_operator_has_one_handler() -> None:
    registry = Registry()
    registry.handles("Relu")(lambda context, inputs: [])
    registry.handles("Relu", domains=["mine"])(lambda context, inputs: [])
    with pytest.raises(ValueError, match=r"two handlers of \.Relu"):
        registry.handles("Clip", "Relu")(lambda context, inputs: [])
    assert set(registry) == {("", "Relu"), ("mine", "Relu")}


@pytest.mark.parametrize("operator", sorted({operator for _, operator in HANDLERS}))
def test_operators_are_documented(operator: str) -> None:
    assert re.search(rf"\b{operator}\b", (ROOT / "docs" / "models.md").read_text())


def test_no_circle_of_imports() -> None:
    """Not for type checking either; and handlers know neither the importer nor the reader."""
    files = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
             for path in (ROOT / "gen" / "onnx").rglob("*.py")}
    imported: dict[str, set[str]] = {}
    for name, path in files.items():
        nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
        named = {(f"{node.module}.{alias.name}", node.module) for node in nodes for alias in node.names}
        imported[name] = {whole if whole in files else module for whole, module in named if module} & files.keys()
    assert len(list(TopologicalSorter(imported).static_order())) == len(files) > 30
    for name, others in imported.items():
        assert ".handlers" not in name or not others & {"gen.onnx.importer", "gen.onnx.read", "gen.onnx.passes"}, name
