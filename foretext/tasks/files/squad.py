"""Questions about passages in SQuAD's JSON format, 1.1 and 2.0, which XQuAD, CMRC and many others share.

`data` → `paragraphs` (`context`) → `qas` (`id`, `question`, `answers` of `text` and `answer_start`, and in 2.0
`is_impossible`). An answer must occur in its passage. If it is not at `answer_start`, as happens in published files,
the nearest occurrence is taken and counted. If it does not occur at all, that is an error, since a model cannot point
at it.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foretext.errors import UserError, refuse_if
from foretext.tasks.files.rows import listed
from foretext.text.corpus.tables import cleaned, unpacked
from foretext.text.corpus.text_files import ReadReport, note_replaced, read_text

MOST_BYTES = 1 << 30  # SQuAD 2.0's training file has 42 MB
_SHOWN = 60  # characters of an answer shown in a message


@dataclass(frozen=True)
class Answer:
    """A text that begins at character `start` of the passage."""

    text: str
    start: int


@dataclass(frozen=True)
class Question:
    """`impossible`: known to have no answer in the passage. If it has no answers and is not impossible, the answers are
    unknown."""

    id: str
    question: str
    passage: str
    answers: tuple[Answer, ...]
    impossible: bool
    where: str


def read_squad(
    path: str | Path, *, errors: str = "strict", need_answers: bool = True, notes: list[str] | None = None
) -> list[Question]:
    """The questions of a file. Without `need_answers`, answers in the file are ignored."""
    path = Path(path)
    notes = notes if notes is not None else []
    reader = _Reader(errors, need_answers)
    records = _records(_parsed(path, errors, notes), reader, str(path))
    placed = [(reader.question(record, passage, str(path), place), place) for record, passage, place in records]
    refuse_if(not placed, f"{path}: no questions in it; give a file in SQuAD's layout")
    check_ids(placed, str(path))
    if reader.moved:
        notes.append(
            f"{path}: {reader.moved:,} answers are not at their answer_start; the nearest place in the passage with "
            "their text is used"
        )
    note_replaced(notes, str(path), reader.report.replaced)
    return [question for question, _ in placed]


def check_ids(placed: Sequence[tuple[Question, str]], name: str) -> None:
    """UserError if two questions have the same id: their answers could not be told apart."""
    places: dict[str, str] = {}
    for question, place in placed:
        if (first := places.setdefault(question.id, place)) != place:
            raise UserError(
                f"{name}: the id {question.id!r} occurs twice, at {first} and at {place}; give each question its own id"
            )


def _parsed(path: Path, errors: str, notes: list[str]) -> Any:
    try:
        return json.loads(read_text(path, errors, notes, limit=MOST_BYTES))
    except RecursionError:
        raise UserError(f"{path}: the JSON is nested too deeply; give a file in SQuAD's layout") from None
    except ValueError as error:
        raise UserError(f"{path}: not JSON ({error}); give a file in SQuAD's layout") from None


def _records(data: Any, reader: "_Reader", name: str) -> Iterator[tuple[Any, str, str]]:
    """Each question's object, its passage, and its place, such as data[0].paragraphs[2].qas[1]."""
    for a, article in enumerate(_items(data, "data", name)):
        for p, paragraph in enumerate(_items(article, "paragraphs", f"{name}: data[{a}]")):
            place = f"data[{a}].paragraphs[{p}]"
            passage = reader.text(paragraph, "context", f"{name}: {place}")
            for q, record in enumerate(_items(paragraph, "qas", f"{name}: {place}")):
                yield record, passage, f"{place}.qas[{q}]"


def _items(holder: Any, key: str, where: str) -> list[Any]:
    items = holder.get(key) if isinstance(holder, dict) else None
    if not isinstance(items, list):
        raise UserError(f"{where}: it has no list {key!r}; give a file in SQuAD's layout")
    return items


