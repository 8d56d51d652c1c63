"""XLNet against `transformers` with the same random weights: both streams under given permutation masks and target
mappings, with a memory and without, padded on the left; text read from the right; layers, attention, the gradient of
the pre-training loss; and folders and heads exchanged with it."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import complaints
import pytest
import torch
import torch.nn.functional as F
from complaints import names
from masked_references import (
    CORPUS,
    assert_same_run,
    loaded,
    ordinary_ids,
    refused,
    same_answers,
    shaken,
    there,
)
from tolerance import close
from torch import Tensor, nn
from transformer_terms import forward_terms, gradient_terms

import foretext as ft
from foretext.batch import IGNORE, Batch
from foretext.evaluate.features import text_vectors
from foretext.evaluate.fill import fill
from foretext.evaluate.likelihood import Query, score_queries
from foretext.interop.exchange import export_model, import_model
from foretext.interop.hub import TABLES, _ours, export_hub, model_of
from foretext.interop.hub_tokenizer import tokenizer_files
from foretext.nn.relative.sights import OrderedBatch
from foretext.objectives.base import Draw
from foretext.objectives.permutation import PermutationObjective, left_to_right
from foretext.plan import TransferPlan
from foretext.runs.model import SavedModel
from foretext.runs.run_config import FinetuneConfig, ModelSections, RunConfig
from foretext.systems import SYSTEMS
from foretext.systems.base import ObjectiveParts, TokenizerConfig, TrainingConfig, TrunkParts
from foretext.tasks.family import TaskConfig
from foretext.tasks.heads.supervised import SupervisedTask
from foretext.tasks.heads.token_tasks import SpanExample, SpanTask, TaggedExample, TaggingTask
from foretext.text.order import Stretch
from foretext.text.tokenizers.base import Tokenizer
from foretext.train.pretraining.run_setup import new_tokenizer

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.usefixtures("in_float64")

SYSTEM = SYSTEMS["xlnet"]
SHAPES = [(2, 32, 4, 128), (1, 8, 1, 20), (3, 48, 3, 96)]  # layers, width, heads, inner width
LENGTH = 11


@pytest.fixture(autouse=True)
def _waves_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    """Theirs computes its sinusoids in float32, whatever its weights are in; here in float64 too."""
    real = transformers.XLNetModel.relative_positional_encoding

    def exact(self: Any, *given: Any, **more: Any) -> Tensor:
        with monkeypatch.context() as patch:
            patch.setattr(Tensor, "float", Tensor.double)
            return real(self, *given, **more)

    monkeypatch.setattr(transformers.XLNetModel, "relative_positional_encoding", exact)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return new_tokenizer(SYSTEM, CORPUS, TokenizerConfig("unigram", 120), 0, lambda title, done, total: None)


def reference(shape: tuple[int, ...], vocabulary: int, name: str = "XLNetLMHeadModel", **more: Any) -> Any:
    layers, width, heads, inner = shape
    config = transformers.XLNetConfig(
        vocab_size=vocabulary, n_layer=layers, d_model=width, n_head=heads, d_inner=inner, mem_len=16, **more
    )
    return shaken(getattr(transformers, name)(config).double())  # some of its weights are float32 in any case


def copy_of(theirs: Any, tokenizer: Tokenizer) -> tuple[nn.Module, PermutationObjective]:
    config = model_of(theirs.config.to_dict(), SYSTEM, TABLES["xlnet"], Path("config.json"))
    weights = _ours(dict(theirs.state_dict()), SYSTEM, TABLES["xlnet"], config, "reference", tokenizer)
    trunk = SYSTEM.build_trunk(TrunkParts(config))
    trunk.load_state_dict({name: tensor for name, tensor in weights.items() if not name.startswith("task.")})
    objective = SYSTEM.build_objective(ObjectiveParts(config, SYSTEM.sizes["paper"].objective, tokenizer))
    assert isinstance(objective, PermutationObjective)
    objective.head.bias.data.copy_(weights["task.head.bias"])
    return trunk.eval(), objective.eval()


def same(ours: Any, theirs: Any, shape: tuple[int, ...] = SHAPES[0]) -> None:
    """States, logits or weights of attention. A score has three parts, of content, distance and segment."""
    layers, width, _, inner = shape
    close(ours, theirs, terms=forward_terms(layers, width, inner, 6 + LENGTH) + 2 * layers * width)


def telling(ours: Tensor, theirs: Tensor, shape: tuple[int, ...] = SHAPES[0]) -> None:
    assert theirs.std() > 0.05
    same(ours, theirs, shape)


def drawn(ids_BT: Tensor, asked: int, first: int = 0) -> tuple[OrderedBatch, Tensor, Tensor]:
    """Any order, of which the last so many are asked, none of them before column `first`; the mask of the permutation
    and the mapping of the targets as their model takes them."""
    rows, length = ids_BT.shape
    ranks_BT = torch.rand(rows, length)
    ranks_BT[:, :first] -= 1.0
    ranks_BT = ranks_BT.argsort(1).argsort(1)
    asked_BT = ranks_BT >= length - asked
    batch = OrderedBatch(ids_BT, targets_BT=ids_BT.masked_fill(~asked_BT, IGNORE), ranks_BT=ranks_BT)
    hidden_BTT = (ranks_BT[:, None, :] >= ranks_BT[:, :, None]).double()
    mapping = F.one_hot(asked_BT.nonzero()[:, 1].view(rows, asked), length).double()
    return batch, hidden_BTT, mapping


def asked_logits(trunk: Any, objective: PermutationObjective, batch: OrderedBatch, state: Any = None) -> Tensor:
    assert batch.targets_BT is not None
    asked = batch.targets_BT != IGNORE
    states = trunk(batch, state).top[asked]
    return objective.output_layer(trunk).logits(states).view(len(batch.ids_BT), -1, trunk.config.vocabulary)


# -- logits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("memory", [0, 6], ids=["alone", "after a memory"])
@pytest.mark.parametrize("segments", [False, True], ids=["one segment", "segments"])
def test_the_query_stream(shape: tuple[int, ...], memory: int, segments: bool, tokenizer: Tokenizer) -> None:
    theirs = reference(shape, tokenizer.size)
    trunk, objective = copy_of(theirs, tokenizer)
    past, ids = ordinary_ids(tokenizer, 3, 6), ordinary_ids(tokenizer, 3, LENGTH)
    batch, hidden, mapping = drawn(ids, 4)
    parts = torch.randint(3, ids.shape) if segments else None
    with torch.no_grad():
        mems = theirs.transformer(past, use_mems=True).mems if memory else None
        expected = theirs(ids, perm_mask=hidden, target_mapping=mapping, mems=mems, token_type_ids=parts, use_mems=True)
        state = trunk(Batch(past), trunk.new_state(3)).state if memory else None
        found = asked_logits(trunk, objective, replace(batch, segments_BT=parts), state)
        telling(found, expected.logits, shape)
        if state is not None:
            kept = trunk(replace(batch, segments_BT=parts), state).state
            for ours, other in zip(kept[0], expected.mems):
                same(ours, other.transpose(0, 1), shape)


def test_the_query_stream_padded_on_the_left(tokenizer: Tokenizer) -> None:
    theirs = reference(SHAPES[0], tokenizer.size)
    trunk, objective = copy_of(theirs, tokenizer)
    ids = ordinary_ids(tokenizer, 3, LENGTH)
    mask = torch.arange(LENGTH) >= torch.tensor([0, 3, 5])[:, None]
    batch, hidden, mapping = drawn(ids, 3, first=6)
    with torch.no_grad():
        expected = theirs(ids, perm_mask=hidden, target_mapping=mapping, attention_mask=mask.double()).logits
        telling(asked_logits(trunk, objective, replace(batch, mask_BT=mask)), expected)


def test_after_a_memory_padded_on_the_left_as_theirs_counts_it(tokenizer: Tokenizer) -> None:
    """In theirs padding stands between the memory and what is read: no token sees it, but it counts in distances, and
    once it is remembered it is seen. Here that is a token that comes last in every order. Of two windows the first is
    padded too, so that the second remembers padding."""
    theirs = reference(SHAPES[0], tokenizer.size)
    trunk, objective = copy_of(theirs, tokenizer)
    past, ids = ordinary_ids(tokenizer, 3, 6), ordinary_ids(tokenizer, 3, LENGTH)
    last, many = 10 * LENGTH, torch.tensor([0, 3, 5])[:, None]
    before_BT = torch.arange(6) >= torch.tensor([1, 0, 1])[:, None]  # one at most: in ours two would see each other
    mask_BT = torch.arange(LENGTH) >= many
    batch, hidden, mapping = drawn(ids, 3, first=6)
    assert batch.ranks_BT is not None
    with torch.no_grad():
        mems = theirs.transformer(past, attention_mask=before_BT.double(), use_mems=True).mems
        expected = theirs(
            ids, perm_mask=hidden, target_mapping=mapping, attention_mask=mask_BT.double(), mems=mems, use_mems=True
        ).logits
        first = OrderedBatch(past, ranks_BT=(~before_BT).long() * last)
        state = trunk(first, trunk.new_state(3)).state
        for ours, other in zip(state[0], mems):
            same(ours, other.transpose(0, 1))
        unseen = replace(batch, ranks_BT=batch.ranks_BT.masked_fill(~mask_BT, last))
        telling(asked_logits(trunk, objective, unseen, state), expected)
        telling(
            asked_logits(trunk, objective, unseen),
            theirs(ids, perm_mask=hidden, target_mapping=mapping, attention_mask=mask_BT.double()).logits,
        )
        counted = asked_logits(trunk, objective, replace(batch, mask_BT=mask_BT), state)
        assert not torch.allclose(counted[1:], expected[1:], atol=1e-3), "padding that is said to be padding does not"


def test_after_a_memory_a_padded_row_is_as_theirs_alone(tokenizer: Tokenizer) -> None:
    """Rows and memories of unlike length, padded on the left, against each row by itself, unpadded. In theirs padding
    stands between a memory and what is read, and is seen once it is remembered."""
    theirs = reference(SHAPES[0], tokenizer.size)
    trunk, objective = copy_of(theirs, tokenizer)
    past, ids = ordinary_ids(tokenizer, 3, 6), ordinary_ids(tokenizer, 3, LENGTH)
    before = torch.arange(6) >= torch.tensor([2, 0, 4])[:, None]
    mask = torch.arange(LENGTH) >= torch.tensor([0, 3, 5])[:, None]
    batch, hidden, mapping = drawn(ids, 3, first=6)
    with torch.no_grad():
        state = trunk(Batch(past, before), trunk.new_state(3)).state
        found = asked_logits(trunk, objective, replace(batch, mask_BT=mask), state)
        for row, own in enumerate(mask):
            mems = theirs.transformer(past[row, before[row]][None], use_mems=True).mems
            expected = theirs(
                ids[row, own][None],
                perm_mask=hidden[row][own][:, own][None],
                target_mapping=mapping[row][:, own][None],
                mems=mems,
                use_mems=True,
            ).logits
            telling(found[row], expected[0])
        mems = theirs.transformer(past, attention_mask=before.double(), use_mems=True).mems
        padded = theirs(
            ids, perm_mask=hidden, target_mapping=mapping, attention_mask=mask.double(), mems=mems, use_mems=True
        ).logits
        assert not torch.allclose(found, padded, atol=1e-3), "named under Deviations"


def test_left_to_right_is_their_causal_permutation(tokenizer: Tokenizer) -> None:
    theirs = reference(SHAPES[0], tokenizer.size)
    trunk, objective = copy_of(theirs, tokenizer)
    ids = ordinary_ids(tokenizer, 2, LENGTH)
    hidden = torch.ones(LENGTH, LENGTH).triu()[None].repeat(2, 1, 1)
    mapping = torch.eye(LENGTH)[None, 1:].repeat(2, 1, 1)  # the first sees nothing, where theirs sees everything
    with torch.no_grad():
        expected = theirs(ids, perm_mask=hidden, target_mapping=mapping).logits
        telling(asked_logits(trunk, objective, left_to_right(ids.tolist(), [LENGTH - 1] * 2)), expected)


def test_completions_are_scored_as_theirs_are(tokenizer: Tokenizer) -> None:
    """log P of a completion after its context, by their model in the causal permutation."""
    theirs = reference(SHAPES[0], tokenizer.size)
    trunk, objective = copy_of(theirs, tokenizer)
    info = RunConfig("pretrain", "xlnet", "paper", tokenizer=tokenizer.fingerprint())
    model = SavedModel(None, ModelSections(info, trunk.config), SYSTEM, tokenizer, trunk, objective=objective)
    rows = ordinary_ids(tokenizer, 3, LENGTH).tolist()
    queries = [Query(tuple(row[:4]), (tuple(row[4:]), tuple(row[5:7]))) for row in rows]
    for query, found in zip(queries, score_queries(model, queries), strict=True):
        for completion, one in zip(query.completions, found, strict=True):
            ids = torch.tensor([[*query.context, *completion]])
            length = ids.shape[1]
            hidden, mapping = torch.ones(1, length, length).triu(), torch.eye(length)[None, 4:]
            with torch.no_grad():
                scores = theirs(ids, perm_mask=hidden, target_mapping=mapping).logits[0].log_softmax(-1)
            expected = scores[torch.arange(len(completion)), torch.tensor(completion)].sum()
            same(one.total, float(expected))


def test_text_read_from_the_right(tokenizer: Tokenizer) -> None:
    """Their `bi_data`: the second half of the batch has positions that count the other way."""
    theirs = reference(SHAPES[0], tokenizer.size, bi_data=True)
    plain = reference(SHAPES[0], tokenizer.size)
    plain.load_state_dict(theirs.state_dict())
    trunk, objective = copy_of(plain, tokenizer)
    past, ids = ordinary_ids(tokenizer, 4, 5), ordinary_ids(tokenizer, 4, LENGTH)
    batch, hidden, mapping = drawn(ids, 3)
    ways = torch.tensor([False, False, True, True])
    with torch.no_grad():
        mems = theirs.transformer(past, use_mems=True).mems
        expected = theirs(ids, perm_mask=hidden, target_mapping=mapping, mems=mems, use_mems=True).logits
        state = trunk(OrderedBatch(past, backward_B=ways), trunk.new_state(4)).state
        telling(asked_logits(trunk, objective, replace(batch, backward_B=ways), state), expected)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_layer_and_attention_of_the_content(shape: tuple[int, ...], tokenizer: Tokenizer) -> None:
    theirs = reference(shape, tokenizer.size)
    trunk, _ = copy_of(theirs, tokenizer)
    ids = ordinary_ids(tokenizer, 3, LENGTH)
    mask, parts = torch.arange(LENGTH) >= torch.tensor([4, 0, 7])[:, None], torch.randint(3, ids.shape)
    with torch.no_grad():
        expected = theirs.transformer(
            ids, attention_mask=mask.double(), token_type_ids=parts, output_hidden_states=True
        )
        found = trunk(Batch(ids, mask, segments_BT=parts), keep_layers=True)
        telling(found.top[mask], expected.last_hidden_state[mask], shape)
        assert len(found.layers) == len(expected.hidden_states) == shape[0] + 1
        for ours, other in zip(found.layers, expected.hidden_states):
            same(ours[mask], other[mask], shape)
        for own in (None, parts[:1]):
            weights = theirs.transformer(ids[:1], token_type_ids=own, output_attentions=True).attentions
            found_weights: Tensor = trunk.attention_weights(ids[0], None if own is None else own[0])  # type: ignore[operator]
            same(found_weights, torch.cat(weights), shape)


def test_the_gradient_of_the_loss(tokenizer: Tokenizer) -> None:
    """Of every parameter, those of segments too."""
    theirs = reference(SHAPES[0], tokenizer.size, dropout=0.0)
    trunk, objective = copy_of(theirs, tokenizer)
    ids = ordinary_ids(tokenizer, 3, 24)
    batch = objective.make([Stretch(row.numpy()) for row in ids], Draw(0, 0, (0, 1, 2)))
    assert isinstance(batch, OrderedBatch) and batch.ranks_BT is not None and batch.targets_BT is not None
    parts = torch.randint(3, ids.shape)
    batch = replace(batch, segments_BT=parts)
    asked = batch.targets_BT != IGNORE
    loss = objective(trunk, batch).losses["permuted"]
    (loss.total / loss.count).backward()
    ranks = batch.ranks_BT  # given tokens see each other; theirs are told by a mask without what a token is asked for
    hidden = (ranks[:, None, :] > ranks[:, :, None]) | ((ranks[:, None, :] == ranks[:, :, None]) & asked[:, :, None])
    mapping = F.one_hot(asked.nonzero()[:, 1].view(3, -1), 24).double()
    logits = theirs(ids, perm_mask=hidden.double(), target_mapping=mapping, token_type_ids=parts).logits
    other = F.cross_entropy(logits.flatten(0, 1), ids[asked])
    layers, width, _, inner = SHAPES[0]
    terms = gradient_terms(layers, width, inner, 24, tokenizer.size, batch=ids.numel()) + 6 * layers * width
    close(loss.total / loss.count, other, terms=terms)
    other.backward()
    config: Any = trunk.config
    there = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    expected = _ours(there, SYSTEM, TABLES["xlnet"], config, "gradients", tokenizer)
    found = {name: parameter.grad for name, parameter in trunk.named_parameters()}
    found["task.head.bias"] = objective.head.bias.grad
    assert found.keys() == expected.keys() and len(found) == 2 + 2 * 17 + 1
    assert all(bool(gradient.any()) for gradient in expected.values())
    # The table of names holds gradients as it does weights, in float32: each was rounded once.
    for name, gradient in found.items():
        close(gradient, expected[name], terms=1, precision=torch.float32, what=name)
    exact = {name: there[name] for name in ("transformer.word_embedding.weight", "lm_loss.bias")}
    close([found["tokens.weight"], found["task.head.bias"]], list(exact.values()), terms=terms)


# -- folders ---------------------------------------------------------------------------------------------------------


def write_folder(model: Any, tokenizer: Tokenizer, folder: Path) -> Path:
    """As `save_pretrained` leaves it, with a tokenizer in its own library's format."""
    model.save_pretrained(folder, safe_serialization=True)
    layout: Any = SYSTEM.build_layout(dict(tokenizer.specials), 512, "forward")
    files, notes = tokenizer_files(tokenizer, 512, False, layout)
    assert notes == []
    (folder / "tokenizer.json").write_bytes(files["tokenizer.json"])
    return folder


