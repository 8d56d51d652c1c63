"""A pre-trained run, as `ft.pretrain` and `ft.load` return it: everything that it can be asked, and `finetune`.

Each method checks its arguments and leaves the work to the right room. Where systems differ in how they score a text,
their objective decides.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from foretext.config import Setting
from foretext.errors import UserError, refuse_if
from foretext.evaluate.features import GivesVectors
from foretext.evaluate.fill import Filled, fill, filling_objective
from foretext.evaluate.options import Concern
from foretext.evaluate.perplexity import Perplexity, perplexity
from foretext.evaluate.translation import (
    TranslationAttention,
    TranslationScores,
    score_files,
    translate_lines,
    translation_attention,
)
from foretext.evaluate.word_space import Analogies, Similarity, WordSpace, judged_file
from foretext.generate.many import Written, beam_search, write_in_turn
from foretext.generate.sampling import Sampling, generate_text
from foretext.objectives.base import Objective
from foretext.plan import NO_VIEWS, views_named
from foretext.runs.model import SavedModel, facing, need_trained_head, own_words, pretrained_model, reach_of
from foretext.runs.reading import given_texts, words_of
from foretext.runs.report import Reporter, StopRequest
from foretext.task_model import TaskModel
from foretext.tasks.family import Progress, layout_name
from foretext.tasks.files.rows import kind_of
from foretext.text.words.word_list import TextKnowledge
from foretext.train.finetuning.finetune import finetune
from foretext.train.finetuning.finetune_knowledge import knowledge_in, with_vectors_beside
from foretext.train.finetuning.finetune_request import Base, FinetuneRequest, OtherTask, as_rows, as_sentences, as_tasks


class LanguageModel(GivesVectors):
    """A pre-trained run."""

    def __init__(self, model: SavedModel, path: Path) -> None:
        self.model = model
        self.path = path

    @property
    def evaluated_on(self) -> Literal["text", "word lists", "translations"]:
        """What shows how good the model is."""
        if self.model.system.learns_from == "pairs":
            return "translations"
        return "text" if self.model.system.learn is None else "word lists"

    @property
    def inapplicable(self) -> dict[Concern, str]:
        """Why options of an evaluation do not apply, by what they are for."""
        reasons: dict[Concern, str] = {
            "rows": f"is for labelled rows, but {self.path} reads text",
            "classes": f"is for tasks with classes, but {self.path} is a language model without a task",
            "tasks": f"is for tasks, but {self.path} is a language model without one",
        }
        if self.evaluated_on == "word lists":
            reasons["text"] = f"is for language models, but {self.path} holds word vectors"
        return reasons

    def logits(self, ids: Sequence[int]) -> np.ndarray:
        """The logits at each position, float32 [len(ids), vocabulary]. They predict the next token (ELMo: in its
        forward direction); for masked systems the token at that position; for XLNet the token at that position from
        those before it."""
        context = reach_of(self.model)
        try:
            numbers = [operator.index(number) for number in ids]
        except TypeError:
            raise UserError(
                "logits takes token ids: integers, such as lm.model.tokenizer.encode(text) returns"
            ) from None
        if not numbers or (context is not None and len(numbers) > context):
            most = "at least 1 id" if context is None else f"between 1 and {context} ids (the context)"
            raise UserError(f"logits takes {most}, not {len(numbers)}")
        refuse_if(
            min(numbers) < 0 or max(numbers) >= self.model.model_config.vocabulary,
            f"ids must be from 0 to {self.model.model_config.vocabulary - 1}, the vocabulary",
        )
        model, objective = self.model, self.model.objective or Objective()
        if model.scored in ("by blanks", "not at all"):
            objective = filling_objective(model, "logits")
        elif model.scored != "in turn":
            need_trained_head(model, "logits")
        trunk = model.trunk.eval()
        ids_1T = torch.tensor([numbers], device=next(trunk.parameters()).device)
        with torch.no_grad():
            logits = objective.eval().logits(trunk, ids_1T, model.info.direction).float().cpu().numpy()
        unpredicted = model.model_config.vocabulary - logits.shape[1]  # words that the model reads but never predicts
        return np.pad(logits, ((0, 0), (0, unpredicted)), constant_values=-np.inf) if unpredicted else logits

    def perplexity(
        self,
        texts: str | Sequence[str],
        stride: int | None = None,
        progress: Progress | None = None,
        reporter: Reporter | None = None,
        memory: int | None = None,
    ) -> Perplexity:
        """Perplexity per token and per word, and bits per byte; each text is a document. For a masked system it is
        pseudo-perplexity: each token is masked alone, and the model reads its window once per token. For ELMo it is the
        mean of both directions, for XLNet the left-to-right order. `memory`: tokens of memory for Transformer-XL, if
        not as configured."""
        return perplexity(self.model, given_texts(texts, "texts"), stride, progress, reporter, memory)

    def fill(self, text: str, top: int = 5) -> Filled:
        """The `top` best pieces for each blank of `text` ([MASK]; <mask> for RoBERTa and XLNet), with probabilities."""
        return fill(self.model, _one_text(text, "text"), top)

    def stream(
        self,
        prompt: str = "",
        max_tokens: int = 100,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int | None = None,
        stop: str | Sequence[str] = (),
        repetition_penalty: float = 1.0,
    ) -> Iterator[str]:
        """The continuation of `prompt`, piece by piece. It starts with a space if one belongs between the two."""
        sampling = Sampling(max_tokens, temperature, top_k, top_p, seed, _stops(stop), repetition_penalty)
        return generate_text(self.model, _one_text(prompt, "prompt"), sampling)

    def facing(self, direction: str) -> LanguageModel:
        """The same model reading in the other direction, for systems with both (ELMo):
        `lm.facing("backward").generate(…)` writes what comes before a prompt."""
        return LanguageModel(facing(self.model, direction), self.path)

    def generate(
        self,
        prompt: str = "",
        max_tokens: int = 100,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int | None = None,
        stop: str | Sequence[str] = (),
        repetition_penalty: float = 1.0,
    ) -> str:
        """The continuation of `prompt`; for a right-to-left model, the text before it. It includes the space between
        the two."""
        return "".join(self.stream(prompt, max_tokens, temperature, top_k, top_p, seed, stop, repetition_penalty))

    def generate_many(
        self,
        prompts: Sequence[str],
        max_tokens: int = 100,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int | None = None,
        stop: str | Sequence[str] = (),
        repetition_penalty: float = 1.0,
    ) -> list[Written]:
        """Continuations of several prompts at once, with each token's log-probability and how each one ended."""
        sampling = Sampling(max_tokens, temperature, top_k, top_p, seed, _stops(stop), repetition_penalty)
        return list(write_in_turn(self.model, given_texts(prompts, "prompts"), sampling))

    def beam_search(
        self,
        prompt: str,
        beams: int = 4,
        max_tokens: int = 100,
        stop: str | Sequence[str] = (),
        repetition_penalty: float = 1.0,
    ) -> list[tuple[Written, float]]:
        """The best continuations that a search with this many beams finds, best first, with their scores."""
        sampling = Sampling(max_tokens, stop=_stops(stop), repetition_penalty=repetition_penalty)
        return beam_search(self.model, _one_text(prompt, "prompt"), beams, sampling)

    def translate(self, texts: str | Sequence[str], beams: int = 5, progress: Progress | None = None) -> list[str]:
        """A translation of each text, by a run that was trained to translate (cove). One beam is greedy search."""
        return translate_lines(self.model, given_texts(texts, "texts"), beams, progress)

    def translation_attention(
        self,
        texts: str | Sequence[str],
        targets: str | Sequence[str] | None = None,
        beams: int = 5,
        progress: Progress | None = None,
    ) -> list[TranslationAttention]:
        """For each text, where the decoder attends when it writes each target word: `weights` [target words, source
        words]. The translation is the run's own, as from `translate`, or the one in `targets`."""
        given = None if targets is None else given_texts(targets, "targets")
        return translation_attention(self.model, given_texts(texts, "texts"), beams, given, progress)

    def translation_scores(
        self,
        source: str | Path,
        target: str | Path,
        beams: int = 5,
        language: str = "",
        errors: str = "strict",
        progress: Progress | None = None,
    ) -> TranslationScores:
        """Loss, perplexity and BLEU on two files; line n of the one is the translation of line n of the other.
        `language`: the target language, if BLEU must segment it (zh, ja, ko)."""
        return score_files(self.model, source, target, beams, language, errors, progress)

    @property
    def knowledge(self) -> TextKnowledge | None:
        """The run's word-level knowledge, if its system has any: words, vectors, counts, topics."""
        return knowledge_in(self.model)

    def nearest(
        self, words: str | Sequence[str], n: int = 10, minus: str | Sequence[str] = ()
    ) -> list[tuple[str, float]]:
        """The words whose vectors are nearest to the sum of these words minus those of `minus`, with cosines
        (word2vec)."""
        return self._words.nearest(given_texts(words, "words"), given_texts(minus, "minus"), n)

    def word_scores(self, file: str | Path) -> Similarity | Analogies:
        """How well word vectors (word2vec) agree with people, on a file of scored word pairs or of analogies."""
        return judged_file(self._words, Path(file))

    @cached_property
    def _words(self) -> WordSpace:
        """The run's word vectors, or those learned beside it; UserError if there are none."""
        beside = own_words(self.path)
        model = self.model if beside is None else pretrained_model(beside)
        return WordSpace(*words_of(model, model.where), model.where)

    def finetune(
        self,
        rows: Any,
        *,
        task: str,
        valid: Any = None,
        out: str | Path | None = None,
        seed: int = 0,
        epochs: int | None = None,
        plan: str | None = None,
        lm_weight: float | None = None,
        layers: int | None = None,
        from_scratch: bool = False,
        columns: dict[str, str] | None = None,
        format: str | None = None,
        metric: str | None = None,
        hold_out: float | None = None,
        unlabelled: Sequence[str] | None = None,
        also: Sequence[OtherTask] = (),
        views: Sequence[str] | None = None,
        vectors: str | Path | None = None,
        sets: Sequence[str | Setting] = (),
        resume: bool = False,
        device: str = "auto",
        reporter: Reporter | None = None,
        stopping: StopRequest | None = None,
    ) -> TaskModel:
        """Fine-tune the model on a task.

        `rows`: a file, or data as `rows_from` takes it (tagging: `sentences_from`, span: `questions_from`). `plan`: a
        way of transfer (gpt, ulmfit), or `paper`: as in the system's own paper. `metric`: what chooses the best epoch,
        if not the layout's or the task's own. `hold_out`: the share of rows to validate on if `valid` is None (default
        .15); 0 trains on all rows and keeps the last epoch.

        `views` (ngrams, lsa, vectors, states): one head reads these views of each row, and the trunk is not trained.
        With `tuned` among them the trunk is trained too; with () it is trained alone. `vectors`: with `views`, the
        word2vec run that lsa and vectors come from; otherwise a file of word vectors, or such a run, for a task model
        (elmo, cove) to read beside the states.

        `unlabelled`: with views, texts that teach one more view (None: the text of pre-training, unless `views` is
        given; (): none). For a system that learns from rows and text together (cvt), sentences as from
        `read_sentences`. `also`: further tasks, for such a system.
        """
        named = None if views is None else ",".join(views) or NO_VIEWS
        request = replace(
            finetune_request(self.model, rows, task, valid, columns, format, named, out),
            seed=seed,
            epochs=epochs,
            plan=plan,
            lm_weight=lm_weight,
            layers=layers,
            from_scratch=from_scratch,
            metric=metric,
            hold_out=hold_out,
            unlabelled=as_sentences(unlabelled or (), "unlabelled"),
            own_text=unlabelled is None and views is None,
            also=as_tasks(also),
            sets=tuple(sets),
            resume=resume,
            device=device,
        )
        request = with_vectors_beside(request, vectors, (reporter or Reporter()).note)
        return finetuned(request, reporter, stopping)


def finetune_request(
    base: SavedModel | Base,
    rows: Any,
    task: str,
    valid: Any,
    columns: dict[str, str] | None,
    format: str | None,
    views: str | None,
    out: str | Path | None,
) -> FinetuneRequest:
    """A request for rows as a Python user gives them: a file, or data. `views`: as in `--views`."""
    format = layout_name(format)
    kind = kind_of(task, format)
    return FinetuneRequest(
        base=base,
        rows=as_rows(rows, kind, columns, format),
        kind=kind,
        out=None if out is None else Path(out),
        valid=None if valid is None else as_rows(valid, kind, columns, format),
        columns=columns,
        format=format,
        views=views_named(views),
        own_text=views is None,
    )


def finetuned(request: FinetuneRequest, reporter: Reporter | None, stopping: StopRequest | None) -> TaskModel:
    """Carries out a request."""
    return TaskModel(finetune(request, reporter, stopping).model, request.out)


def _one_text(given: Any, name: str) -> str:
    refuse_if(not isinstance(given, str), f"{name} must be a text, not {type(given).__name__}")
    return given


def _stops(given: str | Sequence[str]) -> tuple[str, ...]:
    return tuple(given_texts(given, "stop"))
