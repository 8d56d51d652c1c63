"""What a user asks of a fine-tuning, by options or from Python: `FinetuneRequest`. It does not import torch, so that a
mistake in the rows is reported at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretext.config import Setting, setting_of
from foretext.errors import UserError, refuse_if
from foretext.plan import PAPER, TUNED, VIEWS_ALONE, ViewsConfig
from foretext.tasks.family import Family, Reading, family_of
from foretext.tasks.labelled import DEFAULT_FRACTION, Split

if TYPE_CHECKING:
    from foretext.runs.model import SavedModel


@dataclass(frozen=True)
class OtherTask:
    """A task that is trained together with the main one."""

    name: str
    kind: str
    rows: Sequence[Any]


@dataclass(frozen=True)
class Base:
    """What a fine-tuning starts from, by name: a pre-trained run, or a system with new weights and a new vocabulary."""

    run: Path | None = None
    system: str | None = None
    size: str | None = None  # of a new model; None: tiny
    # A file or a word2vec run. For a new model: its initial word vectors. Beside a run: what its views, or its task
    # model, read beside the states.
    vectors: Path | None = None
    direction: str | None = None  # of a run that reads both ways: the direction of the language-model loss
    text: tuple[str, ...] = ()  # for views alone: files of unlabelled text; empty: the rows' own texts
    column: str | None = None  # the text column of tables
    errors: str = "strict"  # how undecodable bytes are handled
    minutes: float | None = None  # budget for the text; None: 1

    def __post_init__(self) -> None:
        self._check_views_alone()
        refuse_if(
            self.system is None and self.size is not None,
            f"--size is for a new model (--system), but {self.run} already has a size; leave it out",
        )
        refuse_if(
            self.system is not None and self.run is not None,
            "--system starts from nothing: give the file of rows without a run, or leave out --system",
        )

    def _check_views_alone(self) -> None:
        if self.system == VIEWS_ALONE:
            refuse_if(
                self.run is not None and self.text,
                f"{self.run}: write the file of rows before --text, and only options after it",
            )
            for option, value in (("--vectors", self.vectors), ("--direction", self.direction)):
                refuse_if(
                    value is not None,
                    f"{option} needs a pre-trained run (foretext finetune RUN ROWS), and --system starts without "
                    "one; leave one of them out",
                )
            return
        for option, given in (("--text", self.text), ("--text-column", self.column), ("--minutes", self.minutes)):
            refuse_if(
                given not in (None, ()),
                f"{option} is for --system {VIEWS_ALONE} only, which learns from text first; add that, or leave it out",
            )


@dataclass(frozen=True)
class FinetuneRequest:
    """What a user asks for. `rows`, as the family of `kind` makes them, are the training rows. If `valid` is None, some
    of them are held out."""

    base: SavedModel | Base
    rows: Sequence[Any]
    kind: str
    out: Path | None = None  # None: nothing is written
    valid: Sequence[Any] | None = None
    seed: int = 0
    epochs: int | None = None
    plan: str | None = None  # a way of transfer, by name, or the paper's; None: the size's own
    lm_weight: float | None = None
    layers: int | None = None
    from_scratch: bool = False
    columns: dict[str, str] | None = None
    format: str | None = None
    metric: str | None = None  # chooses the best epoch; None: the format's or the kind's own
    unlabelled: Sequence[str] = ()  # further texts to learn from: for views, or for a system that can (then sentences)
    also: Sequence[OtherTask] = ()  # further tasks, for a system that can
    own_text: bool = False  # without `unlabelled`: views learn from the text of pre-training
    hold_out: float | None = None  # share of the rows to validate on if `valid` is None; None: .15
    views: tuple[str, ...] | None = None  # read by one head instead of training the trunk; None: the default
    knowledge: SavedModel | None = None  # a word2vec run whose vectors and topics the views read; None: the base's own
    sets: tuple[str | Setting, ...] = ()  # section.key=value, or settings of a file; later ones override earlier ones
    resume: bool = False
    device: str = "auto"

    def __post_init__(self) -> None:
        refuse_if(
            self.valid is not None and self.hold_out is not None,
            "--hold-out is for rows without --valid; leave out one of the two",
        )

    @property
    def base_model(self) -> SavedModel:
        """The model to start from. If `base` only names it, `train/untrained.py` loads or makes it first."""
        assert not isinstance(self.base, Base)
        return self.base

    def setting(self, key: str) -> Any:
        """The value of a key in --set or a file; None if not given."""
        return next((given.value for given in map(setting_of, reversed(self.sets)) if given.key == key), None)

    @property
    def views_alone(self) -> bool:
        """Whether there is no trunk: word vectors are learned first, then a head over views."""
        return isinstance(self.base, Base) and self.base.system == VIEWS_ALONE

    @property
    def asks_for_lm(self) -> bool:
        """Whether λ is given."""
        return self.lm_weight is not None or self.setting("transfer.lm_weight") is not None


def asked_of_trunk(request: FinetuneRequest) -> list[str]:
    """The given options that only concern training the trunk."""
    options = {
        "--epochs": request.epochs,
        "--plan": request.plan,
        "--lm-weight": request.lm_weight,
        "--layers": request.layers,
        "--from-scratch": request.from_scratch or None,
    }
    sets = [given.where for given in map(setting_of, request.sets) if given.names[0] in ("training", "transfer")]
    return [option for option, given in options.items() if given is not None] + sets


def check_asked(request: FinetuneRequest) -> None:
    """UserError for tasks or options that the system does not have."""
    system = request.base_model.system
    refuse_if(
        system.tasks and request.kind not in system.tasks,
        f"{system.name} learns {' and '.join(system.tasks)}, not {request.kind}; use another --system",
    )
    if system.build_head is None:
        refuse_if(
            request.also,
            f"--also is for a system that learns from rows and text together (cvt), not {system.name}; leave it out",
        )
    else:
        _check_own_heads(request)
    names = [task.name for task in request.also]
    for task in request.also:
        refuse_if(
            task.kind not in system.tasks,
            f"--also {task.kind}=…: {system.name} learns {' and '.join(system.tasks)}, not {task.kind}",
        )
        refuse_if(
            names.count(task.name) > 1 or "." in task.name,
            f"--also: two tasks have the name {task.name!r}, from their files' names; rename one of the files",
        )


def check_views(request: FinetuneRequest, views: ViewsConfig | None) -> None:
    """UserError for options about training the trunk when the views do not train it."""
    if views is not None and not views.tuned and (options := asked_of_trunk(request)):
        raise UserError(
            f"{options[0]} is about training the trunk, but the views {','.join(views.kinds)} do not train it; add "
            "tuned to --views, give --views none, or leave it out"
        )


def check_text(request: FinetuneRequest, views: ViewsConfig | None) -> None:
    """UserError for unlabelled text that nothing would learn from."""
    name = request.base_model.system.name
    if not request.unlabelled or request.base_model.system.build_head is not None:
        return
    if views is None:
        raise UserError(
            "--unlabelled is for a head over views (--views, or a word2vec run) and for --system cvt, but this run "
            f"trains {name} alone; add --views ngrams, or leave it out"
        )
    refuse_if(
        request.kind not in family_of(request.kind).learn_from_text,
        f"--unlabelled is for classification of single texts, not for {request.kind}; leave it out",
    )
    if not set(views.kinds) - {"states", TUNED}:
        raise UserError(f"--unlabelled needs a view of words, but only {views.kinds[0]} is read; add ngrams to --views")


def _check_own_heads(request: FinetuneRequest) -> None:
    """UserError for options about the head if the system has its own heads. Options about which layers learn how fast
    (`transfer.thaw`, `rate_decay`) are allowed."""
    name = request.base_model.system.name
    refuse_if(
        request.plan not in (None, PAPER),
        f"--plan {request.plan}: ways of transfer put a new head on pre-trained weights, but {name} has its own "
        "heads; leave it out",
    )
    for given in map(setting_of, request.sets):
        section, *keys = given.names
        if section != "transfer" or not keys:
            continue
        refuse_if(
            keys[0] in ("head", "pooling", "reader") or (keys[0] == "model" and given.value != "linear"),
            f"{given.where}: {name} has its own heads and takes no other; leave it out",
        )


def split_rows(request: FinetuneRequest, family: Family) -> tuple[Split[Any], list[str]]:
    """The rows to train on and to validate on, and notes about them."""
    refuse_if(not request.rows, "there are no rows to fine-tune on")
    remarks = family.check(request.rows, request.kind)
    family.check(request.valid or (), request.kind)
    if request.valid is not None:
        return Split(list(request.rows), list(request.valid), ""), remarks
    part = DEFAULT_FRACTION if request.hold_out is None else request.hold_out
    split = family.hold_out(request.rows, part, request.seed)
    return split, [*remarks, *([split.note] if split.note else [])]


def as_rows(data: Any, kind: str, columns: dict[str, str] | None = None, format: str | None = None) -> list[Any]:
    """Rows from a file or from Python data."""
    family, reading = family_of(kind), Reading(kind, columns, format)
    return family.read(Path(data), reading).rows if isinstance(data, str | Path) else family.from_data(data, reading)


def as_tasks(also: Iterable[OtherTask]) -> tuple[OtherTask, ...]:
    """Further tasks, each with its rows as from `as_rows`."""
    tasks = tuple(also)
    for number, task in enumerate(tasks):
        refuse_if(
            not isinstance(task, OtherTask),
            f"also[{number}] is a {type(task).__name__}, not a task; give foretext.OtherTask(name, kind, rows)",
        )
    return tuple(replace(task, rows=as_rows(task.rows, task.kind)) for task in tasks)


def as_sentences(given: Any, name: str) -> tuple[str, ...]:
    """Unlabelled sentences given in Python; `name` is that of the argument. A single string is refused: it would be
    read letter by letter."""
    if isinstance(given, str | bytes | Path) or not isinstance(given, Iterable):
        what = "a text or a file name" if isinstance(given, str | Path) else type(given).__name__
        raise UserError(f"{name} must be a list of sentences, not {what}; for a file use foretext.read_sentences(FILE)")
    sentences = tuple(given)
    for number, sentence in enumerate(sentences):
        refuse_if(
            not isinstance(sentence, str),
            f"{name}[{number}] is {type(sentence).__name__}, not text; give a sentence as text with spaces between "
            "its words",
        )
    return sentences
