"""The machine in a system of LiteX: bus, memory controller, a host at a serial line.

``targets`` and ``host`` need no LiteX; ``module`` and ``system`` do, and are imported where they are used.
"""
