"""Questions whose answer follows from their own words, over passages of any length: a model that reads question and
passage together can answer them all, so anything less says that the span pipeline is broken (or the model too small).

    python -m experiments.generated_spans [--out runs/generated_spans]

A passage is a shuffled list of sentences "Anna keeps the blue key in the old barn." about a few people and a few
things, half of whose pairs stand in it, each once: so the person of a question stands in several sentences, the thing
in several others, and only one has both. The question is "Where does Anna keep the blue key?", the answer "the old
barn". A question without an answer asks for a person and a thing that stand in different sentences only. Where a thing
is kept is drawn anew for each passage, so that nothing of a training passage helps in another.

The script fine-tunes MiniLM, its context cut from 512 tokens to 128, on passages of 80 words (one window) and of 160
(several), each seen once, and asks about new passages of 100, 300 and 600 words. Of 300 words, five windows, F1 must be
at least 95. Beside it stands what a reader of half the question gets: the place in the first sentence with its person,
or with its thing. F1 is also given by where in the passage the answer stands: all but the first part needs windows.
"""

from __future__ import annotations

import dataclasses
import json
import math
import random
import re
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.common import arguments_for, commit, ratio_cell, table
from experiments.course import Course, conduct
from experiments.minilm import load_minilm, minilm_line
from foretext.api import LanguageModel, TaskModel
from foretext.errors import UserError
from foretext.runs.model import SavedModel, encode
from foretext.runs.report import Reporter
from foretext.systems.base import TrunkParts
from foretext.tasks.files.squad import Answer, Question
from foretext.tasks.scores.text_metrics import answer_score, score_answers

SHORT, LONG = 80, 160  # words of the passages to train on, half of each
TEST = {100: 50, 300: 50, 600: 25}  # words of a passage to ask about → passages, each with four questions
QUICK_TEST = {100: 2, 300: 2}
GOAL_WORDS, GOAL = 300, 95.0
SETS = ("training.rate=2e-4", "training.batch_size=16", "training.dropout=0")  # nothing is seen twice
PEOPLE = ("Anna", "Bruno", "Clara", "David", "Emma", "Felix", "Greta", "Hugo", "Ida", "Jonas", "Klara", "Leo")
COLOURS = ("blue", "red", "green", "white", "black", "yellow")
THINGS = ("key", "book", "lamp", "hat", "cup", "map", "rope", "box")
COLOURED = tuple(f"{colour} {thing}" for colour in COLOURS for thing in THINGS)
PLACES = (
    *("the old barn", "the kitchen", "a drawer", "the garden shed", "a wooden chest", "the attic", "the cellar"),
    *("an empty jar", "the library", "the back of the shop", "a small tent", "the hall"),
)
SHORTEST = 8  # words of a sentence
_SENTENCE = re.compile(r"(\w+) keeps the (\w+ \w+) in ([^.]+)\.")
_QUESTION = re.compile(r"Where does (\w+) keep the (\w+ \w+)\?")


@dataclass(frozen=True)
class Fact:
    person: str
    thing: str  # with its colour
    place: str

    @property
    def sentence(self) -> str:
        return f"{self.person} keeps the {self.thing} in {self.place}."

    @property
    def question(self) -> str:
        return f"Where does {self.person} keep the {self.thing}?"


