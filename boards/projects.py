"""The project that goes with a family's boards: files -> their templates in boards/templates."""

__all__ = ["ECP5", "QUARTUS", "VIVADO"]

#: With Linux on the processor beside the fabric.
_LINUX = {"npu.dtso": "npu.dtso.jinja", "load.sh": "load.sh.jinja"}

VIVADO = {
    "vivado_project.tcl": "vivado_project.tcl.jinja",
    "npu_axi.v": "npu_axi.v.jinja",
    "npu_ooc.xdc": "npu_ooc.xdc.jinja",
    "npu.bif": "npu.bif.jinja",
    **_LINUX,
}
QUARTUS = {
    "npu_hw.tcl": "npu_hw.tcl.jinja",
    "system.tcl": "system.tcl.jinja",
    "quartus_project.tcl": "quartus_project.tcl.jinja",
    "system.sdc": "system.sdc.jinja",
    "quartus_area.tcl": "quartus_area.tcl.jinja",
    "npu.sdc": "npu.sdc.jinja",
    **_LINUX,
}
ECP5 = {"Makefile": "ecp5.mk.jinja", "npu.ys": "npu.ys.jinja", "npu.lpf": "npu.lpf.jinja",
        "multipliers.py": "multipliers.py.jinja", "copies.py": "copies.py.jinja"}
