"""Pre-training from text to a run directory: vocabulary, token shards, plan, loop.

A run that continues from another (`pretrain --from RUN`) takes over its weights. With a new vocabulary it takes over
the embeddings of the pieces that both have. ULMFiT's second stage (Howard and Ruder 2018) is such a run: the general
model continues on the target's text, with lower rates for lower layers and, if wanted, a vocabulary of that text. Both
work for every system that says which of its weights have one row per piece.

As in Howard and Ruder's released code, a word in both vocabularies keeps its row of the embeddings, and a new word gets
the mean of all old rows. Two pieces are the same if they stand for the same bytes of text, spaces included, however a
tokenizer writes them: `Ġthe`, `▁the` and WordPiece's `the` all stand for ` the`; WordPiece's `##the` stands for `the`.
Character BPE has the space after a word, so it shares only pieces inside words with other kinds. Special tokens stand
for no text: they match by name, or by purpose (end of a document, unknown piece).

Word vectors are learned beside a language model, from the same text: a word2vec run in the folder `words` of its run.
The trunk does not read them and trains as in its paper. Fine-tuning reads them beside the trunk, because a few minutes
of word vectors learn things that a language model of twenty minutes does not (docs/results.md).
"""

import math
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from foretext.config import Change
from foretext.errors import Interrupted, UserError, refuse_if
from foretext.nn.trunk import Trunk, carried_rows
from foretext.objectives.base import Draw, Objective
from foretext.runs.commit import RunWriter
from foretext.runs.directory import RunDirectory
from foretext.runs.lock import LOCK
from foretext.runs.machine import choose_device, out_of_memory_as_user_error, tune_allocator, using_threads
from foretext.runs.model import WORDS, mean_losses, own_words, put_weights
from foretext.runs.report import Reporter, StopRequest
from foretext.runs.run_config import (
    POSITION,
    Budget,
    DataConfig,
    PretrainConfig,
    is_finished,
    read_config,
    read_position,
)
from foretext.systems import system_named, word_system
from foretext.systems.base import ObjectiveParts, TrunkParts
from foretext.text.corpus.readers import ReadOptions, ReadReport, find_files, read_documents
from foretext.text.corpus.shards import DamagedShards, TokenShards
from foretext.text.tokenizers.base import Tokenizer
from foretext.train.loop import Job, Loop, Stage, step_seed
from foretext.train.optim import make_optimizer
from foretext.train.planning import (
    Memory,
    check_disk,
    check_memory,
    describe_plan,
    head_size,
    probe_speed,
    sequences_for,
)
from foretext.train.pretraining.learner_loop import learn
from foretext.train.pretraining.pretrain_request import NO_VECTORS, PretrainRequest, resolved_config, with_size
from foretext.train.pretraining.run_setup import RunSetup, prepare_pairs, prepare_text
from foretext.train.resume import TOKENS, draw_missing_curve, finished, going_on, starts_over, write_curve, writing

WORDS_FIRST = "first word vectors, which finetune reads beside the model (--vectors none leaves them out)"
VALID_TOKENS = 32768
VALID_ROWS = 16


