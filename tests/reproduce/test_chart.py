"""Drawings are SVG that parses, with every point at its place."""

import math
import xml.etree.ElementTree as ElementTree

from regard.reproduce.chart import Axis, Series, chart

NAME = "{http://www.w3.org/2000/svg}"


def circles(svg: str) -> list[tuple[float, float]]:
    return [
        (float(one.attrib["cx"]), float(one.attrib["cy"]))
        for one in ElementTree.fromstring(svg).iter(f"{NAME}circle")
    ]


def test_points_stand_at_their_places() -> None:
    points = ((1.0, 1.0, "a < b"), (10.0, 100.0, ""), (100.0, 1e4, "c"))
    svg = chart("t", Axis("x", log=True), Axis("y", log=True), [Series("s", points, line=True)])
    first, second, third = circles(svg)
    assert second[0] - first[0] == third[0] - second[0] > 100
    assert first[1] - second[1] == second[1] - third[1] > 50  # larger is higher
    assert "a &lt; b" in svg


def test_what_cannot_be_drawn_is_left_out() -> None:
    points = ((1.0, math.nan, "a"), (1.0, 2.0, "b"), (-1.0, 3.0, "c"))
    svg = chart("t", Axis("x", log=True), Axis("y"), [Series("s", points), Series("none", ())])
    assert len(circles(svg)) == 1
    assert "none" not in svg


def test_an_empty_drawing_is_one_too() -> None:
    assert circles(chart("t", Axis("x"), Axis("y"), [])) == []


def test_marks_of_a_short_logarithmic_axis_are_round_values() -> None:
    marks = Axis("x", log=True).marks(math.log10(1.5), math.log10(6))
    assert [text for _, text in marks] == ["2", "3", "4", "5", "6"]
    assert all(math.isclose(10**place, float(text)) for place, text in marks)
