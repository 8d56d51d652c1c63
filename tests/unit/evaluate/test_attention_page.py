"""The page of attention: whatever the pieces are, it stays one page; what it shows is what the model reads."""

from __future__ import annotations

import html.parser
import json
from typing import Any

import numpy as np
import pytest
from complaints import refused
from systems_under_test import TRANSFORMERS, base_model
from translation_under_test import translating_model

from foretext.evaluate.attention_page import MOST_TOKENS, attention_page, render, render_translation
from foretext.tasks.files.rows import rows_from
from foretext.train.finetuning.finetune import FinetuneRequest, finetune


class Scripts(html.parser.HTMLParser):
    """The scripts of a page, as a parser of HTML finds them, and what it would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.fetched: list[str] = []
        self.inside = False

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.inside = tag == "script"
        self.fetched += [value or "" for name, value in attributes if name in ("src", "href")]
        if self.inside:
            self.found.append("")

    def handle_endtag(self, tag: str) -> None:
        self.inside = False

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.found[-1] += data


def test_pieces_that_look_like_a_page() -> None:
    pieces = ["</script>", "<!--", "<script>", "<b>&amp;", "\u2028"]
    weights = np.tril(np.ones((2, 3, 5, 5))) / np.arange(1, 6)[:, None]
    page = render(pieces, weights, "<i>title</i>", causal=True)
    assert "<!--" not in page and "<i>" not in page
    parser = Scripts()
    parser.feed(page)
    assert len(parser.found) == 2 and not parser.fetched
    data = json.loads(parser.found[0])
    assert data["pieces"] == pieces and (data["layers"], data["heads"]) == (2, 3)
    assert data["weights"][0][0][:2] == [[1000], [500, 500]]
    assert [len(row) for row in data["weights"][1][2]] == [1, 2, 3, 4, 5]


def test_a_model_that_sees_both_sides() -> None:
    model = base_model("bert")
    parser = Scripts()
    parser.feed(attention_page(model, "some text"))
    data = json.loads(parser.found[0])
    assert data["pieces"][0] == "[CLS]" and data["pieces"][-1] == "[SEP]"
    for head in data["weights"][0]:
        assert all(len(row) == len(data["pieces"]) and abs(sum(row) - 1000) < len(row) for row in head)


def test_a_translation_that_looks_like_a_page() -> None:
    source, target = ["</script>", "<!--", "&"], ["<b>", "<end>"]
    weights = np.array([[0.5, 0.25, 0.25], [0.0, 0.001, 0.999]])
    page = render_translation(source, target, weights, "<i>title</i>", ["<!--", "&"])
    assert "<!--" not in page and "<i>" not in page and "&lt;!--, &amp;" in page
    parser = Scripts()
    parser.feed(page)
    assert len(parser.found) == 2 and not parser.fetched
    data = json.loads(parser.found[0])
    assert data["pieces"] == source and data["rows"] == target
    assert data["weights"] == [[[[500, 250, 250], [0, 1, 999]]]]


def test_a_run_that_translates() -> None:
    model = translating_model()
    for target in (None, "Der Hund ruht."):
        parser = Scripts()
        page = attention_page(model, "the zebra sees.", target)
        parser.feed(page)
        data = json.loads(parser.found[0])
        assert data["pieces"] == ["the", "zebra", "sees", "."] and (data["layers"], data["heads"]) == (1, 1)
        assert target is None or data["rows"] == ["Der", "Hund", "ruht", ".", "<end>"]
        assert len(data["rows"]) == len(data["weights"][0][0])
        assert all(len(row) == 4 and abs(sum(row) - 1000) <= 4 for row in data["weights"][0][0])
        assert ("ruht" in page.split("<script")[0]) == (target is not None) and "zebra" in page.split("<script")[0]
    most = MOST_TOKENS
    assert attention_page(model, "dog " * most, "Hund")
    for text, target, parts in [
        ("dog " * (most + 1), None, (f"{most + 1} words", f"{most}")),
        ("dog", "Hund " * most, ("translation", f"{most + 1} words", f"{most}")),
        (" ", None, ("text", "0 words")),
        ("dog", "", ("--target",)),
    ]:
        with refused(*parts):
            attention_page(model, text, target)
    with refused("--target", "cove", "gpt2"):
        attention_page(base_model("gpt2"), "some text", "Hund")


def test_how_much_can_be_shown() -> None:
    model = base_model("gpt2")
    assert "gpt2 tiny" in attention_page(model, "some text")
    with refused("61", "48"):
        attention_page(model, "a" * 60)


@pytest.mark.parametrize("system", TRANSFORMERS)
def test_a_task_model_shows_a_text_whole_or_not_at_all(system: str) -> None:
    """In training a text that is too long is cut, and counted; a page would not say so."""
    rows: list[Any] = rows_from([("good", "a"), ("bad", "b")] * 6, "classification")
    model = finetune(FinetuneRequest(base_model(system), rows, "classification", valid=[], epochs=1)).model
    most = model.model_config.reads
    parser = Scripts()
    parser.feed(attention_page(model, "a" * (most - 2)))
    assert len(json.loads(parser.found[0])["pieces"]) == most, "two tokens stand round it"
    with refused(f"{most + 1}", f"{most}"):
        attention_page(model, "a" * (most - 1))