def pretrain(request: PretrainRequest, reporter: Reporter | None = None, stopping: StopRequest | None = None) -> Path:
    """Pre-trains the run at `request.out`, or resumes it; returns its path."""
    reporter = reporter or Reporter()
    stopping = stopping or StopRequest()
    run = RunDirectory(request.out)
    over = starts_over(run, request.resume)
    changes: list[Change] = []
    request, sized = with_size(request, run)
    config = resolved_config(request, run, changes.append)
    if is_finished(run):
        reporter.note(finished(run.path, changes, f"; to continue training: {_onward(run)}"))
        draw_missing_curve(run, reporter.note)
        return run.path
    for change in changes:
        reporter.note(going_on(change))
    # otherwise there is nothing to draw or forget
    if request.start is None and not (request.resume and run.has("config.toml")):
        for remark in config.model.remarks():
            reporter.note(remark)
    if choose_device(request.device).type == "cpu":
        check_memory(Memory(config.model, config.micro_batch, config.model.context))
    setup = RunSetup(request, run, config, reporter, stopping, sized)
    tune_allocator()
    system = system_named(config.run.system)
    with (
        writing(run, reporter.note, over) as writer,
        out_of_memory_as_user_error(config.micro_batch),
        using_threads(request.threads),
    ):
        if words := words_request(request, config, run):
            reporter.note(WORDS_FIRST)
            forget_tokens(_begun_for(run, words, reporter, stopping))
        try:
            prepare = prepare_pairs if system.learns_from == "pairs" else prepare_text
            prepare(setup, writer)
            if system.learn is not None:
                learn(setup, writer, torch.get_num_threads())
                return run.path
            loop = _make_loop(setup, writer)
        except DamagedShards as error:
            raise UserError(f"{error.fault}; {_shards_again(run)}") from None
        loop.restore()
        loop.run()
        write_curve(run)
    return run.path


def _begun_for(run: RunDirectory, words: PretrainRequest, reporter: Reporter, stopping: StopRequest) -> Path:
    """Learns the word vectors beside `run`. An interrupted user resumes `run`."""
    try:
        return pretrain(words, reporter, stopping)
    except Interrupted as stopped:
        raise Interrupted(stopped.code, str(run.path) if RunDirectory(words.out).exists() else None) from None


def _onward(run: RunDirectory) -> str:
    """The command that continues training from a run on more of what its system reads."""
    pairs = system_named(read_config(run).run.system).learns_from == "pairs"
    text = "--source FILE --target FILE" if pairs else "TEXT"
    return f"pretrain {text} --from {run.path} --out ANOTHER"


def _shards_again(run: RunDirectory) -> str:
    """What to do about damaged shards. If there is a checkpoint, new shards might be of text that has changed since."""
    if run.has(POSITION):
        return f"restore them from a copy, or continue in a new run: {_onward(run)}"
    return f"delete {run.path / TOKENS} and give --resume: they are made again from the text"


def _make_loop(setup: RunSetup, writer: RunWriter) -> Loop:
    """The loop, ready to run; reports its plan."""
    run, config = setup.run, setup.config
    info, training, model = config.run, config.training, config.model
    system = system_named(info.system)
    device = choose_device(setup.request.device)
    torch.manual_seed(step_seed(info.seed, 0, 1 << 20))
    trunk = system.build_trunk(TrunkParts(model, setup.tokenizer)).to(device)
    parts = ObjectiveParts(model, config.objective, setup.tokenizer, info.direction)
    objective = system.build_objective(parts).to(device)
    ids = objective.ids(setup.tokenizer)
    shards = TokenShards.open(run.path / TOKENS, "train", verify=True, ids=ids)
    TokenShards.open(run.path / TOKENS, "valid", verify=False, ids=ids)  # checked before the work begins
    _take_over(setup, trunk, objective)
    stages = []
    for until, context in objective.lengths(model.context):
        examples = objective.examples(shards, context, info.seed)
        order = objective.order(examples, sequences_for(training.batch_size, model.context, context), info.seed)
        micro = sequences_for(config.micro_batch, model.context, context)
        evaluate = validator(run, trunk, objective, context, info.seed, device)
        stages.append(Stage(examples.example, order, micro, evaluate, until))
    streams = max(len(stage.order.batch(0)[1]) for stage in stages) if objective.carries_state else 0
    job = Job(
        trunk=trunk,
        objective=objective,
        stages=tuple(stages),
        optimizer=make_optimizer(
            training, trunk, objective, config.start.rate_decay if config.start else 1.0, system.piece_rows
        ),
        config=training,
        budget=budget_beside(config, run),
        seed=info.seed,
        device=device,
        carried=model.carried(streams),
    )
    loop = Loop(job, writer, setup.reporter, setup.stopping)
    if device.type == "cpu":
        memory = Memory(model, config.micro_batch, model.context, head=head_size(objective), carried=job.carried)
        check_memory(memory, built=True)  # again: the vocabulary and the number of streams are known now
    check_disk(run, job)
    speeds = [probe_speed(loop, stage) for stage in job.stages]
    title = f"pre-training {system.name} {info.size} into {run.path}"
    sized = [("size", setup.sized)] if setup.sized else []
    setup.reporter.plan(title, sized + describe_plan(loop, speeds, len(shards), model))
    return loop


