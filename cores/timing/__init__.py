"""Latencies, depths and rates of the components: numbers without the hardware.

Each class is a base of the component that it describes, so the hardware is built from the same numbers that the time
model and the compiler read. Nothing here imports Amaranth.
"""
