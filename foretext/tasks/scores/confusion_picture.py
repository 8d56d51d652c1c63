"""The confusion matrix as a picture, for label names in any script.

matplotlib draws a name only if an installed font has its characters; otherwise it draws boxes and warns for each. So
fonts are chosen here by the characters that they cover. If no font covers a name, classes are numbered instead.
"""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from foretext.tasks.scores.metrics import Scores
from foretext.text.corpus.text_files import write_whole

MOST_CLASSES = 50
_LONGEST_NAME = 24
_WITH_FIGURES = 20  # with more classes, numbers in the cells are unreadable
_BASE_FONT = "DejaVu Sans"  # part of matplotlib
_WIDE_FONTS = (
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Source Han Sans SC",
    "Source Han Sans CN",
    "WenQuanYi Zen Hei",
    "WenQuanYi Micro Hei",
    "Microsoft YaHei",
    "SimHei",
    "PingFang SC",
    "PingFang HK",
    "Hiragino Sans GB",
    "Heiti SC",
    "Heiti TC",
    "Arial Unicode MS",
    "Droid Sans Fallback",
    "Unifont",
)


def confusion_matrix_png(scores: Scores, path: str | Path) -> None:
    """Draws the confusion matrix: rows are gold classes, columns predicted ones, colour the share of the row.

    With more than 50 classes, the 49 with most gold rows are drawn and the others become one class, "other".
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    assert scores.confusion, "no confusion matrix: this task has no classes"
    names, counts = _largest([item.label for item in scores.per_class], scores.confusion)
    fonts = _fonts_for("".join(names))
    numbered = fonts is None
    ticks = [str(i) for i in range(1, len(names) + 1)] if numbered else [_short(name) for name in names]
    size = min(18.0, max(5.0, 2.5 + 0.42 * len(names)))
    with rc_context({"font.family": fonts or [_BASE_FONT]}):
        figure = Figure(figsize=(size + 0.8, size), dpi=110, layout="constrained")
        _draw(figure, ticks, counts, scores, numbered)
        picture = io.BytesIO()
        figure.savefig(picture, format="png")
    write_whole(Path(path), picture.getvalue())


def _draw(figure: Any, ticks: Sequence[str], counts: list[list[int]], scores: Scores, numbered: bool) -> None:
    axes = figure.add_subplot()
    shares = [[n / max(1, sum(line)) for n in line] for line in counts]
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    many = len(ticks) > _WITH_FIGURES
    turned = many or max(map(len, ticks)) * len(ticks) > 40
    small = 8 if many else 9
    places = range(len(ticks))
    axes.set_xticks(places, ticks, rotation=90 if turned else 0, fontsize=small)
    axes.set_yticks(places, ticks, fontsize=small)
    for label in (*axes.get_xticklabels(), *axes.get_yticklabels()):
        label.set_parse_math(False)  # a name with two $ is not a formula
    if not many:
        for i, line in enumerate(counts):
            for j, n in enumerate(line):
                colour = "white" if shares[i][j] > 0.55 else "black"
                axes.text(j, i, f"{n:,}", ha="center", va="center", color=colour, fontsize=8)
    note = " (class numbers: no installed font has the names)" if numbered else ""
    title = f"{scores.main} {scores.main_value:.3f} on {scores.rows:,} rows"
    axes.set(xlabel=f"predicted class{note}", ylabel="gold class", title=title)
    figure.colorbar(image, ax=axes, label="share of the gold class", fraction=0.046)


def _largest(names: list[str], counts: list[list[int]]) -> tuple[list[str], list[list[int]]]:
    if len(names) <= MOST_CLASSES:
        return names, counts
    by_size = sorted(range(len(names)), key=lambda i: (-sum(counts[i]), i))
    kept = sorted(by_size[: MOST_CLASSES - 1])
    place = {old: new for new, old in enumerate(kept)}
    folded = [[0] * MOST_CLASSES for _ in range(MOST_CLASSES)]
    for i, line in enumerate(counts):
        for j, n in enumerate(line):
            folded[place.get(i, MOST_CLASSES - 1)][place.get(j, MOST_CLASSES - 1)] += n
    return [*(names[i] for i in kept), f"other ({len(names) - len(kept)})"], folded


def _short(name: str) -> str:
    name = " ".join(name.split())
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"


def _fonts_for(text: str) -> list[str] | None:
    """Font families that together have every visible character of `text`; None if the machine has no such fonts."""
    from matplotlib import font_manager

    paths = {entry.name: entry.fname for entry in reversed(font_manager.fontManager.ttflist)}
    missing = {ord(character) for character in text if not character.isspace()}
    fonts = []
    for family in (_BASE_FONT, *_WIDE_FONTS):
        if family in paths and missing:
            covered = missing & set(font_manager.get_font(paths[family]).get_charmap())
            if covered or family == _BASE_FONT:
                fonts.append(family)
            missing -= covered
    return None if missing else (fonts or [_BASE_FONT])