NEW = -1  # marks a piece that the old vocabulary does not have


def _take_over(setup: RunSetup, trunk: Trunk, objective: Objective) -> None:
    """Initial weights from a vector file and from the run to continue from. With another vocabulary, the weights with
    one row per piece keep the rows of shared pieces; new pieces get the mean of all old rows.
    """
    config, where = setup.config, setup.config.data.starts_from
    if setup.vectors is not None:
        trunk.put_vectors(setup.vectors)
    if where is None or config.start is None or setup.run.has(POSITION):
        return
    started, ids = setup.started_model, None
    if config.start.vocabulary == "new":
        ids = old_ids(setup.tokenizer, started.tokenizer)
        setup.reporter.note(
            f"{where} knows {int((ids != NEW).sum()):,} of the vocabulary's {setup.tokenizer.size:,} pieces; the "
            "others start as the mean of its embeddings"
        )
    elif started.model_config.vocabulary < config.model.vocabulary:  # the same vocabulary, extended at its end
        started.trunk.grow_vocabulary(config.model.vocabulary)
    rows = started.system.piece_rows
    put_weights(trunk, _renumbered(started.trunk.state_dict(), "trunk", rows, ids), where)
    if started.objective is not None:
        put_weights(objective, _renumbered(started.objective.state_dict(), "task", rows, ids), where)


def _renumbered(
    state: dict[str, Tensor], part: str, rows: tuple[str, ...], ids: np.ndarray | None
) -> dict[str, Tensor]:
    if ids is None:
        return state
    return {name: carried_rows(x, ids) if f"{part}.{name}".startswith(rows) else x for name, x in state.items()}


