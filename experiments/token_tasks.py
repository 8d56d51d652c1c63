"""Tags and span answers on real data: the chunks of CoNLL-2000, and XQuAD's questions in English and Chinese.

    python -m experiments.token_tasks --data DIR [--out runs/token_tasks]

- **CoNLL-2000**: chunk F1 on all 2,012 test sentences, from MiniLM, fine-tuned on all 8,936 training sentences for two
  epochs. The model reads words, not parts of speech.
- **XQuAD**: no training part was published, so a random quarter of its 240 paragraphs is the test, the same ones in
  both languages; no paragraph is on both sides. English from MiniLM. Chinese from a BERT of `tiny` size, pre-trained
  here for four minutes on the training paragraphs and on ChnSentiCorp's training texts, without labels: MiniLM's
  vocabulary has 244 ideographs, and seven of ten characters of these passages are unknown to it. What it makes of them
  all the same: `--only xquad-zh-minilm`.

Each also from scratch: the same shape, vocabulary and settings, new weights. Beside them what counting gives
(`token_baselines.py`). Epochs are fixed and nothing is held out, so that the test chooses nothing; `--validate` scores
a part of the training rows in place of the test, to choose settings by. ± is the standard error over test questions.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import foretext as ft
from bench.common import arguments_for, need_data, table
from experiments.course import Course, conduct
from experiments.minilm import load_minilm, minilm_line
from experiments.results import own_options, sets_for
from experiments.token_baselines import best_length, overlap_answers, rarity, tag_table
from foretext.tasks.files.conll import TaggedSentence, read_conll
from foretext.tasks.files.rows import read_rows
from foretext.tasks.files.squad import Question, read_squad
from foretext.tasks.scores.tag_metrics import score_tags
from foretext.tasks.scores.text_metrics import answer_score

T = TypeVar("T")

TEST_PART, VALID_PART = 0.25, 0.15
PACKED = 480  # characters of reviews that are read as one document, so that late positions are trained too
PRETRAINED, SCRATCH = "pre-trained", "from scratch"
SETTINGS = ("sentences", "minutes", "set", "validate", "quick")
CHINESE = ("model.context=512",)  # one window for nearly every passage; 256 would double the cost
QUICK = {"sentences": 48, "test": 24, "questions": 16}
QUICK_CHINESE = ("model.layers=1", "model.width=32", "model.heads=2", "model.context=128", "tokenizer.size=2000")


@dataclass(frozen=True)
class TokenTask:
    title: str
    kind: Literal["tagging", "span"]
    base: Literal["minilm", "chinese"]
    language: str
    baselines: tuple[str, ...]


TASKS = {
    "conll2000": TokenTask("CoNLL-2000", "tagging", "minilm", "en", ("tag of the word", "tag of the part of speech")),
    "xquad-en": TokenTask("XQuAD, English", "span", "minilm", "en", ("overlap",)),
    "xquad-zh": TokenTask("XQuAD, Chinese", "span", "chinese", "zh", ("overlap",)),
    "xquad-zh-minilm": TokenTask("XQuAD, Chinese, MiniLM", "span", "minilm", "zh", ()),
}
USUAL = ("conll2000", "xquad-en", "xquad-zh")
SETS = (
    *("conll2000:task.epochs=2", "conll2000:training.rate=1e-4", "conll2000:training.batch_size=32"),
    *("xquad-en:task.epochs=4", "xquad-en:training.rate=1e-4", "xquad-en:training.batch_size=8"),
    "xquad-zh:task.epochs=5",
    *(f"xquad-zh-minilm:{text}" for text in ("task.epochs=4", "training.rate=1e-4", "training.batch_size=8")),
)


class Cell(NamedTuple):
    task: str
    method: str


# -- rows ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rows:
    train: list[Any]
    test: list[Any]


def chosen(count: int, wanted: int, name: str) -> list[int]:
    """So many of the first `count` numbers, rising: at random, and for one name always the same."""
    return sorted(random.Random(f"token tasks {name}").sample(range(count), wanted))


def parted(rows: Sequence[T], keys: Sequence[str], part: float, name: str) -> tuple[list[T], list[T]]:
    """The rows without, and those with, a random part of the keys: rows of one key stay together."""
    different = list(dict.fromkeys(keys))
    held = {different[number] for number in chosen(len(different), round(part * len(different)), name)}
    return (
        [row for row, key in zip(rows, keys, strict=True) if key not in held],
        [row for row, key in zip(rows, keys, strict=True) if key in held],
    )


def sentence_rows(given: argparse.Namespace, column: int | None = None) -> Rows:
    """Sentences with the tags of a column (None: the chunks); which ones does not depend on the column."""
    folder = given.data / "conll2000"
    train, test = (read_conll(folder / name, format="conll2000", column=column) for name in ("train.txt", "test.txt"))
    train = [train[number] for number in chosen(len(train), min(given.sentences, len(train)), "conll2000")]
    if given.validate:
        train, test = parted(train, [" ".join(row.words) for row in train], VALID_PART, "conll2000 validation")
    return Rows(train, test[: QUICK["test"]] if given.quick else test)


def question_rows(given: argparse.Namespace, language: str) -> Rows:
    """Both languages have the same paragraphs in the same order, and so the same ones in the test."""
    questions = read_squad(given.data / "xquad" / f"xquad.{language}.json")
    train, test = parted(questions, [one.passage for one in questions], TEST_PART, "xquad")
    if given.validate:
        train, test = parted(train, [one.passage for one in train], VALID_PART, "xquad validation")
    return Rows(train[: QUICK["questions"]], test[: QUICK["questions"]]) if given.quick else Rows(train, test)


def rows_of(name: str, given: argparse.Namespace) -> Rows:
    task = TASKS[name]
    return sentence_rows(given) if task.kind == "tagging" else question_rows(given, task.language)


def described(name: str, rows: Rows) -> str:
    """How much there is, for the head of the table."""
    title = TASKS[name].title
    if TASKS[name].kind == "tagging":
        return f"{title}: {len(rows.train):,} sentences to train on, {len(rows.test):,} to score"
    passages = [len({one.passage for one in part}) for part in (rows.train, rows.test)]
    return (
        f"{title}: {len(rows.train):,} questions about {passages[0]} paragraphs to train on, {len(rows.test):,} about "
        f"{passages[1]} to score"
    )


# -- what to begin with ----------------------------------------------------------------------------------------------


def packed(texts: Sequence[str], characters: int) -> list[str]:
    """Texts one after the other, a line each, in documents of about so many characters."""
    found: list[str] = []
    held: list[str] = []
    for text in texts:
        if held and sum(map(len, held)) + len(text) > characters:
            found.append("\n".join(held))
            held = []
        held.append(text)
    return [*found, "\n".join(held)] if held else found


def chinese_text(given: argparse.Namespace) -> Path:
    """The training paragraphs and ChnSentiCorp's training texts, as JSON lines."""
    file: Path = given.out / "chinese.jsonl"
    if not file.exists():
        reviews = read_rows(given.data / "chnsenticorp" / "train.tsv", "classification", format="chnsenticorp")
        passages = dict.fromkeys(one.passage for one in question_rows(given, "zh").train)
        texts = [*passages, *packed([row.texts[0] for row in reviews], PACKED)]
        part = file.with_suffix(".part")
        lines = (json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts)
        part.write_text("".join(lines), encoding="utf-8")
        part.replace(file)
    return file


