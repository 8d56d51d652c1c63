"""A field over views of words against the strongest cheap tagger: chunks of CoNLL-2000, words only.

    python -m experiments.tag_views --data DIR [--out runs/tag_views] [--elmo RUN]

Word vectors are learned from IMDb's unlabelled reviews. Chunk F1 on all 2,012 test sentences, learned from a random
10 % of the 8,936 training sentences (the three draws of `experiments.elmo_chunking`) and from all:

- `views` is `finetune --task tagging --views ngrams,vectors` on the word2vec run, `-vectors` the same without vectors;
- `views+elmo` has the states of an ELMo of your own too (`--elmo RUN`);
- `crf` is CRFsuite's linear chain (`python-crfsuite`, not installed with Foretext) with hand-made features: words two
  places to each side and pairs of them, beginnings, ends and shapes; `crf+clusters` has the clusters that the vectors
  view makes of the same vectors, alone and side by side. Without the package both are left out;
- `gpt` is a GPT of your own (`--gpt RUN`), fine-tuned; `default` is what `finetune` makes of it without being asked,
  which reads the word vectors that pre-training has put beside it;
- `word` gives each word its most frequent tag.

Nothing is chosen on test; `--validate` scores 2,000 of the other training sentences in place of it.
"""

from __future__ import annotations

import argparse
import importlib.util
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import foretext as ft
from bench.common import need_data, table
from experiments.chunks import by_method, few_sentences
from experiments.course import Course, conduct, options
from experiments.elmo_chunking import NAME, PART
from experiments.results import paired, spread
from experiments.token_baselines import tag_table
from experiments.token_tasks import QUICK, chosen
from foretext.api import load_language_model
from foretext.tasks.files.conll import TaggedSentence, read_conll
from foretext.tasks.scores.tag_metrics import score_tags, to_iob2
from foretext.tasks.views.base import unit_rows
from foretext.tasks.views.words.word_views import PAIRS, PLACES, grouped, shape_of

DRAWS = {"few": 3, "all": 1}
VIEWS = {"views": ("ngrams", "vectors"), "-vectors": ("ngrams",), "views+elmo": ("ngrams", "vectors", "states")}
RIVALS = ("crf", "crf+clusters")
OF_GPT: dict[str, tuple[str, ...] | None] = {"gpt": (), "default": None}
METHODS = (*VIEWS, *RIVALS, *OF_GPT, "word")
SETTINGS = ("minutes", "pretrain_set", "elmo", "gpt", "validate", "quick")
VALIDATED = 2000
PENALTY = 0.3  # of CRFsuite, on the squares of weights; not searched
LONGEST = 4  # letters of a beginning or end


class Cell(NamedTuple):
    labels: str  # "few" or "all"
    draw: int  # of the few
    method: str


def plan(given: argparse.Namespace) -> list[Cell]:
    draws = {"few": DRAWS["few"]} if given.validate else DRAWS
    return [Cell(labels, draw, method) for labels in draws for draw in range(draws[labels]) for method in given.methods]


def rows_of(cell: Cell, given: argparse.Namespace) -> tuple[list[TaggedSentence], list[TaggedSentence]]:
    """What is learned from, and what is scored; no sentence that is learned from is among a validation's."""
    train, test = (read_conll(given.data / NAME / name, format=NAME) for name in ("train.txt", "test.txt"))
    if given.quick:
        train, test = train[: QUICK["sentences"]], test[: QUICK["test"]]
    own, rest = few_sentences(train, PART, cell.draw) if cell.labels == "few" else (train, [])
    if given.validate:
        known = {row.words for row in own}
        rest = [row for row in rest if row.words not in known]
        test = [rest[number] for number in chosen(len(rest), min(VALIDATED, len(rest)), f"{NAME} tag views")]
    return own, test


# -- the rival ---------------------------------------------------------------------------------------------------------


def has_rival() -> bool:
    return importlib.util.find_spec("pycrfsuite") is not None


def features(words: Sequence[str], groups: Mapping[str, Sequence[int]] | None) -> list[list[str]]:
    """Of each word the names of what CRFsuite is told of it."""
    lower = [word.lower() for word in words]
    found = []
    for place, word in enumerate(words):
        own = ["bias", f"shape {shape_of(word)}", f"first {place == 0} {word[:1].isupper()}"]
        for length in range(1, min(LONGEST, len(word) - 1) + 1):
            own += [f"< {lower[place][:length]}", f"> {lower[place][-length:]}"]
        own += _beside("w", place, lower)
        for kind in range(len(next(iter(groups.values()))) if groups else 0):
            assert groups is not None
            own += _beside(f"c{kind}", place, [str(groups[one][kind]) if one in groups else "?" for one in lower])
        found.append(own)
    return found


def _beside(name: str, place: int, words: Sequence[str]) -> list[str]:
    def at(offset: int) -> str:
        return words[place + offset] if 0 <= place + offset < len(words) else f"none {offset > 0}"

    alone = [f"{name}{offset} {at(offset)}" for offset in PLACES.values()]
    return [*alone, *(f"{name}{a},{b} {at(a)}|{at(b)}" for a, b in PAIRS[:3])]


