"""Fine-tuning: what is transferred, what is new, which epoch is kept, how it goes on."""

from __future__ import annotations

import itertools
import json
import random
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from complaints import names, refused
from systems_under_test import (
    KINDS,
    LEARNS,
    OWN_MODEL,
    SMALL_READER,
    TINY,
    base_model,
    pairwise,
    pretrain_request,
    shaken_model,
    stopping_after,
    taught,
    tokenizer_of,
    write_text,
)
from tolerance import doubles

from foretext.api import TaskModel
from foretext.config import build_sections
from foretext.errors import Interrupted
from foretext.plan import WAYS, TransferPlan
from foretext.runs.directory import RunDirectory
from foretext.runs.inspection import summary_of
from foretext.runs.machine import clock
from foretext.runs.model import SavedModel, encode, example_scores, load_model
from foretext.runs.report import Reporter
from foretext.runs.run_config import MIXTURE, FinetuneConfig, RunConfig, loss_terms, read_config, read_position
from foretext.systems import SYSTEMS
from foretext.systems.base import TrainingConfig, TrunkParts
from foretext.tasks.family import TaskConfig
from foretext.tasks.files.rows import Row
from foretext.tasks.heads.concat_pooling import ConcatPoolingTask
from foretext.tasks.row_family import score_table
from foretext.train import planning
from foretext.train.finetuning import finetune as module
from foretext.train.finetuning.finetune import FinetuneRequest, finetune
from foretext.train.finetuning.finetune_request import Base
from foretext.train.finetuning.finetune_settings import not_followed
from foretext.train.loop import Loop, Stage, step_seed
from foretext.train.planning import probe_speed
from foretext.train.pretraining.pretrain import pretrain
from foretext.train.resume import agreed

NEW = tokenizer_of("gpt").size  # the first of the rows that fine-tuning adds
NO_DROPOUT = ("training.dropout=0.0", "training.batch_size=4")


def task_scores(model: SavedModel, rows: list[Row]) -> np.ndarray:
    return score_table(example_scores(model, encode(rows, model).examples), model.head.kind)


def rows_of(kind: str, count: int, seed: int = 0) -> list[Row]:
    """Rows whose label a model can read off the text."""
    draw = random.Random(seed)
    rows = []
    for number in range(count):
        good = draw.random() < 0.5 if number > 1 else bool(number)
        word, other = ("good", "bad") if good else ("bad", "good")
        filler = " ".join(draw.choice(["it", "is", "so"]) for _ in range(draw.randint(1, 5)))
        texts: tuple[str, ...] = (f"{filler} {word}",)
        label: Any = "pos" if good else "neg"
        if kind in ("entailment", "similarity"):
            texts = (texts[0], "good")
        elif kind == "choice":
            texts = ("pick good", other, word, *("what",) * draw.randint(0, 2))
            label = int(good)
        elif kind == "regression":
            label = 3.0 + 2.0 * good
        rows.append(Row(texts, label, f"row {number + 1}"))
    return rows


def request_of(kind: str, rows: list[Row] | None = None, **changes: Any) -> FinetuneRequest:
    rows = rows_of(kind, 16) if rows is None else rows
    settings: dict[str, Any] = {"base": base_model(), "rows": rows, "kind": kind, "epochs": 2, "sets": NO_DROPOUT}
    return FinetuneRequest(**(settings | changes))


