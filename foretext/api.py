"""The Python interface: `import foretext as ft`.

lm = ft.pretrain("reviews/*.txt", minutes=10, out="runs/base")
lm.perplexity(["A text."]).per_token
lm.generate("Once upon", max_tokens=40)
clf = lm.finetune("train.csv", task="classification", out="runs/clf")
clf.predict(["a text", "another"])
ft.load("runs/clf").evaluate("test.csv").values
"""

from __future__ import annotations

import json
import operator
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from foretext.batch import Batch
from foretext.config import Setting
from foretext.errors import UserError
from foretext.evaluate.both_ways import perplexity_of_both
from foretext.evaluate.features import LayerMix, WordVectors, text_vectors, word_vectors
from foretext.evaluate.fill import Filled, fill, masked_objective
from foretext.evaluate.perplexity import Perplexity, memory_of
from foretext.evaluate.perplexity import perplexity as measure_perplexity
from foretext.evaluate.pseudo import pseudo_perplexity
from foretext.evaluate.translation import TranslationScores, score_files, translate_lines
from foretext.generate.decode import Sampling, generate_text
from foretext.generate.many import Written, beam_search, write_many
from foretext.generate.translate import Search
from foretext.nn.predict import token_logits
from foretext.objectives.bilm import BilmObjective
from foretext.objectives.permutation import PermutationObjective, left_to_right
from foretext.tasks.families import family_of
from foretext.tasks.family import Encoded, Reading
from foretext.tasks.metrics import Scores, check_metric, with_main
from foretext.tasks.predictions import Predictions
from foretext.tasks.remembered import layout_name
from foretext.tasks.rows import Row
from foretext.train.budget import Budget
from foretext.train.examples import encode
from foretext.train.finetune import FinetuneRequest, finetune
from foretext.train.finetune_request import OtherTask
from foretext.train.fresh import fresh_model
from foretext.train.pretrain import pretrain as run_pretraining
from foretext.train.pretrain_request import PretrainRequest
from foretext.train.report import Reporter
from foretext.train.saved import SavedModel, load_model, reach_of
from foretext.train.scoring import example_scores
from foretext.train.signals import StopRequest
from foretext.train.trained_head import need_trained_head

Progress = Callable[[int, int], None]