def rival(
    train: Sequence[TaggedSentence], test: Sequence[TaggedSentence], groups: Mapping[str, Sequence[int]] | None
) -> list[tuple[str, ...]]:
    import pycrfsuite  # type: ignore[import-not-found,unused-ignore]

    trainer = pycrfsuite.Trainer(verbose=False)
    for row in train:
        trainer.append(features(row.words, groups), list(to_iob2(row.tags or ())))
    trainer.set_params({"c1": 0.0, "c2": PENALTY, "max_iterations": 200, "feature.possible_transitions": True})
    with tempfile.TemporaryDirectory() as aside:
        trainer.train(str(Path(aside) / "model"))
        tagger = pycrfsuite.Tagger()
        tagger.open(str(Path(aside) / "model"))
        return [tuple(tagger.tag(features(row.words, groups))) for row in test]


def groups_of(vectors: ft.LanguageModel) -> dict[str, list[int]]:
    """The clusters of each word that has a vector."""
    known = vectors.knowledge
    assert known is not None
    found = grouped(unit_rows(known.matrix).astype("float32"), 0)
    return {word: own for word, own in zip(known.words, found.tolist()) if own[0] >= 0}


# -- one number --------------------------------------------------------------------------------------------------------


def measure(cell: Cell, vectors: ft.LanguageModel, course: Course) -> dict[str, Any]:
    given = course.given
    train, test = rows_of(cell, given)
    if cell.method in VIEWS:
        base = load_language_model(given.elmo) if cell.method == "views+elmo" else vectors
        beside = given.vectors if base is not vectors else None
        views = VIEWS[cell.method]
        model = base.finetune(train, task="tagging", views=views, vectors=beside, seed=cell.draw, reporter=course.log)
        said: Sequence[Sequence[str]] = model.predict(test)
    elif cell.method in OF_GPT:
        gpt, views_of = load_language_model(given.gpt), OF_GPT[cell.method]
        said = gpt.finetune(train, task="tagging", views=views_of, seed=cell.draw, reporter=course.log).predict(test)
    elif cell.method in RIVALS:
        said = rival(train, test, groups_of(vectors) if cell.method == "crf+clusters" else None)
    else:
        known = tag_table([row.words for row in train], [row.tags or () for row in train])
        said = known.tag([row.words for row in test])
    scores = score_tags([row.tags or () for row in test], said, chunks=True).values
    return {"sentences": len(train), "scores": scores}


def learned(course: Course) -> ft.LanguageModel:
    """The word vectors; a run that was stopped goes on."""
    given = course.given
    if given.base is not None:
        return load_language_model(given.base)
    return course.part(
        "vectors",
        lambda: ft.pretrain(
            given.data / "imdb" / "unsup.txt.gz",
            system="word2vec",
            minutes=given.minutes,
            out=given.out / "vectors",
            sets=given.pretrain_set,
            resume=True,
            reporter=course.log,
            stopping=course.stopping,
        ),
    )


def result_table(found: Mapping[Cell, Mapping[str, Any]]) -> str:
    """F1 over the draws, and what the views add to each other method, paired."""
    rows = []
    for labels in DRAWS:
        count, f1 = by_method(found, labels, METHODS)
        for method, scores in f1.items():
            if scores:
                less = "" if method == "views" else spread(paired(f1["views"], scores), sign=True)
                taken = [record["seconds"] for cell, record in found.items() if cell[::2] == (labels, method)]
                f1_text = spread(list(scores.values()))
                rows.append([f"{count:,}", method, str(len(scores)), f1_text, less, f"{max(taken):.0f}"])
    return table(["sentences", "method", "draws", "chunk F1, %", "views − it", "seconds"], rows)


def run(course: Course) -> str:
    vectors = learned(course)
    course.given.vectors = course.given.base or course.given.out / "vectors"
    left = course.measure(plan(course.given), ("labels", "method"), lambda cell: measure(cell, vectors, course), "f1")
    return course.page([result_table(course.measured(Cell))], (), left)


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    parser = options(__doc__, "tag_views", minutes=5.0)
    parser.add_argument("--base", type=Path, help="a run of word2vec to use instead of learning one")
    parser.add_argument("--elmo", type=Path, help="a run of elmo, for views+elmo")
    parser.add_argument("--gpt", type=Path, help="a run of gpt, for gpt and default")
    parser.add_argument("--validate", action="store_true", help="score other training sentences, not the test")
    parser.add_argument("--methods", help="methods, separated by commas")
    parser.add_argument("--pretrain-set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    given = parser.parse_args(words)
    given.data = need_data(given.data)
    left_out = {
        *(() if has_rival() else RIVALS),
        *(() if given.elmo else ("views+elmo",)),
        *(() if given.gpt else OF_GPT),
    }
    able = [name for name in METHODS if name not in left_out]
    given.methods = [name for name in able if given.methods is None or name in given.methods.split(",")]
    if given.quick:
        given.minutes = 0.1
    return given


def main(words: Sequence[str] | None = None) -> int:
    return conduct(parse(words), "tag_views", SETTINGS, run, ("torch", "gensim", "scikit-learn"))


if __name__ == "__main__":
    raise SystemExit(main())
