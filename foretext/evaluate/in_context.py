"""In-context learning (GPT-3's zero-, one- and few-shot): k solved examples and then the question in one context,
without training. An answer's score is its log-likelihood after that context, under four normalisations that are not
comparable with each other:

    sum        log P(answer | context)
    per token  the same, divided by the number of tokens that were scored
    per byte   the same, divided by the answer's bytes of UTF-8 (without the space before it)
    unbiased   log P(answer | context) − log P(answer | "Answer:"): what the context adds to the answer's own likelihood

If an answer follows the context without a space and shares a token with it, the end of the context is scored with every
answer of the row (`likelihood.query_of`); its tokens then count, its bytes do not.

A right-to-left model has not read the context when it predicts the answer. So it predicts the context given the answer,
as a noisy channel (Min et al. 2022, "Noisy Channel Language Model Prompting for Few-Shot Text Classification"). The
examples come after the row, since the model reads them first:

    sum        log P(answer | examples) + log P(context | answer, examples), which is log P(context, answer | examples)
    channel    log P(context | answer, examples): by Bayes' rule the same as `unbiased` above, without an "Answer:"

Since the examples do not depend on the answer, `sum` ranks answers like log P(answer | context, examples) of the same
joint distribution. All answers are scored with the same tokens of the context, so there is no division by length.

Each seed draws its own examples, the same in the same order for every row; the spread over seeds is part of the result.
A context that is too long loses its beginning (right to left: the end of the examples), and such rows are counted.

How a labelled row becomes a prompt with possible answers:

A template is a text with fields in braces; the last field is the answer. The text before the answer is the context; the
answer with the space before it is the completion. Examples are the same template filled in with the right answer,
separated by empty lines; the row to be answered comes last.

COPA's rows ask a question after the premise, which suits fine-tuning. Without a custom template they are prompted as a
sentence instead: "The man broke his toe because he dropped a hammer on it."
"""

from __future__ import annotations

import functools
import random
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeVar

from foretext.errors import UserError, counted, refuse_if
from foretext.evaluate.likelihood import Likelihood, Progress, Query, channel_query, query_of, score_queries
from foretext.runs.model import SavedModel
from foretext.tasks.family import KINDS, family_of
from foretext.tasks.files.format_readers import COPA_QUESTIONS
from foretext.tasks.files.rows import TEXT_FIELDS, Row

NORMALISATIONS = ("sum", "per token", "per byte", "unbiased")
CHANNEL = ("sum", "channel")  # the scores of a right-to-left model, and the tasks that it can do:
_OF_TASKS = {kind: text for kind in KINDS if (text := family_of(kind).prompts.get(kind))}
FROM_THE_RIGHT = (*_OF_TASKS, "acceptability", "winograd")
ALONE = "Answer:"
Known = TypeVar("Known")


@dataclass(frozen=True)
class Answered:
    """A prompt, examples included, and the likelihood of each answer after it and after "Answer:"."""

    prompt: Prompt
    likelihoods: tuple[Likelihood, ...]
    alone: tuple[float, ...]

    def scores(self, normalisation: str) -> list[float]:
        totals = [likelihood.total for likelihood in self.likelihoods]
        if normalisation == "per token":
            return [likelihood.total / likelihood.tokens for likelihood in self.likelihoods]
        if normalisation == "per byte":
            octets = [max(1, len(answer.strip().encode("utf-8"))) for answer in self.prompt.answers]
            return [total / length for total, length in zip(totals, octets)]
        if normalisation == "unbiased":
            return [total - alone for total, alone in zip(totals, self.alone)]
        if normalisation == "channel":
            return [likelihood.total - likelihood.part for likelihood in self.likelihoods]
        return totals

    def best(self, normalisation: str) -> int:
        scores = self.scores(normalisation)
        return max(range(len(scores)), key=scores.__getitem__)


@dataclass(frozen=True)
class Round:
    """One draw of examples, and its results."""

    shots: int
    seed: int
    answers: tuple[Answered, ...]
    normalisations: tuple[str, ...] = NORMALISATIONS

    @property
    def cut(self) -> int:
        """The number of rows that were too long: part of what is farthest from the answer was not read."""
        return sum(any(likelihood.cut for likelihood in row.likelihoods) for row in self.answers)

    def accuracy(self, normalisation: str) -> float:
        return statistics.fmean(row.best(normalisation) == row.prompt.right for row in self.answers)


