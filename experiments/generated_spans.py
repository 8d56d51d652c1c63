"""Questions whose answer follows from their own words, over passages of any length: a model that reads question and
passage together can answer them all, so anything less says that the span pipeline is broken (or the model too small).

A passage is a shuffled list of sentences "Anna keeps the blue key in the old barn." One that is asked about is the only
one with its person and its thing, while others share the person, the thing or the place: neither alone tells. The
question is "Where does Anna keep the blue key?", the answer "the old barn". A question without an answer asks for a
person and a thing that stand in different sentences only.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from foretext.tasks.squad import Answer, Question

PEOPLE = ("Anna", "Bruno", "Clara", "David", "Emma", "Felix", "Greta", "Hugo", "Ida", "Jonas", "Klara", "Leo")
COLOURS = ("blue", "red", "green", "white", "black", "yellow")
THINGS = ("key", "book", "lamp", "hat", "cup", "map", "rope", "box")
PLACES = (
    *("the old barn", "the kitchen", "a drawer", "the garden shed", "a wooden chest", "the attic", "the cellar"),
    *("an empty jar", "the library", "the back of the shop", "a small tent", "the hall"),
)


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
    """Facts for a passage of at least so many words, no two with the same person and thing."""
    pairs = [(person, f"{colour} {thing}") for person in PEOPLE for colour in COLOURS for thing in THINGS]
    draw.shuffle(pairs)
    facts: list[Fact] = []
    length = 0
    while length < words:
        assert pairs, f"a passage has at most {len(PEOPLE) * len(COLOURS) * len(THINGS)} facts"
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
    """A person and a thing that both occur, but not together."""
    there = {(fact.person, fact.thing) for fact in facts}
    people, things = sorted({fact.person for fact in facts}), sorted({fact.thing for fact in facts})
    pairs = [(person, thing) for person in people for thing in things if (person, thing) not in there]
    assert pairs, "a passage of one person or one thing has no question without an answer"
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
