"""The demonstration's report: one HTML file that needs nothing else, neither a network nor a script.

Curves and bars are drawn as inline SVG by hand: it stays sharp, follows the reader's light or dark setting through the
same style variables as the text, and takes a few kilobytes. Every text is escaped on its way in.
"""

import math
import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from foretext.demo.report_style import STYLE


@dataclass(frozen=True)
class LossPoint:
    """One line of the pre-training curve; `valid_loss` is None between validations."""

    step: int
    tokens: int
    train_loss: float
    valid_loss: float | None


@dataclass(frozen=True)
class TaskResult:
    """A task's test scores over seeds, with and without pre-training; `baseline` is what guessing reaches."""

    task: str
    metric: str
    with_pretraining: list[float]
    without: list[float]
    n_train: int
    n_test: int
    baseline: float | None = None
    question: str = ""

    @property
    def gain(self) -> float:
        return _mean(self.with_pretraining) - _mean(self.without)

    @property
    def spread(self) -> float:
        """The larger of the two standard deviations over seeds: what a gain has to exceed."""
        return max(deviation(self.with_pretraining), deviation(self.without))

    @property
    def is_clear(self) -> bool:
        """Better with pre-training by more than the seeds' standard deviation; one seed cannot show it."""
        return min(len(self.with_pretraining), len(self.without)) > 1 and self.gain > self.spread

    @property
    def is_complete(self) -> bool:
        return bool(self.with_pretraining) and bool(self.without)


@dataclass(frozen=True)
class ReportData:
    """Everything that the page shows."""

    title: str
    summary: str
    curve: list[LossPoint]
    results: list[TaskResult]
    samples: list[tuple[str, str]]
    notes: list[str] = field(default_factory=list)
    facts: dict[str, str] = field(default_factory=dict)
    examples: dict[str, list[tuple[str, str]]] = field(default_factory=dict)  # task → a row as (column, text)


def _mean(values: Sequence[float]) -> float:
    return statistics.fmean(values) if values else math.nan


def deviation(values: Sequence[float]) -> float:
    """The standard deviation of a sample; 0 for one value."""
    return statistics.stdev(values) if len(values) > 1 else 0.0


def percent(values: Sequence[float]) -> str:
    """Mean ± standard deviation in per cent."""
    if not values:
        return "not run"
    spread = f" ± {100 * deviation(values):.1f}" if len(values) > 1 else ""
    return f"{100 * _mean(values):.1f}{spread}"


