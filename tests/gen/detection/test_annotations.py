"""Objects in pictures, from files of two forms."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gen.detection.errors import AnnotationError
from gen.detection.read import is_annotations, read_annotations

COCO: dict[str, Any] = {
    "info": {"year": 2026}, "images": [{"id": 7, "file_name": "a.png", "width": 40, "height": 30, "license": 1},
                                       {"id": 3, "file_name": "b/c.png", "width": 20, "height": 20}],
    "categories": [{"id": 9, "name": "dog"}, {"id": 2, "name": "cat", "supercategory": "pet"}],
    "annotations": [{"id": 1, "image_id": 7, "category_id": 9, "bbox": [1, 2, 10, 20.5], "segmentation": [[1, 2]]},
                    {"id": 2, "image_id": 7, "category_id": 2, "bbox": [0, 0, 40, 30], "iscrowd": 1}]}
VOC = """<annotation><filename>{name}</filename><size><width>40</width><height>30</height><depth>3</depth></size>
<object><name>dog</name><difficult>1</difficult><bndbox><xmin>2</xmin><ymin>3</ymin><xmax>11</xmax><ymax>22</ymax>
</bndbox></object><object><name>cat</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>40</xmax><ymax>30</ymax></bndbox>
</object></annotation>"""


def written(folder: Path, content: object) -> Path:
    path = folder / "a.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_coco(tmp_path: Path):
    found = read_annotations(written(tmp_path, COCO))
    assert found.names == ("cat", "dog") and found.images == tmp_path       # in the order of their ids
    first = found.picture("a.png")
    np.testing.assert_array_equal(first.boxes, [[1, 2, 11, 22.5], [0, 0, 40, 30]])
    assert (first.width, first.height) == (40, 30)
    assert first.classes.tolist() == [1, 0] and first.crowd.tolist() == [False, True]
    assert found.picture(1) is found.picture("c.png") is found.picture("b/c.png") and not len(found.picture(1).boxes)
    dogs = found.of(("dog",))
    assert dogs.left_out == 1 and dogs.names == ("dog",) and dogs.picture(0).classes.tolist() == [0]
    assert found.of(("dog", "cat")).picture(0).classes.tolist() == [0, 1]
    assert [picture.name for picture in found.part(1, None).pictures] == ["b/c.png"]


def test_voc(tmp_path: Path):
    folder = tmp_path / "Annotations"
    folder.mkdir()
    (folder / "b.xml").write_text(VOC.format(name="b.jpg"))
    (folder / "a.xml").write_text(VOC.format(name=""))
    found = read_annotations(folder)
    assert is_annotations(folder) and found.names == ("cat", "dog") and found.images == folder
    assert [picture.name for picture in found.pictures] == ["a.jpg", "b.jpg"]
    # Pixels count from 1, and the last one is within.
    np.testing.assert_array_equal(found.picture("b.jpg").boxes, [[1, 2, 11, 22], [0, 0, 40, 30]])
    assert found.picture(0).classes.tolist() == [1, 0] and found.picture(0).crowd.tolist() == [True, False]
    (tmp_path / "JPEGImages").mkdir()
    assert read_annotations(folder).images == tmp_path / "JPEGImages"
    assert read_annotations(folder, tmp_path).images == tmp_path


def changed(part: str, number: int, **change: Any) -> dict[str, Any]:
    rows = [dict(row) for row in COCO[part]]
    rows[number] |= change
    return {**COCO, part: rows}


@pytest.mark.parametrize(("content", "message"), [
    ("{", "truncated"), ("[" * 5000, "Expected `object`"), ('{"images": []}', "missing required field"),
    ("\x01", "malformed"),
    (changed("images", 0, width=0), "Expected `int` >= 1 - at `$.images[0].width`"),
    (changed("images", 0, height=1 << 40), "Expected `int` <= 65536"),
    (changed("images", 0, file_name="../a.png"), "'../a.png' is no name of a file in the folder of images"),
    (changed("images", 0, file_name="/a.png"), "'/a.png' is no name"),
    (changed("images", 1, file_name="a.png"), "two pictures are called a.png"),
    (changed("images", 1, id=7), "two images, or two categories, have one id"),
    (changed("categories", 1, name="dog"), "two classes are called dog"),
    (changed("annotations", 0, image_id=8), "an object of image 8 and category 9, of which there is none"),
    (changed("annotations", 0, category_id=1), "an object of image 7 and category 1, of which there is none"),
    (changed("annotations", 0, bbox=[1, 2, 3]), "Expected `array` of length 4"),
    (changed("annotations", 0, bbox=[1, 2, -3, 4]),
     "picture a.png: box 1, 2, -2, 6 (left, top, right, bottom) is not within 40 x 30 pixels"),
    (changed("annotations", 0, bbox=[1, 2, 43, 4]), "box 1, 2, 44, 6"),
    (changed("annotations", 0, bbox=[1, 2, 1e308, 1e308]), "is not within"),
])
def test_wrong_coco(content: object, message: str, tmp_path: Path):
    path = written(tmp_path, content)
    with pytest.raises(AnnotationError) as error:
        read_annotations(path)
    assert str(error.value).startswith(f"{path}: ") and message in str(error.value)
    assert "\n" not in str(error.value) and str(error.value).count(str(path)) == 1


@pytest.mark.parametrize(("content", "message"), [
    ("<annotation>", "no annotation of VOC"), ("", "no annotation of VOC"),
    (VOC.replace("<width>40</width>", ""), "an element annotation has no size/width"),
    (VOC.replace("<xmin>2</xmin>", "<xmin>x</xmin>"), "no annotation of VOC: could not convert"),
    (VOC.replace("<xmin>2</xmin>", "<xmin>nan</xmin>"), "a box with numbers that are not finite"),
    (VOC.replace("<name>dog</name>", ""), "an element object has no name"),
    ('<!DOCTYPE a [<!ENTITY x "y">]>' + VOC, "has a document type, which is not read"),
])
def test_wrong_voc(content: str, message: str, tmp_path: Path):
    (tmp_path / "a.xml").write_text(content.format(name="a.jpg"))
    with pytest.raises(AnnotationError) as error:
        read_annotations(tmp_path)
    assert str(error.value).startswith(f"{tmp_path / 'a.xml'}: ") and message in str(error.value)


def test_what_is_not_there(tmp_path: Path):
    with pytest.raises(AnnotationError, match="0 XML files"):
        read_annotations(tmp_path)
    found = read_annotations(written(tmp_path, COCO))
    with pytest.raises(AnnotationError, match="no object of the classes dogs; it has cat, dog"):
        found.of(("dogs",))
    with pytest.raises(AnnotationError, match="no picture is called d.png"):
        found.picture("d.png")
    with pytest.raises(AnnotationError, match="has 2 pictures, and none for sample 2"):
        found.picture(2)
    with pytest.raises(OSError):
        read_annotations(tmp_path / "missing.json")
