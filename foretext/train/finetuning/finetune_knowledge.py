"""What a fine-tuning knows besides its rows: word vectors and topics, and the text that its run was pre-trained on.

Word vectors stand beside a pre-trained model: those learned during pre-training, or `finetune RUN … --vectors X`. If
the trunk reads pieces, one head reads n-grams, topics, vectors and the fine-tuned trunk's scores, or the named views.
If tokens are words, as in ELMo and CoVe, a task model reads the vectors beside the states, unless views are named; the
run's own vectors are then used only if views are named.

A run's token shards hold its text, so a head over views can learn from it (`tasks/views/self_training.py`) without the
user naming it again. This happens unless views are given by name. A line says so; `--unlabelled none` turns it off. If
the shards have been deleted, there is nothing to learn from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from foretext.errors import UserError, refuse_if
from foretext.plan import PAPER, STATES, TUNED, VIEWS, ViewsConfig
from foretext.runs.model import SavedModel, own_words, pretrained_model
from foretext.runs.reading import given_vectors
from foretext.runs.report import Note, Reporter
from foretext.runs.run_config import FinetuneConfig
from foretext.tasks.family import Family, family_of
from foretext.tasks.views.self_training import drawn_texts
from foretext.text.corpus.shards import DamagedShards, TokenShards
from foretext.text.tokenizers.base import Tokenizer
from foretext.text.tokenizers.word_tokenizer import WordTokenizer
from foretext.text.tokenizers.word_vocabulary import Words
from foretext.text.words.vectors import read_vectors
from foretext.text.words.word_list import TextKnowledge
from foretext.train.finetuning.finetune_request import FinetuneRequest, asked_of_trunk
from foretext.train.resume import TOKENS

LEAST_TEXTS = 200  # with fewer, a student learns nothing beyond the rows
_SILENT = Reporter()
_NAMED = ",".join(view for view in VIEWS if view != TUNED)
AS_VIEWS = f"to read them as views name some (--views {_NAMED})"  # one way out, for error messages


def with_vectors_beside(
    request: FinetuneRequest, vectors: str | Path | None, note: Note = _SILENT.note
) -> FinetuneRequest:
    """The request, whose model is loaded, with what `--vectors` names."""
    if vectors is None:
        return request
    views = request.views
    alone = request.plan == PAPER or _reads_words(request.base_model) or Path(vectors).is_file()
    if views is None and not alone:
        views = _all_views(request)
    if not views:
        return replace(request, base=with_given(request.base_model, vectors, note))
    knowledge = _knowledge(vectors)
    if request.views is None and not has_topics(knowledge):
        views = tuple(view for view in views if view != "lsa")
    return replace(request, views=views, knowledge=knowledge)


def with_own_words(request: FinetuneRequest) -> FinetuneRequest:
    """The request with the word vectors learned beside its model. They are not used if the user wants the trunk alone,
    the paper's way, new weights, or other vectors."""
    model, views = request.base_model, request.views
    words = None if model.run is None else own_words(model.run.path)
    others = request.knowledge is not None or model.vectors is not None
    alone = request.plan == PAPER or request.from_scratch or _reads_words(model)
    family = family_of(request.kind)
    has_views = family.views_alone or family.views_beside is not None
    able = has_views and (TUNED in family.views or not asked_of_trunk(request))
    wanted = able and not alone if views is None else bool({"lsa", "vectors"} & set(views))
    if not wanted or words is None or others:
        return request
    return with_vectors_beside(replace(request, views=family.views_beside) if views is None else request, words)


def _all_views(request: FinetuneRequest) -> tuple[str, ...]:
    """The views to read if there are vectors and no `--views`: all that this kind of task has. If an option says how to
    train the trunk, `states` is left out, so that the trunk is trained."""
    views = family_of(request.kind).views
    trained = TUNED in views and asked_of_trunk(request)
    return tuple(view for view in views if view != STATES or not trained)


def knowledge_in(model: SavedModel) -> TextKnowledge | None:
    """What a run knows of whole words, if its system has that."""
    return None if model.objective is None else model.objective.knowledge(model.trunk, model.tokenizer)


def has_topics(model: SavedModel) -> bool:
    known = knowledge_in(model)
    return known is not None and known.lsa is not None


def _reads_words(model: SavedModel) -> bool:
    """Whether its tokens are whole words, which may have vectors of their own."""
    return isinstance(model.tokenizer, Words | WordTokenizer)


def _knowledge(path: str | Path) -> SavedModel:
    """The word2vec run for the views: a plain file of vectors has no word counts and no topics."""
    refuse_if(Path(path).is_file(), f"--vectors {path}: --views need a word2vec run, but this is a file; name a run")
    model = pretrained_model(path)
    refuse_if(
        knowledge_in(model) is None,
        f"--vectors {path}: --views need a word2vec run, but this one is of {model.system.name}; name one",
    )
    return model


