"""A bidirectional LSTM and the inputs of the task models, one sentence and one word after the other, to check against;
and sentences to check with. CoVe's translation and the AWD-LSTM are checked against the same steps."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn
from word_tables import word_table

from foretext.nn.recurrent.lstm_layer import BiLstm
from foretext.nn.task_models.sentence_models import ScalarMix, WordInput, WordInputConfig, WordReader

LENGTHS = [4, 1, 3]
INPUTS = WordInputConfig(vectors=3, layers=2, layer_width=4, at_output=True, characters=2, word_length=6, dropout=0.0)
PADDINGS = ["none", "right", "left"]


def lstm(x: Tensor, h: Tensor, c: Tensor, weights: dict[str, Tensor], end: str) -> tuple[Tensor, Tensor]:
    """One step: i, f, g, o = W x + b + U h + d; c = σ(f) c + σ(i) tanh(g); h = σ(o) tanh(c)."""
    gates = weights["weight_ih" + end] @ x + weights["bias_ih" + end]
    i, f, g, o = (gates + weights["weight_hh" + end] @ h + weights["bias_hh" + end]).split(len(h))
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def slow_layers(layers: nn.ModuleList, words: list[Tensor]) -> tuple[list[Tensor], list[tuple[Tensor, Tensor]]]:
    """The top states of bidirectional layers, and the last h and c of each layer, both directions side by side."""
    last = []
    for layer in layers:
        weights = dict(layer.named_parameters())
        sides, ends = [], []
        for end, read in (("_l0", words), ("_l0_reverse", words[::-1])):
            h = c = torch.zeros(layer.hidden_size, dtype=torch.double)
            states = []
            for x in read:
                h, c = lstm(x, h, c, weights, end)
                states.append(h)
            sides.append(states if end == "_l0" else states[::-1])
            ends.append((h, c))
        words = [torch.cat(pair) for pair in zip(*sides)]
        last.append((torch.cat([h for h, _ in ends]), torch.cat([c for _, c in ends])))
    return words, last


def slow_bilstm(model: BiLstm, words: list[Tensor]) -> list[Tensor]:
    return slow_layers(model.layers, words)[0]


def slow_mix(mix: ScalarMix, layers: tuple[Tensor, ...], row: int, word: int) -> Tensor:
    shares = mix.weights_L.exp() / mix.weights_L.exp().sum()
    return mix.scale * sum(share * layer[row, word] for share, layer in zip(shares, layers))


def slow_words(read: WordReader, words: WordInput, row: int) -> list[Tensor]:
    """[vector; mixture; characters] of each word of a row that has no padding before it."""
    assert words.vectors_BTD is not None and words.characters_UC is not None and words.places_BT is not None
    assert read.at_input is not None and read.characters is not None
    found = []
    for word in range(int(words.mask_BT[row].sum())):
        table = read.characters.characters.weight[words.characters_UC[words.places_BT[row, word]]]
        conv = read.characters.filters[0]
        seen = [torch.stack([(kernel * table[t : t + 3].t()).sum() for t in range(4)]).max() for kernel in conv.weight]
        characters = torch.relu(torch.stack(seen) + conv.bias)
        mixed = slow_mix(read.at_input, words.layers, row, word)
        found.append(torch.cat([words.vectors_BTD[row, word], mixed, characters]))
    return found


def slow_beside(read: WordReader, states: list[Tensor], words: WordInput, row: int) -> list[Tensor]:
    assert read.at_output is not None
    mixed = [slow_mix(read.at_output, words.layers, row, word) for word in range(len(states))]
    return [torch.cat(pair) for pair in zip(states, mixed)]


def sentences(seed: int = 0, lengths: list[int] | None = None) -> WordInput:
    """Padded at the right."""
    lengths = LENGTHS if lengths is None else lengths
    drawn = torch.Generator().manual_seed(seed)
    longest = max(lengths)

    def some(width: int) -> Tensor:
        return torch.randn(len(lengths), longest, width, generator=drawn).double()

    mask = torch.arange(longest) < torch.tensor(lengths)[:, None]
    table = word_table([[f"w{place * 3 + seed}" for place in range(n)] for n in lengths], 6, borders=False)
    return WordInput(mask, some(3), (some(4), some(4)), table.characters_UC, table.places_BT)


def repadded(words: WordInput, padding: str, row: int | None = None) -> WordInput:
    """The same sentences, or one of them, with more padding, of numbers that are none."""
    rows = slice(None) if row is None else slice(row, row + 1)
    before, after = {"none": (0, 0), "right": (0, 3), "left": (2, 1)}[padding]

    def wider(x: Tensor, fill: float) -> Tensor:
        shape = list(x[rows].shape)
        edges = [x.new_full([shape[0], size, *shape[2:]], fill) for size in (before, after)]
        return torch.cat([edges[0], x[rows], edges[1]], dim=1)

    mask = wider(words.mask_BT, 0)
    assert words.vectors_BTD is not None and words.places_BT is not None

    def loud(x: Tensor) -> Tensor:
        return wider(x, 0).masked_fill(~mask[..., None], float("nan"))

    layers = tuple(loud(layer) for layer in words.layers)
    return WordInput(mask, loud(words.vectors_BTD), layers, words.characters_UC, wider(words.places_BT, 0))


def quiet(words: WordInput) -> WordInput:
    """With numbers at the padding, as a gradient needs them."""
    assert words.vectors_BTD is not None
    layers = tuple(layer.nan_to_num() for layer in words.layers)
    return replace(words, vectors_BTD=words.vectors_BTD.nan_to_num(), layers=layers)


def randomised(model: torch.nn.Module) -> torch.nn.Module:
    torch.manual_seed(4)
    with torch.no_grad():
        for parameter in model.double().parameters():
            parameter.normal_(0.0, 0.7)
    return model
