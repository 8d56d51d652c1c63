"""ELECTRA against `transformers` with the same random weights: the discriminator's encoder, layer by layer, and its
head; and the generator, whose embeddings are the discriminator's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from masked_references import SHAPES, ordinary_ids, same_logits, shaken, tokenizer_of
from torch import nn

from foretext.batch import Batch
from foretext.interop.hub_encoders import EMBEDDINGS, ENCODER_BLOCK
from foretext.nn.transformer.encoder import Encoder, EncoderConfig
from foretext.objectives.replaced import ReplacedConfig, ReplacedObjective
from foretext.systems import SYSTEMS
from foretext.systems.base import ObjectiveParts, TrunkParts
from foretext.text.tokenizers.base import Tokenizer

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.usefixtures("in_float64")


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return tokenizer_of("bert")


def theirs_of(shape: tuple[int, ...], vocabulary: int, name: str) -> Any:
    layers, width, heads, inner, context, embedding = shape
    config = transformers.ElectraConfig(
        vocab_size=vocabulary,
        embedding_size=embedding,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=inner,
        max_position_embeddings=context,
    )
    return shaken(getattr(transformers, name)(config))


def copied(ours: nn.Module, theirs: Any) -> None:
    """All weights of an encoder that it has."""
    found, weights = {}, theirs.state_dict()
    for name in ours.state_dict():
        if name.startswith("blocks."):
            _, number, rest = name.split(".", 2)
            said = ENCODER_BLOCK[rest]
            parts = [f"encoder.layer.{number}.{one}" for one in ((said,) if isinstance(said, str) else said)]
        else:
            names = EMBEDDINGS | {f"project.{end}": f"embeddings_project.{end}" for end in ("weight", "bias")}
            parts = [names[name]]
        found[name] = torch.cat([weights[part] for part in parts])
    ours.load_state_dict(found)


def ours_of(shape: tuple[int, ...], tokenizer: Tokenizer) -> tuple[Encoder, ReplacedObjective]:
    layers, width, heads, inner, context, embedding = shape
    config = EncoderConfig(
        tokenizer.size, layers, width, heads, context, inner=inner, embedding=embedding, pooler=False, dropout=0.0
    )
    system = SYSTEMS["electra"]
    trunk = system.build_trunk(TrunkParts(config))
    objective = system.build_objective(ObjectiveParts(config, ReplacedConfig(generator=1.0), tokenizer))
    assert isinstance(trunk, Encoder) and isinstance(objective, ReplacedObjective)
    return trunk.eval(), objective.eval()


@pytest.mark.parametrize("shape", [SHAPES[0], SHAPES[2]], ids=str)
def test_the_discriminator(tokenizer: Tokenizer, shape: tuple[int, ...]) -> None:
    theirs = theirs_of(shape, tokenizer.size, "ElectraForPreTraining")
    trunk, objective = ours_of(shape, tokenizer)
    copied(trunk, theirs.electra)
    head = theirs.discriminator_predictions
    objective.detector.dense.load_state_dict(head.dense.state_dict())
    objective.detector.score.load_state_dict(head.dense_prediction.state_dict())
    ids = ordinary_ids(tokenizer, 3, shape[4])
    segments = (torch.arange(shape[4]) > shape[4] // 2).long().expand_as(ids)
    with torch.no_grad():
        expected = theirs(input_ids=ids, token_type_ids=segments, output_hidden_states=True)
        hidden = trunk(Batch(ids, segments_BT=segments), keep_layers=True)
        scores = objective.detector(hidden.top)
    assert expected.logits.std() > 0.05 and len(hidden.layers) == shape[0] + 1
    same_logits(scores, expected.logits, shape)
    for mine, other in zip(hidden.layers, expected.hidden_states):
        same_logits(mine, other, shape)


def test_the_generator_reads_the_embeddings_of_the_discriminator(tokenizer: Tokenizer) -> None:
    shape = SHAPES[0]
    theirs = theirs_of(shape, tokenizer.size, "ElectraForMaskedLM")
    trunk, objective = ours_of(shape, tokenizer)
    copied(trunk, theirs.electra)
    copied(objective.generator, theirs.electra)
    objective.head.dense.load_state_dict(theirs.generator_predictions.dense.state_dict())
    objective.head.norm.load_state_dict(theirs.generator_predictions.LayerNorm.state_dict())
    objective.head.bias.data.copy_(theirs.generator_lm_head.bias)
    assert not any("tokens" in name for name in objective.generator.state_dict())
    ids = ordinary_ids(tokenizer, 1, 15)
    with torch.no_grad():
        same_logits(objective.logits(trunk, ids), theirs(input_ids=ids).logits[0])
