"""Span answers: questions about passages, from SQuAD's files.

A question is read with each window of its passage; the answer is the best span over all windows. If some training
questions have no answer, "no answer" is possible too. The margin by which it must outscore the best span is chosen on
the validation rows and saved with the head. If a question has several answers, training uses the first, scoring all.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foretext.errors import UserError, counted, refuse_if
from foretext.plan import ConcatPoolingConfig, TransferPlan
from foretext.tasks.family import (
    Encoded,
    Encoding,
    Family,
    Note,
    Progress,
    Read,
    Reading,
    TaskConfig,
    layout_name,
)
from foretext.tasks.files.predictions import Predictions, written_probability
from foretext.tasks.files.squad import Question, check_ids, questions_from, read_squad
from foretext.tasks.labelled import Split, hold_out_by
from foretext.tasks.layouts.windows import (
    LONGEST_ANSWER,
    Answered,
    Candidate,
    Offsets,
    SpanWindow,
    answer_tokens,
    best_answer,
    is_whole,
    span_windows,
)
from foretext.tasks.row_family import is_json_object
from foretext.tasks.scores.metrics import Scores
from foretext.tasks.scores.text_metrics import SPAN_METRICS, best_threshold, score_answers
from foretext.text.corpus.tables import Table, parse_jsonl
from foretext.text.corpus.text_files import TABLES, ending, text_lines
from foretext.text.tokenizers.base import Tokenizer, encode_texts

if TYPE_CHECKING:
    from foretext.nn.trunk import ModelConfig
    from foretext.tasks.family import TaskHead
    from foretext.tasks.heads.token_tasks import SpanExample
    from foretext.tasks.views.viewed import ViewTask

FORMAT = "squad"  # the only layout; naming it changes nothing
_DIRECTION = "standard input: span needs a question and a passage per row: write JSON lines with both, or give a file"


class SpanFamily(Family):
    next_step = "questions.json --out answers.json"
    views = ("ngrams", "vectors")
    views_alone = True

    # -- rows --------------------------------------------------------------------------------------------------------

    def read(self, path: Path, reading: Reading) -> Read:
        format = layout_name(reading.format)
        refuse_if(format not in (None, FORMAT), f"--format {format}: span reads only SQuAD's JSON; leave it out")
        refuse_if(reading.columns, "--columns: span reads SQuAD's JSON, which has no columns; leave it out")
        need = reading.need_labels
        return Read(read_squad(path, errors=reading.errors, need_answers=need, notes=reading.notes))

    def from_data(self, data: Any, reading: Reading) -> list[Question]:
        return questions_from(data, need_answers=reading.need_labels)

    def from_texts(self, texts: Sequence[str], reading: Reading) -> Read:
        """A question and its passage."""
        refuse_if(len(texts) != 2, f"span takes --text QUESTION --text PASSAGE, not {counted(len(texts), 'text')}")
        return Read(questions_from([tuple(texts)], need_answers=False, name="--text"))

    def from_lines(self, data: str, reading: Reading) -> Read:
        """JSON lines with `question` and `passage`."""
        refuse_if(reading.columns, "--columns needs a table; leave it out")
        refuse_if(not is_json_object(next(line for line in text_lines(data) if line.strip())), _DIRECTION)
        table = parse_jsonl(data, "standard input")
        # A key that only other lines have is None in the table.
        items = [{name: cell for name, cell in zip(table.columns, row) if cell is not None} for row in table.rows]
        questions = questions_from(items, need_answers=False, name="standard input")
        check_ids([(question, question.where) for question in questions], "standard input")
        return Read(questions)

    # -- what is learned ---------------------------------------------------------------------------------------------

    def check(self, rows: Sequence[Question], kind: str) -> list[str]:
        for row in rows:
            refuse_if(
                not row.answers and not row.impossible,
                f"{row.where}: no answer; every question to fine-tune or validate on needs one",
            )
        return []

    def hold_out(self, rows: Sequence[Question], fraction: float, seed: int) -> Split[Question]:
        """By passage: a model that has learned one question about it knows something about the others."""
        return hold_out_by(rows, [row.passage for row in rows], fraction=fraction, seed=seed)

    def learned(self, rows: Sequence[Question], config: TaskConfig) -> TaskConfig:
        refuse_if(
            not any(row.answers for row in rows),
            f"none of the {len(rows):,} questions to train on has an answer; give some that have one",
        )
        return dataclasses.replace(config, unanswerable=any(row.impossible for row in rows))

    def metrics(self, config: TaskConfig) -> tuple[str, ...]:
        return SPAN_METRICS

    def content(self, row: Question) -> list[Any]:
        return [row.question, row.passage, [[answer.text, answer.start] for answer in row.answers], row.impossible]

    def texts(self, rows: Sequence[Question]) -> Iterator[str]:
        """The questions, and each passage once."""
        return iter([*(row.question for row in rows), *dict.fromkeys(row.passage for row in rows)])

    # -- the model ---------------------------------------------------------------------------------------------------

    def head(
        self,
        task: TaskConfig,
        model: ModelConfig,
        transfer: TransferPlan,
        dropout: float,
        pooling: ConcatPoolingConfig | None = None,
    ) -> TaskHead:
        from foretext.tasks.heads.recurrent_models import RecurrentSpan
        from foretext.tasks.heads.token_tasks import SpanTask

        if transfer.model == "recurrent":
            return RecurrentSpan(model, transfer.reader, dropout)
        return SpanTask(model.width, transfer.lm_weight, dropout, model.init_std)

    def encode(
        self, rows: Sequence[Question], encoding: Encoding, labelled: bool, note: Note, progress: Progress
    ) -> Encoded:
        from foretext.tasks.heads.token_tasks import span_example

        layout = encoding.layout
        passages = _encoded_passages(rows, encoding.tokenizer, progress)
        questions = encode_texts([row.question for row in rows], encoding.tokenizer)
        examples: list[SpanExample] = []
        windows: list[SpanWindow] = []
        cut = lost = apart = long = 0
        longer: set[str] = set()
        for number, (row, question) in enumerate(zip(rows, questions)):
            ids, offsets = passages[row.passage]
            of_row, missing = span_windows(question.tolist(), ids, layout, number)
            answer = answer_place(row, offsets) if labelled else None
            cut += missing > 0
            if len(of_row) > 1:
                longer.add(row.passage)
            if answer is not None:
                apart += not any(is_whole(answer, window) for window in of_row)
                long += answer[1] - answer[0] >= LONGEST_ANSWER
            elif labelled:
                lost += not row.impossible
            windows += of_row
            examples += [span_example(window, answer, known=labelled) for window in of_row]
        silent = sum(not ids for ids, _ in passages.values())
        remarks = {
            f"of {len(passages):,} passages are longer than the context of {layout.context} tokens: they "
            f"are read in overlapping windows ({len(windows):,} in all)": len(longer),
            "questions are longer than their part of the context: their ends were cut": cut,
            "passages have no piece in the vocabulary: no answer can be found in them": silent,
            "answers have no piece in the vocabulary: they are learned as having none": lost,
            "answers are longer than any window: they are learned as having none": apart,
            f"answers are longer than {LONGEST_ANSWER} tokens: only parts of them can be predicted": long,
        }
        for text, count in remarks.items():
            if count:
                note(f"{count:,} {text}")
        return Encoded(rows, examples, windows, [passages[row.passage][1] for row in rows])

    def view_task(self) -> ViewTask:
        from foretext.tasks.views.answers.viewed_questions import ViewedQuestions

        return ViewedQuestions()

    def whole(self, rows: Sequence[Question], config: TaskConfig, labelled: bool, note: Note) -> Encoded:
        from foretext.tasks.views.answers.answer_views import passage_words

        places = {passage: passage_words(passage)[1] for passage in dict.fromkeys(row.passage for row in rows)}
        return Encoded(rows, [], offsets=[places[row.passage] for row in rows])

    def sequences(self, texts: Sequence[str], encoding: Encoding) -> list[tuple[int, ...]]:
        refuse_if(
            len(texts) != 2,
            f"span takes a question and a passage, not {len(texts)} text{'s' if len(texts) > 1 else ''}",
        )
        question, passage = (encoding.tokenizer.encode(text) for text in texts)
        return [window.frame.ids for window in span_windows(question, passage, encoding.layout)[0]]

    # -- results: the scores of an example are [tokens, start and end] -----------------------------------------------

    def settle(self, encoded: Encoded, scores: Sequence[np.ndarray], config: TaskConfig, head: TaskHead) -> None:
        """Chooses the threshold of "no answer" with the highest F1 on these rows."""
        if not config.unanswerable:
            return
        from foretext.tasks.heads.token_tasks import SpanTask

        assert isinstance(head, SpanTask)
        threshold = threshold_of(encoded.rows, _answers(encoded, scores, None))
        if threshold is not None:
            head.threshold.fill_(float(threshold))

    def unsettled(self, config: TaskConfig) -> str:
        return '"no answer" needs no margin over the best answer' if config.unanswerable else ""

    def predictions(
        self, encoded: Encoded, scores: Sequence[np.ndarray], config: TaskConfig, head: TaskHead
    ) -> Predictions:
        from foretext.tasks.heads.token_tasks import SpanTask
        from foretext.tasks.views.answers.viewed_questions import SpanReader

        if isinstance(head, SpanReader):
            read = zip(encoded.rows, encoded.offsets, scores, strict=True)
            return Predictions(config.kind, [head.answered(row.passage, places, table) for row, places, table in read])
        assert isinstance(head, SpanTask)
        threshold = float(head.threshold) if config.unanswerable else None
        return Predictions(config.kind, _answers(encoded, scores, threshold))

    def score(self, rows: Sequence[Question], predictions: Predictions, config: TaskConfig) -> Scores:
        return score_answers(rows, [answered.text for answered in predictions.values], main=config.metric)

    def loss(self, encoded: Encoded, scores: Sequence[np.ndarray], config: TaskConfig, head: TaskHead) -> float:
        total = 0.0
        for example, table in zip(encoded.examples, scores):
            for place, column in zip((example.start, example.end), table.astype(np.float64).T):
                highest = column.max()
                total += (highest + math.log(np.exp(column - highest).sum()) - column[place]) / 2
        return float(total / max(1, len(encoded.examples)))

    def values(self, predictions: Predictions) -> list[Any]:
        """The text of each answer; empty if there is none."""
        return [answered.text for answered in predictions.values]

    def probabilities(self, scores: Sequence[np.ndarray], config: TaskConfig) -> np.ndarray:
        raise UserError("answers have candidates, not classes; predictions(data).values has their probabilities")

    def form(self, path: Path | None, as_json: bool) -> str:
        """JSON in the format of the official scripts, or a table."""
        if path is None:
            return "jsonl" if as_json else "csv"
        forms = TABLES | {".json": "json"}
        refuse_if(
            ending(path) not in forms,
            f"{path}: answers are written as .json (the text by id), .jsonl (all candidates), .csv, .tsv or "
            ".parquet; use one of these endings",
        )
        return forms[ending(path)]

    def explained(
        self, read: Read, predictions: Predictions, why: Sequence[Any], form: str
    ) -> tuple[Read, Predictions]:
        refuse_if(form == "json", "--explain needs a table: give a file with --out FILE.csv or FILE.jsonl")
        return read, dataclasses.replace(predictions, why=why)

    def output(self, read: Read, predictions: Predictions, form: str, notes: list[str]) -> Table | str:
        """JSON with the text of each answer by its id; or a table, whose JSON lines also have the candidates."""
        rows: list[Question] = read.rows
        answers: Sequence[Answered] = predictions.values
        if form == "json":
            texts = {row.id: answered.text for row, answered in zip(rows, answers)}
            return json.dumps(texts, ensure_ascii=False, indent=1) + "\n"
        names: tuple[str, ...] = ("id", "question", "prediction", "probability", "start", "end")
        why = predictions.why
        lines: list[tuple[Any, ...]] = []
        for number, (row, answered) in enumerate(zip(rows, answers)):
            cells: list[Any] = [row.id, row.question, answered.text, *_place_of(answered)]
            cells += [[_plain(candidate) for candidate in answered.candidates]] if form == "jsonl" else []
            lines.append((*cells, *([] if why is None else [why[number]])))
        names += ("candidates",) if form == "jsonl" else ()
        names += () if why is None else ("why",)
        return Table("answers", names, lines, [row.where for row in rows])


def _encoded_passages(
    rows: Sequence[Question], tokenizer: Tokenizer, progress: Progress
) -> dict[str, tuple[list[int], Offsets]]:
    """The ids of each passage, encoded once, and their character offsets."""
    different = dict.fromkeys(row.passage for row in rows)
    encoded: dict[str, tuple[list[int], Offsets]] = {}
    progress(0, len(different))
    for number, passage in enumerate(different, 1):
        encoded[passage] = tokenizer.encode_with_offsets(passage)
        progress(number, len(different))
    return encoded


def answer_place(row: Question, offsets: Offsets) -> tuple[int, int] | None:
    """The first and the last token (for views: word) of the answer to learn; None if there is none."""
    if not row.answers:
        return None
    first = row.answers[0]
    return answer_tokens(offsets, first.start, first.start + len(first.text))


def threshold_of(rows: Sequence[Question], answers: Sequence[Answered]) -> np.float32 | None:
    """The margin by which "no answer" must outscore the best span, with the highest F1 on these rows; None if no
    question has a span. The margin must not be passed, so rounding to single precision must not lower it."""
    threshold = best_threshold(rows, [answer.text for answer in answers], [answer.margin for answer in answers])
    return np.nextafter(np.float32(threshold), np.float32(np.inf)) if math.isfinite(threshold) else None


def _answers(encoded: Encoded, scores: Sequence[np.ndarray], threshold: float | None) -> list[Answered]:
    """The answer to each question, from the scores of all its windows."""
    windows_of: list[list[int]] = [[] for _ in encoded.rows]
    for number, window in enumerate(encoded.windows):
        windows_of[window.question].append(number)
    return [
        best_answer(
            row.passage,
            offsets,
            [encoded.windows[number] for number in numbers],
            [scores[number] for number in numbers],
            threshold=threshold,
        )
        for row, offsets, numbers in zip(encoded.rows, encoded.offsets, windows_of)
    ]


def _place_of(answered: Answered) -> tuple[float | None, int | None, int | None]:
    """The answer's probability, and its first character and the one after its last; without offsets if there is no
    answer."""
    chosen = next((candidate for candidate in answered.candidates if candidate.text == answered.text), None)
    if chosen is None:
        return None, None, None
    probability = written_probability(chosen.probability)
    return (probability, chosen.start, chosen.end) if chosen.text else (probability, None, None)


def _plain(candidate: Candidate) -> dict[str, Any]:
    return {
        "text": candidate.text,
        "start": candidate.start,
        "end": candidate.end,
        "probability": written_probability(candidate.probability),
    }