def chinese_base(course: Course) -> ft.LanguageModel:
    """A BERT that has read Chinese; pre-training that was stopped goes on."""
    given = course.given
    return course.part(
        "pre-training in Chinese",
        lambda: ft.pretrain(
            chinese_text(given),
            system="bert",
            vectors="none",
            size="tiny",
            minutes=given.minutes,
            out=given.out / "chinese",
            sets=QUICK_CHINESE if given.quick else CHINESE,
            resume=True,
            reporter=course.log,
            stopping=course.stopping,
        ),
    )


def unknown_part(base: ft.LanguageModel, rows: Sequence[Question]) -> float:
    """The part of the passages' pieces that the vocabulary does not have."""
    tokenizer = base.model.tokenizer
    ids = [id for passage in dict.fromkeys(one.passage for one in rows) for id in tokenizer.encode(passage)]
    return ids.count(-1 if tokenizer.unknown is None else tokenizer.unknown) / max(1, len(ids))


# -- scores ----------------------------------------------------------------------------------------------------------


def answer_scores(questions: Sequence[Question], answers: Sequence[str]) -> dict[str, float]:
    """Exact match and F1, and the standard error of the latter over the questions."""
    pairs = [answer_score(one, answer, False) for one, answer in zip(questions, answers, strict=True)]
    f1s = [f1 for _, f1 in pairs]
    error = statistics.stdev(f1s) / len(f1s) ** 0.5 if len(f1s) > 1 else 0.0
    return {"f1": statistics.fmean(f1s), "exact_match": statistics.fmean(exact for exact, _ in pairs), "error": error}


def tags_of(rows: Sequence[TaggedSentence]) -> list[tuple[str, ...]]:
    return [row.tags or () for row in rows]


def baseline_scores(method: str, rows: Rows, given: argparse.Namespace) -> dict[str, float]:
    if method == "overlap":
        rare = rarity(one.passage for one in rows.train)
        return answer_scores(rows.test, overlap_answers(rows.test, rare, best_length(rows.train, rare)))
    if method == "tag of the word":
        train, test = ([row.words for row in part] for part in (rows.train, rows.test))
    else:
        speech = sentence_rows(given, column=2)
        train, test = tags_of(speech.train), tags_of(speech.test)
    return score_tags(tags_of(rows.test), tag_table(train, tags_of(rows.train)).tag(test)).values


