"""One word, two senses, two vectors: what an encoder makes of "an apple to eat" and "an Apple phone".

    python -m experiments.two_senses [--out runs/two_senses]

Sixteen words of two senses stand in five sentences of each (`two_senses_sentences.py`). A word's vector is what
`lm.word_features` gives for it there, from MiniLM. For each layer, and for the mean of the last four: the mean cosine
of two places with the same sense and with different senses, and how often the place nearest to one has its sense (of
the nine others four have it: 44.4 % by chance). Layer 0 is the embeddings, which know the word and where it stands, but
not what it stands beside.

The picture, `two_senses.png`, has each word's ten vectors (of the mean of four layers) on the two axes along which they
differ most; it knows nothing of the senses but the colours.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.common import arguments_for, commit, table
from experiments.course import Course, conduct
from experiments.minilm import load_minilm, minilm_line
from experiments.two_senses_sentences import SENTENCES, Senses
from foretext.api import LanguageModel

MIX = "mean of 3–6"
LAYERS: dict[str, tuple[int, ...]] = {**{str(layer): (layer,) for layer in range(7)}, MIX: (3, 4, 5, 6)}
COLOURS, MARKS, SIGNS = ("tab:blue", "tab:red"), ("o", "^"), ("●", "▲")
COLUMNS = 4  # of the picture


# -- measures --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Separation:
    """Mean cosine of pairs with one sense and with two, and how often the nearest other place has the same sense."""

    within: float
    between: float
    accuracy: float


def cosines(vectors: np.ndarray) -> np.ndarray:
    """Of each pair of rows."""
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(unit @ unit.T)


def separation(vectors: np.ndarray, senses: Sequence[int]) -> Separation:
    """Of the places of one word; `senses` names the sense of each. No place is its own pair."""
    near = cosines(vectors.astype(np.float64))
    sense = np.array(senses)
    same = sense[:, None] == sense[None, :]
    other = ~np.eye(len(sense), dtype=bool)
    nearest = np.where(other, near, -np.inf).argmax(axis=1)
    return Separation(
        within=float(near[same & other].mean()),
        between=float(near[~same].mean()),
        accuracy=float((sense[nearest] == sense).mean()),
    )


def projected(vectors: np.ndarray) -> np.ndarray:
    """The rows on their first two principal axes, [rows, 2]; each axis points to where its largest value is."""
    centred = vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    points = left[:, :2] * sizes[:2]
    largest = points[np.abs(points).argmax(axis=0), [0, 1]]
    return np.asarray(points * np.where(largest < 0, -1.0, 1.0))


# -- vectors ---------------------------------------------------------------------------------------------------------


def sense_numbers(senses: Senses) -> list[int]:
    """The sense of each sentence, in the order of `sentences_of`."""
    return [number for number, own in enumerate(senses.values()) for _ in own]


def sentences_of(senses: Senses) -> list[str]:
    return [sentence for own in senses.values() for sentence in own]


def word_places(words: Sequence[str], word: str) -> list[int]:
    """Where the word stands among the words of a sentence."""
    return [place for place, other in enumerate(words) if other.lower() == word]


def vectors_of(lm: LanguageModel, word: str, sentences: Sequence[str], layers: Sequence[int]) -> np.ndarray:
    """The vector of the word in each of the sentences, [sentences, width]."""
    rows = []
    for sentence, found in zip(sentences, lm.word_features(sentences, layers=layers), strict=True):
        places = word_places(found.words, word)
        assert len(places) == 1, f"{word!r} stands {len(places)} times in {sentence!r}"
        rows.append(found.vectors[places[0]])
    return np.array(rows)


def measured(lm: LanguageModel, words: Mapping[str, Senses], layers: Sequence[int]) -> dict[str, Separation]:
    return {
        word: separation(vectors_of(lm, word, sentences_of(senses), layers), sense_numbers(senses))
        for word, senses in words.items()
    }


# -- what comes out --------------------------------------------------------------------------------------------------


def plot(lm: LanguageModel, words: Mapping[str, Senses], path: Path) -> None:
    """A small picture for each word; a colour and a mark for each sense, which the line above names. Both axes of a
    picture have one scale: what is near there is near."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = -(-len(words) // COLUMNS)
    figure = Figure(figsize=(2.7 * COLUMNS, 2.9 * rows), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(rows, COLUMNS, squeeze=False).flatten().tolist()
    for axes, (word, senses) in zip(panels, words.items()):
        points = projected(vectors_of(lm, word, sentences_of(senses), LAYERS[MIX]))
        numbers = np.array(sense_numbers(senses))
        for number, name in enumerate(senses):
            own = points[numbers == number]
            axes.scatter(own[:, 0], own[:, 1], s=44, c=COLOURS[number], marker=MARKS[number], alpha=0.85)
            style = {"color": COLOURS[number], "ha": ("left", "right")[number], "transform": axes.transAxes}
            axes.text(number, 1.03, f"{SIGNS[number]} {name}", fontsize=9, **style)
        axes.set_title(word, fontsize=12, fontweight="bold", pad=20)
        centre, half = (points.max(axis=0) + points.min(axis=0)) / 2, 0.58 * np.ptp(points, axis=0).max()
        axes.set(xlim=(centre[0] - half, centre[0] + half), ylim=(centre[1] - half, centre[1] + half), aspect="equal")
    for axes in panels:
        axes.set_xticks([])
        axes.set_yticks([])
    for axes in panels[len(words) :]:
        axes.axis("off")
    figure.savefig(path)


def layer_rows(records: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """For each choice of layers the means over the words."""
    rows = []
    for record in records:
        found = list(record["words"].values())
        within, between, accuracy = (
            statistics.fmean(one[name] for one in found) for name in ("within", "between", "accuracy")
        )
        rows.append([record["layers"], f"{within:.3f}", f"{between:.3f}", f"{100 * accuracy:.1f}"])
    return rows


def word_rows(words: Mapping[str, Senses], found: Mapping[str, Mapping[str, float]]) -> list[list[str]]:
    return [
        [
            f"{word}: {', '.join(words[word])}",
            f"{one['within']:.3f}",
            f"{one['between']:.3f}",
            f"{100 * one['accuracy']:.0f}",
        ]
        for word, one in found.items()
    ]


def tables(course: Course, words: Mapping[str, Senses]) -> list[str]:
    columns = ["cosine, same sense", "two senses", "nearest has the sense, %"]
    mix = next(record for record in course.results.records if record["layers"] == MIX)
    order = list(LAYERS)
    records = sorted(course.results.records, key=lambda record: order.index(record["layers"]))
    return [
        table([f"layer ({len(words)} words)", *columns], layer_rows(records)),
        table([f"word, {MIX}", *columns], word_rows(words, mix["words"])),
    ]


def run(course: Course) -> str:
    given = course.given
    words = dict(list(SENTENCES.items())[:COLUMNS]) if given.quick else SENTENCES
    lm = load_minilm(given.out, course.log.note)
    done = {record["layers"] for record in course.results.records}
    for name, layers in LAYERS.items():
        if name in done:
            continue
        course.go_on()
        begun = time.perf_counter()
        found = {word: asdict(one) for word, one in measured(lm, words, layers).items()}
        seconds = round(time.perf_counter() - begun, 2)
        course.results.append({"layers": name, "words": found, "seconds": seconds, "commit": commit()})
        course.log.note(f"layers {name}: " + ", ".join(f"{word} {one['accuracy']:.2f}" for word, one in found.items()))
    plot(lm, words, given.out / "two_senses.png")
    return course.page(tables(course, words))


def main(words: Sequence[str] | None = None) -> int:
    parser = arguments_for(__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/two_senses"), help="goes on if it is there")
    given = parser.parse_args(words)
    return conduct(given, "two_senses", ("quick",), run, head=lambda: [minilm_line()])


if __name__ == "__main__":
    raise SystemExit(main())
