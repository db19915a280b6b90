"""The programs for a machine's engines in C: one file of bytes, and tables of what lies where in it."""

from gen.deploy.c_sources import template
from npudriver.bringup import BringUp

__all__ = ["c_bringup"]

#: Bytes at whose multiples parts begin, as wide as any bus.
_ALIGNMENT = 64


def c_bringup(programs: BringUp) -> dict[str, bytes]:
    """File name -> content, beside those of the library."""
    data = bytearray()
    trials = []
    for trial in programs.trials:
        places = {}
        for part in ("code", "data", "expected"):
            data += bytes(-len(data) % _ALIGNMENT)
            places[part] = len(data)
            data += getattr(trial, part)
        trials.append((trial, places))
    return {"npugen_bringup.h": template("npugen_bringup.h.jinja").render(trials=trials).encode(),
            "npugen_bringup_data.S": template("npugen_bringup_data.S.jinja").render().encode(),
            "bringup.bin": bytes(data)}
