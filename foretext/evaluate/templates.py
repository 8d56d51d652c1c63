"""How a labelled row becomes a prompt and its possible answers, for learning in context.

A template is a text with fields in braces; the last one is the answer. What stands before the answer is the context,
and the answer with the space before it the completion. Examples are the same template filled in with the right answer,
one after another, an empty line between them, and the row to be answered last.

COPA's rows ask a question after the premise, which suits fine-tuning; without a template of one's own they are prompted
as a sentence instead: "The man broke his toe because he dropped a hammer on it."
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from foretext.errors import UserError
from foretext.tasks.files.formats import COPA_QUESTIONS
from foretext.tasks.files.rows import Row

BETWEEN = "\n\n"
ANSWER = {"choice": "choice", "last-word": "word"}  # the field of the answer; others: label
FIELDS = {
    "classification": ("text",),
    "entailment": ("premise", "hypothesis"),
    "similarity": ("text1", "text2"),
    "choice": ("context",),
    "last-word": ("text",),
}
DEFAULTS = {
    "classification": "Text: {text}\nLabel: {label}",
    "entailment": "Premise: {premise}\nHypothesis: {hypothesis}\nLabel: {label}",
    "similarity": "First: {text1}\nSecond: {text2}\nLabel: {label}",
    "choice": "{context} {choice}",
    "last-word": "{text} {word}",
}
COPA_WORDS = {"cause": "because", "effect": "so"}
_FIELD = re.compile(r"\{([a-z0-9]+)\}")
_LAST_WORD = re.compile(r"^(.*\S)\s+(\S+)\s*$", re.DOTALL)


@dataclass(frozen=True)
class Prompt:
    """A row's context, its possible answers as completions, which of them is right (None: not known), and the solved
    examples that stand before the context."""

    context: str
    answers: tuple[str, ...]
    right: int | None
    examples: str = ""
    where: str = ""  # the row's place, for messages

    @property
    def whole(self) -> str:
        return self.examples + self.context

    @property
    def solved(self) -> str:
        """As an example for others."""
        assert self.right is not None
        return self.context + self.answers[self.right]


class Template:
    """A checked template of one kind of task. `words` gives labels other names in the prompt."""

    def __init__(
        self, kind: str, text: str | None = None, labels: Sequence[str] = (), words: Mapping[str, str] | None = None
    ) -> None:
        self.kind, self.labels = kind, tuple(labels)
        self.text = DEFAULTS[kind] if text is None else text.replace("\\n", "\n")
        answer = ANSWER.get(kind, "label")
        fields = _FIELD.findall(self.text)
        allowed = (*FIELDS[kind], answer)
        for field in fields:
            if field not in allowed:
                raise UserError(f"--template: no field {{{field}}} for {kind}; it has {_braced(allowed)}")
        if fields.count(answer) != 1 or not self.text.endswith(f"{{{answer}}}"):
            raise UserError(f"--template must end in {{{answer}}}, once: what is scored stands last")
        missing = [field for field in FIELDS[kind] if field not in fields]
        if missing:
            raise UserError(f"--template leaves out {_braced(missing)}; a prompt needs {_braced(FIELDS[kind])}")
        self._before = self.text[: -len(answer) - 2]
        self._words = self._checked_words(words or {})

    def _checked_words(self, words: Mapping[str, str]) -> dict[str, str]:
        for label in words:
            if label not in self.labels:
                raise UserError(f"--words: there is no label {label!r}; the labels are {', '.join(self.labels)}")
        named = {label: words.get(label, label) for label in self.labels}
        if len(set(named.values())) < len(named):
            raise UserError("--words: two labels have the same word, so that they cannot be told apart")
        return named

    def prompt(self, row: Row) -> Prompt:
        return replace(self._prompt(row), where=row.where)

    def _prompt(self, row: Row) -> Prompt:
        if self.kind == "last-word":
            found = _LAST_WORD.match(row.texts[0])
            if found is None:
                raise UserError(f"{row.where}: fewer than two words; the last one is asked for")
            return self._made({"text": found[1]}, (found[2],), 0)
        if self.kind == "choice":
            right = None if row.label is None else int(row.label)
            context, *choices = row.texts if self.text != DEFAULTS["choice"] else _joined(row.texts)
            return self._made({"context": context}, choices, right)
        values = dict(zip(FIELDS[self.kind], row.texts))
        right = None if row.label is None else self.labels.index(str(row.label))
        return self._made(values, tuple(self._words[label] for label in self.labels), right)

    def _made(self, values: Mapping[str, str], answers: Sequence[str], right: int | None) -> Prompt:
        # White space at the ends of a field is the file's, not the template's.
        context = _FIELD.sub(lambda match: values[match[1]].strip(), self._before)
        # The space before the answer is the answer's: that is where vocabularies have it.
        bare = context.rstrip()
        gap = context[len(bare) :]
        return Prompt(bare, tuple(gap + answer.strip() for answer in answers), right)


def _joined(texts: Sequence[str]) -> Sequence[str]:
    """COPA's premise, question and choices as parts of a sentence; other rows as they are."""
    for kind, question in COPA_QUESTIONS.items():
        if texts[0].endswith(question):
            premise = texts[0].removesuffix(question).strip().removesuffix(".")
            return [f"{premise} {COPA_WORDS[kind]}", *(_inside(choice) for choice in texts[1:])]
    return texts


def _inside(sentence: str) -> str:
    """A sentence as it stands inside another: with a small letter, unless it begins with "I"."""
    return sentence if re.match(r"I\b", sentence) else sentence[:1].lower() + sentence[1:]


def _braced(fields: Sequence[str]) -> str:
    return ", ".join(f"{{{field}}}" for field in fields)