class LanguageModel:
    """A pre-trained run."""

    def __init__(self, model: SavedModel, path: Path) -> None:
        self.model = model
        self.path = path

    def logits(self, ids: Sequence[int]) -> np.ndarray:
        """For each position the scores of the next token, or (masked systems) of the token that stands there, or
        (XLNet) of that token by those before it: float32 [len(ids), vocabulary]."""
        context = reach_of(self.model)
        try:
            numbers = [operator.index(number) for number in ids]
        except TypeError:
            raise UserError("logits takes token ids, whole numbers as lm.model.tokenizer.encode(text) gives") from None
        if not numbers or (context is not None and len(numbers) > context):
            most = "at least 1 id" if context is None else f"between 1 and {context} ids (the context)"
            raise UserError(f"logits takes {most}, not {len(numbers)}")
        if min(numbers) < 0 or max(numbers) >= self.model.model_config.vocabulary:
            raise UserError(f"ids must be from 0 to {self.model.model_config.vocabulary - 1}, the vocabulary")
        trunk = self.model.trunk
        device = next(trunk.parameters()).device
        with torch.no_grad():
            if isinstance(self.model.objective, PermutationObjective):
                need_trained_head(self.model, "logits")
                states = trunk(left_to_right([numbers], [len(numbers)]).to(device)).top[0]
                return self.model.objective.token_logits(trunk, states).float().cpu().numpy()  # type: ignore[arg-type]
            top = trunk(Batch(torch.tensor([numbers], device=device))).top[0]
            if not self.model.system.causal:
                scores = masked_objective(self.model, "logits").eval().token_logits(trunk, top)  # type: ignore[arg-type]
                return scores.float().cpu().numpy()
            return token_logits(trunk, top).float().cpu().numpy()

    def perplexity(
        self,
        texts: str | Sequence[str],
        stride: int | None = None,
        progress: Progress | None = None,
        reporter: Reporter | None = None,
        memory: int | None = None,
    ) -> Perplexity:
        """Perplexity per token and per word, and bits per byte; each text is a document. Of a masked system
        pseudo-perplexity: each token is masked alone, which takes a reading of its window for every token. Of one that
        reads both ways, each by itself (ELMo): of both directions together. Of XLNet: of the left-to-right order.
        `memory`: how many tokens before each Transformer-XL sees, if not as many as it was configured with."""
        given = _texts(texts, "texts")
        memory_of(self.model, memory)
        if self.model.system.causal or isinstance(self.model.objective, PermutationObjective):
            return measure_perplexity(self.model, given, stride, progress, reporter, memory)
        if stride is not None:
            raise UserError(f"stride is for models that read in one direction, not {self.model.system.name}")
        if isinstance(self.model.objective, BilmObjective):
            return perplexity_of_both(self.model, given, progress, reporter)
        return pseudo_perplexity(self.model, given, progress, reporter)

    def fill(self, text: str, top: int = 5) -> Filled:
        """The best `top` pieces for each blank ([MASK]; <mask> for RoBERTa and XLNet) of `text`, with probabilities."""
        if not isinstance(text, str):
            raise UserError(f"text must be a text, not {type(text).__name__}")
        return fill(self.model, text, top)

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
        """The continuation of `prompt`, piece by piece; it begins with the space that belongs between them, if any."""
        if not isinstance(prompt, str):
            raise UserError(f"prompt must be a text, not {type(prompt).__name__}")
        stops = tuple(_texts(stop, "stop"))
        sampling = Sampling(max_tokens, temperature, top_k, top_p, seed, stops, repetition_penalty)
        return generate_text(self.model, prompt, sampling)

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
        """The continuation of `prompt` (a right-to-left model: what stands before it): the two put together read
        right."""
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
        """Continuations of several prompts at once, with the log-probability of each token and how each ended."""
        stops = tuple(_texts(stop, "stop"))
        sampling = Sampling(max_tokens, temperature, top_k, top_p, seed, stops, repetition_penalty)
        return write_many(self.model, _texts(prompts, "prompts"), sampling)

    def beam_search(
        self,
        prompt: str,
        beams: int = 4,
        max_tokens: int = 100,
        stop: str | Sequence[str] = (),
        repetition_penalty: float = 1.0,
    ) -> list[tuple[Written, float]]:
        """The most likely continuations that a search with so many beams finds, best first, and their scores."""
        if not isinstance(prompt, str):
            raise UserError(f"prompt must be a text, not {type(prompt).__name__}")
        stops = tuple(_texts(stop, "stop"))
        return beam_search(self.model, prompt, beams, max_tokens, 1.0, stops, repetition_penalty)

    def translate(self, texts: str | Sequence[str], beams: int = 5, progress: Progress | None = None) -> list[str]:
        """A translation of each text, by a run that was trained to translate (cove); one beam is greedy search."""
        return translate_lines(self.model, _texts(texts, "texts"), Search(beams=beams), progress)

    def translation_scores(
        self,
        source: str | Path,
        target: str | Path,
        beams: int = 5,
        language: str = "",
        errors: str = "strict",
        progress: Progress | None = None,
    ) -> TranslationScores:
        """Loss, perplexity and BLEU on two files, line n of one the translation of line n of the other. `language` of
        the target chooses how BLEU tells words apart (zh, ja, ko)."""
        return score_files(self.model, source, target, Search(beams=beams), language, errors, progress)

    def features(
        self,
        texts: str | Sequence[str],
        progress: Progress | None = None,
        reporter: Reporter | None = None,
        layers: Sequence[int] = (),
        weights: Sequence[float] = (),
        each: bool = False,
    ) -> np.ndarray:
        """One vector a text: the mean of its tokens' states, float32 [texts, width]. `layers`: whose states, added up
        with `weights` (none: their mean); 0 is the embeddings; none: the top. `each`: not added up, [texts, layers,
        width]; without `layers` all of them. Where layers are of unequal width `each` gives [texts, layers] of
        vectors, of which `np.stack(found[:, 1])` is [texts, width] of the second."""
        mix = _mix(layers, weights, each)
        found = text_vectors(self.model, _texts(texts, "texts"), progress, reporter, mix)
        return mix.arranged(self.model, found)

    def word_features(
        self,
        texts: str | Sequence[str],
        progress: Progress | None = None,
        reporter: Reporter | None = None,
        layers: Sequence[int] = (),
        weights: Sequence[float] = (),
        each: bool = False,
    ) -> list[WordVectors]:
        """For each text its words, their places in it and a vector for each, the mean of its pieces' states; with
        `each` [words, layers, width], or [words, layers] of vectors, as in `features`."""
        mix = _mix(layers, weights, each)
        found = word_vectors(self.model, _texts(texts, "texts"), progress, reporter, mix)
        return [replace(one, vectors=mix.arranged(self.model, one.vectors)) for one in found]

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
        unlabelled: Sequence[str] = (),
        also: Sequence[OtherTask] = (),
        sets: Sequence[str | Setting] = (),
        resume: bool = False,
        device: str = "auto",
        reporter: Reporter | None = None,
        stopping: StopRequest | None = None,
    ) -> TaskModel:
        """Teaches the model a task. `rows`: a file, or rows as `rows_from` (tagging: `sentences_from`, span:
        `questions_from`) takes them. `plan`: a way of transfer by its name (gpt, ulmfit). `metric`: what the best epoch
        is chosen by, if not the layout's or the task's own. `hold_out`: the part of the rows to validate on where
        `valid` is None, if not .15; 0 trains on all and keeps the last epoch. `unlabelled` (sentences) and `also`
        (other tasks) are for a system that learns from them at once (cvt)."""
        format = layout_name(format)
        request = FinetuneRequest(
            base=self.model,
            rows=as_rows(rows, task, columns, format),
            kind=task,
            out=None if out is None else Path(out),
            valid=None if valid is None else as_rows(valid, task, columns, format),
            seed=seed,
            epochs=epochs,
            plan=plan,
            lm_weight=lm_weight,
            layers=layers,
            from_scratch=from_scratch,
            columns=columns,
            format=format,
            metric=metric,
            hold_out=hold_out,
            unlabelled=tuple(unlabelled),
            also=tuple(also),
            sets=tuple(sets),
            resume=resume,
            device=device,
        )
        return TaskModel(finetune(request, reporter, stopping), None if out is None else Path(out))