@pytest.fixture
def untrained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fine-tuning that stops short of the first step: what remains is how the model was put together."""
    monkeypatch.setattr(Loop, "run", lambda self: self.position)


@pytest.mark.parametrize(
    ("size", "rows", "epochs"),
    [("paper", 24, 3), ("paper", 2000, 3), ("tiny", 24, 20), ("tiny", 160, 10), ("tiny", 2000, 6), ("small", 160, 10)],
)
@pytest.mark.usefixtures("untrained")
def test_few_rows_are_read_more_often_but_not_by_the_papers_size(size: str, rows: int, epochs: int) -> None:
    base = base_model()
    base = replace(base, config=replace(base.config, run=replace(base.info, size=size)))
    sets = ("transfer.head=random",)
    request = request_of("classification", rows_of("classification", rows), base=base, valid=[], epochs=None, sets=sets)
    model = finetune(request).model
    assert model.task_config.epochs == epochs
    assert model.config.budget.steps == epochs * -(-rows // model.config.training.batch_size)


@pytest.mark.parametrize(("system", "kind"), pairwise(taught(KINDS)))
def test_every_kind_learns_and_comes_back_from_disk(system: str, kind: str, tmp_path: Path) -> None:
    rows, (epochs, sets) = rows_of(kind, 16), LEARNS[system]
    base = shaken_model(system, 0.3) if system in OWN_MODEL else base_model(system)  # what stays must tell words apart
    request = request_of(kind, rows, base=base, out=tmp_path / "run", valid=rows, epochs=epochs)
    model = finetune(replace(request, sets=(*NO_DROPOUT, *sets))).model
    run = RunDirectory(tmp_path / "run")
    figures = [row["validation"]["loss"] for row in run.metrics() if "validation" in row]
    assert len(figures) == epochs and min(figures) < 0.8 * figures[0]
    again = load_model(tmp_path / "run")
    assert again.task is not None and model.task is not None
    ours = task_scores(model, rows)
    theirs = task_scores(again, rows)
    assert ours.tolist() == theirs.tolist()
    assert not any(name.startswith("training/o") or name.startswith("training/c") for name in run.names())


# -- transfer --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("system", "layers"), pairwise([(system, layers) for system in TINY for layers in (1, None, 0, 2)])
)
def test_exactly_the_first_blocks_and_the_embeddings_are_taken(
    system: str, layers: int | None, untrained: None
) -> None:
    base = base_model(system)
    groups = base.trunk.layer_groups()
    if layers is not None and layers >= len(groups):
        pytest.skip("all layers share one block")
    sets = (*NO_DROPOUT, *(("transfer.thaw=all",) if system in OWN_MODEL else ()))  # what is drawn has to learn
    model = finetune(request_of("classification", base=base, layers=layers, sets=sets)).model
    old, new = base.trunk.state_dict(), model.trunk.state_dict()
    taken = {name for group in groups[: (len(groups) if layers is None else layers + 1)] for name in group}
    taken |= {name for name, _ in base.trunk.named_buffers()}  # what never learns belongs to the embeddings
    for name in old:
        same = torch.equal(new[name][: len(old[name])], old[name])
        constant = old[name].dim() == 1  # norms and biases are drawn equal
        assert same if name in taken else (constant or not same), name


def test_from_scratch_takes_nothing(untrained: None) -> None:
    base = base_model()
    model = finetune(request_of("classification", base=base, from_scratch=True)).model
    old, new = base.trunk.state_dict(), model.trunk.state_dict()
    for name in old:
        assert old[name].dim() == 1 or not torch.equal(new[name][: len(old[name])], old[name]), name
    assert model.model_config.layers == base.model_config.layers
    assert dict(model.tokenizer.specials).items() >= dict(base.tokenizer.specials).items()


def test_special_tokens_are_new_rows_and_the_old_ones_untouched(untrained: None) -> None:
    base = base_model()
    wide = replace(base.model_config, width=256)
    base = replace(base, config=replace(base.config, model=wide), trunk=base.system.build_trunk(TrunkParts(wide)))
    before = {name: tensor.clone() for name, tensor in base.trunk.state_dict().items()}
    model = finetune(request_of("classification", base=base)).model
    table = model.trunk.state_dict()["tokens.weight"]
    specials = [model.tokenizer.specials[name] for name in SYSTEMS["gpt"].specials]
    assert specials == list(range(base.tokenizer.size, base.tokenizer.size + 3))
    fresh = table[specials]
    assert table.shape[0] == base.tokenizer.size + 3
    assert abs(float(fresh.std()) - 0.02) < 0.002 and abs(float(fresh.mean())) < 0.002
    assert float((fresh[0] - fresh[1]).abs().max()) > 0.01
    for name, tensor in base.trunk.state_dict().items():
        assert torch.equal(tensor, before[name]), "the base is left as it was"


@pytest.mark.parametrize("layers", [-2, 3])
def test_layers_that_are_not_there(layers: int) -> None:
    with refused("layers", "2", str(layers)):
        finetune(request_of("classification", layers=layers))


def test_another_seed_draws_another_head(untrained: None) -> None:
    heads = [finetune(request_of("classification", seed=seed)).model.task.head.weight for seed in (0, 0, 1)]
    assert torch.equal(heads[0], heads[1]) and not torch.equal(heads[0], heads[2])


def test_the_plan_reaches_the_optimizer(monkeypatch: pytest.MonkeyPatch) -> None:
    loops: list[Loop] = []
    monkeypatch.setattr(Loop, "run", lambda self: loops.append(self))
    sets = (*NO_DROPOUT, "transfer.rate_decay=2.0", "transfer.thaw=gradual")
    finetune(request_of("classification", sets=sets, epochs=5, valid=[]))
    groups = loops[0].job.optimizer.groups
    assert [group.factor for group in groups] == [0.125, 0.25, 0.5, 1.0]
    assert [group.thaws_at for group in groups] == [12, 8, 4, 0], "one more in each of the epochs of four steps"
    *head, new = groups[-1].names
    assert all(name.startswith("task.head") for name in head) and new == f"trunk.tokens.weight[{NEW}:]"
    whole = {name.partition("[")[0] for group in groups for name in group.names}
    assert whole == set(loops[0].job.optimizer.parameters)


def moved_rows(base: SavedModel | None, model: SavedModel) -> dict[str, set[int]]:
    """Of each of the trunk's weights, the rows that are neither those of the base nor, where it has none, as drawn."""
    torch.manual_seed(step_seed(0, 0, 1 << 20))
    drawn = model.system.build_trunk(TrunkParts(model.model_config, model.tokenizer)).state_dict()
    known = {} if base is None else base.trunk.state_dict()
    moved = {}
    for name, new in model.trunk.state_dict().items():
        old = drawn[name]
        if name in known:
            old[: len(known[name])] = known[name]
        moved[name] = {row for row in range(len(new)) if not torch.equal(old[row], new[row])}
    return moved


@pytest.mark.parametrize("plan", ["ulmfit", None])
def test_fewer_epochs_than_groups_reach_the_bottom(plan: str | None) -> None:
    """Four groups, two epochs of four updates: the embeddings learn for the last quarter."""
    base = base_model()
    sets = (*NO_DROPOUT, "transfer.thaw=gradual", "training.weight_decay=0.0", "training.batch_size=4")
    model = finetune(request_of("classification", base=base, plan=plan, sets=sets, epochs=2, valid=[])).model
    assert all(moved_rows(base, model).values()), "every weight of the trunk has learned"


