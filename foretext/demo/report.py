"""The demonstration's report: one self-contained HTML file, without network access or scripts, every text escaped."""

import base64
import statistics
from collections.abc import Iterable, Sequence
from html import escape
from string import Template
from typing import NamedTuple

TITLES = ("task", "with pre-training", "without", "gain", "with word vectors too", "guessing")

_PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>Does pre-training help?</title>
<style>
:root { color-scheme: light dark; }
body { max-width: 800px; margin: 40px auto; padding: 0 20px; font: 16px/1.6 system-ui, "Noto Sans", sans-serif; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
td { padding: 6px 10px; border-bottom: 1px solid #8886; text-align: left; }
tr:first-child { font-weight: 600; }
img { width: 100%; }
pre { padding: 10px 16px; border: 1px solid #8886; overflow-wrap: anywhere; white-space: pre-wrap; }
</style>
</head>
<body>
<h1>Does pre-training help?</h1>
<p>$summary</p>
<h2>With and without pre-training</h2>
<table>
$results
</table>
<p>Per cent, accuracy on the test rows: mean ± standard deviation over the seeds. ✓ marks a gain larger than that
deviation. Guessing: the most frequent label.</p>
<h2>Pre-training</h2>
<img alt="Loss against tokens seen" src="data:image/png;base64,$curve">
<h2>The tasks</h2>
<ul>
<li>classification: which area of programming is this docstring from?</li>
<li>entailment: is this the description of what the signature says?</li>
<li>similarity: is the second text a shortened copy of the first?</li>
<li>choice: which of four endings is the sentence's own?</li>
</ul>
<h2>What the model writes</h2>
$samples
<h2>How it was done</h2>
<ul>
<li>Modules are split, not rows: no text of a validation or test row is in the corpus or a training row.</li>
<li>Wrong answers are the right answers of other rows: an answer by itself says nothing about its label.</li>
<li>With and without: the configuration and the tokenizer are the same; only the initial weights differ.</li>
<li>With word vectors: what finetune does by default. One head reads n-grams, topics and word vectors of the corpus
beside the fine-tuned model.</li>
$notes
</ul>
</body>
</html>
""")


class TaskResult(NamedTuple):
    """A task's test accuracies over seeds, with and without pre-training; `guessing` is the share of the most frequent
    label, `default` the accuracy with word vectors beside the model."""

    task: str
    with_pretraining: Sequence[float]
    without: Sequence[float]
    default: Sequence[float]  # empty: there was no time
    guessing: float

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
        """The cells under `TITLES`; figures in per cent."""
        gain = f"{100 * self.gain:+.1f}{' ✓' if self.is_clear else ''}"
        with_it, without, default = map(percent, (self.with_pretraining, self.without, self.default))
        return self.task, with_it, without, gain, default, percent([self.guessing])


def percent(values: Sequence[float]) -> str:
    """Mean ± standard deviation in per cent."""
    spread = f" ± {100 * statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{100 * statistics.fmean(values):.1f}{spread}" if values else "–"


def render(
    summary: str, *, results: Sequence[TaskResult], curve: bytes, samples: Iterable[str], notes: Iterable[str]
) -> str:
    """The page as text. `curve`: a PNG of the losses."""
    rows = (map("<td>{}</td>".format, map(escape, row)) for row in (TITLES, *(result.texts for result in results)))
    return _PAGE.substitute(
        summary=escape(summary),
        results="\n".join(f"<tr>{''.join(row)}</tr>" for row in rows),
        curve=base64.b64encode(curve).decode(),
        samples="\n".join(f"<pre>{escape(sample)}</pre>" for sample in samples),
        notes="\n".join(f"<li>{escape(note)}</li>" for note in notes),
    )