def write_report(path: Path, data: ReportData) -> None:
    """Writes the page whole: a reader never sees half of it."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    staged = path.with_name(f"{path.name}.{os.getpid()}.part")
    staged.write_text(render(data), encoding="utf-8")
    staged.replace(path)


def render(data: ReportData) -> str:
    """The page as text."""
    sections = [
        f"<h1>{escape(data.title)}</h1><p class='lead'>{escape(data.summary)}</p>",
        _section("With and without pre-training", _table(data.results) + _bars(data.results)),
        _section("Pre-training", _curve(data.curve)),
        _section("What the tasks look like", _examples(data.examples)),
        _section("What the model writes", _samples(data.samples)),
        _section("How it was done", _facts(data.facts) + _notes(data.notes)),
    ]
    return (
        "<!doctype html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>\n"
        "<meta http-equiv='Content-Security-Policy' content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{escape(data.title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(section for section in sections if section)
        + "\n</main>\n</body>\n</html>\n"
    )


def _section(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{content}</section>" if content else ""


def _table(results: Sequence[TaskResult]) -> str:
    if not results:
        return "<p>No fine-tuning was finished.</p>"
    rows = "".join(
        f"<tr><th scope='row'>{escape(one.task)}<small>{escape(one.question)}</small></th>"
        f"<td class='main'>{percent(one.with_pretraining)}</td><td>{percent(one.without)}</td>{_gain_cell(one)}"
        f"<td>{'' if one.baseline is None else f'{100 * one.baseline:.1f}'}</td>"
        f"<td>{one.n_train:,}</td><td>{one.n_test:,}</td></tr>"
        for one in results
    )
    seeds = max(len(one.with_pretraining) for one in results)
    metrics = ", ".join(sorted({one.metric for one in results}))
    return (
        "<div class='scroll'><table><thead><tr><th>task</th><th>with</th><th>without</th><th>gain</th><th>guessing</th>"
        "<th>training rows</th><th>test rows</th></tr></thead>"
        f"<tbody>{rows}</tbody></table></div>"
        f"<p class='small'>Per cent, {escape(metrics)} on the test rows: mean ± standard deviation over {seeds} "
        f"{'seed' if seeds == 1 else 'seeds'}. ✓ marks a gain larger than that deviation.</p>"
    )


def _gain_cell(one: TaskResult) -> str:
    if not one.is_complete:
        return "<td>–</td>"
    kind = "good" if one.is_clear else "unclear"
    return f"<td class='{kind}'>{100 * one.gain:+.1f}{' ✓' if one.is_clear else ''}</td>"


def _bars(results: Sequence[TaskResult]) -> str:
    """A pair of bars a task, each seed as a dot, the level of guessing as a tick."""
    shown = [one for one in results if one.is_complete]
    if not shown:
        return ""
    left, width, pitch = 130, 560, 58
    height = pitch * len(shown) + 30
    parts = [
        f"<line class='grid' x1='{left + width * mark / 4:.0f}' x2='{left + width * mark / 4:.0f}' y1='6' "
        f"y2='{height - 24}'/><text class='tick' x='{left + width * mark / 4:.0f}' y='{height - 8}' "
        f"text-anchor='middle'>{25 * mark}</text>"
        for mark in range(5)
    ]
    for number, one in enumerate(shown):
        top = 10 + pitch * number
        parts.append(f"<text x='{left - 12}' y='{top + 24}' text-anchor='end'>{escape(one.task)}</text>")
        for offset, values, kind in ((0, one.with_pretraining, "with"), (19, one.without, "without")):
            length = width * _clip(_mean(values))
            parts.append(
                f"<rect class='{kind}' x='{left}' y='{top + offset}' width='{length:.1f}' height='16' rx='3'/>"
            )
            parts += [
                f"<circle class='dot' cx='{left + width * _clip(value):.1f}' cy='{top + offset + 8}' r='2.5'/>"
                for value in values
            ]
        if one.baseline is not None:
            x = left + width * _clip(one.baseline)
            parts.append(f"<line class='guess' x1='{x:.1f}' x2='{x:.1f}' y1='{top - 3}' y2='{top + 38}'/>")
    legend = (
        "<p class='legend'><span class='swatch with'></span>with pre-training "
        "<span class='swatch without'></span>without <span class='swatch guess'></span>guessing; a dot is a seed</p>"
    )
    return _svg(left + width + 30, height, "Scores by task, with and without pre-training", parts) + legend


def _clip(value: float) -> float:
    return min(max(value, 0.0), 1.0) if math.isfinite(value) else 0.0


def _svg(width: float, height: float, label: str, parts: Sequence[str]) -> str:
    return (
        f"<svg viewBox='0 0 {width:.0f} {height:.0f}' role='img' aria-label='{escape(label)}'>"
        + "".join(parts)
        + "</svg>"
    )


def _curve(points: Sequence[LossPoint]) -> str:
    train = [(one.tokens, one.train_loss) for one in points if math.isfinite(one.train_loss)]
    valid = [
        (one.tokens, one.valid_loss) for one in points if one.valid_loss is not None and math.isfinite(one.valid_loss)
    ]
    everything = train + valid
    if len(everything) < 2:
        return ""
    left, top, width, height = 50, 12, 650, 260
    last = max(tokens for tokens, _ in everything) or 1
    low, high = _range([loss for _, loss in everything])

    def place(tokens: int, loss: float) -> str:
        return f"{left + width * tokens / last:.1f},{top + height * (high - loss) / (high - low):.1f}"

    parts: list[str] = []
    for mark in _marks(low, high):
        y = top + height * (high - mark) / (high - low)
        parts.append(f"<line class='grid' x1='{left}' x2='{left + width}' y1='{y:.1f}' y2='{y:.1f}'/>")
        parts.append(f"<text class='tick' x='{left - 8}' y='{y + 4:.1f}' text-anchor='end'>{mark:g}</text>")
    for mark in range(5):
        x = left + width * mark / 4
        label = _short(last * mark / 4)
        parts.append(f"<text class='tick' x='{x:.0f}' y='{top + height + 20}' text-anchor='middle'>{label}</text>")
    for series, kind in ((train, "train"), (valid, "valid")):
        if len(series) > 1:
            parts.append(f"<polyline class='{kind}' points='{' '.join(place(*one) for one in series)}'/>")
    legend = (
        "<p class='legend'><span class='swatch without'></span>training loss "
        "<span class='swatch with'></span>validation loss (nats a token), against tokens seen</p>"
    )
    return _svg(left + width + 30, top + height + 34, "Loss against tokens seen", parts) + legend


def _range(losses: Sequence[float]) -> tuple[float, float]:
    low, high = math.floor(min(losses) * 2) / 2, math.ceil(max(losses) * 2) / 2
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _marks(low: float, high: float) -> list[float]:
    step = 0.5 if high - low <= 3 else 1.0 if high - low <= 7 else math.ceil((high - low) / 6)
    first = math.ceil(low / step)
    return [step * number for number in range(first, math.floor(high / step) + 1)]


def _short(count: float) -> str:
    if count >= 1e6:
        return f"{count / 1e6:.1f}M"
    return f"{count / 1e3:.0f}k" if count >= 1e3 else f"{count:.0f}"


def _examples(examples: dict[str, list[tuple[str, str]]]) -> str:
    parts = []
    for task, fields in examples.items():
        texts = "".join(
            f"<dt>{escape(column)}</dt><dd{' class=label' if column == 'label' else ''}>{escape(text)}</dd>"
            for column, text in fields
        )
        parts.append(f"<div class='card'><h3>{escape(task)}</h3><dl>{texts}</dl></div>")
    return f"<div class='cards'>{''.join(parts)}</div>" if parts else ""


def _samples(samples: Sequence[tuple[str, str]]) -> str:
    return "".join(
        f"<pre><span class='prompt'>{escape(prompt)}</span>{escape(continuation)}</pre>"
        for prompt, continuation in samples
    )


def _facts(facts: dict[str, str]) -> str:
    rows = "".join(
        f"<tr><th scope='row'>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in facts.items()
    )
    return f"<table class='facts'><tbody>{rows}</tbody></table>" if rows else ""


def _notes(notes: Sequence[str]) -> str:
    return f"<ul class='notes'>{''.join(f'<li>{escape(note)}</li>' for note in notes)}</ul>" if notes else ""