@pytest.mark.parametrize("thaw", ["gradual", "never"])
def test_new_rows_learn_from_the_first_step(thaw: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start and extract tokens stand in every row of a classification; while the embeddings are frozen, nothing else in
    their table moves. The gradient is that of differences, in float64."""
    with doubles():
        base = base_model()
    steps: list[tuple[torch.Tensor, torch.Tensor]] = []
    real = Loop._step

    def watched(loop: Loop) -> dict[str, float]:
        table = loop.job.trunk.tokens.weight
        before, slope = table.detach().clone(), slopes(loop, table)
        losses = real(loop)
        steps.append((table.detach() - before, slope))
        return losses

    def slopes(loop: Loop, table: torch.Tensor) -> torch.Tensor:
        """∂ loss / ∂ each of the new rows' numbers, by differences."""
        gradient, batches = torch.zeros_like(table[NEW:]), loop.batches(loop.position.step)[1]
        for row, column in itertools.product(range(3), range(table.shape[1])):
            values = []
            for shift in (1e-5, -1e-5):
                with torch.no_grad():
                    table[NEW + row, column] += shift
                    values.append(
                        sum(float(loop.job.objective(loop.job.trunk, b).losses["label"].total) for b in batches)
                    )
                    table[NEW + row, column] -= shift
            gradient[row, column] = (values[0] - values[1]) / 2e-5
        return gradient / sum(len(batch.labels) for batch in batches)

    monkeypatch.setattr(Loop, "_step", watched)
    sets = (*NO_DROPOUT, f"transfer.thaw={thaw}", "training.optimizer=sgd", "training.beta1=0.0", "training.clip=0")
    sets += ("training.weight_decay=0.0", "training.schedule=constant", "training.warmup=0", "training.rate=0.5")
    with doubles():
        finetune(request_of("classification", base=base, lm_weight=0.0, sets=sets, epochs=1, valid=[]))
    for moved, slope in steps[:1]:
        assert not moved[:NEW].any() and moved[NEW].any() and moved[NEW + 2].any(), (
            "the delimiter stands in no text alone"
        )
        assert float((moved[NEW:] + 0.5 * slope).abs().max()) <= 1e-6 * float(slope.abs().max())
    assert thaw == "gradual" or not any(moved[:NEW].any() for moved, _ in steps)


def test_from_scratch_everything_learns_from_the_first_step() -> None:
    """Whatever the plan says, unless the user himself says when to thaw."""
    heard, notes = Reporter(), list[str]()
    heard.note = notes.append  # type: ignore[method-assign]
    sets = (*NO_DROPOUT, "training.weight_decay=0.0", "training.batch_size=16")
    asked = request_of("classification", plan="ulmfit", from_scratch=True, sets=sets, epochs=1, valid=[])
    assert all(moved_rows(None, finetune(asked, heard).model).values()), "in one step"
    names(next(note for note in notes if "thaw" in note), "transfer.thaw=gradual")
    model = finetune(asked).model
    assert model.config.transfer.rate_decay == 1.0, "the lowest layers have as much to learn as the others"
    resumed = replace(asked, plan=None, from_scratch=False), WAYS["ulmfit"].transfer
    assert not_followed(*resumed, True) and not not_followed(*resumed, False), "a resumed run names no plan"
    said = replace(asked, sets=(*sets, "transfer.thaw=gradual", "transfer.rate_decay=2.0"))
    transfer = finetune(said).model.config.transfer
    assert (transfer.thaw, transfer.rate_decay) == ("gradual", 2.0)


@pytest.mark.parametrize(
    ("thaw", "epochs", "parts"),
    [("gradual", 2, ["3 ", "update 6 "]), ("gradual", 8, ["3 ", "update 12 "]), ("never", 2, []), ("all", 2, None)],
)
def test_the_plan_says_what_is_frozen(thaw: str, epochs: int, parts: list[str] | None) -> None:
    heard = Plans()
    sets = (f"transfer.thaw={thaw}", "training.batch_size=4")
    finetune(request_of("classification", sets=sets, epochs=epochs, valid=[]), heard)
    (plan,) = heard.plans
    assert ("frozen" in plan) == (parts is not None)
    if parts:
        names(plan["frozen"], *parts)


def test_a_trunk_that_never_thaws_stays_as_it_was() -> None:
    base = base_model()
    sets = (*NO_DROPOUT, "transfer.thaw=never", "transfer.head=random")
    before = finetune(request_of("classification", base=base, sets=sets, epochs=1, valid=[])).model
    model = finetune(request_of("classification", base=base, sets=sets, epochs=3, valid=[])).model
    old, new = base.trunk.state_dict(), model.trunk.state_dict()
    assert all(torch.equal(old[name], new[name][: len(old[name])]) for name in old)
    assert not torch.equal(before.task.head.weight, model.task.head.weight)


@pytest.mark.parametrize("system", ["gpt", "bert", "ulmfit", "transformer_xl"])
def test_a_plan_by_its_name_is_a_whole_way_of_transfer(system: str, tmp_path: Path, untrained: None) -> None:
    base = base_model(system)
    changes = {"base": base, "sets": ("training.rate=0.002", "pooling.hidden=7"), "out": tmp_path / "run"}
    model = finetune(request_of("classification", plan="ulmfit", **changes)).model
    assert model.config.transfer == TransferPlan(rate_decay=2.6, thaw="gradual", lm_weight=0.0, pooling="concat")
    training = model.config.training
    assert (training.schedule, training.warmup, training.final_rate) == ("linear", 0.1, 1 / 32)
    assert training.rate == 0.002 and training.batch_size == base.system.sizes["tiny"].finetuning.batch_size
    assert isinstance(model.task, ConcatPoolingTask) and model.config.pooling.hidden == 7
    assert read_config(RunDirectory(tmp_path / "run")).pooling == model.config.pooling
    assert model.task.weights.keys() == ({"label", "activation", "temporal"} if system == "ulmfit" else {"label"})
    gpts = finetune(request_of("classification", plan="gpt", base=base, sets=(), lm_weight=0.0)).model
    assert gpts.config.transfer == TransferPlan(lm_weight=0.0) and gpts.config.pooling is None
    assert not isinstance(gpts.task, ConcatPoolingTask)


@pytest.mark.parametrize("plan", [None, "paper"])
@pytest.mark.parametrize("system", TINY)
def test_plan_and_info_name_every_loss(system: str, plan: str | None, tmp_path: Path, untrained: None) -> None:
    scratch = SYSTEMS[system].build_head is not None
    more = {"unlabelled": ["so it is good", "it is so bad"]} if scratch else {}
    heard, out = Plans(), tmp_path / "run"
    asked = request_of("classification", base=base_model(system), plan=plan, sets=(), epochs=1, out=out)
    model = finetune(replace(asked, from_scratch=scratch, **more), heard).model
    terms = loss_terms(model.config)
    assert terms == model.task.weights, "what is said is what is learned by"
    line = heard.plans[0]["loss"]
    words = {"lm": "language model", "label.forward": "forward", "label.backward": "backward"}
    assert all(words.get(name, name) in line for name in terms)
    assert (MIXTURE in line) == (system == "elmo"), "of its mixture of layers"
    assert line in summary_of(RunDirectory(out))


@pytest.mark.parametrize(
    ("system", "kind", "plan", "parts"),
    [
        ("bert", "classification", "gpt", ["--plan gpt", "λ", "0.5", "bert"]),
        ("elmo", "classification", "gpt", []),
        ("gpt", "classification", "gpt", []),
        ("gpt", "classification", "ulmfit", []),
        ("bert", "classification", "paper", []),
        ("bert", "classification", None, []),
    ],
)
def test_a_plan_that_cannot_be_followed_says_so(
    system: str, kind: str, plan: str | None, parts: list[str], untrained: None
) -> None:
    heard, notes = Reporter(), list[str]()
    heard.note = notes.append  # type: ignore[method-assign]
    base = shaken_model(system, 0.1)
    finetune(request_of(kind, base=replace(base), plan=plan, sets=(), epochs=1, valid=[]), heard)
    said = [note for note in notes if "plan" in note]
    assert len(said) == bool(parts)
    if parts:
        names(said[0], *parts)


@pytest.mark.parametrize("size", ["tiny", "small", "paper"])
@pytest.mark.parametrize("system", TINY)
def test_the_papers_plan_is_the_papers_on_any_size(system: str, size: str, tmp_path: Path, untrained: None) -> None:
    base = base_model(system)
    base = replace(base, config=replace(base.config, run=replace(base.info, size=size)))
    paper, scratch = base.system.sizes["paper"], base.system.build_head is not None
    asked = request_of("classification", base=base, plan="paper", sets=(), epochs=None, from_scratch=scratch)
    config = finetune(replace(asked, out=tmp_path / "run")).model.config
    assert config.training == paper.finetuning
    assert config.transfer == (replace(paper.transfer, thaw="all") if scratch else paper.transfer)
    assert config.task.epochs == paper.epochs and config.model.dropout == paper.finetuning.dropout
    if paper.transfer.pooling == "concat":
        assert config.pooling == paper.pooling
    said = dict(line.strip().split(maxsplit=1) for line in summary_of(RunDirectory(tmp_path / "run")).splitlines()[1:])
    assert "(" not in said["paper"] and "differs" not in said["paper"]
    assert ("does not fine-tune" in said["paper"]) == (system in ("gpt2", "modern", "transformer_xl"))
    assert "architecture" in said["paper"], "which is that of a minute model"


def test_info_says_where_the_papers_plan_is_not_the_whole_paper(tmp_path: Path, untrained: None) -> None:
    rows = [Row((f"text {i}", "x"), float(i % 5), f"row {i}") for i in range(12)]
    plain = finetune(FinetuneRequest(base_model(), rows, "regression", epochs=1, out=tmp_path / "plain")).model
    paper = finetune(FinetuneRequest(base_model(), rows, "regression", plan="paper", out=tmp_path / "paper")).model
    assert plain.task_config.shrinks and not paper.task_config.shrinks
    assert "shrunk towards the mean" in summary_of(RunDirectory(tmp_path / "plain"))
    assert "shrunk towards the mean" not in summary_of(RunDirectory(tmp_path / "paper"))
    new = FinetuneRequest(base_model(), rows, "regression", plan="paper", from_scratch=True, out=tmp_path / "new")
    finetune(new)
    assert "weights new (pre-trained)" in summary_of(RunDirectory(tmp_path / "new"))


def test_info_says_in_what_a_run_differs_from_the_paper(tmp_path: Path, untrained: None) -> None:
    finetune(request_of("classification", sets=("training.rate=0.002",), out=tmp_path / "run"))
    said = summary_of(RunDirectory(tmp_path / "run")).partition("  paper")[2].partition("\n")[0]
    names(said, "0.002 (6.25e-05)", "mean (extract)", "probe (random)", "epochs 2 (3)", "--plan paper")
    assert "λ" not in said and "micro" not in said and "save" not in said


@pytest.mark.parametrize("name", ["tiny", "small", "paper"])
def test_the_rate_of_another_way_is_the_sizes(name: str, tmp_path: Path, untrained: None) -> None:
    for system, plan, rate in (
        *(("ulmfit", "gpt", 1e-3), ("ulmfit", "ulmfit", 1e-2), ("ulmfit", None, 1e-2 if name == "paper" else 4e-3)),
        *((("gpt", "ulmfit", 2e-3), ("gpt2", "ulmfit", 2e-3), ("gpt", "gpt", 5e-4)) if name != "paper" else ()),
        *((("transformer_xl", "ulmfit", 2e-3),) if name != "paper" else ()),
    ):
        base = base_model(system)
        sized = replace(base, config=replace(base.config, run=replace(base.info, size=name)))
        out = tmp_path / f"{system}-{plan}"
        request = request_of("classification", base=sized, plan=plan, sets=(), out=out)
        assert finetune(request).model.config.training.rate == rate, (system, plan)
        own = replace(request, sets=("training.rate=0.02",), out=tmp_path / f"{out.name}-own")
        assert finetune(own).model.config.training.rate == 0.02
        again = finetune(replace(own, sets=(), resume=True)).model
        assert again.config.training.rate == 0.02, "a run that goes on keeps its rate"


@pytest.mark.parametrize(
    ("system", "changes", "losses"),
    [
        ("ulmfit", {"plan": "gpt"}, ("label", "lm")),
        ("ulmfit", {"lm_weight": 0.5}, ("label", "lm", "activation", "temporal")),
        ("gpt", {"plan": "ulmfit"}, ("label",)),
        pytest.param(
            *("transformer_xl", {"plan": "ulmfit", "sets": ("pooling.piece=4",)}, ("label",)),
            marks=pytest.mark.thorough,
        ),
    ],
    ids=str,
)
def test_gpts_loss_on_the_lstm_and_ulmfits_plan_on_transformers_learn(
    system: str, changes: dict[str, Any], losses: tuple[str, ...], tmp_path: Path
) -> None:
    """L3 with the LSTM, with either head, and the two blocks over the states of GPT and of Transformer-XL, whose memory
    goes on from piece to piece."""
    rows, out = rows_of("classification", 16), tmp_path / "run"
    sets = ("training.batch_size=4", "training.rate=0.01", "training.dropout=0.0")
    request = request_of("classification", rows, base=base_model(system), valid=rows, epochs=5, sets=sets, out=out)
    model = finetune(replace(request, **(changes | {"sets": (*sets, *changes.get("sets", ()))}))).model
    assert set(model.task.weights) == set(losses)
    figures = [row["validation"]["loss"] for row in RunDirectory(out).metrics() if "validation" in row]
    assert min(figures[1:]) < figures[0]
    again = load_model(out)
    theirs = task_scores(again, rows)
    assert theirs.tolist() == task_scores(model, rows).tolist()


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"plan": "elmo"}, ("--plan elmo", "gpt, ulmfit")),
        (
            {"sets": ("transfer.pooling=concat", "transfer.head=probe")},
            ("transfer.pooling=concat", "transfer.head=probe", "transfer.head=random"),
        ),
        ({"sets": ("pooling.hidden=9",)}, ("pooling.hidden=9", "transfer.pooling=concat")),
        ({"plan": "ulmfit", "sets": ("pooling.hidden=0",)}, ("pooling.hidden", "0")),
    ],
    ids=str,
)
def test_a_plan_that_cannot_be_is_refused_in_one_line(
    changes: dict[str, Any], parts: tuple[str, ...], untrained: None
) -> None:
    with refused(*parts):
        finetune(request_of("classification", **changes))