def check_prompted(model: SavedModel, task: str) -> None:
    """UserError for a task that a right-to-left model cannot do."""
    if model.info.direction == "backward" and task not in FROM_THE_RIGHT:
        other = "leave --direction out" if model.scored == "both ways" else "ask a run that was pre-trained forward"
        raise UserError(
            f"{task} is predicted from the text before it, which a right-to-left model has not read; {other}, or give "
            f"one of the tasks {', '.join(FROM_THE_RIGHT)}"
        )


def prompts_of(
    template: Template, rows: Sequence[Row], examples: Sequence[Row], shots: int, seed: int, backward: bool = False
) -> list[Prompt]:
    """The prompt of each row with `shots` examples drawn by the seed, to be read before it (`backward`: from the
    right). No example asks the same as its row."""
    prompts = [template.prompt(row) for row in rows]
    if not shots:
        return prompts
    solved = [template.prompt(row) for row in examples if row.label is not None or template.kind == "last-word"]
    drawn = drawn_examples(solved, [prompt.context for prompt in prompts], shots, seed, lambda prompt: prompt.context)
    if backward:  # the example read last is next to the row here too
        behind = ["".join(BETWEEN + example.solved for example in reversed(chosen)) for chosen in drawn]
        return [replace(prompt, behind=examples) for prompt, examples in zip(prompts, behind)]
    before = ["".join(example.solved + BETWEEN for example in chosen) for chosen in drawn]
    return [replace(prompt, examples=examples) for prompt, examples in zip(prompts, before)]


def drawn_examples(
    known: Sequence[Known], questions: Sequence[str], shots: int, seed: int, question: Callable[[Known], str]
) -> list[list[Known]]:
    """For each question, the first `shots` of `known`, in one order for all, that ask something else."""
    order = random.Random(seed).sample(range(len(known)), len(known))
    shuffled = [(question(known[number]), known[number]) for number in order]
    drawn = []
    for text in questions:
        chosen = list(islice((row for other, row in shuffled if other != text), shots))
        refuse_if(
            len(chosen) < shots,
            f"{shots} examples are requested, but only {counted(len(chosen), 'row')} can be drawn from; give more",
        )
        drawn.append(chosen)
    return drawn


def answer_rows(
    model: SavedModel,
    template: Template,
    rows: Sequence[Row],
    examples: Sequence[Row],
    shots: int,
    seeds: Sequence[int],
    progress: Progress | None = None,
) -> list[Round]:
    """One round per seed; without examples a single round."""
    backward = model.info.direction == "backward"
    drawn = {seed: prompts_of(template, rows, examples, shots, seed, backward) for seed in (seeds if shots else [0])}
    rounds = []
    alone: dict[str, float] = {}
    for seed, prompts in drawn.items():
        scored = _score(model, prompts, progress)  # first, so that a row that is too long is named
        # last-word has one answer, compared with nothing
        if not backward and not alone and template.kind != "last-word":
            alone = _alone(model, prompts)
        answers = [
            Answered(prompt, tuple(likelihoods), tuple(alone.get(answer, 0.0) for answer in prompt.answers))
            for prompt, likelihoods in zip(prompts, scored)
        ]
        rounds.append(Round(shots, seed, tuple(answers), CHANNEL if backward else NORMALISATIONS))
    return rounds


def _score(model: SavedModel, prompts: Sequence[Prompt], progress: Progress | None) -> list[list[Likelihood]]:
    """Rows with the same examples are scored together, so that the examples are read once."""
    groups: dict[str, list[int]] = {}
    for number, prompt in enumerate(prompts):
        groups.setdefault(prompt.examples or prompt.behind, []).append(number)
    results: dict[int, list[Likelihood]] = {}
    total = sum(len(prompt.answers) for prompt in prompts)
    for numbers in groups.values():
        before = sum(len(likelihoods) for likelihoods in results.values())
        step = None if progress is None else functools.partial(_told_later, progress, before, total)
        likelihoods = score_queries(model, [_query(model, prompts[number]) for number in numbers], step)
        results |= dict(zip(numbers, likelihoods))
    return [results[number] for number in range(len(prompts))]


def _query(model: SavedModel, prompt: Prompt) -> Query:
    if model.info.direction == "backward":
        return channel_query(model.tokenizer, prompt.context, prompt.answers, prompt.behind, prompt.where)
    return query_of(model.tokenizer, prompt.whole, prompt.answers, prompt.where)


def _told_later(progress: Progress, before: int, total: int, done: int, _: int) -> None:
    progress(before + done, total)


def _alone(model: SavedModel, prompts: Sequence[Prompt]) -> dict[str, float]:
    """The log-likelihood of each answer after "Answer:"; computed once per wording, however many rows have it."""
    wordings = sorted({answer for prompt in prompts for answer in prompt.answers})
    answers = [wording if wording[:1].isspace() else " " + wording for wording in wordings]
    likelihoods = score_queries(model, [query_of(model.tokenizer, ALONE, answers)])[0]
    return {wording: likelihood.total for wording, likelihood in zip(wordings, likelihoods)}


