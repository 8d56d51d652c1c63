"""The head over views against the strongest cheap rivals, on few labels of SST-2, IMDb, TREC-6 and ChnSentiCorp.

    python -m experiments.views --data DIR [--out runs/views] [--only sst2,trec] [--all-test]

Word vectors (CBOW, then skip-gram) and LSA are learned from IMDb's unlabelled reviews, for Chinese from ChnSentiCorp's
training texts. The rivals are fixed recipes over the same blocks, each a logistic regression of scikit-learn with
C = 7: T n-grams, L topics, W and B skip-gram and CBOW means, F the vectors of the first words (times .7). Draws and
test rows are those of `experiments.imdb_transfer` and `experiments.chnsenticorp`; nothing was chosen on them.

`views` is `finetune --views ngrams,lsa,vectors` on the CBOW run, `views+text` the same with the text that the vectors
were learned from as `--unlabelled`; its rival is `self-trained` (`experiments.self_trained`). `-lsa` and the like leave
one view out. `minilm` is MiniLM's states alone, `views+minilm` all views beside them; `minilm tuned` is MiniLM
fine-tuned, `views+minilm tuned` all views beside what it says once it is (SST-2 and TREC-6: reviews take too long).
`gpt` is the GPT that `--base` names, fine-tuned; `views+gpt` all views beside its states, `views+gpt tuned` all views
beside what it says once it is fine-tuned, which is the default of `finetune` on a run that has word vectors.
`--spare`: test rows are other training rows, that are in no draw, so that choices can be made on them.
`--all-test`: IMDb on all 25,000 test rows, five draws.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import scipy.sparse as sp

import foretext as ft
from bench.common import arguments_for, commit, head_lines, need_data
from experiments import chnsenticorp, imdb_transfer
from experiments.common import Data, Log, Task, accuracy, check_settings, drawn_rows, imported, read_task, texts_of
from experiments.minilm import need_minilm
from experiments.results import Cell, Results, result_table
from experiments.self_trained import Text, self_trained, unlabelled
from foretext.api import load_language_model
from foretext.tasks.files.rows import Row
from foretext.tasks.views.base import Block, units_of
from foretext.tasks.views.rows.ngrams import NGrams
from foretext.tasks.views.rows.text_knowledge import LatentSemantics, Vectors

TASKS = imdb_transfer.TASKS | {"chnsenticorp": chnsenticorp.TASK}
STRENGTH = 7.0
SPARE_ROWS = 1500
FIRST = 0.7  # what the first words are multiplied by
RIVALS: dict[str, dict[str, float]] = {
    "T": {"T": 1},
    "B": {"B": 1},
    "L+B": {"L": 1, "B": 1},
    "T+L+W+B": {"T": 1, "L": 1, "W": 1, "B": 1},
    "R1": {"T": 1, "L": 1, "W": 1, "B": 1, "F1": FIRST, "F3": FIRST},
    "R2": {"T": 1, "L": 1, "B": 1, "F1": FIRST, "F3": FIRST},
}
OURS = {
    "views": ("ngrams", "lsa", "vectors"),
    "-ngrams": ("lsa", "vectors"),
    "-lsa": ("ngrams", "vectors"),
    "-vectors": ("ngrams", "lsa"),
}
ALL_STATES, ALL_TUNED = (*OURS["views"], "states"), (*OURS["views"], "tuned")
STATES = {"minilm": ("states",), "views+minilm": ALL_STATES}
TEXT, TEXT_RIVAL = "views+text", "self-trained"
TUNED = {
    "minilm tuned": (),
    "views+minilm tuned": ALL_TUNED,
    "views+minilm chosen": (*OURS["views"], "states", "tuned"),
}
GPT = {"gpt": (), "views+gpt": ALL_STATES, "views+gpt tuned": ALL_TUNED, "default": None}
TUNED_SETS = ("transfer.pooling=mean", "transfer.head=probe", "training.rate=1e-4", "training.batch_size=16")
EPOCHS = {100: 15, 500: 6, 2000: 3}  # those of `experiments.masked_transfer`
METHODS = {name: name for name in (*OURS, TEXT, *RIVALS, TEXT_RIVAL, *STATES, *TUNED, *GPT)}


@dataclass(frozen=True)
class Bases:
    """What was learned from a text: CBOW and topics, and skip-gram."""

    cbow: ft.LanguageModel
    skipgram: ft.LanguageModel | None  # which rivals alone read
    text: Path

    @cached_property
    def read(self) -> Text:
        """The text as the rival that learns from it reads it."""
        assert self.skipgram is not None
        return Text(self.text, self.cbow, self.skipgram)


def learned(
    kind: str, text: Path, out: Path, given: argparse.Namespace, log: Log, results: Results
) -> ft.LanguageModel:
    since = time.perf_counter()
    sets = [f"objective.kind={kind}", *(["objective.lsa=0"] if kind == "skipgram" else []), *given.set]
    model = ft.pretrain(text, system="word2vec", minutes=given.minutes, out=out, sets=sets, resume=True, reporter=log)
    results.add_part(f"{kind}, {out.name}", time.perf_counter() - since, commit())
    return model


def bases_for(task: str, given: argparse.Namespace, log: Log, results: Results) -> Bases:
    rivals = any(given.able(method, task) for method in (*RIVALS, TEXT_RIVAL))
    module, name = (chnsenticorp, "zh") if task == "chnsenticorp" else (imdb_transfer, "en")
    text = module.texts(given.data, given.out)
    there = given.words if name == "en" else given.words_zh
    return Bases(
        load_language_model(there) if there else learned("cbow", text, given.out / f"cbow-{name}", given, log, results),
        learned("skipgram", text, given.out / f"skipgram-{name}", given, log, results) if rivals else None,
        text,
    )


# -- the rivals --------------------------------------------------------------------------------------------------------


def rival_blocks(bases: Bases, train: Sequence[Row], test: Sequence[Row]) -> dict[str, tuple[Block, Block]]:
    """T, L, W, B, F1 and F3 of both sets of rows, each row of unit length but for centring."""
    units, asked = (units_of([row.texts for row in rows], "classification", True) for rows in (train, test))
    ngrams = NGrams.learned(units)
    blocks = {"T": (ngrams.read(units)["words"], ngrams.read(asked)["words"])}
    assert bases.skipgram is not None
    for model, means in ((bases.cbow, "B"), (bases.skipgram, "W")):
        known = model.knowledge
        assert known is not None
        view = Vectors.learned(units, known.words, known.matrix, known.counts)
        own, other = view.read(units), view.read(asked)
        blocks[means] = own["mean"], other["mean"]
        if means == "B":
            blocks |= {"F1": (own["first 1"], other["first 1"]), "F3": (own["first 3"], other["first 3"])}
            assert known.lsa is not None
            topics = LatentSemantics(known.words, known.lsa)
            blocks["L"] = topics.read(units)["topics"], topics.read(asked)["topics"]
    return blocks


def rival(blocks: Mapping[str, tuple[Block, Block]], recipe: Mapping[str, float], labels: Sequence[str]) -> list[str]:
    from sklearn.linear_model import LogisticRegression

    train, test = (
        sp.hstack([sp.csr_matrix(blocks[name][side]) * factor for name, factor in recipe.items()]).tocsr()
        for side in (0, 1)
    )
    model = LogisticRegression(C=STRENGTH, max_iter=2000).fit(train, labels)
    return [str(label) for label in model.predict(test)]


# -- ours --------------------------------------------------------------------------------------------------------------


def ours(
    base: ft.LanguageModel,
    knowledge: Path | None,
    views: Sequence[str] | None,
    draw: int,
    text: Sequence[str] | None = (),
    log: Log | None = None,
    epochs: int | None = None,
    sets: Sequence[str] = (),
) -> Callable[..., list[str]]:
    def said(train: Sequence[Row], test: Sequence[Row]) -> list[str]:
        model = base.finetune(
            train,
            task="classification",
            views=views,
            vectors=knowledge,
            seed=draw,
            epochs=epochs,
            sets=tuple(sets),
            unlabelled=text,
            reporter=log,
        )
        return [str(label) for label in model.predict(texts_of(test))]

    return said


def measure(
    task: str,
    labels: int,
    draw: int,
    data: Data,
    bases: Bases,
    given: argparse.Namespace,
    keep: Callable[[Cell, float, float], None],
    log: Log,
) -> None:
    """All methods of a cell that are missing."""
    train, done = drawn_rows(data.train, labels, draw), given.done
    named = [str(row.label) for row in train]
    wanted = [name for name in METHODS if Cell(task, labels, draw, name) not in done and given.able(name, task)]
    rivals = any(name in RIVALS or name == TEXT_RIVAL for name in wanted)
    blocks = rival_blocks(bases, train, data.test) if rivals else {}
    for name in wanted:
        since = time.perf_counter()
        if name in RIVALS:
            said = rival(blocks, RIVALS[name], named)
        elif name == TEXT_RIVAL:
            said = self_trained(bases.read, blocks, train, data.test)
        elif name == TEXT:
            said = ours(bases.cbow, None, OURS["views"], draw, unlabelled(bases.text), log)(train, data.test)
        elif name in OURS:
            said = ours(bases.cbow, None, OURS[name], draw)(train, data.test)
        else:
            views = (STATES | TUNED | GPT)[name]
            knowledge = bases.cbow.path if views and "vectors" in views else None
            epochs, sets = (EPOCHS.get(labels, 3), TUNED_SETS) if name in TUNED else (None, ())
            trunk = load_language_model(base_of(task, given) or "") if name in GPT else given.minilm
            text = None if views is None else ()
            said = ours(trunk, knowledge, views, draw, text, log, epochs, sets)(train, data.test)
        keep(Cell(task, labels, draw, name), accuracy(said, data.test), time.perf_counter() - since)


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    parser = arguments_for(__doc__ or "")
    parser.add_argument("--out", type=Path, default=Path("runs/views"))
    parser.add_argument("--minutes", type=float, default=5.0, help="of each kind of vectors, at most")
    parser.add_argument("--limit", type=float, default=45.0, help="minutes for everything: no cell starts past it")
    parser.add_argument("--only", help="tasks, separated by commas")
    parser.add_argument("--methods", help="methods, separated by commas")
    parser.add_argument("--all-test", action="store_true", help="IMDb on all test rows, five draws")
    parser.add_argument("--base", type=Path, help="a GPT, for the methods that read one")
    parser.add_argument("--base-zh", type=Path, help="the same for ChnSentiCorp")
    parser.add_argument("--words", type=Path, help="CBOW and topics that are there, such as those of GPT: RUN/words")
    parser.add_argument("--words-zh", type=Path, help="the same for ChnSentiCorp")
    parser.add_argument("--draws", type=int, help="the first so many")
    parser.add_argument("--labels", help="numbers of labels, separated by commas")
    parser.add_argument("--spare", action="store_true", help="test rows: training rows that are in no draw")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="of the vectors")
    given = parser.parse_args(words)
    given.data = need_data(given.data)
    names = given.only.split(",") if given.only else list(TASKS)
    given.tasks = {name: TASKS[name] for name in names}
    if given.all_test:
        given.tasks = {"imdb": replace(TASKS["imdb"], draws=5, test_rows=None)}
    if given.labels or given.draws:
        given.tasks = {name: fewer(task, given.labels, given.draws) for name, task in given.tasks.items()}
    if given.quick:
        given.minutes = 0.2
        given.tasks = {name: replace(task, labels=(40,), draws=1, test_rows=60) for name, task in given.tasks.items()}
    chosen = set(given.methods.split(",")) if given.methods else set(METHODS)
    given.able = lambda method, task: (
        method in chosen
        and (method not in STATES or task != "chnsenticorp")
        and (method not in TUNED or task in ("sst2", "trec"))
        and (method not in GPT or base_of(task, given) is not None)
        and (method != TEXT_RIVAL or task != "trec")  # two classes only
    )
    return given


def base_of(task: str, given: argparse.Namespace) -> Path | None:
    return given.base_zh if task == "chnsenticorp" else given.base


def fewer(task: Task, labels: str | None, draws: int | None) -> Task:
    wanted = task.labels if labels is None else tuple(map(int, labels.split(",")))
    chosen = tuple(number for number in task.labels if number in wanted)
    return replace(task, labels=chosen, draws=min(draws or task.draws, task.draws))


def spared(task: Task, data: Data) -> Data:
    """Rows that are in no draw, as if they were all: some to learn from, others to test on."""
    draws = [(labels, draw) for labels in task.labels for draw in range(task.draws)]
    drawn = {id(row) for labels, draw in draws for row in drawn_rows(data.train, labels, draw)}
    rest = [row for row in data.train if id(row) not in drawn]
    test = drawn_rows(rest, min(SPARE_ROWS, len(rest) // 2), 0)
    kept = {id(row) for row in test}
    return Data([row for row in rest if id(row) not in kept], test)


def main(words: Sequence[str] | None = None) -> int:
    given = parse(words)
    given.out.mkdir(parents=True, exist_ok=True)
    check_settings(
        given, given.out, ("minutes", "quick", "set", "all_test", "base", "base_zh", "words", "words_zh", "spare")
    )
    log, results = Log(given.out / "log.txt"), Results(given.out / "results.jsonl")
    for line in head_lines(["torch", "scikit-learn", "gensim"], "python -m experiments.views"):
        log.note(line)
    folder = need_minilm() if any(given.able(name, "sst2") for name in (*STATES, *TUNED)) else None
    given.minilm = None if folder is None else load_language_model(imported(folder, given.out / "minilm", log.note))
    given.done = results.accuracies()

    def keep(cell: Cell, found: float, seconds: float) -> None:
        results.add_cell(cell, found, seconds, commit())
        log.note(f"{cell.task} {cell.labels}, draw {cell.draw}, {cell.method}: {100 * found:.1f} % in {seconds:.1f} s")

    bases: dict[str, Bases] = {}
    for name, task in given.tasks.items():
        if results.seconds() > 60 * given.limit:
            break
        kind = "zh" if name == "chnsenticorp" else "en"
        if kind not in bases:
            bases[kind] = bases_for(name, given, log, results)
        data = read_task(task, given.data)
        if given.spare:
            data = spared(TASKS[name], data)
        for draw in range(task.draws):
            for labels in task.labels:
                if results.seconds() <= 60 * given.limit:
                    measure(name, labels, draw, data, bases[kind], given, keep, log)
    titles = {name: task.title for name, task in given.tasks.items()}
    found = {cell: value for cell, value in results.accuracies().items() if cell.task in titles}
    text = f"minutes: {results.seconds() / 60:.1f}; commits: {', '.join(results.commits())}\n\n"
    measured = {cell.method for cell in found}
    text += result_table(found, titles, {name: name for name in METHODS if name in measured}) + "\n"
    (given.out / "table.md").write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
