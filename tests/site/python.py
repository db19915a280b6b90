"""The reference of what Python programs import: pages that name objects, whose docstrings mkdocstrings adds."""

from collections.abc import Callable

from cores.config import NpuConfig
from gen.options import CompileOptions
from tests.site.comments import fields_table

__all__ = ["python_pages"]

#: Place in the site -> title, introduction, objects.
_PAGES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "reference/npugen.md": (
        "npugen",
        "The package for users; [Python API](../api.md) has an example.",
        ("npugen.machines.machine", "npugen.machines.machine_for", "npugen.machines.Machine", "npugen.machines.build",
         "npugen.models.quantize", "npugen.models.prune", "npugen.models.train", "npugen.models.compile",
         "npugen.models.judge", "npugen.models.Model", "npugen.measures.run", "npugen.measures.profile",
         "npugen.measures.Profile", "npugen.measures.report", "npugen.measures.explore",
         "npugen.measures.Exploration", "npugen.models.deploy")),
    "reference/machine.md": (
        "Machine",
        "The configuration of a machine, and its Verilog.",
        ("cores.config.NpuConfig", "cores.emit.emit_verilog", "boards.board.Board", "boards.registry.get_board")),
    "reference/compiler.md": (
        "Compiler",
        "Models, programs, and what can be asked of the compiler; [Python API](../api.md) has a program with them.",
        ("gen.options.CompileOptions", "gen.onnx.importer.load", "gen.compiler.compile_graph",
         "gen.program.program.Program", "gen.program.file.save_program", "gen.program.file.load_program",
         "gen.ir.reference.run", "gen.run.application.open_application", "gen.run.inputs.read_samples",
         "gen.run.runner.run_model")),
    "reference/simulators.md": (
        "Simulators",
        "How well they agree with the Verilog is in [simulators](../simulators.md).",
        ("sim.functional.run", "sim.cycles.estimate", "sim.profile.layer_timings", "sim.rtl.machine.RtlMachine",
         "sim.rtl.run.run_program")),
}

#: Dataclasses whose fields are of interest.
_WITH_FIELDS = (CompileOptions, NpuConfig)


def _object(name: str) -> str:
    """An object's place on a page, and the table of its fields."""
    shown = next((cls for cls in _WITH_FIELDS if name.endswith(f".{cls.__name__}")), None)
    return f"::: {name}" + (f"\n\n### Fields of {shown.__name__}\n\n{fields_table(shown)}" if shown else "")


def _page(title: str, text: str, names: tuple[str, ...]) -> str:
    return "\n\n".join([f"# {title}", text, *map(_object, names)]) + "\n"


def python_pages() -> dict[str, Callable[[], str]]:
    """Place in the site -> what makes the page."""
    return {place: lambda content=content: _page(*content) for place, content in _PAGES.items()}
