"""Which state of the hardware's sources a measurement is of."""

from gen.files.sources import sources_digest

__all__ = ["hardware_digest"]


def hardware_digest() -> str:
    """Changes with the sources that the hardware is made from; 64 hexadecimal digits."""
    return sources_digest("cores")
