"""Netlists that Yosys has mapped: the graph of their timing, and passes over them between Yosys and place and route.

Which cells there are, which passes and which delays, a family says (`gen.families`); `ecp5_copies` and
`ecp5_multipliers` are passes of one family. A pass is a script of its own, as the projects of `build` have it too: it
needs Python alone.
"""