_BLOCKS = ("norms.0", "linears.0", "norms.1", "linears.1")
_LSTM = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
# ULMFiT's groups, the first to learn first; written out, so that a border that moves is seen.
THAWED = (
    {f"task.head.{part}.{which}" for part in _BLOCKS for which in ("weight", "bias")},
    {f"trunk.layers.2.{part}" for part in _LSTM},
    {f"trunk.layers.1.{part}" for part in _LSTM},
    {f"trunk.layers.0.{part}" for part in _LSTM},
    {"trunk.tokens.weight"},
)


def test_exactly_the_named_groups_move_in_each_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """ULMFiT itself, fine-tuned as in its paper, with the paper's three layers: the head alone, then from the top one
    group more in each epoch, in all of its steps, until everything learns."""
    assert SYSTEMS["ulmfit"].sizes["paper"].transfer == WAYS["ulmfit"].transfer
    base = base_model("ulmfit")
    shape = replace(base.model_config, layers=3)
    torch.manual_seed(0)
    base = replace(base, config=replace(base.config, model=shape), trunk=base.system.build_trunk(TrunkParts(shape)))
    moves: list[tuple[int, set[str]]] = []
    real = Loop._step

    def watched(loop: Loop) -> dict[str, float]:
        before = {name: p.detach().clone() for name, p in loop.model.named_parameters()}
        step, losses = loop.position.step, real(loop)
        after = dict(loop.model.named_parameters())
        moves.append((step, {name for name in before if not torch.equal(before[name], after[name])}))
        return losses

    monkeypatch.setattr(Loop, "_step", watched)
    few = ("training.batch_size=4",)
    finetune(request_of("classification", base=base, plan="ulmfit", epochs=6, valid=[], sets=few))
    assert [step for step, _ in moves] == list(range(6 * 4)), "sixteen rows, four a step"
    for step, moved in moves:
        assert moved == set().union(*THAWED[: step // 4 + 1]), f"step {step}"


def test_lm_weight_is_a_loss_or_none() -> None:
    seen: dict[float, set[str]] = {}

    class Watch(Reporter):
        def step(self, report: Any) -> None:
            seen.setdefault(weight, set()).update(report.losses)

    for weight in (0.0, 0.5):
        module_seconds = pytest.MonkeyPatch()
        module_seconds.setattr("foretext.train.loop.REPORT_SECONDS", 0.0)
        finetune(request_of("classification", lm_weight=weight), Watch())
        module_seconds.undo()
    assert seen == {0.0: {"label"}, 0.5: {"label", "lm"}}
    with refused("lm_weight", "-1.0"):
        finetune(request_of("classification", lm_weight=-1.0))


# -- which epoch -----------------------------------------------------------------------------------------------------


def epochs_of(monkeypatch: pytest.MonkeyPatch, figures: list[float], **changes: Any) -> tuple[list[Any], SavedModel]:
    """Fine-tunes with made-up validation figures; the head after each epoch, and the model that came out."""
    heads: list[Any] = []

    def validator(model: SavedModel, *rest: Any) -> Any:
        def evaluate() -> dict[str, float]:
            heads.append(model.task.head.weight.detach().clone())
            return {"main": figures[len(heads) - 1]} if figures else {}

        return evaluate

    monkeypatch.setattr(module, "_validator", validator)
    return heads, finetune(request_of("classification", epochs=4, **changes)).model


def test_the_best_epoch_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    heads, model = epochs_of(monkeypatch, [0.1, 0.9, 0.5, 0.9])
    assert len(heads) == 4 and torch.equal(model.task.head.weight, heads[1])
    assert not torch.equal(heads[1], heads[3])


@pytest.mark.parametrize(
    ("changes", "best"),
    [
        ({}, 0),
        ({"format": "sst2"}, 0),
        ({"format": "cola"}, 1),
        ({"metric": "matthews"}, 1),
        ({"format": "cola", "metric": "accuracy"}, 0),
    ],
    ids=str,
)
def test_the_metric_chooses_the_epoch(monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], best: int) -> None:
    """After one epoch accuracy is better, after the other Matthews correlation: CoLA's own measure."""
    valid = [Row(("it is good",), "pos" if i < 8 else "neg", f"row {i}") for i in range(10)]
    predicted = [[1] * 10, [1] * 5 + [0] * 5]  # 8 right and no correlation; 7 right with one
    heads: list[Any] = []

    def made_up(model: SavedModel, examples: Any) -> np.ndarray:
        heads.append(model.head.head.weight.detach().clone())
        return np.eye(2)[predicted[len(heads) - 1]]

    monkeypatch.setattr(module, "example_scores", made_up)
    model = finetune(request_of("classification", valid=valid, **changes)).model
    assert len(heads) == 2 and torch.equal(model.task.head.weight, heads[best])
    assert model.task_config.metric == (changes.get("metric") or ("matthews" if best else None))


def scorings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows are scored, each time that some are."""
    seen: list[int] = []

    def counted(model: SavedModel, examples: Any, *rest: Any) -> Any:
        seen.append(len(examples))
        return example_scores(model, examples, *rest)

    monkeypatch.setattr(module, "example_scores", counted)
    return seen


def test_the_best_epoch_is_scored_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen = scorings(monkeypatch)
    made = finetune(request_of("classification", rows_of("classification", 40), out=tmp_path / "run", epochs=3))
    assert len(made.held_out) == 6 and seen == [6] * 3, "once an epoch, and not again at the end"
    assert made.validated is not None and made.scores(Reporter()) is made.validated
    assert made.validated == TaskModel(made.model, None).evaluate(made.held_out)
    assert (tmp_path / "run/confusion.png").exists()


def test_the_best_epochs_scores_are_found_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where the best epoch was in a process that was stopped, and where the run is finished."""
    rows, valid = rows_of("classification", 16), [Row(("it is good",), "pos", "row 1")]  # after one epoch all is right
    sets = (*NO_DROPOUT, "training.rate=0.01", "training.batch_size=4")
    changes = {"valid": valid * 4, "epochs": 4, "sets": sets, "metric": "accuracy"}
    request = request_of("classification", rows, out=tmp_path / "a", **changes)
    with stopping_after(13) as stop, pytest.raises(Interrupted):
        finetune(request, stopping=stop)
    straight, seen = finetune(replace(request, out=tmp_path / "b")), scorings(monkeypatch)
    gone_on = finetune(replace(request, resume=True))
    assert gone_on.validated == straight.validated
    assert read_position(RunDirectory(tmp_path / "a")).best_step < 13
    assert seen == [4, 4], "the last epoch, then the best again"
    done = finetune(replace(request, resume=True))
    assert done.validated is None and seen == [4, 4] and done.scores(Reporter()) == straight.validated


def test_a_run_may_be_named(tmp_path: Path) -> None:
    path = pretrain(pretrain_request("gpt", write_text(tmp_path), tmp_path / "base"))
    loaded = finetune(request_of("classification", base=load_model(path)))
    named = finetune(request_of("classification", base=Base(path)))
    assert torch.equal(named.model.task.head.weight, loaded.model.task.head.weight)
    finetune(request_of("classification", base=Base(path), out=tmp_path / "clf"))
    with refused(str(tmp_path / "clf"), "fine-tuned", "pre-trained"):
        finetune(request_of("classification", base=Base(tmp_path / "clf")))


def test_what_excludes_each_other_is_refused() -> None:
    with refused("--hold-out", "--valid"):
        request_of("classification", valid=[], hold_out=0.1)
    with refused("--system"):
        Base(Path("run"), "gpt")
    with refused("--size", "run", "--system"):
        Base(Path("run"), size="small")


def test_a_metric_that_is_not_measured_is_refused_before_training(untrained: None) -> None:
    for kind, metric, measured in (
        ("classification", "pearson", "accuracy, f1"),
        ("regression", "rmse", "pearson, spearman"),
        ("choice", "f1", "accuracy"),
    ):
        with refused(f"--metric {metric}", measured):
            finetune(request_of(kind, metric=metric))
    three = [replace(row, label=str(number % 3)) for number, row in enumerate(rows_of("similarity", 16))]
    assert finetune(request_of("similarity", three, format="mrpc")).model.task_config.metric is None, (
        "F1 is of two classes"
    )


def test_whether_rows_are_pairs_is_kept(untrained: None) -> None:
    single = rows_of("regression", 16)
    pairs = [replace(row, texts=(*row.texts, "good")) for row in single]
    assert finetune(request_of("regression", single)).model.task_config.texts == 1
    model = finetune(request_of("regression", pairs)).model
    assert model.task_config.texts == 2
    with refused("row 1:", "pairs", "text2"):
        encode(single, model)
    with refused("row 1:", "two"):
        finetune(request_of("regression", single, valid=pairs))


def test_runs_of_earlier_versions_kept_neither_pairs_nor_metric() -> None:
    old = build_sections({"task": TaskConfig}, {"task": {"kind": "regression"}}, "config.toml")
    assert (old["task"].texts, old["task"].metric) == (0, None)
    before = FinetuneConfig(
        RunConfig(), base_model().model_config, training=TrainingConfig(), transfer=TransferPlan(), task=old["task"]
    )
    now = replace(before, task=replace(old["task"], texts=2))
    assert agreed(before, now, Path("run")).task.texts == 2


@pytest.mark.parametrize("rows", [rows_of("classification", 9), rows_of("classification", 16)], ids=len)
def test_with_no_rows_to_validate_on_the_last_epoch_is_kept(monkeypatch: pytest.MonkeyPatch, rows: list[Row]) -> None:
    changes: dict[str, Any] = {"valid": []} if len(rows) > 9 else {}
    heads, model = epochs_of(monkeypatch, [], rows=rows, **changes)
    assert len(heads) == 4 and torch.equal(model.task.head.weight, heads[-1])
    assert not torch.equal(heads[0], heads[-1])


def test_few_rows_train_to_the_end(tmp_path: Path) -> None:
    finetune(request_of("classification", rows_of("classification", 6), out=tmp_path / "run"))
    position = json.loads(RunDirectory(tmp_path / "run").read("training/position.json"))
    assert position["finished"] and position["best"] is None
    assert not [row for row in RunDirectory(tmp_path / "run").metrics() if "validation" in row]


# -- rows and going on -----------------------------------------------------------------------------------------------


def test_a_row_without_a_label_is_named() -> None:
    rows = [*rows_of("classification", 12), Row(("no idea",), None, "train.csv row 13")]
    with refused("train.csv row 13", "label"):
        finetune(request_of("classification", rows))
    with refused("train.csv row 13", "label"):
        finetune(request_of("classification", valid=rows[-1:]))


def stopped(out: Path, **changes: Any) -> FinetuneRequest:
    request = request_of("classification", out=out, **changes)
    with stopping_after(5, 143) as stop, pytest.raises(Interrupted):
        finetune(request, stopping=stop)
    return replace(request, resume=True)


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> FinetuneRequest:
    """To go on with a run that was stopped; for tests in which nothing comes of it."""
    return stopped(tmp_path_factory.mktemp("begun") / "run", valid=rows_of("classification", 4))


@pytest.mark.parametrize(("system", "kind"), pairwise(taught(KINDS)))
def test_every_kind_goes_on_as_if_never_stopped(system: str, kind: str, tmp_path: Path) -> None:
    sets = ("training.batch_size=2", "training.micro_batch=1", "training.dropout=0.2", *SMALL_READER[system])
    request = request_of(kind, rows_of(kind, 4), base=base_model(system), out=tmp_path / "a", valid=[], sets=sets)
    with stopping_after(3) as stop, pytest.raises(Interrupted):  # in the middle of the second epoch
        finetune(request, stopping=stop)
    assert RunDirectory(tmp_path / "a").has("training/optimizer.safetensors")
    finetune(replace(request, resume=True))
    finetune(replace(request, out=tmp_path / "b"))
    a, b = (RunDirectory(tmp_path / name) for name in "ab")
    assert a.read("model.safetensors") == b.read("model.safetensors")


def test_going_on_equals_never_stopping(tmp_path: Path) -> None:
    request = stopped(tmp_path / "a", sets=("training.batch_size=4",))  # with dropout
    finetune(request)
    finetune(replace(request, out=tmp_path / "b", resume=False))
    a, b = (RunDirectory(tmp_path / name) for name in "ab")
    assert a.read("model.safetensors") == b.read("model.safetensors")
    said: list[str] = []

    class Notes(Reporter):
        def note(self, text: str) -> None:
            said.append(text)

    finetune(request, Notes())
    assert any(str(tmp_path / "a") in line and "finished" in line for line in said)


def test_a_signal_while_the_head_is_fitted_leaves_nothing_and_says_so(tmp_path: Path) -> None:
    request = request_of("classification", out=tmp_path / "run", sets=("transfer.head=probe",))
    with refused("again", kind=Interrupted) as stopped:
        finetune(request, stopping=SimpleNamespace(requested=130))
    assert "--resume" not in str(stopped.value)
    finetune(request)


def test_encoding_is_told_and_a_signal_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foretext.text.tokenizers.base.BATCH_DOCUMENTS", 5)
    told: list[tuple[str, int, int]] = []
    stop = SimpleNamespace(requested=None)

    class Heard(Reporter):
        def work(self, title: str, done: int, total: int) -> None:
            told.append((title, done, total))
            if done == 10:
                stop.requested = 130

    rows = rows_of("classification", 12)
    model = finetune(request_of("classification", rows, valid=rows[:4]), Heard()).model
    expected = [("encoding", done, 12) for done in (0, 5, 10, 12)] + [("encoding", done, 4) for done in (0, 4)]
    assert told[:6] == expected
    told.clear()
    TaskModel(model, None).predictions(rows, reporter=Heard())
    assert told == expected[:4]
    told.clear()
    stop.requested = None
    with refused("again", kind=Interrupted):
        finetune(request_of("classification", rows, valid=rows[:4], out=tmp_path / "run"), Heard(), stop)
    assert told == expected[:3] and not (tmp_path / "run").exists()


def test_too_little_disk_is_said_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foretext.runs.machine.free_disk", lambda path: 20_000)
    monkeypatch.setattr("foretext.train.finetuning.finetune.Loop.run", None)
    with refused(str(tmp_path / "run"), "20.0 KB", "--out") as caught:
        finetune(request_of("classification", out=tmp_path / "run"))
    assert caught.value.code == 4 and not (tmp_path / "run").exists()


def test_too_little_memory_is_said_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = request_of("classification", out=tmp_path / "run")  # four rows at a time, though more would fit a part
    monkeypatch.setattr("foretext.train.finetuning.finetune.Loop.run", None)
    model = replace(request.base.model_config, vocabulary=request.base.model_config.vocabulary + 3)
    enough = 20 * model.parameters()  # for the weights, their gradients, the optimiser and the best weights
    for there, remedy in ((1000, ()), (enough, ("--set training.micro_batch=2",))):
        monkeypatch.setattr(planning, "available_memory", lambda there=there: there)
        with refused("RUN", "--size", *remedy) as caught:
            finetune(request)
        assert bool(remedy) == ("training.micro_batch" in str(caught.value)), "the weights alone, or a batch"
        assert caught.value.code == 4 and not (tmp_path / "run").exists()


class Plans(Reporter):
    def __init__(self) -> None:
        self.plans: list[dict[str, str]] = []

    def plan(self, title: str, lines: list[tuple[str, str]]) -> None:
        self.plans.append(dict(lines))


@pytest.mark.usefixtures("untrained")
def test_the_plan_has_tokens_updates_time_memory_and_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "probe_speed", lambda loop, step: 10.0)
    rows, valid, heard = rows_of("similarity", 40), rows_of("similarity", 8, seed=1), Plans()
    model = finetune(request_of("similarity", rows, valid=valid, out=tmp_path / "run"), heard).model
    (plan,) = heard.plans
    tokens, scored = (sum(e.tokens for e in encode(some, model).examples) for some in (rows, valid))
    names(plan["tokens"], f"{tokens:,} ", f"{2 * tokens:,} ")
    names(plan["budget"], "2 epochs", "20 updates", "4 rows")
    names(plan["time"], clock(2 * (tokens + scored / 3) / 10), "10 tokens/s")
    assert all(re.search(r"\d [KM]B", plan[name]) for name in ("memory", "disk"))
    finetune(request_of("similarity", rows, valid=valid), heard)
    assert "disk" not in heard.plans[1]