def validator(
    run: RunDirectory,
    trunk: Trunk,
    objective: Objective,
    context: int,
    seed: int,
    device: torch.device,
) -> Callable[[], dict[str, float]]:
    """Computes the validation loss and its parts, on the same examples of at most `context` tokens, drawn the same way
    each time. It depends only on the current weights of `trunk` and `objective`."""
    shards = TokenShards.open(run.path / TOKENS, "valid", verify=True)
    context = min(context, len(shards) - 1)
    refuse_if(context < 1, f"{run.path}: the validation text has {len(shards)} tokens; give more text")
    examples = objective.examples(shards, context, seed)
    order = objective.order(examples, VALID_ROWS, seed)
    batches = []
    most = max(1, VALID_TOKENS // (VALID_ROWS * objective.usual_length(examples, context)))
    for step in range(min(order.steps_per_epoch, most)):
        epoch, indices = order.batch(step)
        rows = [examples.example(epoch, index) for index in indices]
        batches.append(objective.make(rows, Draw(seed, epoch, tuple(indices))).to(device))

    def evaluate() -> dict[str, float]:
        losses = mean_losses(trunk, objective, batches)
        values = {"loss": sum(objective.weights[name] * loss for name, loss in losses.items())}
        if len(losses) > 1:
            values |= losses
        if averaged := [losses[name] for name in objective.perplexity]:
            values["perplexity"] = math.exp(min(sum(averaged) / len(averaged), 700.0))
        return values

    return evaluate


def old_ids(new: Tokenizer, old: Tokenizer) -> np.ndarray:
    """For each id of `new`, the id of the same piece in `old`, or `NEW`: int64 [size of `new`]."""
    known = _ids_of_bytes(old)
    special = {*new.specials.values(), new.unknown}
    ids = np.array([NEW if id in special else known.get(new.piece_bytes(id), NEW) for id in range(new.size)])
    same = [(new.unknown, old.unknown), (new.end, old.end)]
    same += [(id, old.specials.get(name)) for name, id in new.specials.items()]
    for ours, theirs in same:
        if ours is not None and theirs is not None:
            ids[ours] = theirs
    return ids


def _ids_of_bytes(tokenizer: Tokenizer) -> dict[bytes, int]:
    """Ids by the bytes that each piece stands for; of two pieces with the same bytes, the first."""
    special = {*tokenizer.specials.values(), tokenizer.unknown}
    last_first = reversed(range(tokenizer.size))
    return {text: id for id in last_first if id not in special and (text := tokenizer.piece_bytes(id))}


# -- word vectors beside the model -------------------------------------------------------------------------------------
SHARE = 0.2  # of a budget in minutes, at most
MINUTES = 1.0  # if the budget is in steps or tokens
LEAST_TEXT = 200_000  # characters; with less text, vectors add nothing to n-grams


def words_request(request: PretrainRequest, config: PretrainConfig, run: RunDirectory) -> PretrainRequest | None:
    """The request that learns the vectors. None: they exist already, are not wanted, or the text is too short."""
    system, folder = system_named(config.run.system), RunDirectory(run.path / WORDS)
    if system.learns_from != "text" or system.learn is not None or run.has(POSITION):
        return None
    begun = request.resume and folder.has("config.toml") and _same_text(folder, config)
    if begun and is_finished(folder):
        return None
    if not begun and folder.exists():  # left by an earlier start
        shutil.rmtree(folder.path)
    if config.data.vectors is not None:
        if config.data.vectors != NO_VECTORS:
            _copy(Path(config.data.vectors), folder.path)
        return None
    return _request_for(folder.path, request, config, begun) if begun or _enough(config.data) else None


def budget_beside(config: PretrainConfig, run: RunDirectory) -> Budget:
    """The budget that the vectors leave."""
    minutes, words = config.budget.minutes, own_words(run.path)
    if minutes is None or words is None or config.data.vectors is not None:
        return config.budget
    return Budget(minutes=max(minutes / 2, minutes - read_position(RunDirectory(words)).seconds / 60))


def _request_for(out: Path, request: PretrainRequest, config: PretrainConfig, resume: bool) -> PretrainRequest:
    minutes, data = config.budget.minutes if config.budget else None, config.data
    return PretrainRequest(
        inputs=data.inputs,
        out=out,
        system=word_system().name,
        budget=Budget(minutes=MINUTES if minutes is None else SHARE * minutes),
        seed=config.run.seed,
        resume=resume,
        column=data.column,
        documents=data.documents,
        errors=data.errors,
        threads=request.threads,
    )


def _enough(data: DataConfig) -> bool:
    options = ReadOptions(column=data.column, documents=data.documents, errors=data.errors)
    return text_length(read_documents(find_files(data.inputs), options, ReadReport())) >= LEAST_TEXT


def _same_text(words: RunDirectory, config: PretrainConfig) -> bool:
    kept = read_config(words)
    return isinstance(kept, PretrainConfig) and kept.data.inputs == config.data.inputs


def text_length(documents: Iterable[str]) -> int:
    """The characters of the text, counted up to `LEAST_TEXT`."""
    count = 0
    for document in documents:
        count += len(document)
        if count >= LEAST_TEXT:
            break
    return count


def forget_tokens(words: Path) -> None:
    """Deletes the token shards of finished vectors; nothing reads them again."""
    shutil.rmtree(words / TOKENS, ignore_errors=True)


def _copy(source: Path, to: Path) -> None:
    run = RunDirectory(source)
    refuse_if(
        not system_named(read_config(run).run.system).learns_words or not is_finished(run),
        f"--vectors {source}: not a finished word2vec run; name one, or leave --vectors out",
    )
    for name in run.names():
        run.read(name)  # verifies the file
    shutil.copytree(source, to, ignore=shutil.ignore_patterns(TOKENS, LOCK))
