import base64
from html.parser import HTMLParser

from foretext.demo.report import TaskResult, percent, render

EVIL = "<script>alert('x')</script> & \"quotes\""
CURVE = b"\x89PNG a picture"


def page_of(text: str = "plain") -> str:
    return render(
        text,
        results=[TaskResult(text, [0.8, 0.82, 0.81], [0.6, 0.61, 0.59], [0.843], 0.5)],
        curve=CURVE,
        samples=[text],
        notes=[text],
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
        if tag not in ("meta", "img"):
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
    assert tags.text.count(EVIL) == 4  # shown as text, at every place that shows one


def test_the_page_needs_nothing_else() -> None:
    page = page_of()
    tags = parse(page)
    assert not {"script", "link", "iframe", "object"} & set(tags.opened)
    sources = [value for name, value in tags.attributes if name in ("src", "href")]
    assert sources == [f"data:image/png;base64,{base64.b64encode(CURVE).decode()}"]
    assert "url(" not in page
    assert "@import" not in page
    assert "color-scheme: light dark" in page


def test_the_table_has_mean_deviation_and_gain() -> None:
    text = parse(page_of()).text
    assert "81.0 ± 1.0" in text
    assert "60.0 ± 1.0" in text
    assert "+21.0 ✓" in text
    assert "84.3" in text
    assert "50.0" in text


def result(pretrained: list[float], untrained: list[float]) -> TaskResult:
    return TaskResult("t", pretrained, untrained, [0.5], 0.5)


def test_a_gain_is_clear_only_above_the_larger_deviation() -> None:
    assert result([0.7, 0.7], [0.6, 0.62]).is_clear
    assert not result([0.7, 0.7], [0.5, 0.8]).is_clear
    assert not result([0.5, 0.51], [0.6, 0.6]).is_clear
    assert not result([0.9], [0.1]).is_clear  # one seed shows no deviation


def test_percent() -> None:
    assert percent([]) == "–"
    assert percent([0.5]) == "50.0"
    assert percent([0.5, 0.6]) == "55.0 ± 7.1"
