"""Look into a run directory without loading its weights: `info` and `tokens`."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

from foretext.config import Change, Json, difference, to_plain
from foretext.errors import counted
from foretext.plan import PAPER, STATES
from foretext.runs.directory import RunDirectory
from foretext.runs.machine import clock, size_text
from foretext.runs.model import load_tokenizer
from foretext.runs.run_config import (
    Budget,
    DataConfig,
    FinetuneConfig,
    PretrainConfig,
    describe_loss,
    has_begun,
    read_config,
    read_position,
)
from foretext.systems import size_named, system_named
from foretext.tasks.family import Encoding, family_of
from foretext.tasks.labelled import LabelSet

Config = PretrainConfig | FinetuneConfig
Pieces = list[tuple[int, str]]


def sequences_of(run: RunDirectory, texts: Sequence[str]) -> list[Pieces]:
    """Ids and pieces of each text; for a fine-tuned run, of the transformed sequences that it makes of them."""
    config = read_config(run)
    tokenizer = load_tokenizer(run, config.run)
    sequences: Sequence[Sequence[int]]
    if isinstance(config, FinetuneConfig):
        build_layout = system_named(config.run.system).build_layout
        layout = build_layout(dict(tokenizer.specials), config.model.reads, config.run.direction)
        sequences = family_of(config.task.kind).sequences(texts, Encoding(config.task, tokenizer, layout))
    else:
        sequences = [tokenizer.encode(text) for text in texts]
    return [[(number, tokenizer.piece(number)) for number in ids] for ids in sequences]


def describe_run(run: RunDirectory) -> dict[str, Json]:
    """Configuration, progress and files of a run."""
    described = {name: to_plain(section) for name, section in read_config(run).by_name().items()}
    if has_begun(run):
        described["position"] = asdict(read_position(run))
    if validation := _last_validation(run):
        described["last validation"] = validation
    described["files"] = run.sizes()
    return described


def _last_validation(run: RunDirectory) -> dict[str, float]:
    validations = [record["validation"] for record in run.metrics() if "validation" in record]
    return {name: value for last in validations[-1:] for name, value in last.items() if name != "main"}


def summary_of(run: RunDirectory) -> str:
    """The same for people: what the run is, how far training has come, and which settings differ from the size's."""
    config = read_config(run)
    info, system = config.run, system_named(config.run.system)
    tokenizer, what, trained = load_tokenizer(run, info), "a pre-trained model", True
    about = [_origin(config.data)] if isinstance(config, PretrainConfig) else _task_lines(config)
    if isinstance(config, FinetuneConfig):
        what, trained = f"a model for {config.task.kind}", config.trains  # trained by the loop
    way = _DIRECTIONS[info.direction] if system.causal else "in both directions at once"
    lines = [
        ("is", f"{what}: {info.system} {info.size}, {system.base if system.learn else way}"),
        ("shape", config.model.describe()),
        ("vocabulary", f"{tokenizer.size:,} pieces of {tokenizer.kind}, special tokens included"),
        *about,
        *([("trained", _progress_of(run, config.budget))] if trained else []),
        *(_view_lines(run, trained) if "views" in config.by_name() else []),
        ("validation", _validation_line(run)),
        ("settings", _own_settings(config) or f"as in {info.system} {info.size}"),
        ("paper", _unlike_the_paper(config) if PAPER in system.sizes and (trained or system.learn is None) else ""),
        ("files", ", ".join(f"{name} {size_text(size)}" for name, size in run.sizes().items())),
    ]
    return "\n".join([str(run.path), *(f"  {name:10}  {value}" for name, value in lines if value)])


def _validation_line(run: RunDirectory) -> str:
    shown = [f"{name} {value:.4g}" for name, value in _last_validation(run).items() if value is not None]
    return "  ".join(shown) + "  (the last)" if shown else ""


def _origin(data: DataConfig) -> tuple[str, str]:
    if data.imported_from is not None:
        return "imported", f"from {data.imported_from}"
    if data.source is not None:
        return "text", f"{data.source} and its translation {data.target}"
    return "text", ", ".join(data.inputs) + (f", starting from {data.starts_from}" if data.starts_from else "")


