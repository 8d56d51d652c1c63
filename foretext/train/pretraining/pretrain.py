"""Pre-training from text to a run directory: vocabulary, token shards, plan, loop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from foretext.config import Change
from foretext.errors import UserError
from foretext.nn.model_config import ModelConfig
from foretext.nn.trunk import Trunk
from foretext.objectives.base import Draw, Objective
from foretext.runs.budget import POSITION, is_finished
from foretext.runs.directory import RunDirectory, RunWriter
from foretext.runs.loss_curve import draw_missing_curve, write_curve
from foretext.runs.machine import check_space, choose_device, out_of_memory_as_user_error, tune_allocator
from foretext.runs.model import (
    DataConfig,
    RunConfig,
    load_model,
    open_run,
    read_config,
)
from foretext.runs.report import Reporter, Silent
from foretext.runs.scoring import mean_losses
from foretext.systems import system_named
from foretext.systems.base import ObjectiveParts, TokenizerConfig, TrainingConfig, TrunkParts
from foretext.text.corpus.readers import ReadOptions, ReadReport, find_files, read_documents
from foretext.text.corpus.shards import ShardManifest, write_shards
from foretext.text.corpus.token_shards import DamagedShards, TokenShards
from foretext.text.tokenizers.base import Tokenizer
from foretext.train.from_run import make_optimizer, take_for_vocabulary, take_weights
from foretext.train.loop import Job, Loop, Stage, step_seed
from foretext.train.planning import (
    Memory,
    check_disk,
    check_memory,
    describe_plan,
    head_size,
    probe_speed,
    sequences_for,
)
from foretext.train.pretraining.pair_text import prepare_pairs
from foretext.train.pretraining.pretrain_request import (
    PretrainRequest,
    micro_batch_of,
    published_tokenizer,
    resolved_sections,
)
from foretext.train.pretraining.run_setup import Preparing
from foretext.train.resume import finished, going_on
from foretext.train.signals import NeverStop, StopRequest
from foretext.train.starting_over import TOKENS, starts_over, writing
from foretext.train.vocabulary import new_tokenizer, with_end

VALID_TOKENS = 32768
VALID_ROWS = 16
LITTLE_TEXT = 100_000  # bytes
MORE_TEXT = "give more text, or a shorter context: --set model.context=…"


def pretrain(request: PretrainRequest, reporter: Reporter | None = None, stopping: StopRequest | None = None) -> Path:
    """Pre-trains, or goes on with, the run at `request.out`; returns its path."""
    reporter = reporter or Silent()
    stopping = stopping or NeverStop()
    run = open_run(request.out)
    over = starts_over(run, request.resume)
    changes: list[Change] = []
    sections = resolved_sections(request, run, changes.append)
    if is_finished(run):
        reporter.note(finished(run.path, changes, f"; to train on: {_onward(run)}"))
        draw_missing_curve(run, reporter.note)
        return run.path
    for change in changes:
        reporter.note(going_on(change))
    if request.start is None and not (request.resume and run.has("config.toml")):  # else nothing can be done about it
        for remark in sections["model"].remarks():
            reporter.note(remark)
    if choose_device(request.device).type == "cpu":
        check_memory(Memory(sections["model"], micro_batch_of(sections), sections["model"].context))
    work = Preparing(request, sections, reporter, stopping)
    tune_allocator()
    with writing(run, reporter.note, over) as writer, out_of_memory_as_user_error(micro_batch_of(sections)):
        try:
            prepare = prepare_pairs if system_named(sections["run"].system).reads == "pairs" else _prepare_text
            prepare(work, run, writer)
            loop = _make_loop(work, run, writer, stopping)
        except DamagedShards as error:
            raise UserError(f"{error.fault}; {_shards_again(run)}") from None
        loop.restore()
        loop.run()
        write_curve(run)
    return run.path


def _onward(run: RunDirectory) -> str:
    """The command that trains on from a run, with more of what its system reads."""
    pairs = system_named(read_config(run)["run"].system).reads == "pairs"
    text = "--source FILE --target FILE" if pairs else "TEXT"
    return f"pretrain {text} --from {run.path} --out ANOTHER"


def _shards_again(run: RunDirectory) -> str:
    """What to do about damaged shards. With a checkpoint new ones might be of a text that has changed since."""
    if run.has(POSITION):
        return f"put a copy back, or go on in a new run: {_onward(run)}"
    return f"delete {run.path / TOKENS} and give --resume: they are made again from the text"


# -- text ------------------------------------------------------------------------------------------------------------


def _prepare_text(work: Preparing, run: RunDirectory, writer: RunWriter) -> None:
    """Vocabulary and shards; both are kept, so that going on does not make them again."""
    data: DataConfig = work.sections["data"]
    begun_before = work.take_up(run)
    if not begun_before:
        _check_length(work)
        work.name_vocabulary(_make_tokenizer(work))
    assert work.tokenizer is not None
    folder = run.path / TOKENS
    if not begun_before or not work.has_shards(run):
        files = find_files(data.inputs)
        check_space(run.path, sum(file.size * (2 if file.packed else 1) for file in files))
        begun = time.perf_counter()
        manifest = write_shards(
            files,
            ReadOptions(data.column, data.documents, data.errors),
            work.tokenizer,
            folder,
            seed=work.sections["run"].seed,
            valid_fraction=data.valid_fraction,
            progress=lambda done, total: work.progress("encoding", done, total),
        )
        took = time.perf_counter() - begun
        train = manifest.splits["train"]
        documents = 1 if manifest.split_by == "tokens" else train.documents + manifest.splits["valid"].documents
        work.reporter.note(
            f"text: {documents:,} document{'' if documents == 1 else 's'} ({manifest.rule}), "
            f"{train.tokens:,} tokens to train on, {manifest.splits['valid'].tokens:,} to validate; "
            f"encoded in {took:.1f} s"
        )
        if lopsided := _lopsided(manifest, data.valid_fraction):
            work.reporter.note(lopsided)
        if manifest.replaced:
            work.reporter.note(f"{manifest.replaced:,} bytes that are not UTF-8 were replaced")
        _check_tokens(manifest, work.sections)
    work.keep(run, writer)


def _lopsided(manifest: ShardManifest, fraction: float) -> str | None:
    """What to say if a long document has fallen to validation. Documents are never cut to avoid it."""
    train, valid = manifest.splits["train"].tokens, manifest.splits["valid"].tokens
    share = valid / (train + valid)
    if share <= max(0.25, 2 * fraction):
        return None
    return (
        f"{share:.0%} of the text are for validation (wanted: {fraction:.0%}), because a long document is among them; "
        "another --seed draws anew, or cut long documents into several"
    )


def _check_length(work: Preparing) -> None:
    """Too little text is refused before a vocabulary is made of it. A token is a byte or more, and one ends each
    document; only what is so short that it is read in no time is looked at."""
    data: DataConfig = work.sections["data"]
    context = work.sections["model"].context
    files = find_files(data.inputs)
    if sum(file.size for file in files) > LITTLE_TEXT:
        return
    report = ReadReport()
    for _ in read_documents(files, ReadOptions(data.column, data.documents, data.errors), report):
        if report.bytes > context:
            return
    most = report.bytes + report.documents
    if most <= context:
        raise UserError(
            f"{', '.join(data.inputs)}: {report.bytes} bytes of text, at most {most} tokens, fewer than one context of "
            f"{context} and its target; {MORE_TEXT}"
        )


def _check_tokens(manifest: ShardManifest, sections: dict[str, Any]) -> None:
    """The text must fill one context, and leave something to validate on."""
    where, context = ", ".join(sections["data"].inputs), sections["model"].context
    train, valid = manifest.splits["train"].tokens, manifest.splits["valid"].tokens
    if train <= context:
        raise UserError(
            f"{where}: {train:,} tokens to train on, fewer than one context of {context} and its target; {MORE_TEXT}"
        )
    if valid < 2:
        raise UserError(f"{where}: {valid} tokens to validate on; give more text, or --set data.valid_fraction=0.5")


def _make_tokenizer(work: Preparing) -> Tokenizer:
    request, data = work.request, work.sections["data"]
    if request.start is not None:
        work.started_model = load_model(request.start)
        if work.sections["start"].vocabulary == "kept":
            return with_end(work.started_model.tokenizer)
    if request.vocabulary is not None:
        return published_tokenizer(request.vocabulary, work.sections["run"].system)
    config: TokenizerConfig = work.sections["tokenizer"]
    files = find_files(data.inputs)
    report = ReadReport()
    documents = read_documents(files, ReadOptions(data.column, data.documents, data.errors), report)
    system = system_named(work.sections["run"].system)
    tokenizer = new_tokenizer(
        system, _watched(documents, report, work), config, work.sections["run"].seed, work.progress
    )
    work.reporter.note(f"vocabulary: {tokenizer.size:,} pieces of {config.kind}")
    return tokenizer


def _watched(documents: Iterable[str], report: ReadReport, work: Preparing) -> Iterator[str]:
    """The documents, with a look at progress and signals every 256 of them and every million characters."""
    characters = 0
    for number, document in enumerate(documents):
        if number % 256 == 0 or characters > 1_000_000:
            work.progress("reading for the vocabulary", report.done_bytes, report.total_bytes)
            characters = 0
        characters += len(document)
        yield document
    work.progress("reading for the vocabulary", 1, 1)


# -- training --------------------------------------------------------------------------------------------------------


def _make_loop(work: Preparing, run: RunDirectory, writer: RunWriter, stopping: StopRequest) -> Loop:
    sections = work.sections
    info: RunConfig = sections["run"]
    training: TrainingConfig = sections["training"]
    model: ModelConfig = sections["model"]
    system = system_named(info.system)
    device = choose_device(work.request.device)
    assert work.tokenizer is not None
    torch.manual_seed(step_seed(info.seed, 0, 1 << 20))
    trunk = system.build_trunk(TrunkParts(model, work.tokenizer)).to(device)
    parts = ObjectiveParts(model, sections["objective"], work.tokenizer, info.direction)
    objective = system.build_objective(parts).to(device)
    ids = objective.ids(work.tokenizer)
    shards = TokenShards.open(run.path / TOKENS, "train", verify=True, ids=ids)
    TokenShards.open(run.path / TOKENS, "valid", verify=False, ids=ids)
    if work.vectors is not None:
        trunk.put_vectors(work.vectors)
    source = sections["data"].starts_from
    if source and not run.has(POSITION):
        started = work.started_model or load_model(source)
        if sections["start"].vocabulary == "kept":
            take_weights(started, trunk, objective, model.vocabulary, source)
        else:
            take_for_vocabulary(started, trunk, objective, work.tokenizer, source, work.reporter.note)
    stages = []
    for until, context in objective.lengths(model.context):
        examples = objective.examples(shards, context, info.seed)
        rows = sequences_for(training.batch_size, model.context, context)
        order = objective.order(examples, rows, info.seed)
        micro = sequences_for(micro_batch_of(sections), model.context, context)
        evaluate = validator(run, trunk, objective, context, info.seed, device)
        stages.append(Stage(examples.example, order, micro, evaluate, until))
    streams = max(len(stage.order.batch(0)[1]) for stage in stages) if objective.carries_state else 0
    job = Job(
        trunk=trunk,
        objective=objective,
        stages=tuple(stages),
        optimizer=make_optimizer(
            training, trunk, objective, sections["start"].rate_decay if source else 1.0, system.piece_rows
        ),
        config=training,
        budget=sections["budget"],
        seed=info.seed,
        device=device,
        carried=model.carried(streams),
    )
    loop = Loop(job, writer, work.reporter, stopping)
    if device.type == "cpu":
        memory = Memory(model, micro_batch_of(sections), model.context, head=head_size(objective), carried=job.carried)
        check_memory(memory, built=True)  # once more: the vocabulary is known, and how many streams the text gives
    check_disk(run, job)
    speeds = [probe_speed(loop, stage) for stage in job.stages]
    work.reporter.plan(
        f"pre-training {system.name} {info.size} into {run.path}",
        describe_plan(loop, speeds, len(shards), model),
    )
    return loop


def validator(
    run: RunDirectory,
    trunk: Trunk,
    objective: Objective,
    context: int,
    seed: int,
    device: torch.device,
) -> Callable[[], dict[str, float]]:
    """Validation loss, and what it is made of, on the same examples of at most `context` tokens each time, drawn in the
    same way: a function of the weights that `trunk` and `objective` have when it is called."""
    shards = TokenShards.open(run.path / TOKENS, "valid", verify=True)
    context = min(context, len(shards) - 1)
    if context < 1:
        raise UserError(f"{run.path}: the validation text has {len(shards)} tokens; give more text")
    examples = objective.examples(shards, context, seed)
    order = objective.order(examples, VALID_ROWS, seed)
    batches = []
    most = max(1, VALID_TOKENS // (VALID_ROWS * objective.usual_length(examples, context)))
    for step in range(min(order.steps_per_epoch, most)):
        epoch, indices = order.batch(step)
        found = [examples.example(epoch, index) for index in indices]
        batches.append(objective.make(found, Draw(seed, epoch, tuple(indices))).to(device))

    def evaluate() -> dict[str, float]:
        losses = mean_losses(trunk, objective, batches)
        values = {"loss": sum(objective.weights[name] * loss for name, loss in losses.items())}
        if len(losses) > 1:
            values |= losses
        if told := [losses[name] for name in objective.perplexity]:
            values["perplexity"] = math.exp(min(sum(told) / len(told), 700.0))
        return values

    return evaluate
