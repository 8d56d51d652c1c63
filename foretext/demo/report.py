"""The demonstration's report: one self-contained HTML file, without network access or scripts.

It follows the reader's light or dark setting. Every text is escaped. The loss curve is the picture in the run's
directory; the bars are the backgrounds of the table's cells.
"""

import base64
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

_STYLE = """
:root { color-scheme: light dark; --page: #fbfaf7; --ink: #1f2328; --soft: #636b74; --line: #dfdcd4; --card: #ffffff;
  --with: #2f6f4f; --without: #b9b4a7; --default: #2b5f9e; --good: #1d7a46; --guess: #c2571a; }
@media (prefers-color-scheme: dark) { :root { --page: #15181c; --ink: #e6e6e3; --soft: #9aa3ac; --line: #31363d;
  --card: #1d2126; --with: #58b084; --without: #5b626b; --default: #6aa5e6; --good: #6bd39a; --guess: #f0955a; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 16px/1.6 system-ui, "Noto Sans", sans-serif; }
main { max-width: 800px; margin: 0 auto; padding: 40px 20px 80px; }
h1 { font-size: 30px; line-height: 1.25; margin: 0 0 12px; } h2 { font-size: 20px; margin: 48px 0 14px; }
h3 { font-size: 14px; margin: 0 0 8px; color: var(--soft); font-weight: 600; }
.lead { font-size: 18px; color: var(--soft); margin: 0; } .small { font-size: 13px; color: var(--soft); }
.scroll { overflow-x: auto; } img { width: 100%; border-radius: 10px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: 9px 10px; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child { text-align: left; padding-left: 0; } thead th, .facts th { font-weight: 500; color: var(--soft); }
th small { display: block; font-weight: 400; color: var(--soft); white-space: normal; line-height: 1.35; }
.with, .default, .good { font-weight: 600; } .good { color: var(--good); } .unclear { color: var(--guess); }
.bar { background: linear-gradient(var(--colour) 0 0) 0 100% / var(--share) 5px no-repeat; }
.facts td { text-align: left; white-space: normal; overflow-wrap: anywhere; }
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
    def texts(self) -> tuple[str, ...]:
        """With and without pre-training, the gain, with word vectors, and guessing, in per cent."""
        gain = f"{100 * self.gain:+.1f}{' ✓' if self.is_clear else ''}"
        default = "–" if self.default is None else percent([self.default])
        return percent(self.with_pretraining), percent(self.without), gain, default, percent([self.guessing])


def percent(values: Sequence[float]) -> str:
    """Mean ± standard deviation in per cent."""
    spread = f" ± {100 * statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{100 * statistics.fmean(values):.1f}{spread}"


def render(
    title: str,
    summary: str,
    *,
    curve: bytes,
    results: Sequence[TaskResult],
    samples: Sequence[tuple[str, str]],
    examples: Mapping[str, Sequence[tuple[str, str]]],
    facts: Mapping[str, str],
    notes: Sequence[str],
) -> str:
    """The page as text. `curve`: a PNG of the losses. `samples`: prompts and the model's text. `examples`: for each
    task, one row as (column, text)."""
    shown_facts = "".join(f"<tr><th scope='row'>{escape(k)}</th><td>{escape(v)}</td></tr>" for k, v in facts.items())
    cards = "".join(_card(task, row) for task, row in examples.items())
    written = "".join(f"<pre><span class='prompt'>{escape(a)}</span>{escape(b)}</pre>" for a, b in samples)
    shown_notes = "".join(f"<li>{escape(note)}</li>" for note in notes)
    picture = f"<img alt='Loss against tokens seen' src='data:image/png;base64,{base64.b64encode(curve).decode()}'>"
    sections = {
        "With and without pre-training": _table(results),
        "Pre-training": picture,
        "What the tasks look like": f"<div class='cards'>{cards}</div>",
        "What the model writes": written,
        "How it was done": f"<table class='facts'><tbody>{shown_facts}</tbody></table><ul>{shown_notes}</ul>",
    }
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    return (
        "<!doctype html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>\n"
        f"<meta http-equiv='Content-Security-Policy' content=\"{policy}\">\n"
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{escape(title)}</h1><p class='lead'>{escape(summary)}</p>\n"
        + "\n".join(f"<section><h2>{name}</h2>{text}</section>" for name, text in sections.items())
        + "\n</main>\n</body>\n</html>\n"
    )


def _card(task: str, fields: Sequence[tuple[str, str]]) -> str:
    texts = "".join(
        f"<dt>{escape(column)}</dt><dd{' class=label' if column == 'label' else ''}>{escape(text)}</dd>"
        for column, text in fields
    )
    return f"<div class='card'><h3>{escape(task)}</h3><dl>{texts}</dl></div>"


def _table(results: Sequence[TaskResult]) -> str:
    titles = ("task", "with", "without", "gain", "with word vectors", "guessing", "training rows", "test rows")
    return (
        f"<div class='scroll'><table><thead><tr>{''.join(f'<th>{title}</th>' for title in titles)}</tr></thead>"
        f"<tbody>{''.join(map(_row, results))}</tbody></table></div><p class='small'>Per cent, accuracy on the test "
        "rows: mean ± standard deviation over the seeds. ✓ marks a gain larger than that deviation. Guessing: the most "
        "frequent label. A bar across a whole cell would be 100 per cent.</p>"
    )


def _row(result: TaskResult) -> str:
    pretrained, untrained, gain, default, guessing = result.texts
    means = map(statistics.fmean, (result.with_pretraining, result.without, [result.default or 0.0], [result.guessing]))
    kinds = ("with", "without", "default", "guess")
    bars = [
        f"<td class='bar {kind}' style='--colour: var(--{kind}); --share: {100 * mean:.1f}%'>{text}</td>"
        for kind, mean, text in zip(kinds, means, (pretrained, untrained, default, guessing))
    ]
    bars.insert(2, f"<td class='{'good' if result.is_clear else 'unclear'}'>{gain}</td>")
    name = f"<th scope='row'>{escape(result.task)}<small>{escape(result.question)}</small></th>"
    return f"<tr>{name}{''.join(bars)}<td>{result.n_train:,}</td><td>{result.n_test:,}</td></tr>"