_DIRECTIONS = {"forward": "left to right", "backward": "right to left"}
_CHUNKS = {"": "", "other": "in a scheme other than IOB"}


def _task_lines(config: FinetuneConfig) -> list[tuple[str, str]]:
    task, transfer = config.task, config.transfer
    began = "new weights" if task.from_scratch else f"the weights of {task.base or 'a model in memory'}"
    if config.views is not None and task.base is None and system_named(config.run.system).learn is not None:
        began = "none: what its head reads was learned from text"
    elif not task.from_scratch and transfer.layers >= 0:
        began += f", only its first {counted(transfer.layers, 'block')}"
    others = (f"{name} ({kind_and_classes.replace(' ', ', ')} classes)" for name, kind_and_classes in task.also.items())
    return [
        ("base", began),
        ("loss", describe_loss(config) if config.trains else ""),
        ("text", f"{task.sentences:,} unlabelled texts beside the rows" if task.sentences else ""),
        ("beside it", ", ".join(others)),
        ("labels", LabelSet(tuple(task.labels)).listing()),
        ("chunks", _CHUNKS.get(task.scheme, f"marked as {task.scheme}")),
        ("answers", "a question may have no answer" if task.unanswerable else ""),
        ("layout", task.format or ""),
        ("chosen by", task.metric or ""),
        ("columns", ", ".join(f"{field}={column}" for field, column in task.columns.items())),
    ]


def _view_lines(run: RunDirectory, tuned: bool) -> list[tuple[str, str]]:
    """What the head reads, each view's share of the scores, and its worth."""
    from foretext.runs.views import INDEX, read_index

    if not run.has(INDEX):  # the fine-tunings without each fold are not finished
        return [("views", "not fitted yet")]
    index = read_index(run)
    shares: Counter[str] = Counter()
    for block, share in index.get("shares", {}).items():
        shares[block.partition(".")[0]] += share
    parts = (f"{view} {share:.0%}" for view, share in shares.most_common())
    scored = {name: value for name, value in index.get("scored", {}).items() if isinstance(value, float)}
    shown = "  ".join(f"{name} {value:.4g}" for name, value in scored.items())
    rivals = "  ".join(f"{name} {value:.4g}" for name, value in index.get("baselines", {}).items())
    return [
        ("views", f"{', '.join(parts)} of the scores{'' if tuned else '; the trunk is not fine-tuned'}"),
        ("scored", f"{shown}  ({index['scored']['rows']})" if shown else ""),
        ("baselines", rivals),
    ]


def _progress_of(run: RunDirectory, budget: Budget | None) -> str:
    if not has_begun(run):
        return f"no checkpoint yet (budget: {budget})"
    position = read_position(run)
    if position.finished and position.step == 0:
        return "elsewhere: the weights were imported"
    done = f"{counted(position.step, 'step')}, {counted(position.tokens, 'token')}, {clock(position.seconds)}"
    best = f"; the weights are those of step {position.best_step:,}" if position.best_step else ""
    return f"{done} (budget: {budget}); {'finished' if position.finished else 'continue with --resume'}{best}"


def _own_settings(config: Config) -> str:
    """Settings of model, tokenizer, objective, training, start and pooling that differ from the size's defaults."""
    parts = ("model", "tokenizer", "objective", "training", "start", "pooling")
    return ", ".join(f"{change.key}={change.new}" for change in _unlike(config, config.run.size, parts))


# These follow from the tokenizer, from training.dropout, and from the text.
_DERIVED = ("model.vocabulary", "model.dropout", "model.lsa_dimensions", "model.lsa_pairs")


def _unlike(config: Config, name: str, parts: tuple[str, ...]) -> list[Change]:
    """The settings in `parts` that differ from those of the size `name`."""
    size, sections = size_named(system_named(config.run.system), name), config.by_name()
    training = size.pretraining if isinstance(config, PretrainConfig) else size.finetuning
    if "start" in sections:
        training = size.onward or size.pretraining
    usual = vars(size) | {"training": training}
    kept = {part: sections[part] for part in parts if part in sections}
    changes = difference({part: usual[part] for part in kept}, kept)
    return [change for change in changes if change.key not in _DERIVED]


