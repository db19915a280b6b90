"""The front end's order: one handler an operator, all of them in the documents, no circle of imports."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import onnx
import pytest

from gen.onnx.handlers import HANDLERS
from gen.onnx.handlers.refused import REFUSED
from gen.onnx.registry import Registry
from tests.operator_table import PAGE, page

ROOT = Path(__file__).resolve().parents[2]


def test_an_operator_has_one_handler() -> None:
    registry = Registry()
    registry.handles("Relu")(lambda context, inputs: [])
    registry.handles("Relu", domains=["mine"])(lambda context, inputs: [])
    with pytest.raises(ValueError, match=r"two handlers of \.Relu"):
        registry.handles("Clip", "Relu")(lambda context, inputs: [])
    assert set(registry) == {("", "Relu"), ("mine", "Relu")}


def test_claims() -> None:
    """Every handler says where its operator runs and how; what is refused has none."""
    claimed = {(domain, operator): claim for claim in HANDLERS.claims for operator in claim.operators
               for domain in claim.domains}
    assert claimed.keys() == HANDLERS.keys()
    assert [operator for operator, claim in claimed.items() if not claim.conditions] == []
    assert [operator for _, operator in HANDLERS if operator in REFUSED] == []


def test_refused_operators_exist() -> None:
    known = {schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain}
    assert set(REFUSED) <= known


def test_table_of_operators() -> None:
    """As `python -m tests.operator_table` writes it."""
    assert PAGE.read_text() == page()


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
