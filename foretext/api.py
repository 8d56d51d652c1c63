"""The Python interface: `import foretext as ft`.

lm = ft.pretrain("reviews/*.txt", minutes=10, out="runs/base")
lm.perplexity(["A text."]).per_token
lm.generate("Once upon", max_tokens=40)
clf = lm.finetune("train.csv", task="classification", out="runs/clf")
few = ft.finetune("few.csv", task="classification", text="reviews/*.txt", out="runs/few")
clf.predict(["a text", "another"])
ft.load("runs/clf").evaluate("test.csv").values
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from foretext.config import Setting
from foretext.errors import refuse_if
from foretext.language_model import LanguageModel
from foretext.plan import VIEWS_ALONE, views_named
from foretext.runs.model import load_model, pretrained_model
from foretext.runs.report import Reporter, StopRequest
from foretext.runs.run_config import Budget
from foretext.task_model import TaskModel
from foretext.tasks.family import layout_name
from foretext.tasks.files.rows import kind_of
from foretext.train.finetuning.finetune import finetune as run_finetuning
from foretext.train.finetuning.finetune_request import (
    Base,
    FinetuneRequest,
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
    refuse_if(documents is not None and text, "give either text (files) or documents (strings), not both")
    format = layout_name(format)
    task = kind_of(task, format)
    files = [text] if isinstance(text, str | Path) else list(text)
    with tempfile.TemporaryDirectory(prefix="foretext-text-") as scratch:
        if documents is not None:
            files = [written_texts(documents, Path(scratch) / "documents.jsonl")]
        request = FinetuneRequest(
            base=Base(system=VIEWS_ALONE, size=size, text=tuple(map(str, files)), column=text_column, minutes=minutes),
            rows=as_rows(rows, task, columns, format),
            kind=task,
            out=None if out is None else Path(out),
            valid=None if valid is None else as_rows(valid, task, columns, format),
            seed=seed,
            views=None if views is None else views_named(",".join(views)),
            own_text=views is None,
            columns=columns,
            format=format,
            metric=metric,
            sets=tuple(sets),
            resume=resume,
        )
        return TaskModel(run_finetuning(request, reporter, stopping).model, request.out)


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
    refuse_if(documents is not None and texts, "give either texts (files) or documents (strings), not both")
    budget = None if minutes is steps is tokens is None else Budget(minutes, steps, tokens)
    folder = Path(tempfile.mkdtemp(prefix="foretext-")) if out is None else Path(out)
    inputs = [texts] if isinstance(texts, str | Path) else list(texts)
    with tempfile.TemporaryDirectory(prefix="foretext-text-") as scratch:
        if documents is not None:
            inputs = [written_texts(documents, Path(scratch) / "documents.jsonl")]
        request = PretrainRequest(
            inputs=tuple(str(path) for path in inputs),
            out=folder,
            system=system,
            size=size,
            budget=budget,
            direction=direction,
            seed=seed,
            sets=tuple(sets),
            resume=resume,
            start=None if start is None else Path(start),
            new_vocabulary=new_vocabulary,
            column=column,
            source=None if source is None else Path(source),
            target=None if target is None else Path(target),
            vectors=None if vectors is None else Path(vectors),
            device=device,
            threads=threads,
        )
        path = run_pretraining(request, reporter, stopping)
    return LanguageModel(load_model(path), path)
