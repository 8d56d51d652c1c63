"""Random models of the masked family as `transformers` has them, small vocabularies for them, and the same models here
through the tables of names. In float64 where a test asks for it (`in_float64`), with weights that float32 has too."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import complaints
import torch
from tolerance import close, terms_of
from torch import Tensor, nn
from transformer_terms import forward_terms

import foretext as ft
from foretext.batch import Batch
from foretext.interop.exchange import import_model
from foretext.interop.hub import TABLES, _ours, model_of
from foretext.interop.hub_tokenizer import tokenizer_files
from foretext.objectives.masked import MaskedObjective
from foretext.runs.directory import RunDirectory
from foretext.runs.model import SavedModel
from foretext.systems import SYSTEMS
from foretext.systems.base import ObjectiveParts, TrunkParts
from foretext.text.tokenizers.base import Tokenizer, TokenizerConfig
from foretext.text.tokenizers.byte_bpe import ByteBPE
from foretext.text.tokenizers.training import train_tokenizer

MASKED = ("bert", "roberta", "albert")
KIND = {"bert": "wordpiece", "roberta": "byte-bpe", "albert": "unigram"}
# Layers, width, heads, inner width, context, width of ALBERT's table.
SHAPES = [(2, 32, 4, 128, 24, 16), (1, 8, 1, 20, 40, 8), (3, 48, 3, 96, 24, 12)]
CORPUS = [
    "The cat sat on the mat; the other cat's hat was there.",
    "A good film, a bad film, so good and so bad.",
    "那家酒店很好，那家酒店。",
    'She said "no" to 1234 hats (and 56 mats)!',
] * 10


@cache
def tokenizer_of(system: str) -> Tokenizer:
    """A small vocabulary with the system's special tokens at the places that the published ones have them at."""
    if system != "roberta":
        return train_tokenizer(CORPUS, TokenizerConfig(KIND[system], 120))
    trained = train_tokenizer(CORPUS, TokenizerConfig("byte-bpe", 290))
    assert isinstance(trained, ByteBPE)
    ids = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3} | {piece: id + 4 for piece, id in trained.written().items()}
    return ByteBPE.from_published(ids | {"<mask>": len(ids)}, trained.merges, "a test")


def config_of(system: str, shape: tuple[int, ...], vocabulary: int, **more: Any) -> Any:
    import transformers

    layers, width, heads, inner, context, embedding = shape
    sizes = {
        "vocab_size": vocabulary,
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": inner,
        "max_position_embeddings": context + 2 * (system == "roberta"),
    }
    if system == "bert":
        return transformers.BertConfig(**sizes, **more)
    if system == "roberta":
        return transformers.RobertaConfig(**sizes, type_vocab_size=1, layer_norm_eps=1e-5, **more)
    return transformers.AlbertConfig(**sizes, embedding_size=embedding, **more)


def reference(system: str, shape: tuple[int, ...], vocabulary: int, name: str = "", **more: Any) -> Any:
    """In eval mode, all its weights (biases and norms too) far from their initial values. `name`: of another class."""
    import transformers

    whole = {"bert": "BertForPreTraining", "roberta": "RobertaForMaskedLM", "albert": "AlbertForPreTraining"}
    return shaken(getattr(transformers, name or whole[system])(config_of(system, shape, vocabulary, **more)))


def shaken(model: Any) -> Any:
    """Weights that a file, which is float32, keeps as they are."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter)).copy_(parameter.float())
    return model.eval()


def there(automatic: Any, folder: Path) -> Any:
    """A folder's model as `transformers` loads it, in float64."""
    return automatic.from_pretrained(folder, local_files_only=True).double().eval()


def same_logits(ours: Tensor, theirs: Tensor, shape: tuple[int, ...] = SHAPES[0]) -> None:
    """Logits, or the states that they are made of, over at most a full context."""
    layers, width, _, inner, context, embedding = shape
    close(ours, theirs, terms=forward_terms(layers, width, inner, context) + width + embedding)  # and a head's layer