def model_scores(cell: Cell, rows: Rows, base: ft.LanguageModel, course: Course) -> dict[str, float]:
    name, method = cell
    options, sets = own_options(sets_for(course.given.set, name, len(rows.train)))
    epochs = options.get("task.epochs")
    kind = TASKS[name].kind
    model = base.finetune(
        rows.train,
        task=kind,
        epochs=None if epochs is None else int(epochs),
        hold_out=0.0,
        from_scratch=method == SCRATCH,
        sets=sets,
        reporter=course.log,
        stopping=course.stopping,
    )
    if kind == "tagging":
        return model.evaluate(rows.test, reporter=course.log).values
    found = answer_scores(rows.test, [one.text for one in model.predictions(rows.test, reporter=course.log).values])
    return found | {"unknown": unknown_part(base, rows.test)}


# -- the run -----------------------------------------------------------------------------------------------------------


def plan(names: Sequence[str]) -> list[Cell]:
    """What a cut-off must not take first: what counting gives, then pre-trained, then from scratch."""
    counted = [Cell(name, method) for name in names for method in TASKS[name].baselines]
    return [*counted, *(Cell(name, method) for method in (PRETRAINED, SCRATCH) for name in names)]


def bases_of(cells: Sequence[Cell], course: Course) -> dict[str, ft.LanguageModel]:
    """What these cells begin with; what they do not need is not made."""
    made: dict[str, ft.LanguageModel] = {}
    for name in dict.fromkeys(TASKS[cell.task].base for cell in cells):
        made[name] = load_minilm(course.given.out, course.log.note) if name == "minilm" else chinese_base(course)
    return made


def run(course: Course) -> str:
    given = course.given
    given.rows = {name: rows_of(name, given) for name in given.tasks}
    cells = plan(given.tasks)
    counted = [cell for cell in cells if cell.method in TASKS[cell.task].baselines]
    course.measure(
        counted,
        ("task", "method"),
        lambda cell: {"scores": baseline_scores(cell.method, given.rows[cell.task], given)},
        "f1",
    )
    taught = [cell for cell in cells if cell not in course.measured(Cell)]
    bases = bases_of(taught, course)
    left = course.measure(
        taught,
        ("task",),  # from scratch takes as long as pre-trained does
        lambda cell: {"scores": model_scores(cell, given.rows[cell.task], bases[TASKS[cell.task].base], course)},
        "f1",
    )
    facts = [described(name, rows) for name, rows in given.rows.items()]
    return course.page(tables(course.measured(Cell), given.tasks), facts, left)


def tables(found: Mapping[Cell, Mapping[str, Any]], names: Sequence[str]) -> list[str]:
    """Chunks and answers have columns of their own."""
    chunks, answers = [], []
    for name, method in [cell for task in names for cell in plan([task]) if cell in found]:
        record = found[Cell(name, method)]
        scores, seconds = record["scores"], f"{record['seconds']:.0f}"
        start = [f"{TASKS[name].title}, {method}", f"{100 * scores['f1']:.2f}"]
        if TASKS[name].kind == "tagging":
            parts = [f"{100 * scores[key]:.2f}" for key in ("precision", "recall", "accuracy")]
            chunks.append([*start, *parts, seconds])
        else:
            unknown = f"{100 * scores['unknown']:.1f}" if "unknown" in scores else "–"
            start[1] = f"{100 * scores['f1']:.1f} ± {100 * scores['error']:.1f}"
            answers.append([*start, f"{100 * scores['exact_match']:.1f}", unknown, seconds])
    text = []
    if chunks:
        text.append(table(["chunks, %", "F1", "precision", "recall", "accuracy of words", "seconds"], chunks))
    if answers:
        text.append(table(["answers, %", "F1", "exact match", "unknown pieces", "seconds"], answers))
    return text


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    parser = arguments_for(__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/token_tasks"), help="goes on if it is there")
    parser.add_argument("--limit", type=float, default=45.0, help="minutes for everything: no cell starts past it")
    parser.add_argument("--minutes", type=float, default=4.0, help="of pre-training in Chinese")
    parser.add_argument("--sentences", type=int, default=8936, help="of CoNLL-2000 to train on, at random")
    parser.add_argument("--only", help=f"tasks, separated by commas: {', '.join(TASKS)}")
    parser.add_argument("--validate", action="store_true", help="score held-out training rows, not the test")
    parser.add_argument("--set", action="append", default=[], metavar="TASK:SECTION.KEY=VALUE")
    given = parser.parse_args(words)
    given.data = need_data(given.data)
    given.tasks = given.only.split(",") if given.only else list(USUAL)
    for name in given.tasks:
        if name not in TASKS:
            parser.error(f"--only {name}: no such task; there are {', '.join(TASKS)}")
    given.set = [*SETS, *given.set]
    if given.quick:
        given.minutes, given.sentences = 0.05, QUICK["sentences"]
        given.set = [*given.set, *(f"{name}:task.epochs=1" for name in TASKS)]
    return given


def said_of(given: argparse.Namespace) -> list[str]:
    """Which MiniLM it is, if a task begins with it."""
    return [minilm_line()] if any(TASKS[name].base == "minilm" for name in given.tasks) else []


def main(words: Sequence[str] | None = None) -> int:
    given = parse(words)
    return conduct(given, "token_tasks", SETTINGS, run, head=lambda: said_of(given))


if __name__ == "__main__":
    raise SystemExit(main())
