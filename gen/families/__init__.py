"""Families of FPGA devices: one folder or module each, with all that the project knows of a family.

A family is an object, `gen.families.family.Family`: how Yosys maps to it, its cells with their costs and their timing,
the delays of a speed grade, its block RAMs, the basis of its area estimates, the passes between Yosys and place and
route, its nextpnr, and the project that `build` writes. `gen.families.registry` finds every module here that has a
``FAMILY``. Templates lie beside it, or in ``templates`` where several families share them. A board (`boards`) names its
family and has what differs from board to board: device, memory, clock. No other part of the project knows a family by
its name, as ``tests/lint/families.py`` checks. docs/extending.md adds a family as an example.

Families are in `gen` and not in `boards`, as they use passes and timing of `gen.netlist`: a board is data alone.
"""