def _texts(given: str | Sequence[str], name: str) -> list[str]:
    """One text or several, as a list; `name` is the argument's."""
    if isinstance(given, str):
        return [given]
    if not isinstance(given, Iterable) or isinstance(given, bytes):
        raise UserError(f"{name} must be a text or a list of texts, not {type(given).__name__}")
    texts = list(given)
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise UserError(f"{name}[{number}] is {type(text).__name__}, not text; leave it out, or give a text")
    return texts


def _mix(layers: Sequence[int], weights: Sequence[float], each: bool = False) -> LayerMix:
    try:
        return LayerMix(tuple(map(operator.index, layers)), tuple(map(float, weights)), each)
    except (TypeError, ValueError):
        raise UserError(
            f"layers and weights are lists of numbers, as layers=[0, 4] and weights=[.5, .5], not {layers!r} and "
            f"{weights!r}"
        ) from None


def new_model(
    rows: Sequence[Any],
    system: str = "gpt",
    size: str = "tiny",
    seed: int = 0,
    sets: Sequence[str | Setting] = (),
    reporter: Reporter | None = None,
    task: str = "classification",
    more: Sequence[str] = (),
    also: Sequence[OtherTask] = (),
    vectors: str | Path | None = None,
) -> LanguageModel:
    """A model that has learned nothing, with a vocabulary made of the texts of `rows` (those to train on, without rows
    that are held out), of `more` and of the tasks `also`: to fine-tune from nothing. `vectors`: for cvt, a file of what
    the words' vectors start as."""
    given = [*family_of(task).texts(rows), *(text for one in also for text in family_of(one.kind).texts(one.rows))]
    texts = [Row((text,), None, "a row") for text in given]
    return LanguageModel(fresh_model(system, size, texts, seed, sets, reporter, more, vectors), Path())


