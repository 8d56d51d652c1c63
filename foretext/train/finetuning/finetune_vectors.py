"""Word vectors beside a pre-trained model (`finetune RUN … --vectors X`): what a task's own model reads beside the
states, or, where views are named, where the views `lsa` and `vectors` come from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from foretext.errors import UserError
from foretext.plan import VIEWS
from foretext.runs.model import SavedModel, pretrained_model
from foretext.runs.report import Note, Reporter
from foretext.runs.run_vectors import given_vectors
from foretext.text.tokenizers.word_tokenizer import WordTokenizer
from foretext.text.tokenizers.word_vocabulary import Words
from foretext.text.words.vectors import read_vectors
from foretext.train.finetuning.finetune_request import FinetuneRequest

_SILENT = Reporter()
AS_VIEWS = f"for views of them name some (--views {','.join(VIEWS)})"  # one of the ways out of a refusal


def with_vectors_beside(
    request: FinetuneRequest, vectors: str | Path | None, note: Note = _SILENT.note
) -> FinetuneRequest:
    """The request, whose model is there, with what `--vectors` names."""
    if vectors is None:
        return request
    if request.views:
        return replace(request, knowledge=_knowledge(vectors))
    return replace(request, base=with_given(request.start, vectors, note))


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
    if not isinstance(model.tokenizer, Words | WordTokenizer):
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