def logits_here(model: Any, batch: OrderedBatch) -> Tensor:
    with torch.no_grad():
        return asked_logits(model.trunk, model.objective, batch)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_in_and_out_and_in_again(shape: tuple[int, ...], tokenizer: Tokenizer, tmp_path: Path) -> None:
    theirs = reference(shape, tokenizer.size)
    write_folder(theirs, tokenizer, tmp_path / "theirs")
    notes: list[str] = []
    run = import_model(tmp_path / "theirs", tmp_path / "run", notes=notes)
    model = loaded(run)
    assert notes == [] and not model.config.data.head_drawn
    assert model.model_config.context == 512 and model.model_config.memory == 16  # type: ignore[attr-defined]
    ids = ordinary_ids(tokenizer, 2, LENGTH)
    batch, hidden, mapping = drawn(ids, 4)
    with torch.no_grad():
        expected = theirs(ids, perm_mask=hidden, target_mapping=mapping).logits
    telling(logits_here(model, batch), expected, shape)
    assert export_model(run, tmp_path / "exported") == []
    again = there(transformers.AutoModelForCausalLM, tmp_path / "exported")
    assert type(again) is type(theirs)
    with torch.no_grad():
        telling(again(ids, perm_mask=hidden, target_mapping=mapping).logits, expected, shape)
    import_model(tmp_path / "exported", tmp_path / "second")
    assert_same_run(run, tmp_path / "second")