def with_given(model: SavedModel, vectors: str | Path, note: Note = _SILENT.note) -> SavedModel:
    """A pre-trained model with word vectors, from a file or a run, for a task model to read beside its states."""
    if not _reads_words(model):
        where = model.run.path if model.run else "this model"
        raise UserError(
            f"--vectors are for words, but {where} reads pieces ({model.tokenizer.kind}): {AS_VIEWS}, or leave "
            "--vectors out"
        )
    specials = set(model.tokenizer.specials.values())
    words = ["" if id in specials else word for id, word in enumerate(model.tokenizer.pieces)]
    matrix = read_vectors(given_vectors(vectors), only=words).rows(words)
    known = int(matrix.any(axis=1).sum())
    refuse_if(not known, f"{vectors}: has no vector for any of the model's {len(words):,} words; give others")
    note(f"{known:,} of {len(words):,} words have a vector in {vectors}")
    return replace(model, vectors=matrix)


def views_of(request: FinetuneRequest, family: Family, old: FinetuneConfig | None) -> ViewsConfig | None:
    """What one head reads instead of training the trunk; None: the trunk is fine-tuned. If the user names no views,
    only bases that cannot be fine-tuned get them."""
    if old is not None and (request.views is None or _chosen_among(request.views, old.views)):
        return old.views
    known = knowledge_of(request)
    static = request.base_model.objective is not None and known is not None and request.knowledge is None
    given = request.base_model.vectors is not None  # the task model reads them
    if request.views == () or (request.views is None and (given or not (static and family.views))):
        return None
    for name in request.views or ():
        able = ",".join(family.views)
        refuse_if(name not in family.views, f"--views {name}: does not work for {request.kind}; use --views {able}")
    chosen = chosen_views(request.views, known, not static, request.base_model.system.name)
    config = ViewsConfig(tuple(name for name in chosen if name in family.views))
    config.check()
    return config


def _chosen_among(names: Sequence[str], views: ViewsConfig | None) -> bool:
    """Whether a run that was asked for these views has them, or has chosen its own from among them."""
    named = ViewsConfig(tuple(names))
    return views is not None and set(views.kinds) in [set(config.kinds) for config in (named, *named.alternatives)]


def knowledge_of(request: FinetuneRequest) -> TextKnowledge | None:
    """Knowledge of whole words, from the run named for it, or from the base."""
    return knowledge_in(request.knowledge or request.base_model)


def chosen_views(
    wanted: Sequence[str] | None, knowledge: TextKnowledge | None, has_states: bool, system: str
) -> tuple[str, ...]:
    """The views to read: those asked for, or all available ones. UserError for unavailable views."""
    named = "name a word2vec run with --vectors"
    lacks = {
        "ngrams": "",
        "lsa": "" if knowledge is not None and knowledge.lsa is not None else f"there are no topics; {named}",
        "vectors": "" if knowledge is not None else f"there are no word vectors; {named}",
        "states": "" if has_states else f"{system} has no contextual states; leave it out",
        "tuned": "" if has_states else f"{system} has nothing to fine-tune; leave it out",
    }
    for name in wanted or ():
        refuse_if(lacks[name], f"--views {name}: {lacks[name]}")
    return tuple(name for name in VIEWS if (not lacks[name] if wanted is None else name in wanted))


# -- the text of pre-training ------------------------------------------------------------------------------------------


def with_own_text(request: FinetuneRequest, sources: Sequence[SavedModel], note: Note) -> FinetuneRequest:
    """The request with the text of the first of these models that has some, unless the user has given texts, or
    none."""
    if request.unlabelled or not request.own_text or request.kind not in family_of(request.kind).learn_from_text:
        return request
    texts = next((texts for model in sources if (texts := texts_of(model, request.seed))), [])
    if len(texts) < LEAST_TEXTS:
        return request
    note(f"also learning from {len(texts):,} texts of pre-training (--unlabelled none turns this off)")
    return replace(request, unlabelled=tuple(texts))


def texts_of(model: SavedModel, seed: int) -> list[str]:
    """Texts that a run was pre-trained on, drawn by the seed; empty if its shards are gone."""
    if model.run is None or not (model.run.path / TOKENS).exists() or model.tokenizer.end is None:
        return []
    try:
        shards = TokenShards.open(model.run.path / TOKENS, "train", verify=True)
    except DamagedShards as damage:
        raise UserError(f"{damage.fault}; give --unlabelled none, or restore it from a copy") from None
    return drawn_texts(_Documents(shards, model.tokenizer), seed)


@dataclass
class _Documents(Sequence[str]):
    """The documents of shards, each decoded on demand."""

    shards: TokenShards
    tokenizer: Tokenizer

    def __post_init__(self) -> None:
        assert self.tokenizer.end is not None
        self.ends = self.shards.places(self.tokenizer.end)

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, number: int) -> str:  # type: ignore[override]
        start = int(self.ends[number - 1]) + 1 if number else 0
        return self.tokenizer.decode(self.shards.window(start, int(self.ends[number]) - start).tolist())
