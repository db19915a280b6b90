"""A design and what a tool made of it, side by side in the simulator: the same outputs in every cycle."""

from collections.abc import Mapping

from amaranth.lib import wiring

from tests.bench import run_bench

__all__ = ["WRITTEN", "MADE", "run_side_by_side"]

#: Names of the two modules.
WRITTEN, MADE = "written", "made"


def run_side_by_side(verilog: str, *, name: str, inputs: Mapping[str, int], outputs: Mapping[str, int],
                     clocks: tuple[str, ...] = ("clk",)) -> None:
    """``verilog`` has the modules `WRITTEN` and `MADE` with the same ports: ``inputs`` and ``outputs``, each with its
    bits, and ``clocks``. ``name`` names the build folder.
    """
    low, parts = 0, {}
    for port, width in outputs.items():
        parts[port] = f"[{low + width - 1}:{low}]"
        low += width

    def instance(module: str, net: str) -> str:
        nets = {port: port for port in (*clocks, *inputs)} | {port: f"{net}{part}" for port, part in parts.items()}
        # Escaped, as a port may have a word of the language for its name.
        ports = ", ".join(rf".\{port} ({value})" for port, value in nets.items())
        return f"  {module} {module}_0({ports});"

    top = "\n".join([
        f"module top({', '.join([*clocks, *inputs, 'equal'])});",
        *(f"  input {clock};" for clock in clocks),
        *(f"  input [{width - 1}:0] {port};" for port, width in inputs.items()),
        f"  output [{len(parts) - 1}:0] equal;",
        f"  wire [{low - 1}:0] expected, found;",
        *(f"  assign equal[{place}] = expected{part} == found{part};" for place, part in enumerate(parts.values())),
        instance(WRITTEN, "expected"), instance(MADE, "found"), "endmodule", ""])
    run_bench(wiring.Component({}), module="tests.bench_side_by_side", name=name,
              parameters={"inputs": dict(inputs), "outputs": list(outputs), "clocks": list(clocks)},
              verilog="/* verilator lint_off UNOPTFLAT */\n" + top + verilog)
