"""The Python interface: `import foretext as ft`.

lm = ft.pretrain("reviews/*.txt", minutes=10, out="runs/base")
lm.perplexity(["A text."]).per_token
lm.generate("Once upon", max_tokens=40)
clf = lm.finetune("train.csv", task="classification", out="runs/clf")
few = ft.finetune("few.csv", task="classification", text="reviews/*.txt", out="runs/few")
clf.predict(["a text", "another"])
ft.load("runs/clf").evaluate("test.csv").values
"""

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from foretext.config import Setting
from foretext.errors import refuse_if
from foretext.language_model import LanguageModel, finetune_request, finetuned
from foretext.plan import VIEWS_ALONE
from foretext.runs.model import load_model, pretrained_model
from foretext.runs.report import Reporter, StopRequest
from foretext.runs.run_config import Budget
from foretext.task_model import TaskModel
from foretext.tasks.family import layout_name
from foretext.train.finetuning.finetune_request import (
    Base,
    OtherTask,
    as_rows,
    as_sentences,
    as_tasks,
)
from foretext.train.pretraining.pretrain import pretrain as run_pretraining
from foretext.train.pretraining.pretrain_request import PretrainRequest, written_texts
from foretext.train.untrained import fresh_model, texts_of


def new_model(
    rows: Any,
    system: str = "gpt",
    size: str = "tiny",
    seed: int = 0,
    sets: Sequence[str | Setting] = (),
    reporter: Reporter | None = None,
    task: str = "classification",
    more: Sequence[str] = (),
    also: Sequence[OtherTask] = (),
    vectors: str | Path | None = None,
    columns: dict[str, str] | None = None,
    format: str | None = None,
) -> LanguageModel:
    """An untrained model, to fine-tune from nothing. Its vocabulary is made from the training texts of `rows` (not
    those held out), the sentences in `more`, and the tasks in `also`. `rows`, `columns` and `format` are as in
    `finetune`. `vectors`: for cvt, a file of initial word vectors."""
    sentences, others = as_sentences(more, "more"), as_tasks(also)
    learned = [OtherTask("rows", task, as_rows(rows, task, columns, layout_name(format))), *others]
    texts, reporter = texts_of(learned, sentences), reporter or Reporter()
    model = fresh_model(system, size, texts, seed, sets, vectors, reporter.note, reporter.work)
    return LanguageModel(model, Path())


def finetune(
    rows: Any,
    *,
    task: str,
    text: str | Path | Sequence[str | Path] = (),
    documents: Sequence[str] | None = None,
    minutes: float | None = None,
    size: str | None = None,
    valid: Any = None,
    out: str | Path | None = None,
    seed: int = 0,
    views: Sequence[str] | None = None,
    columns: dict[str, str] | None = None,
    format: str | None = None,
    metric: str | None = None,
    text_column: str | None = None,
    sets: Sequence[str | Setting] = (),
    resume: bool = False,
    reporter: Reporter | None = None,
    stopping: StopRequest | None = None,
) -> TaskModel:
    """Train a head over views without a trunk (`finetune --system views`). The views are the n-grams of `rows`, and
    word vectors and topics of `text` (files, folders, globs) or `documents` (the texts themselves; default: the rows'
    own texts). Learning these takes at most `minutes` (None: 1). The rest is as in `LanguageModel.finetune`."""
    named = None if views is None else ",".join(views)
    with _files("text", text, documents) as files:
        base = Base(system=VIEWS_ALONE, size=size, text=files, column=text_column, minutes=minutes)
        request = finetune_request(base, rows, task, valid, columns, format, named, out)
        request = replace(request, seed=seed, metric=metric, sets=tuple(sets), resume=resume)
        return finetuned(request, reporter, stopping)


@contextlib.contextmanager
def _files(
    name: str, files: str | Path | Sequence[str | Path], documents: Sequence[str] | None
) -> Iterator[tuple[str, ...]]:
    """The files to read; `documents`, the texts themselves, become one. `name` is that of the argument for files."""
    refuse_if(documents is not None and files, f"give either {name} (files) or documents (strings), not both")
    if documents is None:
        yield tuple(map(str, [files] if isinstance(files, str | Path) else files))
        return
    with tempfile.TemporaryDirectory(prefix="foretext-text-") as scratch:
        yield (str(written_texts(documents, Path(scratch) / "documents.jsonl")),)


def _path(given: str | Path | None) -> Path | None:
    return None if given is None else Path(given)


def load(path: str | Path, device: str = "cpu") -> LanguageModel | TaskModel:
    """The model in a run directory."""
    model = load_model(path, device)
    return LanguageModel(model, Path(path)) if model.task is None else TaskModel(model, Path(path))


def load_language_model(path: str | Path) -> LanguageModel:
    """A pre-trained run; UserError for a fine-tuned one."""
    return LanguageModel(pretrained_model(path), Path(path))


def pretrain(
    texts: str | Path | Sequence[str | Path] = (),
    *,
    documents: Sequence[str] | None = None,
    system: str | None = None,
    size: str | None = None,
    minutes: float | None = None,
    steps: int | None = None,
    tokens: int | None = None,
    out: str | Path | None = None,
    direction: Literal["forward", "backward"] | None = None,
    seed: int | None = None,
    sets: Sequence[str] = (),
    resume: bool = False,
    start: str | Path | None = None,
    new_vocabulary: bool = False,
    column: str | None = None,
    source: str | Path | None = None,
    target: str | Path | None = None,
    vectors: str | Path | None = None,
    device: str = "auto",
    threads: int | None = None,
    reporter: Reporter | None = None,
    stopping: StopRequest | None = None,
) -> LanguageModel:
    """Pre-train on `texts` (files, folders, globs) or on `documents` (the texts themselves). A system that translates
    (cove) trains on the lines of `source` and `target`, with the word vectors in `vectors`.

    Without `out` the run lives in a temporary folder. The budget is one of `minutes`, `steps` and `tokens`. `start`: a
    run to continue from; `new_vocabulary`: learn a new vocabulary from the new text. `threads`: CPU threads; with one,
    word vectors (word2vec) are reproducible.
    """
    with _files("texts", texts, documents) as inputs:
        request = PretrainRequest(
            inputs=inputs,
            budget=None if minutes is steps is tokens is None else Budget(minutes, steps, tokens),
            out=_path(out) or Path(tempfile.mkdtemp(prefix="foretext-")),
            system=system,
            size=size,
            direction=direction,
            seed=seed,
            sets=tuple(sets),
            resume=resume,
            start=_path(start),
            new_vocabulary=new_vocabulary,
            column=column,
            source=_path(source),
            target=_path(target),
            vectors=_path(vectors),
            device=device,
            threads=threads,
        )
        path = run_pretraining(request, reporter, stopping)
    return LanguageModel(load_model(path), path)
