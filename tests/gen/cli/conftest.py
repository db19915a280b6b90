"""Tests of the command line work in a folder of their own."""

import pytest


@pytest.fixture(autouse=True)
def _elsewhere(elsewhere: None) -> None:
    pass
