"""Word vectors beside a pre-trained model: those that pre-training has put beside it, or `finetune RUN … --vectors X`.

Beside a trunk that reads pieces one head reads n-grams, topics, vectors and what the fine-tuned trunk says, or the
views that are named. Where tokens are words, as with ELMo and CoVe, a task's own model reads the vectors beside the
states, unless views are named; there the run's own vectors are used only if views are named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from foretext.errors import UserError
from foretext.plan import PAPER, STATES, TUNED, VIEWS, ViewsConfig
from foretext.runs.model import SavedModel, own_words, pretrained_model
from foretext.runs.reading import given_vectors
from foretext.runs.report import Note, Reporter
from foretext.runs.run_config import FinetuneConfig
from foretext.tasks.family import Family, family_of
from foretext.text.tokenizers.word_tokenizer import WordTokenizer
from foretext.text.tokenizers.word_vocabulary import Words
from foretext.text.words.vectors import read_vectors
from foretext.text.words.word_list import TextKnowledge
from foretext.train.finetuning.finetune_request import FinetuneRequest, asked_of_trunk

_SILENT = Reporter()
_NAMED = ",".join(view for view in VIEWS if view != TUNED)
AS_VIEWS = f"for views of them name some (--views {_NAMED})"  # one of the ways out of a refusal


def with_vectors_beside(
    request: FinetuneRequest, vectors: str | Path | None, note: Note = _SILENT.note
) -> FinetuneRequest:
    """The request, whose model is there, with what `--vectors` names."""
    if vectors is None:
        return request
    views = request.views
    alone = request.plan == PAPER or _reads_words(request.start) or Path(vectors).is_file()
    if views is None and not alone:
        views = _all_views(request)
    if not views:
        return replace(request, base=with_given(request.start, vectors, note))
    knowledge = _knowledge(vectors)
    if request.views is None and not _has_topics(knowledge):
        views = tuple(view for view in views if view != "lsa")
    return replace(request, views=views, knowledge=knowledge)


def with_own_words(request: FinetuneRequest) -> FinetuneRequest:
    """The request with the word vectors that pre-training has put beside its model, if nothing speaks against them: the
    user wants the trunk alone, the paper's way or new weights, or has named other vectors."""
    model, views = request.start, request.views
    words = None if model.run is None else own_words(model.run.path)
    others = request.knowledge is not None or model.vectors is not None
    alone = request.plan == PAPER or request.from_scratch or _reads_words(model)
    able = TUNED in family_of(request.kind).views or (request.kind == "span" and not asked_of_trunk(request))
    wanted = able and not alone if views is None else bool({"lsa", "vectors"} & set(views))
    return with_vectors_beside(request, words) if wanted and words is not None and not others else request


def _all_views(request: FinetuneRequest) -> tuple[str, ...]:
    """The views that are read where there are vectors and `--views` is not given: all that the kind of task has. An
    option that says how the trunk is trained leaves out `states`, so that it is trained."""
    views = family_of(request.kind).views
    trained = TUNED in views and asked_of_trunk(request)
    return tuple(view for view in views if view != STATES or not trained)


def _has_topics(model: SavedModel) -> bool:
    assert model.objective is not None
    known = model.objective.knowledge(model.trunk, model.tokenizer)
    return known is not None and known.lsa is not None


def _reads_words(model: SavedModel) -> bool:
    """Whether its tokens are whole words, which may have vectors of their own."""
    return isinstance(model.tokenizer, Words | WordTokenizer)


def _knowledge(path: str | Path) -> SavedModel:
    """The word2vec run that views are of: a file of vectors has no counts of words, and no topics."""
    if Path(path).is_file():
        raise UserError(f"--vectors {path}: --views need a word2vec run, and this is a file; name a run")
    model = pretrained_model(path)
    if model.objective is None or model.objective.knowledge(model.trunk, model.tokenizer) is None:
        raise UserError(f"--vectors {path}: --views need a word2vec run, and this is of {model.system.name}; name one")
    return model


def with_given(model: SavedModel, vectors: str | Path, note: Note = _SILENT.note) -> SavedModel:
    """A pre-trained model with vectors, of a file or of a run, for a task's own model to read beside its states."""
    if not _reads_words(model):
        where = model.run.path if model.run else "this model"
        raise UserError(
            f"--vectors are of words, and {where} reads pieces ({model.tokenizer.kind}): {AS_VIEWS}, else leave "
            "--vectors out"
        )
    specials = set(model.tokenizer.specials.values())
    words = ["" if id in specials else word for id, word in enumerate(model.tokenizer.pieces)]
    found = read_vectors(given_vectors(vectors), only=words)
    matrix = found.rows(words)
    known = int(matrix.any(axis=1).sum())
    if not known:
        raise UserError(f"{vectors}: has no vector for any of the model's {len(words):,} words; give others")
    note(f"{known:,} of {len(words):,} words have a vector in {vectors}")
    return replace(model, vectors=matrix)


def views_of(request: FinetuneRequest, family: Family, old: FinetuneConfig | None) -> ViewsConfig | None:
    """What one head reads instead of a fine-tuned trunk; None: the trunk is fine-tuned. Without a word from the user
    views are for bases that have nothing to fine-tune."""
    if old is not None and (request.views is None or _chosen_among(request.views, old.views)):
        return old.views
    known = knowledge_of(request)
    static = request.start.objective is not None and known is not None and request.knowledge is None
    given = request.start.vectors is not None  # which the task's own model reads
    if request.views == () or (request.views is None and (given or not (static and family.views))):
        return None
    _check_able(request, family)
    found = chosen_views(request.views, known, not static, request.start.system.name)
    config = ViewsConfig(tuple(name for name in found if name in family.views))
    config.check()
    return config


def _chosen_among(asked: Sequence[str], views: ViewsConfig | None) -> bool:
    """Whether a run that was asked for these views has these, or has chosen them among those."""
    named = ViewsConfig(tuple(asked))
    return views is not None and set(views.kinds) in [set(one.kinds) for one in (named, *named.alternatives)]


def _check_able(request: FinetuneRequest, family: Family) -> None:
    """UserError for views that this kind of task does not have."""
    for name in request.views or ():
        if name not in family.views:
            able = ",".join(family.views)
            raise UserError(f"--views {name}: is not for {request.kind}, for which there are --views {able}")


def knowledge_of(request: FinetuneRequest) -> TextKnowledge | None:
    """What is known of whole words: by the run that is named for it, or by the base."""
    model = request.knowledge or request.start
    return None if model.objective is None else model.objective.knowledge(model.trunk, model.tokenizer)


def chosen_views(
    asked: Sequence[str] | None, knowledge: TextKnowledge | None, has_states: bool, system: str
) -> tuple[str, ...]:
    """The views that are read: those asked for, or all that there are. UserError for what there is not."""
    named = "name a word2vec run with --vectors"
    lacks = {
        "ngrams": "",
        "lsa": "" if knowledge is not None and knowledge.lsa is not None else f"there are no topics; {named}",
        "vectors": "" if knowledge is not None else f"there are no word vectors; {named}",
        "states": "" if has_states else f"{system} has no states that depend on context; leave it out",
        "tuned": "" if has_states else f"{system} has nothing to fine-tune; leave it out",
    }
    for name in asked or ():
        if lacks[name]:
            raise UserError(f"--views {name}: {lacks[name]}")
    return tuple(name for name in VIEWS if (not lacks[name] if asked is None else name in asked))
