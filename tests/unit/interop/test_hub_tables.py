"""The tables of names say something of every parameter, once, and of nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from foretext.interop.hub import TABLES, shapes_of
from foretext.interop.hub_names import HubNames
from foretext.interop.hub_tensors import FolderTensors, by_their_names, parts_of
from foretext.systems import SYSTEMS
from foretext.systems.base import ObjectiveParts
from foretext.tasks.files.rows import KINDS
from foretext.tasks.heads.supervised import SupervisedTask
from foretext.text.tokenizers.base import Tokenizer
from foretext.text.tokenizers.byte_bpe import ROBERTA_SPECIALS, byte_bpe_from_merges
from foretext.text.tokenizers.unigram import XLNET_SPECIALS, Cleaning, unigram_from_pieces
from foretext.text.tokenizers.wordpiece import wordpiece_from_pieces

EXCHANGED = list(TABLES)


def tokenizer_of(name: str) -> Tokenizer:
    if name == "bert":
        return wordpiece_from_pieces(["a", "##a"], True)
    if name == "albert":
        return unigram_from_pieces([("▁a", -1.0), ("a", -2.0)], Cleaning(True, True, b""))
    if name == "xlnet":
        return unigram_from_pieces([("▁a", -1.0), ("a", -2.0)], Cleaning(False, True, b""), XLNET_SPECIALS)
    return byte_bpe_from_merges([]).with_specials(ROBERTA_SPECIALS)


def parts_under_test(name: str) -> tuple[Any, HubNames, Any]:
    system = SYSTEMS[name]
    shape: Any = system.sizes["tiny"].model
    return system, TABLES[name], replace(shape, vocabulary=tokenizer_of(name).size, layers=2, width=24, heads=3)


@pytest.mark.parametrize("name", EXCHANGED)
def test_every_parameter_has_a_name(name: str) -> None:
    system, names, model = parts_under_test(name)
    assert names.names(2).keys() == shapes_of(system, model).keys()
    objective = system.build_objective(ObjectiveParts(model, system.sizes["tiny"].objective, tokenizer_of(name)))
    assert names.pretraining.keys() == objective.state_dict().keys()
    theirs = [
        names.whole(ours, part)
        for ours, several in (names.names(2) | names.head_names()).items()
        for part in parts_of(several)
    ]
    assert len(set(theirs)) == len(theirs) and not set(theirs) & names.copies.keys()
    own = names.names(2).keys() | names.head_names().keys()
    assert set(names.copies.values()) <= own and names.transposed <= names.inside.keys()


@pytest.mark.parametrize("name", EXCHANGED)
def test_every_key_has_a_field(name: str) -> None:
    _, names, model = parts_under_test(name)
    for field in (*names.shape, *names.worded, *names.fixed):
        assert hasattr(model, field), field
    known = {*names.shape.values(), *names.dropouts, *(key for key, _ in names.worded.values())}
    assert names.least.keys() <= known and names.defaults.keys() <= known | {"pad_token_id"}
    for key, words in names.worded.values():
        assert names.defaults[key] in words
    assert set(names.needs) <= set(tokenizer_of(name).specials)


@pytest.mark.parametrize("name", EXCHANGED)
def test_heads_name_what_a_task_has(name: str) -> None:
    names = TABLES[name]
    assert names.heads.keys() <= {*KINDS, "tagging", "span"}
    for kind, head in names.heads.items():
        if kind in ("tagging", "span"):
            assert head.names.keys() == {"head.weight", "head.bias"} and not head.pooling
            continue
        own = SupervisedTask(kind, 3, 8, 0.0, 0.0, hidden=head.hidden).state_dict().keys()
        folded = set() if not names.last_bias or kind == "choice" else {"head.bias"}
        assert head.names.keys() == own - folded, kind
        assert head.pooling in ("extract", "mean", "pooler") and head.state


@pytest.mark.parametrize("name", EXCHANGED)
def test_out_and_in_again(name: str) -> None:
    """Weights by their names, with and without the prefix, are the weights; three projections become one again."""
    system, names, model = parts_under_test(name)
    own = {key: torch.randn(shape) for key, shape in shapes_of(system, model).items()}
    out = by_their_names(own, names, model)
    bare = {key.removeprefix(names.prefix): tensor for key, tensor in out.items()}
    assert out.keys() != bare.keys()
    for folder in (out, bare):
        theirs = FolderTensors(folder, names, model, "a file")
        wanted = names.names(2)
        assert theirs.present(wanted) == wanted
        for key, other in wanted.items():
            assert torch.equal(theirs.take(key, other, list(own[key].shape)), own[key]), key
        theirs.finish(own)


class Operations(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", EXCHANGED)
def test_shapes_are_found_without_a_draw(name: str) -> None:
    """On the meta device torch would load its compiler to draw a number, which takes seconds in every import."""
    system, _, model = parts_under_test(name)
    with Operations() as done:
        shapes_of(system, model)
    assert done.names and not [one for one in done.names if "normal" in one or "uniform" in one]