class TaskModel:
    """A fine-tuned run."""

    def __init__(self, model: SavedModel, path: Path | None, others: Sequence[TaskModel] = ()) -> None:
        """`others`: what they predict is averaged with this one's."""
        self.model = model
        self.path = path
        self.others = tuple(others)
        self.task = model.task_config.kind
        self.family = family_of(self.task)

    def averaged_with(self, *others: TaskModel) -> TaskModel:
        """A model that predicts the mean of what this one and these predict: ULMFiT's forward and backward model."""
        if not self.family.averages:
            raise UserError(
                f"what several runs say has no mean in {self.task}: --with is for tasks with one label a row; leave it "
                "out"
            )
        for other in others:
            if other.task != self.task or other.labels != self.labels:
                raise UserError(
                    f"{other.path} and {self.path} cannot be averaged: {_taught(other)} and {_taught(self)}; fine-tune "
                    "both on the same rows"
                )
        return TaskModel(self.model, self.path, (*self.others, *others))

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(self.model.task_config.labels)

    @property
    def draws_confusion(self) -> bool:
        """Whether its scores have a confusion matrix."""
        return self.family.draws_confusion(self.model.task_config)

    def rows(
        self,
        data: Any,
        need_labels: bool = False,
        columns: dict[str, str] | None = None,
        format: str | None = None,
    ) -> list[Any]:
        """Rows of a file laid out like the training file or under the task's own column names, or of Python data;
        `columns` or `format` say that a file is laid out otherwise (`format="none"`: by the task's own names)."""
        reading = self.reading(need_labels, columns, format)
        if isinstance(data, str | Path):
            return self.family.read(Path(data), reading).rows
        return self.family.from_data(data, reading)

    def reading(
        self,
        need_labels: bool = False,
        columns: dict[str, str] | None = None,
        format: str | None = None,
        errors: str = "strict",
    ) -> Reading:
        """How this run reads rows: what it remembers of its training file counts where nothing is given."""
        return Reading(self.task, columns, format, self.model.task_config, need_labels, errors)

    def predictions(self, data: Any, progress: Progress | None = None, reporter: Reporter | None = None) -> Predictions:
        """Values and probabilities of a file's rows or of Python data, as `predict` takes them; labels that they may
        have play no part. `reporter` hears of the encoding, and of rows that had to be cut."""
        return self._predictions(self.rows(data), False, progress, reporter)

    def _predictions(
        self, rows: Sequence[Any], labelled: bool, progress: Progress | None, reporter: Reporter | None
    ) -> Predictions:
        assert self.model.task is not None
        encoded, scores = self._scores(rows, labelled, progress, reporter)
        own = self.family.predictions(encoded, scores, self.model.task_config, self.model.task)
        if not self.others:
            return own
        others = [other._predictions(rows, False, progress, reporter) for other in self.others]
        return self.family.averaged([own, *others])

    def predict(self, data: Any, columns: dict[str, str] | None = None, format: str | None = None) -> list[Any]:
        """Class names, numbers of choices (from 1), scores, lists of tags, or texts of answers. `columns`, `format`: as
        in `rows`."""
        return self.family.values(self.predictions(self.rows(data, False, columns, format)))

    def predict_proba(self, data: Any, columns: dict[str, str] | None = None, format: str | None = None) -> np.ndarray:
        """Probabilities [rows, classes], in the order of `labels`; choices in their own order."""
        rows = self.rows(data, False, columns, format)
        _, scores = self._scores(rows, False)
        own = self.family.probabilities(scores, self.model.task_config)
        return np.mean([own, *(other.predict_proba(rows) for other in self.others)], axis=0) if self.others else own

    def evaluate(
        self,
        data: Any,
        progress: Progress | None = None,
        *,
        columns: dict[str, str] | None = None,
        format: str | None = None,
        metric: str | None = None,
        reporter: Reporter | None = None,
    ) -> Scores:
        """The task's metrics on labelled rows; `metric`: the main one, if not that of the fine-tuning."""
        rows = self.rows(data, True, columns, format)
        if metric is not None:
            check_metric(metric, self.family.metrics(self.model.task_config))
        predictions = self._predictions(rows, True, progress, reporter)
        scores = self.family.score(rows, predictions, self.model.task_config)
        return scores if metric is None else with_main(scores, metric)

    def _scores(
        self,
        rows: Sequence[Any],
        labelled: bool,
        progress: Progress | None = None,
        reporter: Reporter | None = None,
    ) -> tuple[Encoded, list[np.ndarray]]:
        if not rows:
            raise UserError("there are no rows to predict")
        assert self.model.task is not None
        device = next(self.model.trunk.parameters()).device
        encoded = encode(rows, self.model, reporter, labelled=labelled)
        return encoded, example_scores(self.model.trunk, self.model.task, encoded.examples, device, progress)