def test_as_folders_are_published(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """No memory is said, nor is the head's bias there where the model alone was saved."""
    theirs = reference(SHAPES[0], tokenizer.size, "XLNetModel")
    folder = write_folder(theirs, tokenizer, tmp_path / "theirs")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"mem_len": None, "untie_r": True, "reuse_len": None}))
    notes: list[str] = []
    run = import_model(folder, tmp_path / "run", notes=notes)
    assert len(notes) == 1 and names(notes[0], "model.safetensors", "bias", "foretext pretrain")
    model = loaded(run)
    assert model.model_config.memory == 384 and model.config.data.head_drawn  # type: ignore[attr-defined]
    with complaints.refused(str(run), "bias", "fill", f"foretext pretrain TEXT --from {run}"):
        fill(model, "a <mask> film")
    names(export_model(run, tmp_path / "exported")[0], "bias", "AutoModel")
    again = there(transformers.AutoModel, tmp_path / "exported")
    ids = ordinary_ids(tokenizer, 2, LENGTH)
    with torch.no_grad():
        telling(again(ids).last_hidden_state, theirs(ids).last_hidden_state)


@pytest.mark.parametrize(
    ("said", "parts"),
    [
        ({"attn_type": "uni"}, ("attn_type", "'uni'", "'bi'")),
        ({"clamp_len": 400}, ("clamp_len", "400", "-1")),
        ({"ff_activation": "relu"}, ("ff_activation", "'relu'")),
        ({"n_head": 8}, ("model.safetensors", "rel_attn.q", "[32, 4, 8]", "[32, 8, 4]")),
        ({"d_model": 33, "n_head": 3}, ("model.width", "33")),
        ({"pad_token_id": 4}, ("tokenizer.json", "<pad>", "pad_token_id")),
    ],
    ids=str,
)
def test_folders_that_are_refused(
    said: dict[str, Any], parts: tuple[str, ...], tokenizer: Tokenizer, tmp_path: Path
) -> None:
    folder = write_folder(reference(SHAPES[0], tokenizer.size), tokenizer, tmp_path / "theirs")
    config = json.loads((folder / "config.json").read_text())
    config.pop("d_head")
    (folder / "config.json").write_text(json.dumps(config | said))
    refused(folder, "config.json", *parts)