BETWEEN = "\n\n"
FIELDS = {**TEXT_FIELDS, "last-word": ("text",)}
DEFAULTS = _OF_TASKS | {"last-word": "{text} {word}"}
COPA_WORDS = {"cause": "because", "effect": "so"}
_FIELD = re.compile(r"\{([a-z0-9]+)\}")
_LAST_WORD = re.compile(r"^(.*\S)\s+(\S+)\s*$", re.DOTALL)


@dataclass(frozen=True)
class Prompt:
    """A row's context, its possible answers as completions, which of them is right (None: unknown), and the solved
    examples before the context, or after the answer."""

    context: str
    answers: tuple[str, ...]
    right: int | None
    examples: str = ""
    where: str = ""  # the row's place, for messages
    behind: str = ""

    @property
    def whole(self) -> str:
        return self.examples + self.context

    @property
    def solved(self) -> str:
        """The prompt as an example for other rows."""
        assert self.right is not None
        return self.context + self.answers[self.right]


class Template:
    """A checked template for one kind of task. `words` gives labels other names in the prompt."""

    def __init__(
        self, kind: str, text: str | None = None, labels: Sequence[str] = (), words: Mapping[str, str] | None = None
    ) -> None:
        self.kind, self.labels = kind, tuple(labels)
        self.text = DEFAULTS[kind] if text is None else text.replace("\\n", "\n")
        answer = _FIELD.findall(DEFAULTS[kind])[-1]
        fields = _FIELD.findall(self.text)
        allowed = (*FIELDS[kind], answer)
        for field in fields:
            refuse_if(
                field not in allowed, f"--template: there is no field {{{field}}} for {kind}; it has {_braced(allowed)}"
            )
        refuse_if(
            fields.count(answer) != 1 or not self.text.endswith(f"{{{answer}}}"),
            f"--template must end in {{{answer}}}, exactly once: the answer, which is scored, comes last",
        )
        missing = [field for field in FIELDS[kind] if field not in fields]
        refuse_if(missing, f"--template lacks {_braced(missing)}; a prompt needs {_braced(FIELDS[kind])}")
        self._before = self.text[: -len(answer) - 2]
        words = words or {}
        for label in words:
            refuse_if(
                label not in self.labels,
                f"--words: there is no label {label!r}; the labels are {', '.join(self.labels)}",
            )
        self._words = {label: words.get(label, label) for label in self.labels}
        refuse_if(
            len(set(self._words.values())) < len(self._words),
            "--words: two labels have the same word and cannot be told apart",
        )

    def prompt(self, row: Row) -> Prompt:
        texts, answers, right = row.texts, [self._words[label] for label in self.labels], row.label
        if self.kind == "last-word":
            words = _LAST_WORD.match(row.texts[0])
            if words is None:
                raise UserError(f"{row.where}: fewer than two words; the last word is predicted from the others")
            texts, answers, right = (words[1],), [words[2]], 0
        elif len(row.texts) > len(FIELDS[self.kind]):  # the others are its own answers
            context, *answers = row.texts if self.text != DEFAULTS[self.kind] else _joined(row.texts)
            texts = (context,)
        elif right is not None:
            right = self.labels.index(str(right))
        values = dict(zip(FIELDS[self.kind], texts))
        # White space at the ends of a field comes from the file, not from the template.
        context = _FIELD.sub(lambda match: values[match[1]].strip(), self._before)
        # The space before the answer belongs to the answer, as in the vocabularies.
        bare = context.rstrip()
        gap = context[len(bare) :]
        completions = tuple(gap + answer.strip() for answer in answers)
        return Prompt(bare, completions, None if right is None else int(right), where=row.where)


def _joined(texts: Sequence[str]) -> Sequence[str]:
    """COPA's premise, question and choices as parts of a sentence; other rows unchanged."""
    for kind, question in COPA_QUESTIONS.items():
        if texts[0].endswith(question):
            premise = texts[0].removesuffix(question).strip().removesuffix(".")
            return [f"{premise} {COPA_WORDS[kind]}", *(_inside(choice) for choice in texts[1:])]
    return texts


def _inside(sentence: str) -> str:
    """A sentence as part of another: with a small first letter, unless it begins with "I"."""
    return sentence if re.match(r"I\b", sentence) else sentence[:1].lower() + sentence[1:]


def _braced(fields: Sequence[str]) -> str:
    return ", ".join(f"{{{field}}}" for field in fields)