def same_answers(theirs: Tensor, ours: Any, rounded: int = 0) -> None:
    """Probabilities or values of a few rows. Ours are of float64 states, but scores are handed out in float32: that is
    one rounding, and a softmax of three. `rounded`: how many weights of a sum were rounded anew on export."""
    close(theirs, ours, terms=terms_of(1 + 3, rounded), precision=torch.float32)


def copy_of(system: str, theirs: Any, tokenizer: Tokenizer) -> tuple[nn.Module, MaskedObjective]:
    """The trunk and the objective here, with the same weights."""
    built = SYSTEMS[system]
    config = model_of(theirs.config.to_dict(), built, TABLES[built.name], Path("config.json"))
    weights = _ours(dict(theirs.state_dict()), built, TABLES[built.name], config, "reference", tokenizer)
    trunk = built.build_trunk(TrunkParts(config))
    trunk.load_state_dict({name: tensor for name, tensor in weights.items() if not name.startswith("task.")})
    objective = built.build_objective(ObjectiveParts(config, built.sizes["paper"].objective, tokenizer))
    assert isinstance(objective, MaskedObjective)
    heads = {name: tensor for name, tensor in weights.items() if name.startswith("task.")}
    objective.load_state_dict({name.removeprefix("task."): tensor for name, tensor in heads.items()})
    return trunk.eval(), objective.eval()


def masked_logits(output: Any) -> Tensor:
    return output.logits if "logits" in output else output.prediction_logits


def pair_logits(output: Any) -> Tensor | None:
    return next((output[name] for name in ("seq_relationship_logits", "sop_logits") if name in output), None)


@torch.no_grad()
def our_logits(trunk: Any, objective: MaskedObjective, batch: Batch) -> tuple[Tensor, Tensor | None]:
    """Of every token and, where there is a head for it, of every pair (rows begin with a real token)."""
    top = trunk(batch).top
    tokens = objective.output_layer(trunk).logits(top.flatten(0, 1)).unflatten(0, top.shape[:2])
    return tokens, None if objective.relation is None else objective.relation(trunk.summary(top[:, 0]))


def ordinary_ids(tokenizer: Tokenizer, count: int, length: int) -> Tensor:
    """Random ids, none of them special: one for padding would be passed over by RoBERTa's count of positions."""
    known = torch.tensor([id for id in range(tokenizer.size) if id not in set(tokenizer.specials.values())])
    return known[torch.randint(len(known), (count, length))]


def segments_of(system: str, ids: Tensor) -> Tensor | None:
    return None if system == "roberta" else torch.randint(2, ids.shape)


# -- folders ---------------------------------------------------------------------------------------------------------


def files_of(system: str, tokenizer: Tokenizer) -> dict[str, bytes]:
    framed: Any = SYSTEMS[system].build_layout(tokenizer.specials, 24, "forward")
    return tokenizer_files(tokenizer, 24, False, framed)[0]


def write_folder(model: Any, system: str, tokenizer: Tokenizer, folder: Path) -> Path:
    """As `save_pretrained` leaves it, with a tokenizer in its own library's format."""
    model.save_pretrained(folder, safe_serialization=True)
    (folder / "tokenizer.json").write_bytes(files_of(system, tokenizer)["tokenizer.json"])
    return folder


def loaded(path: Path) -> SavedModel:
    return ft.load(path).model


def logits_here(model: SavedModel, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
    assert isinstance(model.objective, MaskedObjective)
    return our_logits(model.trunk, model.objective, Batch(ids))


def assert_same_run(first: Path, second: Path) -> None:
    one, two = RunDirectory(first), RunDirectory(second)
    a, b = one.load_tensors("model.safetensors"), two.load_tensors("model.safetensors")
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name
    assert one.read("tokenizer.json") == two.read("tokenizer.json")
    assert loaded(first).model_config == loaded(second).model_config
    assert loaded(first).config.data.head_drawn == loaded(second).config.data.head_drawn


def refused(folder: Path, *parts: str) -> None:
    out = folder.parent / "refused"
    with complaints.refused(*parts):
        import_model(folder, out)
    assert not out.exists()