_PLAIN = {  # keys that need plainer words
    "transfer.lm_weight": "λ",
    "transfer.thaw": "thawing",
    "transfer.head": "initial head",
    "transfer.rate_decay": "rate decay per layer",
    "transfer.model": "task model",
    "training.rate": "learning rate",
    "training.final_rate": "final rate, as a share of the peak",
    "training.batch_size": "batch size",
    "tokenizer.kind": "tokenizer",
    "tokenizer.size": "vocabulary size",
    "training.beta2": "β₂",
    "training.epsilon": "ε",
    "objective.early": "share of the budget on short sequences",
    "objective.early_length": "length of the short sequences, as a share of the context",
    "objective.grown": "share of the budget until sequences have full length",
    "objective.part": "share of tokens masked",
    "objective.ramp": "steps over which the weight of unlabelled text rises",
    "objective.average": "decay of the averaged weights",
}
# How the machine is used; no paper is about this.
_NOT_OF_A_PAPER = (
    "micro_batch",
    "save_seconds",
    "evaluations",
    "bad_steps",
    "log_samples",
    "sample_megabytes",
    "splitter",
)


def _unlike_the_paper(config: Config) -> str:
    """How a run differs from its system's paper, in plain words: its value, and the paper's in parentheses."""
    if isinstance(config, FinetuneConfig):
        return _finetuned_unlike_the_paper(config)
    differences = _differences(_unlike(config, PAPER, ("model", "tokenizer", "objective", "training", "start")))
    return (
        f"differs from the paper (in parentheses): {', '.join(differences)}"
        if differences
        else "all settings are the paper's"
    )


def _finetuned_unlike_the_paper(config: FinetuneConfig) -> str:
    task, system = config.task, system_named(config.run.system)
    whose, why = ("the paper's", "") if system.finetuned else ("GPT's", "; the paper does not fine-tune")
    views = f"views {', '.join(config.views.kinds)} (none)" if config.views else ""
    if config.views is not None and not config.trains:
        trunk = "as pre-trained" if STATES in config.views.kinds else "left out"
        in_paper = "frozen" if system.sizes[PAPER].transfer.thaw == "never" else "fine-tuned"
        difference = f"{views}, the trunk {trunk} ({in_paper})"
        return f"differs from {whose} settings (in parentheses): {difference}; --plan paper uses {whose}{why}"
    unused = () if config.transfer.model == "recurrent" else ("transfer.reader.",)
    changes = _unlike(config, PAPER, ("training", "transfer", "objective", "pooling"))
    differences = _differences([change for change in changes if not change.key.startswith(unused)])
    epochs = size_named(system, PAPER).epochs
    others = {
        f"epochs {task.epochs} ({epochs})": task.epochs != epochs,
        "weights new (pre-trained)": task.from_scratch and not system.build_head,
        "scores shrunk towards the mean (as predicted)": task.shrinks,
        views: bool(views),
    }
    differences += [text for text, differs in others.items() if differs]
    shape = "; the architecture is not the paper's" if _unlike(config, PAPER, ("model",)) else ""
    if not differences:
        return f"all fine-tuning settings are {whose}{why}{shape}"
    listing = ", ".join(differences)
    return f"differs from {whose} settings (in parentheses): {listing}; --plan paper uses {whose}{why}{shape}"


def _differences(changes: Sequence[Change]) -> list[str]:
    """The differences in plain words. A key of a table inside a section is shown with the table's name."""
    shown = [change for change in changes if change.key.rpartition(".")[2] not in _NOT_OF_A_PAPER]
    words = [
        _PLAIN.get(change.key, change.key.partition(".")[2].replace(".", " ").replace("_", " ")) for change in shown
    ]
    return [f"{name} {change.new} ({change.old})" for name, change in zip(words, shown)]
