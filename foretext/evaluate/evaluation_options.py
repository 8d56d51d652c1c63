"""Which options of `evaluate` apply to a run: the models say what they are evaluated on, and what does not apply to
them. An option that would be ignored is refused. This does not import torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from foretext.errors import UserError, refuse, refuse_if

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
