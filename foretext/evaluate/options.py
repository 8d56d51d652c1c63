"""Which options of `prompt` and `evaluate` apply. For `prompt`: the tasks, the options that each has, and what a user
asks, `PromptRequest`. For `evaluate`: the models say what they are evaluated on, and what does not apply to them. An
option that would be ignored is refused. This does not import torch, so that a mistake in an option is reported at
once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from foretext.errors import UserError, refuse, refuse_if

CHOSEN = ("classification", "entailment", "similarity", "choice", "last-word")
WRITTEN = ("summary", "translation", "answer")
LANGUAGES = ("zh", "ja", "ko")
TASKS = (*CHOSEN, "acceptability", "winograd", *WRITTEN)
LABELLED = ("classification", "entailment", "similarity")
_COLUMNS = {  # columns that tell which task a file is for
    "choice": {"context", "choice1"},
    "entailment": {"premise", "hypothesis"},
    "similarity": {"text1", "text2"},
    "translation": {"source", "target"},
    "answer": {"question", "answer"},
    "summary": {"text", "summary"},
    "classification": {"text", "label"},
}
# Options that only some tasks have. For other tasks they would be ignored, so they are refused.
_OPTIONS = {
    "--template": CHOSEN,
    "--words": LABELLED,
    "--seeds": (*CHOSEN, "translation", "answer"),
    "--shots": (*CHOSEN, "translation", "answer"),
    "--examples": (*CHOSEN, "translation", "answer", "acceptability"),
    "--good": ("acceptability",),
    "--format": (*LABELLED, "choice", "acceptability", "winograd"),
    "--language": ("translation",),
    "--out": CHOSEN,
}


@dataclass(frozen=True)
class PromptRequest:
    """`template`, `words`: how a row becomes a prompt, if not as the task does it. `language`: the target language of a
    translation, if BLEU must segment it."""

    task: str
    shots: str = "0"  # numbers of examples in the context, separated by commas
    draws: int = 3  # of examples, for each number of them
    rows: int = 0  # how many to answer, drawn at random; 0: all
    template: str | None = None
    words: Mapping[str, str] | None = None
    good: str = "1"  # the label of acceptable sentences
    language: str | None = None

    def __post_init__(self) -> None:
        refuse_if(self.draws < 1, f"--seeds must be at least 1, not {self.draws}")
        refuse_if(self.rows < 0, f"--rows must be 0 (all) or more, not {self.rows}")
        refuse_if(
            self.language is not None and self.language not in LANGUAGES,
            f"--language {self.language}: BLEU has its own word segmentation for {', '.join(LANGUAGES)} and splits all "
            "other languages at spaces and punctuation; give one of these, or leave it out",
        )
        refuse_if(min(_whole(self.shots)) < 0, f"--shots {self.shots}: give numbers of examples, such as 0 or 0,1,5")

    @property
    def numbers(self) -> list[int]:
        """The numbers of examples, each once."""
        return list(dict.fromkeys(_whole(self.shots)))


def _whole(shots: str) -> list[int]:
    """The numbers in a text; a negative one if it has something else."""
    try:
        return [int(part) for part in shots.split(",")]
    except ValueError:
        return [-1]


def check_options(task: str, given: Mapping[str, object]) -> None:
    """UserError for an unknown task, or for an option that the task does not have. `given`: the value of each option,
    None if it was not given."""
    refuse_if(task not in TASKS, f"unknown task {task!r}; the tasks are {', '.join(TASKS)}")
    for option, tasks in _OPTIONS.items():
        if task not in tasks:
            refuse({option: given[option]}, f"applies to {', '.join(tasks)}, but the task is {task}; leave it out")


def task_of_columns(columns: Collection[str], named: Collection[str] = ()) -> str | None:
    """The task of a table with these columns, where `named` fields have other names; None: they fit no task."""
    known = {*columns, *named}
    for task, fields in _COLUMNS.items():
        if fields <= known:
            return task
    return "last-word" if "text" in known and len(columns) == 1 else None


def kind_of_rows(task: str) -> str | None:
    """The kind of labelled rows that a task reads; None: it reads documents (last-word) or pairs of texts."""
    if task in WRITTEN or task == "last-word":
        return None
    return {"acceptability": "classification", "winograd": "choice"}.get(task, task)


EvaluatedOn = Literal["text", "word lists", "translations", "rows"]
Concern = Literal["text", "rows", "tasks", "classes"]  # what an option is for


class Evaluable(Protocol):
    """A loaded run."""

    @property
    def path(self) -> Path | None: ...

    @property
    def evaluated_on(self) -> EvaluatedOn: ...

    @property
    def inapplicable(self) -> Mapping[Concern, str]:
        """Why options for these do not apply to the run."""


@dataclass(frozen=True)
class EvaluationOptions:
    """The options of an evaluation, by what they are for. Each has its value, None if it was not given."""

    concerns: Mapping[Concern, Mapping[str, object]]
    translations: Mapping[str, object]  # options of scoring translations, except for the two files

    def translation_files(
        self, files: Sequence[str], source: Path | None, target: Path | None
    ) -> tuple[Path, Path] | None:
        """The two files of translations to score; None: `files` are to be evaluated on. UserError if it is unclear
        which."""
        if source is None and target is None:
            why = "applies to translations only: give both --source FILE and --target FILE, or leave it out"
            refuse(self.translations, why)
            refuse_if(not files, "name the files to evaluate on: text, labelled rows, or --source and --target")
            return None
        if files:
            raise UserError(f"translations are scored from --source and --target alone; leave out {files[0]}")
        for options in self.concerns.values():
            refuse(options, "does not apply to translations (--source and --target); leave it out")
        if source is None or target is None:
            missing = "--target" if target is None else "--source"
            raise UserError(f"{missing} is missing: scoring translations needs both files; add it")
        return source, target

    def check(self, model: Evaluable, file: str) -> None:
        """UserError if the model is not evaluated on a file of text, rows or words, or has no such option."""
        refuse_if(
            model.evaluated_on == "translations",
            f"{model.path} translates: give --source FILE --target FILE instead of {file}",
        )
        for concern, why in model.inapplicable.items():
            refuse(self.concerns[concern], f"{why}; leave it out")
