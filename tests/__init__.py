"""Tests, and what several of them share; docs/testing.md says how they are run."""

from pathlib import Path

__all__ = ["ROOT"]

#: Of the checkout.
ROOT = Path(__file__).resolve().parents[1]