def facts_of(draw: random.Random, words: int) -> list[Fact]:
    """Facts for a passage of at least so many words, no two with the same person and thing: about half of the pairs of
    as few people and things as that needs."""
    wanted = 2 * -(-words // SHORTEST)
    people = draw.sample(PEOPLE, min(len(PEOPLE), math.isqrt(wanted - 1) + 1))
    things = draw.sample(COLOURED, min(len(COLOURED), -(-wanted // len(people))))
    pairs = [(person, thing) for person in people for thing in things]
    draw.shuffle(pairs)
    facts: list[Fact] = []
    length = 0
    while length < words:
        assert pairs, f"a passage has at most {len(PEOPLE) * len(COLOURED)} facts"
        person, thing = pairs.pop()
        facts.append(Fact(person, thing, draw.choice(PLACES)))
        length += len(facts[-1].sentence.split())
    return facts


def generated_questions(
    passages: int, seed: int, *, words: int = 300, asked: int = 4, impossible: float = 0.0
) -> list[Question]:
    """`asked` questions about each of so many passages of at least `words` words; a part of them, `impossible`, have no
    answer. The same seed gives the same questions; the passages of two seeds are different ones."""
    draw = random.Random(f"generated spans {seed}")
    questions = []
    for number in range(passages):
        facts = facts_of(draw, words)
        passage = " ".join(fact.sentence for fact in facts)
        starts = _starts(facts)
        for index in draw.sample(range(len(facts)), min(asked, len(facts))):
            name = f"{seed}-{number}-{index}"
            where = f"generated question {name}"
            if draw.random() < impossible:
                absent = _absent(draw, facts)
                questions.append(Question(name, absent.question, passage, (), True, where))
            else:
                answer = Answer(facts[index].place, starts[index])
                questions.append(Question(name, facts[index].question, passage, (answer,), False, where))
    return questions


def _starts(facts: Sequence[Fact]) -> list[int]:
    """Where the place of each fact begins in the passage."""
    starts, length = [], 0
    for fact in facts:
        starts.append(length + len(fact.sentence) - len(fact.place) - 1)
        length += len(fact.sentence) + 1
    return starts


def _absent(draw: random.Random, facts: Sequence[Fact]) -> Fact:
    """A person and a thing that both occur, but not together; in a passage that has all such pairs, a person who does
    not occur."""
    there = {(fact.person, fact.thing) for fact in facts}
    people, things = sorted({fact.person for fact in facts}), sorted({fact.thing for fact in facts})
    pairs = [(person, thing) for person in people for thing in things if (person, thing) not in there]
    pairs = pairs or [(person, thing) for person in PEOPLE if person not in people for thing in things]
    person, thing = draw.choice(pairs)
    return Fact(person, thing, "nowhere")


def texts_of(questions: Sequence[Question]) -> list[str]:
    """What there is to pre-train on: each passage once, and the questions."""
    return [*dict.fromkeys(one.passage for one in questions), *(one.question for one in questions)]


def write_squad(questions: Sequence[Question], path: Path) -> None:
    """The questions in SQuAD's layout, those about one passage together."""
    paragraphs: dict[str, list[Question]] = {}
    for one in questions:
        paragraphs.setdefault(one.passage, []).append(one)
    data = [
        {
            "context": passage,
            "qas": [
                {
                    "id": one.id,
                    "question": one.question,
                    "answers": [{"text": answer.text, "answer_start": answer.start} for answer in one.answers],
                    "is_impossible": one.impossible,
                }
                for one in own
            ],
        }
        for passage, own in paragraphs.items()
    ]
    whole = {"version": "generated", "data": [{"title": "generated", "paragraphs": data}]}
    path.write_text(json.dumps(whole, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


# -- the experiment --------------------------------------------------------------------------------------------------


def training_questions(passages: int) -> list[Question]:
    """Half of the passages short, so that reading is learned soon, and half in windows that may lack the answer."""
    short = passages // 2
    return [
        *generated_questions(short, 1, words=SHORT),
        *generated_questions(passages - short, 2, words=LONG),
    ]


def unseen_questions(words: int, passages: int) -> list[Question]:
    """About passages of so many words, by a seed that no training passage has."""
    return generated_questions(passages, 1000 + words, words=words)


def shortened(lm: LanguageModel, context: int) -> LanguageModel:
    """The same encoder with room for fewer tokens: more windows, each cheaper and with less to search in."""
    old = lm.model
    config = dataclasses.replace(old.model_config, context=context)
    trunk = old.system.build_trunk(TrunkParts(config, old.tokenizer))
    rows = trunk.state_dict()["positions.weight"].shape[0]
    weights = old.trunk.state_dict()
    if rows > len(weights["positions.weight"]):
        raise UserError(f"--context {context}: the encoder has {old.model_config.context}; give no more")
    trunk.load_state_dict(weights | {"positions.weight": weights["positions.weight"][:rows]})
    sections = dataclasses.replace(old.config, model=config)
    return LanguageModel(SavedModel(None, sections, old.system, old.tokenizer, trunk), lm.path)


def windows_of(model: TaskModel, questions: Sequence[Question]) -> float:
    """Windows a question, on average."""
    return len(encode(questions, model.model, Reporter()).windows) / len(questions)


def by_third(questions: Sequence[Question], answers: Sequence[str]) -> list[float | None]:
    """F1 of the questions whose answer stands in the first, the second and the last third of its passage."""
    found: list[list[float]] = [[], [], []]
    for one, answer in zip(questions, answers, strict=True):
        third = 3 * one.answers[0].start // len(one.passage)
        found[third].append(answer_score(one, answer, False)[1])
    return [statistics.fmean(own) if own else None for own in found]


def half_read(questions: Sequence[Question]) -> list[float]:
    """F1 of who reads only the person of each question, and only the thing, and takes the first place that fits."""
    found: list[list[str]] = [[], []]
    for one in questions:
        asked = _QUESTION.fullmatch(one.question)
        assert asked is not None
        facts = _SENTENCE.findall(one.passage)
        for part in (0, 1):
            found[part].append(next(fact[2] for fact in facts if fact[part] == asked[part + 1]))
    return [score_answers(questions, answers).values["f1"] for answers in found]


def fine_tuned(course: Course) -> TaskModel:
    """The model that answers; fine-tuning that was stopped goes on from its last checkpoint."""
    given = course.given
    return course.part(
        "fine-tuning",
        lambda: shortened(load_minilm(given.out, course.log.note), given.context).finetune(
            training_questions(given.passages),
            task="span",
            out=given.out / "run",
            epochs=1,
            hold_out=0.0,
            sets=given.set,
            resume=True,
            reporter=course.log,
            stopping=course.stopping,
        ),
    )


def measure(course: Course) -> None:
    """Fine-tunes, and asks about passages of each length; what is there is not done again."""
    given = course.given
    done = {record["words"] for record in course.results.records if "words" in record}
    missing = [words for words in given.test if words not in done]
    if not missing:
        return
    model = fine_tuned(course)
    trained = {one.passage for one in training_questions(given.passages)}
    for words in missing:
        course.go_on()
        begun = time.perf_counter()
        questions = unseen_questions(words, given.test[words])
        assert not trained & {one.passage for one in questions}, "a test passage was trained on"
        windows = windows_of(model, questions)
        if words >= GOAL_WORDS and windows <= 1:
            raise UserError(f"--context {given.context} holds a passage of {words} words in one window; give less")
        answers = [one.text for one in model.predictions(questions, reporter=course.log).values]
        record = {
            "words": words,
            "questions": len(questions),
            "windows": windows,
            "scores": score_answers(questions, answers).values,
            "thirds": by_third(questions, answers),
            "half_read": half_read(questions),
            "seconds": round(time.perf_counter() - begun, 2),
            "commit": commit(),
        }
        course.results.append(record)
        course.log.note(f"{words} words, {windows:.1f} windows: F1 {100 * record['scores']['f1']:.2f}")


def table_row(record: Mapping[str, Any]) -> list[str]:
    f1, exact = (100 * record["scores"][name] for name in ("f1", "exact_match"))
    thirds = ["–" if value is None else f"{100 * value:.1f}" for value in record["thirds"]]
    goal = ratio_cell(f1, GOAL)[1] if record["words"] == GOAL_WORDS else ""
    cells = [f"{record['words']} words", str(record["questions"]), f"{record['windows']:.1f}", f"{f1:.2f}"]
    half = [f"{100 * value:.1f}" for value in record["half_read"]]
    return [*cells, f"{exact:.2f}", " / ".join(thirds), *half, goal]


def run(course: Course) -> str:
    measure(course)
    given = course.given
    facts = [f"trained on {given.passages:,} passages with four questions each, once; context {given.context}"]
    records = [record for record in course.results.records if "words" in record]
    rows = [table_row(record) for record in sorted(records, key=lambda one: one["words"])]
    columns = ["passages of", "questions", "windows a question", "F1", "exact match", "F1 by third of the passage"]
    columns += ["F1 by the person alone", "by the thing alone"]
    return course.page([table([*columns, "goal"], rows)], facts)


def main(words: Sequence[str] | None = None) -> int:
    parser = arguments_for(__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/generated_spans"), help="goes on if it is there")
    parser.add_argument("--passages", type=int, default=800, help="to train on, with four questions each")
    parser.add_argument("--context", type=int, default=128, help="tokens that the encoder reads at once")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    given = parser.parse_args(words)
    given.set, given.test = [*SETS, *given.set], QUICK_TEST if given.quick else TEST
    given.passages = 8 if given.quick else given.passages
    return conduct(given, "generated_spans", ("passages", "context", "set", "quick"), run, head=lambda: [minilm_line()])


if __name__ == "__main__":
    raise SystemExit(main())
