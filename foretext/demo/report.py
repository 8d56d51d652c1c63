"""The demonstration's report: one self-contained HTML file, without network access or scripts.

Curves and bars are inline SVG: it stays sharp, follows the reader's light or dark setting through the same style
variables as the text, and takes a few kilobytes. Every text is escaped.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

Curve = list[tuple[int, float]]  # tokens seen, loss

_STYLE = """
:root { color-scheme: light dark; --page: #fbfaf7; --ink: #1f2328; --soft: #636b74; --line: #dfdcd4; --card: #ffffff;
  --with: #2f6f4f; --without: #b9b4a7; --default: #2b5f9e; --good: #1d7a46; --guess: #c2571a; --dot: #1f2328; }
@media (prefers-color-scheme: dark) { :root { --page: #15181c; --ink: #e6e6e3; --soft: #9aa3ac; --line: #31363d;
  --card: #1d2126; --with: #58b084; --without: #5b626b; --default: #6aa5e6; --good: #6bd39a; --guess: #f0955a;
  --dot: #f4f4f2; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 16px/1.6 system-ui, "Noto Sans", sans-serif; }
main { max-width: 800px; margin: 0 auto; padding: 40px 20px 80px; }
h1 { font-size: 30px; line-height: 1.25; margin: 0 0 12px; } h2 { font-size: 20px; margin: 48px 0 14px; }
h3 { font-size: 14px; margin: 0 0 8px; color: var(--soft); font-weight: 600; }
.lead { font-size: 18px; color: var(--soft); margin: 0; } .small { font-size: 13px; color: var(--soft); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: 9px 10px; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child { text-align: left; padding-left: 0; } thead th, .facts th { font-weight: 500; color: var(--soft); }
th small { display: block; font-weight: 400; color: var(--soft); white-space: normal; line-height: 1.35; }
.main, .good { font-weight: 600; } .good { color: var(--good); } .unclear { color: var(--guess); }
.facts td { text-align: left; white-space: normal; overflow-wrap: anywhere; }
svg { width: 100%; height: auto; margin-top: 16px; font-size: 13px; fill: var(--ink); }
svg .tick { fill: var(--soft); font-size: 12px; } svg .grid { stroke: var(--line); }
svg .with { fill: var(--with); } svg .without { fill: var(--without); } svg .default { fill: var(--default); }
 svg .dot { fill: var(--dot); }
svg .guess { stroke: var(--guess); stroke-width: 2; stroke-dasharray: 3 2; }
svg polyline { fill: none; stroke: var(--without); stroke-width: 2; } svg .valid { stroke: var(--with); }
.swatch { display: inline-block; width: 12px; height: 12px; border-radius: 3px; margin: 0 6px; }
.swatch.with { background: var(--with); } .swatch.without { background: var(--without); }
.swatch.default { background: var(--default); }
.swatch.guess { background: var(--guess); }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(330px, 1fr)); gap: 14px; }
.card, pre { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 14px 18px;
  font-size: 14px; overflow-wrap: anywhere; white-space: pre-wrap; }
.card dl { margin: 0; display: grid; grid-template-columns: auto 1fr; gap: 6px 12px; white-space: normal; }
.card dt { color: var(--soft); } .card dd { margin: 0; } .label, .prompt { font-weight: 700; color: var(--with); }
"""


@dataclass(frozen=True)
class TaskResult:
    """A task's test accuracies over seeds, with and without pre-training; `guessing` is the share of the most frequent
    label, `default` the accuracy with word vectors beside the model."""

    task: str
    with_pretraining: list[float]
    without: list[float]
    n_train: int
    n_test: int
    guessing: float
    question: str
    default: float | None  # None: there was no time

    @property
    def gain(self) -> float:
        return statistics.fmean(self.with_pretraining) - statistics.fmean(self.without)

    @property
    def is_clear(self) -> bool:
        """Whether the gain exceeds the larger standard deviation over seeds; a single seed cannot show this."""
        sides = (self.with_pretraining, self.without)
        return min(map(len, sides)) > 1 and self.gain > max(map(statistics.stdev, sides))

    @property
    def default_text(self) -> str:
        return "–" if self.default is None else percent([self.default])

    @property
    def gain_text(self) -> str:
        return f"{100 * self.gain:+.1f}{' ✓' if self.is_clear else ''}"


def percent(values: Sequence[float]) -> str:
    """Mean ± standard deviation in per cent."""
    spread = f" ± {100 * statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{100 * statistics.fmean(values):.1f}{spread}"


def render(
    title: str,
    summary: str,
    *,
    curves: Mapping[str, Curve],
    results: Sequence[TaskResult],
    samples: Sequence[tuple[str, str]],
    examples: Mapping[str, Sequence[tuple[str, str]]],
    facts: Mapping[str, str],
    notes: Sequence[str],
) -> str:
    """The page as text. `curves`: training and validation loss by name. `samples`: prompts and the model's text.
    `examples`: for each task, one row as (column, text)."""
    shown_facts = "".join(f"<tr><th scope='row'>{escape(k)}</th><td>{escape(v)}</td></tr>" for k, v in facts.items())
    cards = "".join(_card(task, row) for task, row in examples.items())
    written = "".join(f"<pre><span class='prompt'>{escape(a)}</span>{escape(b)}</pre>" for a, b in samples)
    shown_notes = "".join(f"<li>{escape(note)}</li>" for note in notes)
    sections = {
        "With and without pre-training": _table(results) + _bars(results),
        "Pre-training": _curves(curves),
        "What the tasks look like": f"<div class='cards'>{cards}</div>",
        "What the model writes": written,
        "How it was done": f"<table class='facts'><tbody>{shown_facts}</tbody></table><ul>{shown_notes}</ul>",
    }
    return (
        "<!doctype html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>\n"
        "<meta http-equiv='Content-Security-Policy' content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{escape(title)}</h1><p class='lead'>{escape(summary)}</p>\n"
        + "\n".join(f"<section><h2>{name}</h2>{text}</section>" for name, text in sections.items() if text)
        + "\n</main>\n</body>\n</html>\n"
    )


def _card(task: str, fields: Sequence[tuple[str, str]]) -> str:
    texts = "".join(
        f"<dt>{escape(column)}</dt><dd{' class=label' if column == 'label' else ''}>{escape(text)}</dd>"
        for column, text in fields
    )
    return f"<div class='card'><h3>{escape(task)}</h3><dl>{texts}</dl></div>"


def _table(results: Sequence[TaskResult]) -> str:
    rows = "".join(
        f"<tr><th scope='row'>{escape(one.task)}<small>{escape(one.question)}</small></th>"
        f"<td class='main'>{percent(one.with_pretraining)}</td><td>{percent(one.without)}</td>"
        f"<td class='{'good' if one.is_clear else 'unclear'}'>{one.gain_text}</td>"
        f"<td class='main'>{one.default_text}</td><td>{100 * one.guessing:.1f}</td>"
        f"<td>{one.n_train:,}</td><td>{one.n_test:,}</td></tr>"
        for one in results
    )
    titles = ("task", "with", "without", "gain", "with word vectors", "guessing", "training rows", "test rows")
    return (
        f"<div class='scroll'><table><thead><tr>{''.join(f'<th>{title}</th>' for title in titles)}</tr></thead>"
        f"<tbody>{rows}</tbody></table></div><p class='small'>Per cent, accuracy on the test rows: mean ± standard "
        f"deviation over the seeds. ✓ marks a gain larger than that deviation.</p>"
    )


def _bars(results: Sequence[TaskResult]) -> str:
    """Three bars per task, each seed as a dot, the level of guessing as a dashed line."""
    left, width, pitch = 130, 560, 77
    height = pitch * len(results) + 30
    parts = [
        f"<line class='grid' x1='{x}' x2='{x}' y1='6' y2='{height - 24}'/>"
        f"<text class='tick' x='{x}' y='{height - 8}' text-anchor='middle'>{mark}</text>"
        for mark, x in ((mark, left + width * mark // 100) for mark in range(0, 101, 25))
    ]
    for number, one in enumerate(results):
        top, x = 10 + pitch * number, left + width * one.guessing
        parts.append(f"<text x='{left - 12}' y='{top + 33}' text-anchor='end'>{escape(one.task)}</text>")
        default = [] if one.default is None else [one.default]
        bars = ((one.without, "without"), (one.with_pretraining, "with"), (default, "default"))
        for y, (values, kind) in zip((top, top + 19, top + 38), bars):
            length = width * statistics.fmean(values or [0.0])
            parts.append(f"<rect class='{kind}' x='{left}' y='{y}' width='{length:.1f}' height='16' rx='3'/>")
            parts += [f"<circle class='dot' cx='{left + width * v:.1f}' cy='{y + 8}' r='2.5'/>" for v in values]
        parts.append(f"<line class='guess' x1='{x:.1f}' x2='{x:.1f}' y1='{top - 3}' y2='{top + 57}'/>")
    legend = (
        *(("without", "without pre-training"), ("with", "with pre-training"), ("default", "with word vectors too")),
        ("guess", "guessing; a dot is a seed"),
    )
    return _picture(left + width + 30, height, "Scores by task, with and without pre-training", parts, legend)


def _curves(curves: Mapping[str, Curve]) -> str:
    """The loss against the tokens seen, training and validation in two colours."""
    finite = [[(tokens, loss) for tokens, loss in curve if math.isfinite(loss)] for curve in curves.values()]
    points = [point for curve in finite for point in curve]
    if len(points) < 2:
        return ""
    left, top, width, height = 50, 12, 650, 260
    seen, losses = zip(*points)
    last = max(seen) or 1
    low, high = math.floor(min(losses)), math.floor(max(losses)) + 1

    def place(tokens: float, loss: float) -> tuple[float, float]:
        return left + width * tokens / last, top + height * (high - loss) / (high - low)

    parts: list[str] = []
    for mark in range(low, high + 1, math.ceil((high - low) / 7)):
        y = place(0, mark)[1]
        parts.append(f"<line class='grid' x1='{left}' x2='{left + width}' y1='{y:.1f}' y2='{y:.1f}'/>")
        parts.append(f"<text class='tick' x='{left - 8}' y='{y + 4:.1f}' text-anchor='end'>{mark}</text>")
    for tokens in (last * quarter / 4 for quarter in range(5)):
        label = f"{tokens / 1e6:.1f}M" if last >= 1e6 else f"{tokens / 1e3:.0f}k"
        x = place(tokens, low)[0]
        parts.append(f"<text class='tick' x='{x:.0f}' y='{top + height + 20}' text-anchor='middle'>{label}</text>")
    for curve, kind in zip(finite, ("train", "valid")):
        line = " ".join("{:.1f},{:.1f}".format(*place(*point)) for point in curve)
        parts.append(f"<polyline class='{kind}' points='{line}'/>")
    legend = zip(("without", "with"), curves)
    return _picture(left + width + 30, top + height + 34, "Loss against tokens seen", parts, legend)


def _picture(width: int, height: int, label: str, parts: Sequence[str], legend: Iterable[tuple[str, str]]) -> str:
    swatches = "".join(f"<span class='swatch {kind}'></span>{text}" for kind, text in legend)
    picture = f"<svg viewBox='0 0 {width} {height}' role='img' aria-label='{label}'>{''.join(parts)}</svg>"
    return f"{picture}<p class='small'>{swatches}</p>"
