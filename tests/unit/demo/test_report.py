import math
import re
from collections.abc import Mapping
from html.parser import HTMLParser

import pytest

from foretext.demo.report import Curve, TaskResult, percent, render

EVIL = "<script>alert('x')</script> & \"quotes\""


CURVES = {"training": [(2048, 9.0), (4096, 5.0), (6144, 4.0)], "validation": [(2048, 9.1), (6144, 4.2)]}


def page_of(text: str = "plain", curves: Mapping[str, Curve] = CURVES) -> str:
    return render(
        title=text,
        summary=text,
        curves=curves,
        results=[TaskResult(text, [0.8, 0.82, 0.81], [0.6, 0.61, 0.59], 600, 500, 0.5, text, 0.843)],
        samples=[(text, text)],
        notes=[text],
        facts={text: text},
        examples={text: [(text, text), ("label", text)]},
    )


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.text = ""
        self.attributes: list[tuple[str, str | None]] = []
        self.balance: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.opened.append(tag)
        self.attributes += attrs
        if tag not in ("meta",):
            self.balance.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.opened.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.balance.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def parse(page: str) -> Tags:
    tags = Tags()
    tags.feed(page)
    tags.close()
    return tags


def test_every_text_is_escaped() -> None:
    tags = parse(page_of(EVIL))
    assert "script" not in tags.opened
    assert tags.balance == []
    assert tags.text.count(EVIL) >= 10  # shown as text, at every place that shows one


def test_the_page_needs_nothing_else() -> None:
    page = page_of()
    tags = parse(page)
    assert not {"script", "link", "img", "iframe", "object"} & set(tags.opened)
    assert not [value for name, value in tags.attributes if name in ("src", "href")]
    assert "url(" not in page
    assert "@import" not in page
    assert "prefers-color-scheme: dark" in page


def test_the_table_has_mean_deviation_and_gain() -> None:
    text = parse(page_of()).text
    assert "81.0 ± 1.0" in text
    assert "60.0 ± 1.0" in text
    assert "+21.0 ✓" in text
    assert "84.3" in text


def result(pretrained: list[float], untrained: list[float]) -> TaskResult:
    return TaskResult("t", pretrained, untrained, 1, 1, 0.5, "", 0.5)


def test_a_gain_is_clear_only_above_the_larger_deviation() -> None:
    assert result([0.7, 0.7], [0.6, 0.62]).is_clear
    assert not result([0.7, 0.7], [0.5, 0.8]).is_clear
    assert not result([0.5, 0.51], [0.6, 0.6]).is_clear
    assert not result([0.9], [0.1]).is_clear  # one seed shows no deviation


def test_percent() -> None:
    assert percent([0.5]) == "50.0"
    assert percent([0.5, 0.6]) == "55.0 ± 7.1"


@pytest.mark.parametrize(
    "curve",
    [
        [],
        [(10, 5.0)],
        [(0, float("nan")), (0, float("inf"))],
        [(10, 5.0), (20, 5.0)],
    ],
)
def test_short_flat_and_broken_curves_do_not_break_the_page(curve: Curve) -> None:
    page = page_of(curves={"training": curve, "validation": curve[:1]})
    assert not re.search(r"\b(nan|inf)\b", page)
    assert parse(page).balance == []
    assert ("<polyline" in page) == (sum(math.isfinite(loss) for _, loss in curve) > 0)


def test_curve_points_lie_within_the_picture() -> None:
    page = page_of()
    width, height = map(float, re.findall(r"viewBox='0 0 (\d+) (\d+)' role='img' aria-label='Loss", page)[0])
    points = [
        tuple(map(float, one.split(","))) for line in re.findall(r"points='([^']+)'", page) for one in line.split()
    ]
    assert len(points) == 5
    assert all(0 <= x <= width and 0 <= y <= height for x, y in points)
    assert points[0][1] < points[2][1]  # a falling loss falls
