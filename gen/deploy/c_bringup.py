"""Bring-up in C: the programs for a machine's engines and what a dump shows, as one file of bytes and tables of it."""

from gen.deploy.c_sources import template
from npudriver.bringup import BringUp
from npudriver.dump import LEFT_OUT

__all__ = ["c_bringup"]

#: Bytes at whose multiples parts begin, as wide as any bus.
_ALIGNMENT = 64


def c_bringup(programs: BringUp) -> dict[str, bytes]:
    """File name -> content, beside those of the library."""
    data = bytearray()

    def place(content: bytes) -> int:
        data.extend(bytes(-len(data) % _ALIGNMENT) + content)
        return len(data) - len(content)

    trials = [(trial, {part: place(getattr(trial, part)) for part in ("code", "data", "expected")})
              for trial in programs.trials]
    machine = programs.machine
    description = machine.to_json().encode()
    header = template("npugen_bringup.h.jinja").render(
        trials=trials, machine=place(description), machine_size=len(description),
        registers=[item for item in machine.registers.items() if not item[0].startswith(LEFT_OUT)],
        counters=[(name, machine.registers[f"counter_{name}_low"]) for name in machine.counters])
    return {"npugen_bringup.h": header.encode(),
            "npugen_bringup_data.S": template("npugen_bringup_data.S.jinja").render().encode(),
            "bringup.bin": bytes(data)}
