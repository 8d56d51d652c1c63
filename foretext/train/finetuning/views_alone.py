"""Views without a trunk, in one command (`finetune ROWS --system views`). Word vectors and topics are learned from
unlabelled text as in `pretrain --system word2vec`; then one head is fitted over them and the n-grams of the rows.

Until the head is fitted, the word2vec run is kept in a folder inside the run, so that a stopped run can resume.
Afterwards the folder is deleted, since the views have their own files.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from foretext.config import Setting, setting_of
from foretext.errors import Interrupted, UserError, refuse_if
from foretext.plan import VIEWS_ALONE, ViewsConfig
from foretext.runs.directory import RunDirectory
from foretext.runs.model import SavedModel, load_model
from foretext.runs.report import Reporter, StopRequest
from foretext.runs.run_config import POSITION, Budget, ModelSections, is_finished
from foretext.systems import word_system
from foretext.tasks.family import Family
from foretext.tasks.labelled import Split
from foretext.text.corpus.readers import ReadOptions, ReadReport, find_files, read_documents
from foretext.train.finetuning.finetune_knowledge import has_topics, with_own_text
from foretext.train.finetuning.finetune_request import Base, FinetuneRequest, asked_of_trunk
from foretext.train.finetuning.finetune_settings import resolve
from foretext.train.pretraining.pretrain import LEAST_TEXT, MINUTES, pretrain, text_length
from foretext.train.pretraining.pretrain_request import PretrainRequest, resolved_config, written_texts
from foretext.train.untrained import fresh_model

LEARNING = ".learning"  # folder inside a run until its head is fitted
_LEARNS = ("model", "tokenizer", "objective", "data")  # sections of --set about the text


def check_views_alone(request: FinetuneRequest, family: Family, split: Split[Any]) -> None:
    """UserError for impossible requests, before anything is learned."""
    system = f"--system {VIEWS_ALONE}"
    refuse_if(
        not family.views_alone,
        f"{system} is for tasks with one label per row and for answers, not for {request.kind}; name a pre-trained "
        "run instead",
    )
    if options := asked_of_trunk(request):
        raise UserError(f"{options[0]} is about training a trunk, but {system} has none; leave it out")
    refuse_if(request.views == (), f"--views none: {system} has nothing else to train; leave one of them out")
    for name in request.views or ():
        refuse_if(
            ViewsConfig((name,)).reads_trunk,
            f"--views {name}: {system} has no trunk; name a pre-trained run instead of {system}",
        )
    assert isinstance(request.base, Base)
    stub = fresh_model(word_system().name, request.base.size or "tiny", ["a b"] * 9)
    tried = dataclasses.replace(request, base=stub, views=("ngrams",), sets=_parted(request)[1])
    resolve(tried, family, split, None, lambda change: None)
    refuse_if(
        request.out is not None and not request.resume and _learning(request.out).has(POSITION),
        f"{request.out} already holds a run; continue it with --resume, or choose another --out",
    )


def _parted(request: FinetuneRequest) -> tuple[tuple[Setting, ...], tuple[Setting, ...]]:
    """The settings about what is learned from text, and the others."""
    sets = tuple(map(setting_of, request.sets))
    shape = tuple(given for given in sets if given.names[0] in _LEARNS)
    return shape, tuple(given for given in sets if given not in shape)


def _learning(out: Path) -> RunDirectory:
    return RunDirectory(out / LEARNING / "run")


def is_learning(run: RunDirectory) -> bool:
    """Whether there is an unfinished learning from text, but no run yet."""
    return _learning(run.path).exists()


def forget_learning(run: RunDirectory) -> None:
    """Deletes what the views were learned from, once they are saved."""
    shutil.rmtree(run.path / LEARNING, ignore_errors=True)


# -- learning ----------------------------------------------------------------------------------------------------------


def with_views_learned(
    request: FinetuneRequest, texts: Sequence[str], reporter: Reporter, stopping: StopRequest
) -> FinetuneRequest:
    """The request with a starting model that has read the text (`texts` if no file is named), and with the views that
    it allows."""
    base = request.base
    assert isinstance(base, Base)
    shape, rest = _parted(request)
    if _enough(request, base, texts, reporter):
        with _folder(request.out) as folder:
            model = _learned(dataclasses.replace(request, sets=shape), base, texts, folder, reporter, stopping)
            if base.text:  # otherwise the text is that of the rows
                request = with_own_text(request, [model], reporter.note)
        views = request.views
        refuse_if(
            "lsa" in (views or ()) and not has_topics(model),
            "--views lsa: too few words of the text occur in at least ten documents; give more text, or leave lsa out",
        )
    else:
        sizes = [given for given in shape if given.names[0] in ("model", "tokenizer")]
        model, views = fresh_model(word_system().name, base.size or "tiny", texts, request.seed, sizes), ("ngrams",)
    return dataclasses.replace(request, base=dataclasses.replace(model, run=None), views=views, sets=rest)


def _enough(request: FinetuneRequest, base: Base, texts: Sequence[str], reporter: Reporter) -> bool:
    """Whether there is enough text for word vectors and topics; if not, a note says so."""
    if request.views == ("ngrams",):
        return False
    options = ReadOptions(column=base.column, errors=base.errors)
    length = text_length(read_documents(find_files(base.text), options, ReadReport()) if base.text else texts)
    if length >= LEAST_TEXT:
        return True
    more = "--text adds more"
    too_few = f"{length:,} characters of text are too few to learn word vectors and topics ({LEAST_TEXT:,} are needed)"
    for name in request.views or ():
        refuse_if(name != "ngrams", f"--views {name}: {too_few}; {more}, or leave {name} out")
    reporter.note(f"{too_few}: using n-grams alone; {more}")
    return False


@contextlib.contextmanager
def _folder(out: Path | None) -> Iterator[Path]:
    if out is not None:
        folder = out / LEARNING
        folder.mkdir(exist_ok=True)
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="foretext-") as name:
        yield Path(name)


def _learned(
    request: FinetuneRequest,
    base: Base,
    texts: Sequence[str],
    folder: Path,
    reporter: Reporter,
    stopping: StopRequest,
) -> SavedModel:
    """The word2vec run in `folder`, resumed if it exists."""
    run = RunDirectory(folder / "run")
    goes_on = request.resume and run.has("config.toml")
    minutes = base.minutes if base.minutes is not None or goes_on else MINUTES
    learning = PretrainRequest(
        inputs=base.text or (str(_written(texts, folder / "rows.jsonl", request, goes_on)),),
        out=run.path,
        system=word_system().name,
        size=base.size,
        budget=None if minutes is None else Budget(minutes=minutes),
        seed=request.seed,
        sets=request.sets,
        resume=request.resume,
        column=base.column,
        errors=base.errors,
    )
    if goes_on and is_finished(run):
        resolved_config(learning, run, lambda change: None)  # refuses other text
        return load_model(run.path)
    try:
        return load_model(pretrain(learning, reporter, stopping))
    except Interrupted as stopped:
        raise Interrupted(stopped.code, str(request.out) if request.out and run.exists() else None) from None


def _written(texts: Sequence[str], file: Path, request: FinetuneRequest, goes_on: bool) -> Path:
    """Writes the rows' own texts to a file. UserError if a resumed run has learned from others."""
    given = written_texts(texts, file.with_suffix(".given"))
    if goes_on and file.exists() and file.read_bytes() != given.read_bytes():
        given.unlink()
        raise UserError(
            f"{request.out}: the rows differ from those it was started with; give the same files, or start a new run"
        )
    return given.replace(file)


def as_begun(request: FinetuneRequest, run: RunDirectory) -> FinetuneRequest:
    """The request with the model that a finished run began with."""
    model = load_model(run.path)
    refuse_if(
        not model.system.learns_words,
        f"{run.path}: started with {model.system.name}, not with --system {VIEWS_ALONE}; choose a new --out",
    )
    info = dataclasses.replace(model.info, kind="pretrain")
    start = dataclasses.replace(model, run=None, config=ModelSections(info, model.model_config), task=None, views=None)
    return dataclasses.replace(request, base=start, sets=_parted(request)[1])