def test_the_time_of_a_run_that_goes_on_is_what_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "probe_speed", lambda loop, step: 1.0)
    rows, heard = rows_of("classification", 80), Plans()
    request = request_of("classification", rows, valid=[], out=tmp_path / "run")
    for resume, steps in ((False, 10), (True, 1)):
        with stopping_after(steps) as stop, pytest.raises(Interrupted):
            finetune(replace(request, resume=resume), heard, stop)
    tokens = 2 * sum(example.tokens for example in encode(rows, load_model(tmp_path / "run")).examples)
    for plan, seconds in zip(heard.plans, (tokens, 0.75 * tokens), strict=True):
        names(plan["time"], f" {clock(seconds)} ", " 1 tokens/s")


def test_few_updates_are_not_measured_and_measuring_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sets = ("training.batch_size=4", "training.dropout=0.1", "transfer.thaw=gradual")
    probed: list[tuple[int, int]] = []

    def counted(loop: Loop, stage: Stage | None = None, thawed: int = 0, step: int = 0) -> float:
        probed.append((loop.job.budget.steps or 0, thawed))
        return probe_speed(loop, stage, thawed, step)

    monkeypatch.setattr(planning, "probe_speed", counted)
    with monkeypatch.context() as untrained:
        untrained.setattr(Loop, "run", lambda self: self.position)
        for count in (36, 40):
            finetune(request_of("classification", rows_of("classification", count), valid=[], sets=sets))
    assert probed == [(20, 0), (20, 15)], "as the first step learns, and as the last"
    rows = rows_of("classification", 40)
    for name, least in (("measured", 20), ("not", 21)):
        monkeypatch.setattr(planning, "LEAST_TO_PROBE", least)
        finetune(request_of("classification", rows, valid=[], sets=sets, out=tmp_path / name))
    assert probed == 2 * [(20, 0), (20, 15)]
    a, b = (RunDirectory(tmp_path / name).read("model.safetensors") for name in ("measured", "not"))
    assert a == b


