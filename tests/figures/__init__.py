"""Figures in documents: recorded by one command, put into the pages by another, checked in every run of the tests.

    python -m tests.figures --help

docs/figures/README.md says how records and pages hang together.
"""