def _taught(model: TaskModel) -> str:
    labels = ", ".join(model.labels[:4]) + (", …" if len(model.labels) > 4 else "")
    return f"{model.task} of {labels}" if labels else model.task


def as_rows(
    data: Any,
    kind: str,
    columns: dict[str, str] | None = None,
    format: str | None = None,
    need_labels: bool = True,
) -> list[Any]:
    """A file's rows, or rows given in Python."""
    family, reading = family_of(kind), Reading(kind, columns, format, need_labels=need_labels)
    return family.read(Path(data), reading).rows if isinstance(data, str | Path) else family.from_data(data, reading)


def load(path: str | Path, device: str = "cpu") -> LanguageModel | TaskModel:
    """The model in a run directory."""
    model = load_model(path, device)
    return LanguageModel(model, Path(path)) if model.task is None else TaskModel(model, Path(path))


def load_language_model(path: str | Path, device: str = "cpu") -> LanguageModel:
    """A pre-trained run; a fine-tuned one is an error."""
    model = load(path, device)
    if not isinstance(model, LanguageModel):
        raise UserError(f"{path} is fine-tuned; here a pre-trained run is wanted")
    return model


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
    reporter: Reporter | None = None,
    stopping: StopRequest | None = None,
) -> LanguageModel:
    """Pre-trains on `texts` (files, folders, globs) or on `documents` (the texts themselves); a system that translates
    (cove) on the lines of `source` and `target`, with the word vectors in `vectors`.

    Without `out` the run lives in a temporary folder. One of `minutes`, `steps` and `tokens` says how long. `start`: a
    run to go on from; `new_vocabulary`: with a vocabulary of the new text.
    """
    if documents is not None and texts:
        raise UserError("give either texts (files) or documents (strings), not both")
    budget = None if minutes is steps is tokens is None else Budget(minutes, steps, tokens)
    folder = Path(tempfile.mkdtemp(prefix="foretext-")) if out is None else Path(out)
    inputs = [texts] if isinstance(texts, str | Path) else list(texts)
    with tempfile.TemporaryDirectory(prefix="foretext-text-") as scratch:
        if documents is not None:
            file = Path(scratch) / "documents.jsonl"
            lines = (json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in documents)
            file.write_text("".join(lines), encoding="utf-8", errors="replace")
            inputs = [file]
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
        )
        path = run_pretraining(request, reporter, stopping)
    return LanguageModel(load_model(path), path)