def test_ids_and_roles_there(tokenizer: Tokenizer, tmp_path: Path) -> None:
    write_folder(reference(SHAPES[0], tokenizer.size), tokenizer, tmp_path / "theirs")
    export_model(import_model(tmp_path / "theirs", tmp_path / "run"), tmp_path / "exported")
    own = transformers.AutoTokenizer.from_pretrained(tmp_path / "exported", local_files_only=True)
    layout = SYSTEM.build_layout(dict(tokenizer.specials), 24, "forward")
    for text in ["The cat's hat", "  so GOOD,\n\nfilm!", "那家酒店 yes", "", *CORPUS[:4]]:
        assert own.encode(text, add_special_tokens=False) == tokenizer.encode(text), text
        assert own.encode(text) == list(layout.frame(tokenizer.encode(text)).ids), text
    for texts in (("The cat",), ("The cat", "so good film")):
        given, frame = own(*texts), layout.frame(*(tokenizer.encode(text) for text in texts))
        assert given["input_ids"] == list(frame.ids) and given["token_type_ids"] == list(frame.segments)
        assert frame.ids[-2:] == (4, 3) and frame.segments[-1] == 2 and frame.extract == len(frame.ids) - 1
    assert (own.cls_token, own.sep_token, own.mask_token) == ("<cls>", "<sep>", "<mask>")
    assert (own.pad_token, own.unk_token, own.padding_side) == ("<pad>", "<unk>", "left")
    published = ["<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>"]
    assert [tokenizer.specials[name] for name in published] == list(range(9)), "as the published vocabulary has them"