class _Reader:
    """Makes questions from JSON objects, and counts what had to be changed."""

    def __init__(self, errors: str, need_answers: bool) -> None:
        self.errors = errors
        self.need_answers = need_answers
        self.moved = 0
        self.report = ReadReport()

    def text(self, holder: Any, key: str, where: str) -> str:
        """The text under `key`; a missing or blank one is an error."""
        value = holder.get(key) if isinstance(holder, dict) else None
        if not isinstance(value, str) or not value.strip():
            what = "blank" if isinstance(value, str) else "no text"
            raise UserError(f"{where}: {key!r} is {what}; fill it in or remove the entry")
        return str(cleaned(value, key, where, self.errors, self.report))

    def question(self, record: Any, passage: str, name: str, place: str) -> Question:
        given = record.get("id") if isinstance(record, dict) else None
        if isinstance(given, bool) or not isinstance(given, str | int) or not str(given).strip():
            raise UserError(f"{name}: {place} has no 'id'; give each question its own id")
        where = f"{name} question {given}"
        text = self.text(record, "question", where)
        if not self.need_answers:
            return Question(str(given), text, passage, (), False, where)
        impossible = record.get("is_impossible", False)
        if not isinstance(impossible, bool):
            raise UserError(f"{where}: 'is_impossible' must be true or false, not {impossible!r}; correct it")
        answers = record.get("answers") or []
        if not isinstance(answers, list):
            raise UserError(f"{where}: 'answers' must be a list; correct it")
        if impossible and answers:
            raise UserError(f"{where}: 'is_impossible' is true, but there are answers; remove one of the two")
        if not answers and not impossible:
            raise UserError(f"{where}: no answers; give one, or set 'is_impossible' if the passage has none")
        return Question(
            str(given), text, passage, tuple(self.answer(item, passage, where) for item in answers), impossible, where
        )

    def answer(self, item: Any, passage: str, where: str) -> Answer:
        """An object with `text` and optionally `answer_start`."""
        text = self.text(item, "text", f"{where}, an answer")
        start = item.get("answer_start")
        given = start if isinstance(start, int) and not isinstance(start, bool) and start >= 0 else None
        if given is not None and passage.startswith(text, given):
            return Answer(text, given)
        places = _places(text, passage)
        if not places:
            shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
            raise UserError(f"{where}: the answer {shown!r} is not in its passage; correct one of the two")
        self.moved += 1
        return Answer(text, min(places, key=lambda at: abs(at - (given or 0))))


def _places(text: str, passage: str) -> list[int]:
    """Every place where the text occurs in the passage, including overlapping ones."""
    return [match.start() for match in re.finditer(f"(?={re.escape(text)})", passage)]


# -- Python data -------------------------------------------------------------------------------------------------------

_NOT_GIVEN = object()


def questions_from(data: Any, *, need_answers: bool = True, name: str | None = None) -> list[Question]:
    """Questions from Python data: a list of tuples `(question, passage)` or `(question, passage, answer)`, or of dicts
    with `question`, `passage` (or `context`), `answer` and optionally `answer_start` and `id`. An answer is a text of
    the passage, a list of several (with a list of starts), or None if the passage has none. Without `need_answers`,
    answers are ignored. `Question`s pass through. `name`: what messages call the data, if it is not an argument."""
    reader = _Reader("strict", need_answers)
    questions = []
    for number, (where, item) in enumerate(listed(data, "questions", name)):
        question = item if isinstance(item, Question) else _question_from(item, reader, number, where)
        if need_answers and not question.answers and not question.impossible:
            raise UserError(f"{question.where}: no answer; give one, or None if the passage has none")
        questions.append(question)
    return questions


def _question_from(item: Any, reader: _Reader, number: int, where: str) -> Question:
    if isinstance(item, list | tuple) and len(item) in (2, 3):
        item = dict(zip(("question", "passage", "answer"), item))
    if not isinstance(item, dict):
        raise UserError(f"{where}: a question is a tuple (question, passage, answer) or a dict")
    question = reader.text(item, "question", where)
    passage = reader.text(item, "context" if "context" in item and "passage" not in item else "passage", where)
    answer = item.get("answer", _NOT_GIVEN) if reader.need_answers else _NOT_GIVEN
    given = [] if answer is None or answer is _NOT_GIVEN else [answer] if isinstance(answer, str) else answer
    if not isinstance(given, list | tuple):
        raise UserError(f"{where}: 'answer' is a {type(answer).__name__}; give a text, a list of texts, or None")
    starts = _starts(item.get("answer_start") if given else None, len(given), where)
    answers = tuple(
        reader.answer({"text": text, "answer_start": unpacked(at)}, passage, where) for text, at in zip(given, starts)
    )
    return Question(str(item.get("id", number)), question, passage, answers, answer is None, where)


def _starts(start: Any, answers: int, where: str) -> list[Any]:
    """Where each answer begins; None if not given."""
    starts = list(start) if isinstance(start, list | tuple) else [None] * answers if start is None else [start]
    if len(starts) != answers:
        raise UserError(f"{where}: {answers} answers but {len(starts)} 'answer_start'; give each answer one")
    return starts
