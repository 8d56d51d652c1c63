import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from foretext.demo.report import LossPoint, ReportData, TaskResult, percent, render, write_report

EVIL = "<script>alert('x')</script> & \"quotes\""


def data(text: str = "plain") -> ReportData:
    return ReportData(
        title=text,
        summary=text,
        curve=[LossPoint(1, 2048, 9.0, 9.1), LossPoint(2, 4096, 5.0, None), LossPoint(3, 6144, 4.0, 4.2)],
        results=[TaskResult(text, text, [0.8, 0.82, 0.81], [0.6, 0.61, 0.59], 600, 500, 0.5, text)],
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
    tags = parse(render(data(EVIL)))
    assert "script" not in tags.opened
    assert tags.balance == []
    assert tags.text.count(EVIL) >= 10  # shown as text, at every place that shows one


def test_the_page_needs_nothing_else() -> None:
    page = render(data())
    tags = parse(page)
    assert not {"script", "link", "img", "iframe", "object"} & set(tags.opened)
    assert not [value for name, value in tags.attributes if name in ("src", "href")]
    assert "url(" not in page
    assert "@import" not in page
    assert "prefers-color-scheme: dark" in page


def test_the_table_has_mean_deviation_and_gain() -> None:
    text = parse(render(data())).text
    assert "81.0 ± 1.0" in text
    assert "60.0 ± 1.0" in text
    assert "+21.0 ✓" in text


def test_a_gain_is_clear_only_above_the_larger_deviation() -> None:
    assert TaskResult("t", "accuracy", [0.7, 0.7], [0.6, 0.62], 1, 1).is_clear
    assert not TaskResult("t", "accuracy", [0.7, 0.7], [0.5, 0.8], 1, 1).is_clear
    assert not TaskResult("t", "accuracy", [0.5, 0.51], [0.6, 0.6], 1, 1).is_clear
    assert not TaskResult("t", "accuracy", [0.9], [0.1], 1, 1).is_clear  # one seed shows no deviation


def test_percent() -> None:
    assert percent([]) == "not run"
    assert percent([0.5]) == "50.0"
    assert percent([0.5, 0.6]) == "55.0 ± 7.1"


@pytest.mark.parametrize(
    "curve",
    [
        [],
        [LossPoint(1, 10, 5.0, None)],
        [LossPoint(1, 0, float("nan"), None), LossPoint(2, 0, float("inf"), None)],
        [LossPoint(1, 10, 5.0, 5.0), LossPoint(2, 20, 5.0, 5.0)],
    ],
)
def test_short_flat_and_broken_curves_do_not_break_the_page(curve: list[LossPoint]) -> None:
    page = render(ReportData("t", "s", curve, [], []))
    assert not re.search(r"\b(nan|inf)\b", page)
    assert "<table" not in page and "fine-tuning" in page


def test_unfinished_tasks_are_shown_as_such() -> None:
    page = render(ReportData("t", "s", [], [TaskResult("choice", "accuracy", [0.4], [], 1, 1)], []))
    assert percent([]) in page
    assert "nan" not in page


def test_curve_points_lie_within_the_picture() -> None:
    page = render(data())
    width, height = map(float, re.findall(r"viewBox='0 0 (\d+) (\d+)' role='img' aria-label='Loss", page)[0])
    points = [
        tuple(map(float, one.split(","))) for line in re.findall(r"points='([^']+)'", page) for one in line.split()
    ]
    assert len(points) == 5
    assert all(0 <= x <= width and 0 <= y <= height for x, y in points)
    assert points[0][1] < points[2][1]  # a falling loss falls


def test_the_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "report.html"
    write_report(path, data("first"))
    write_report(path, data("second"))
    assert "second" in path.read_text(encoding="utf-8")
    assert [one.name for one in path.parent.iterdir()] == ["report.html"]