def test_vectors_of_texts_there(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """As their tokenizer frames a text, with its types of tokens."""
    theirs = reference(SHAPES[0], tokenizer.size)
    write_folder(theirs, tokenizer, tmp_path / "theirs")
    run = import_model(tmp_path / "theirs", tmp_path / "run")
    export_model(run, tmp_path / "exported")
    own = transformers.AutoTokenizer.from_pretrained(tmp_path / "exported", local_files_only=True)
    texts = ["The cat's hat", "so good and so bad, a film"]
    for text, vector in zip(texts, text_vectors(loaded(run), texts)):
        given = own(text, return_tensors="pt")
        assert given["token_type_ids"][0, -2:].tolist() == [0, 2]
        with torch.no_grad():
            expected = theirs.transformer(**given).last_hidden_state[0, :-2].mean(0)
            plain = theirs.transformer(given["input_ids"]).last_hidden_state[0, :-2].mean(0)
        # States are handed out in float32 and their mean is taken in it: one rounding, and a sum over the tokens.
        close(vector, expected, terms=1 + given["input_ids"].shape[1], precision=torch.float32)
        assert not torch.allclose(plain, expected, atol=2e-4), "the types matter"


# -- our own runs there ----------------------------------------------------------------------------------------------

SMALL = ("model.layers=2", "model.width=32", "model.heads=2", "model.context=32", "model.memory=8")
EXPORTABLE = ("transfer.pooling=extract", "transfer.head=hidden")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Only read; it is float32, as all runs are."""
    sets = (*SMALL, "training.batch_size=4", "tokenizer.size=120")
    out = tmp_path_factory.mktemp("xlnet") / "run"
    ft.pretrain(documents=CORPUS, system="xlnet", steps=3, out=out, sets=sets)
    return out


def exported(run: Path, task: str, rows: list[Any], out: Path) -> Any:
    """The run fine-tuned, with weights that matter to its answers, which are exported."""
    clf: Any = ft.load(run).finetune(rows, task=task, epochs=1, hold_out=0.0, sets=EXPORTABLE)
    shaken(clf.model.trunk)
    shaken(clf.model.task)
    assert export_hub(clf.model, out) == []
    return clf


@pytest.mark.parametrize("task", ["classification", "entailment", "similarity", "regression"])
def test_a_classifier_there_and_its_trunk_back(task: str, run: Path, tmp_path: Path) -> None:
    paired = task in ("entailment", "similarity")
    rows: list[tuple[object, ...]] = [("a good film", "pos"), ("so bad", "neg"), ("good good", "pos")]
    if paired:
        rows = [("a good film", "good", "yes"), ("so bad", "good", "no"), ("bad film", "bad", "yes")]
    if task == "regression":
        rows = [("a good film", 4.5), ("so bad", 1.0), ("good good", 5.0)]
    clf = exported(run, task, rows, tmp_path / "out")
    model = there(transformers.AutoModelForSequenceClassification, tmp_path / "out")
    own = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    texts: Any = [("so good film", "good"), ("bad", "a bad one indeed")] if paired else ["so good film", "bad"]
    given = [list(column) for column in zip(*texts)] if paired else [texts]
    with torch.no_grad():
        logits = model(**own(*given, padding=True, return_tensors="pt")).logits
    if task == "regression":  # whose deviation is multiplied into the head's 32 weights
        same_answers(logits[:, 0], clf.predict(texts), rounded=32)
    else:
        same_answers(logits.softmax(-1), clf.predict_proba(texts))
    model.float().base_model.save_pretrained(tmp_path / "body", safe_serialization=True)
    shutil.copy(tmp_path / "out" / "foretext_tokenizer.json", tmp_path / "body")
    back = loaded(import_model(tmp_path / "body", tmp_path / "back"))
    assert back.model_config == clf.model.model_config
    for name, tensor in clf.model.trunk.state_dict().items():
        assert torch.equal(back.trunk.state_dict()[name], tensor), name


def test_a_chooser_there(run: Path, tmp_path: Path) -> None:
    rows = [("the film", ["good", "bad"], 1), ("the end", ["so bad", "good film"], 2), ("it", ["bad", "so"], 1)]
    clf = exported(run, "choice", rows, tmp_path / "out")
    model = there(transformers.AutoModelForMultipleChoice, tmp_path / "out")
    own = transformers.AutoTokenizer.from_pretrained(tmp_path / "out", local_files_only=True)
    choices = ["good film", "a bad one", "so"]
    given = own(["the film"] * 3, choices, padding=True, return_tensors="pt")
    with torch.no_grad():
        scores = model(**{name: value[None] for name, value in given.items()}).logits[0]
    same_answers(scores.softmax(0), clf.predict_proba([("the film", choices)])[0])


def with_task(task: Any, config: TaskConfig, tokenizer: Tokenizer) -> SavedModel:
    paper: Any = SYSTEM.sizes["paper"].model
    model = replace(paper, vocabulary=tokenizer.size, layers=2, width=32, heads=4, context=24, dropout=0.0)
    trunk = shaken(SYSTEM.build_trunk(TrunkParts(model)))
    info = RunConfig("finetune", "xlnet", "paper", tokenizer=tokenizer.fingerprint())
    own = FinetuneConfig(info, model, training=TrainingConfig(), transfer=TransferPlan(), task=config)
    return SavedModel(None, own, SYSTEM, tokenizer, trunk, task=shaken(task))


def test_a_tagger_and_spans_there(tokenizer: Tokenizer, tmp_path: Path) -> None:
    ids = ordinary_ids(tokenizer, 1, 12)
    parts = tuple([0] * 5 + [1] * 6 + [2])
    own = tuple(ids[0].tolist())
    tagger, pointer = TaggingTask(3, 32, 0.0, 0.0), SpanTask(32, 0.0, 0.0)
    tagging = with_task(tagger, TaskConfig("tagging", ("O", "B-x", "I-x")), tokenizer)
    answering = with_task(pointer, TaskConfig("span"), tokenizer)
    assert export_hub(tagging, tmp_path / "tags") == [] and export_hub(answering, tmp_path / "spans") == []
    tags = there(transformers.AutoModelForTokenClassification, tmp_path / "tags")
    spans = there(transformers.AutoModelForQuestionAnswering, tmp_path / "spans")
    with torch.no_grad():
        scores = tagger(tagging.trunk, tagger.make([TaggedExample(own, (1, 4), None)])).scores
        telling(scores, tags(ids).logits)
        scores = pointer(answering.trunk, pointer.make([SpanExample(own, (4, 10), None, None, parts)])).scores
        output = spans(ids, token_type_ids=torch.tensor([parts]))
    telling(scores[..., 0], output.start_logits)
    telling(scores[..., 1], output.end_logits)


def test_a_head_that_they_do_not_have(tokenizer: Tokenizer, tmp_path: Path) -> None:
    task = SupervisedTask("classification", 2, 32, 0.0, 0.0, pooling="mean")
    model = with_task(task, TaskConfig("classification", ("neg", "pos")), tokenizer)
    with complaints.refused("--set transfer.pooling=extract --set transfer.head=hidden"):
        export_hub(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()
