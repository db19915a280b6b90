"""Units that would make a model faster: what is said is what a program for that machine takes."""

from pathlib import Path

import pytest

from boards.registry import get_board
from gen.explore.faster import faster
from gen.run.application import open_application
from sim import cycles

BOARD = get_board("zu3eg")


def taken(path: Path, *features: str) -> int:
    config = BOARD.config(256)
    config = BOARD.config(256, **config.feature_fields(features))
    return sum(cycles.estimate(config, program.code).cycles
               for program in open_application(path, config).programs())


@pytest.mark.slow
def test_of_resnet8(models: Path, tmp_path: Path):
    path = models / "mlperf_resnet8_int8.onnx"
    application = open_application(path, BOARD.config(256))
    found = faster(application, BOARD)
    assert [one.feature for one in found] == ["depthwise"]      # fusion, which brings it, saves nothing more
    (one,) = found
    assert one.before == taken(path) and one.cycles == taken(path, "depthwise")
    assert one.option == "--features depthwise" and one.fits
    assert 0.05 < one.lut < 0.3 and str(one).startswith(f"depthwise: {100 * one.share:.0f} % fewer cycles for ")
    slow = faster(application, BOARD, memory=get_board("ecp5"))
    assert all(other.before > one.before for other in slow)
    application.save(tmp_path / "y.npu")
    assert faster(open_application(tmp_path / "y.npu", None), BOARD) == []
    rich = BOARD.config(256, **BOARD.config(256).feature_fields(["depthwise"]))
    assert not faster(open_application(path, rich), BOARD)
    # A board that it does not fit is named.
    small = get_board("ecp5")
    assert [other.fits for other in faster(application, small)] == [False]