def test_nothing_is_held_out_if_so_asked(untrained: None) -> None:
    rows, heard = rows_of("classification", 40), Plans()
    for part in (0.0, 0.5, None):
        finetune(request_of("classification", rows, hold_out=part), heard)
    assert [re.findall(r"\d+", plan["rows"]) for plan in heard.plans] == [["40", "0"], ["20", "20"], ["34", "6"]]


def test_going_on_says_what_is_changed(tmp_path: Path) -> None:
    request = stopped(tmp_path / "run", sets=("training.batch_size=4",))
    said: list[str] = []

    class Notes(Reporter):
        def note(self, text: str) -> None:
            said.append(text)

    finetune(replace(request, sets=(*request.sets, "training.rate=0.0007")), Notes())
    assert any("training.rate" in line and "0.0007" in line for line in said), said


def test_going_on_does_not_fit_the_head_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = stopped(tmp_path / "run", sets=("transfer.head=probe", "training.batch_size=4"))

    def never(*_: object) -> None:
        raise AssertionError("the head was fitted again")

    finetune(replace(request, out=tmp_path / "whole", resume=False))
    monkeypatch.setattr("foretext.tasks.heads.supervised.SupervisedTask.fit_head", never)
    finetune(request)
    a, b = (RunDirectory(tmp_path / name) for name in ("run", "whole"))
    assert a.read("model.safetensors") == b.read("model.safetensors")


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"lm_weight": 0.25}, "transfer.lm_weight"),
        ({"epochs": 3}, "task.epochs"),
        ({"layers": 1}, "transfer.layers"),
        ({"from_scratch": True}, "task.from_scratch"),
        ({"seed": 1}, "run.seed"),
        ({"metric": "matthews"}, "task.metric"),
        ({"sets": ("training.batch_size=8",)}, "training.batch_size"),
    ],
    ids=str,
)
def test_going_on_with_something_changed_is_refused_by_name(begun: FinetuneRequest, changes: dict, key: str) -> None:
    assert begun.out is not None
    before = RunDirectory(begun.out).read("config.toml")
    with refused(str(begun.out), key):
        finetune(replace(begun, **changes))
    assert RunDirectory(begun.out).read("config.toml") == before


def test_going_on_with_other_rows_is_refused(begun: FinetuneRequest) -> None:
    for changes in ({"rows": rows_of("classification", 16, seed=9)}, {"valid": rows_of("classification", 4, seed=9)}):
        with refused(str(begun.out), "rows", "--valid", "--hold-out"):
            finetune(replace(begun, **changes))


def test_going_on_needs_no_setting_said_again(tmp_path: Path) -> None:
    request = stopped(tmp_path / "run", lm_weight=0.25, metric="matthews")
    finetune(replace(request, lm_weight=None, epochs=None, sets=(), metric=None))
    assert load_model(tmp_path / "run").config.transfer.lm_weight == 0.25
    assert load_model(tmp_path / "run").task_config.metric == "matthews"


def test_a_run_is_not_overwritten(tmp_path: Path) -> None:
    request = stopped(tmp_path / "run")
    with refused(str(tmp_path / "run"), "--resume", "--out"):
        finetune(replace(request, resume=False))
