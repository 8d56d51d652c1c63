"""ELMo's bidirectional language model up to its softmax (Peters et al., 2018): a character encoder that both directions
share, and a stack of projected LSTMs for each direction, which share nothing.

    x = encoder(characters),   h_1 = lstm_1(x),   h_l = lstm_l(h_{l−1}) + h_{l−1}   for l > 1
    layers: [x; x], [→h_1; ←h_1], …, [→h_L; ←h_L]

The residual is added to a layer's output for the next layer, not to its recurrent state. As in the released code,
dropout is on the input of each layer, and the residual adds that same dropped input; the dropout before the softmax
belongs to the objective. →h_t has read the words up to and including t, ←h_t those from t on.

As in the released code, the state carried from one piece of text to the next is that of each row and direction after
its last step. This includes the backward direction, which then continues from a sentence's beginning to the next
sentence's end. A row without words keeps its state. If a batch has fewer rows than the state, the other rows wait; if
it has more, the new ones start at 0.

As a trunk, the biLM reads a batch of words by their characters. Words have no rows in an embedding table here, so ids
alone do not say what is read. A `SpelledBatch` includes the characters of its distinct words, and its ids are rows of
that table: any word can be read, known or not, and each is encoded once, however often it occurs in the batch. A trunk
that was given a vocabulary's spelling also reads plain batches of that vocabulary's ids, as tasks and features make
them.

Training gives the two directions different text (`objectives/bidirectional.py` says why): `back_ids_BT`, which is in
text order like everything, but is read from its end. The top then has the forward states of `ids_BT` beside the
backward states of `back_ids_BT`.

In pre-training the softmax belongs to the objective. For fine-tuning with λ·L1 (GPT's auxiliary loss) the trunk has it,
as `softmax`: one direction's states then predict the next word in their order, like any causal trunk's.

`sampled_softmax_loss` is a softmax over part of a large vocabulary, for training (Jean et al. 2015; the same as
TensorFlow's `sampled_softmax_loss`, which trained ELMo's language model).

Each target y competes with M candidates that are drawn for all targets together. With o for the logits h Wᵀ + b, and
Q(c) for the expected number of times that class c is among the candidates, which is at most 1:

    loss = −log( e^{o_y} / Q(y)  /  ( e^{o_y} / Q(y) + Σ_{c drawn, c ≠ y} e^{o_c} / Q(c) ) )

A candidate that happens to be the target is left out of the sum (an accidental hit). Candidates are drawn from a
log-uniform distribution, which is roughly that of words if ids are sorted by frequency,

    P(c) = (log(c + 2) − log(c + 1)) / log(V + 1)

repeatedly, until there are M different ones; if that took n draws, Q(c) = 1 − (1 − P(c))ⁿ.

How it relates to the full softmax: the sum over the drawn classes is, in expectation, the full sum over classes other
than the target, and the same logits minimise both losses, because among the candidates y is the target with a
probability in the ratio of p(y) / Q(y). The loss itself is usually smaller than the full one, so it is for training
only; scores use the full softmax. If every class is a candidate, Q is 1 and both are equal.

The draws come from torch's own generator, which the loop seeds for each step; all micro-batches of a step share them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foretext.batch import IGNORE, Batch, Hidden
from foretext.errors import check_range
from foretext.nn.fused import TiedSoftmax, dropout
from foretext.nn.recurrent.char_cnn import CharEncoder, CharEncoderConfig
from foretext.nn.recurrent.lstm_layer import (
    LstmState,
    ProjectedLstm,
    ProjectedLstmConfig,
    ReadingOrder,
    reading_order,
    reading_orders,
)
from foretext.nn.trunk import MOST_WIDE, ModelConfig, OutputLayer, Trunk

MOST_SHARE = 2  # candidates are at most 1/this of all classes: beyond that, the last ones take more and more draws


@dataclass(frozen=True)
class Candidates:
    """Different classes of 0 … `classes` − 1, and how many draws it took to find them; None: these are all classes."""

    drawn_M: Tensor
    classes: int
    draws: int | None

    def log_counts(self, of: Tensor) -> Tensor:
        """log Q of these classes, float64."""
        if self.draws is None:
            return torch.zeros(of.shape, dtype=torch.float64, device=of.device)
        return torch.log(-torch.expm1(self.draws * torch.log1p(-log_uniform(of, self.classes))))


def log_uniform(of: Tensor, classes: int) -> Tensor:
    """P of these classes, float64."""
    return torch.log1p(1.0 / (of.double() + 1.0)) / math.log(classes + 1.0)


def draw_candidates(count: int, classes: int, device: torch.device | None = None) -> Candidates:
    """`count` different classes, in the order in which they were drawn."""
    assert 1 <= count <= classes // MOST_SHARE, f"{count} of {classes} classes"
    drawn = np.zeros(0, dtype=np.int64)
    while True:
        uniform = torch.rand(2 * count + len(drawn), dtype=torch.float64)
        more = torch.exp(uniform * math.log(classes + 1.0)).long().clamp_(max=classes) - 1
        drawn = np.concatenate([drawn, more.numpy()])
        first = np.sort(np.unique(drawn, return_index=True)[1])  # where each class was first drawn
        if len(first) >= count:
            first = first[:count]
            return Candidates(torch.from_numpy(drawn[first]).to(device), classes, int(first[-1]) + 1)


def sampled_softmax_loss(
    h_ND: Tensor, table_VD: Tensor, targets_N: Tensor, bias_V: Tensor, candidates: Candidates
) -> Tensor:
    """The sum over n of the loss above."""
    drawn_M = candidates.drawn_M
    less_M, less_N = (candidates.log_counts(of).to(h_ND.dtype) for of in (drawn_M, targets_N))
    # A target may occur often, and several threads add up the gradients of `[]` in random order.
    own_ND, own_bias_N = F.embedding(targets_N, table_VD), F.embedding(targets_N, bias_V[:, None]).squeeze(1)
    target_N = (h_ND * own_ND).sum(dim=1) + own_bias_N - less_N
    other_NM = torch.addmm(bias_V[drawn_M] - less_M, h_ND, table_VD[drawn_M].t())
    other_NM = other_NM.masked_fill(targets_N[:, None] == drawn_M, -torch.inf)
    return (torch.cat([target_N[:, None], other_NM], dim=1).logsumexp(dim=1) - target_N).sum()


class WordSoftmax(nn.Module):
    """ELMo's softmax over words, Θ_s. It is not tied to the input, since words are read by their characters. A row and
    a bias for each word that can be predicted, initialised as in the released code: N(0, 1/√width) and 0."""

    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.table_VD = nn.Parameter(torch.empty(words, width).normal_(0.0, width**-0.5))
        self.bias_V = nn.Parameter(torch.zeros(words))

    def loss(self, states_ND: Tensor, targets_N: Tensor, candidates: Candidates | None = None) -> Tensor:
        """Summed; without candidates, over all words."""
        if candidates is None:
            return self.over_all().loss(states_ND, targets_N)
        return sampled_softmax_loss(states_ND, self.table_VD, targets_N, self.bias_V, candidates)

    def over_all(self) -> TiedSoftmax:
        """Logits of all words, for scoring and writing."""
        return TiedSoftmax(self.table_VD, self.bias_V)


# -- the sampled softmax -----------------------------------------------------------------------------------------------


StackState = tuple[LstmState, ...]  # one per layer
BilmState = tuple[StackState, StackState]  # forward, backward


Spelling = Callable[[np.ndarray], np.ndarray]  # ids → the characters of each, [ids, characters per word]
DISTINCT = 4  # tokens per distinct word in a batch, approximately: frequent words recur


@dataclass(frozen=True)
class SpelledBatch(Batch):
    """`ids_BT` are rows of `characters_UC`, whose row 0 stands for no word."""

    characters_UC: Tensor | None = None
    back_ids_BT: Tensor | None = None  # input of the backward direction; None: the same
    back_mask_BT: Tensor | None = None
    back_targets_BT: Tensor | None = None


@dataclass(frozen=True)
class BilmTrunkConfig(ModelConfig):
    """[model] of ELMo. The trunk has no rows for the words of the vocabulary; the objective's softmax does."""

    vocabulary: int
    layers: int = 2
    cells: int = 4096  # per layer and direction
    context: int = 20  # words that gradients flow back through
    reads: int = 512  # tokens of a text that a task or features read at once
    cell_clip: float = 3.0  # 0: no clipping
    state_clip: float = 3.0
    residual: bool = True
    dropout: float = 0.1
    init_std: float = 0.02  # for what is put on top, such as a task's head; the trunk does not use it
    words: CharEncoderConfig = field(default_factory=CharEncoderConfig)  # its width is that of one direction's states

    def check(self) -> None:
        check_range("model", self, f"at least 1 and at most {MOST_WIDE:,}", "context", "reads")
        check_range("model", self, "above 0 and at most 10", "init_std")
        check_range("model", self, "at least 1", "layers")
        check_range("model", self, "at least 0 and below 1", "dropout")
        self.words.check("model.words")
        self.lstm().check()

    def lstm(self) -> ProjectedLstmConfig:
        """The shape of every layer."""
        return ProjectedLstmConfig(self.words.width, self.cells, self.words.width, self.cell_clip, self.state_clip)

    @property
    def width(self) -> int:
        """Both directions together."""
        return 2 * self.words.width

    @property
    def word_length(self) -> int:
        return self.words.length

    def describe(self) -> str:
        return (
            f"{self.layers} layers of {self.cells} cells per direction, projected to {self.words.width}, on characters"
        )

    def parameters(self) -> int:
        return self.words.parameters() + 2 * self.layers * self.lstm().parameters()

    def activations(self, tokens: int) -> int:
        words = self.words.activations(max(1, tokens // DISTINCT))
        return words + 2 * self.layers * self.lstm().activations(tokens)

    def carried(self, rows: int) -> int:
        """h and c of every layer and direction."""
        return rows * 2 * self.layers * (self.words.width + self.cells)


class LstmStack(nn.Module):
    """One direction."""

    def __init__(self, config: BilmTrunkConfig) -> None:
        super().__init__()
        self.config = config
        self.lstms = nn.ModuleList(ProjectedLstm(config.lstm()) for _ in range(config.layers))

    def new_state(self, rows: int) -> StackState:
        return tuple(lstm.new_state(rows) for lstm in self.lstms if isinstance(lstm, ProjectedLstm))

    def forward(
        self, x_ND: Tensor, order: ReadingOrder, state: StackState | None = None
    ) -> tuple[list[Tensor], StackState]:
        """Each layer's states of the tokens in reading order, and the new state."""
        rows = order.shape[0]
        given = self.new_state(rows) if state is None else state
        layers, after = [], []
        for number, (lstm, (h, c)) in enumerate(zip(self.lstms, given)):
            x_ND = dropout(x_ND, self.config.dropout, self.training)
            h_ND, (new_h, new_c) = lstm(x_ND, order, (_fitted(h, rows), _fitted(c, rows)))
            x_ND = h_ND + x_ND if number and self.config.residual else h_ND
            layers.append(x_ND)
            after.append((torch.cat([new_h, h[rows:]]), torch.cat([new_c, c[rows:]])))
        return layers, tuple(after)


class Bilm(nn.Module):
    def __init__(self, config: BilmTrunkConfig) -> None:
        super().__init__()
        self.config = config
        self.words = CharEncoder(config.words)
        self.forwards, self.backwards = LstmStack(config), LstmStack(config)

    def new_state(self, rows: int) -> BilmState:
        return self.forwards.new_state(rows), self.backwards.new_state(rows)

    def forward(self, words_BTD: Tensor, mask_BT: Tensor | None = None, state: BilmState | None = None) -> Hidden:
        """All layers for encoded words; `mask_BT` is true at real ones, and padding may be on either side."""
        if mask_BT is None:
            mask_BT = torch.ones(words_BTD.shape[:2], dtype=torch.bool, device=words_BTD.device)
        given = (None, None) if state is None else state
        read = []
        for stack, order, before in zip((self.forwards, self.backwards), reading_orders(mask_BT), given):
            layers, after = stack(order.gather(words_BTD), order, before)
            read.append(([order.scatter(layer) for layer in layers], after))
        (forward, forward_state), (backward, backward_state) = read
        encoded_BTD = words_BTD.masked_fill(~mask_BT[..., None], 0.0)
        pairs = [(encoded_BTD, encoded_BTD), *zip(forward, backward)]
        layers_BTD = tuple(torch.cat(pair, dim=-1) for pair in pairs)
        return Hidden(layers_BTD[-1], layers_BTD, (forward_state, backward_state))


def _fitted(part_BD: Tensor, rows: int) -> Tensor:
    """A state for so many rows: waiting rows are left out, new ones start at 0."""
    return F.pad(part_BD[:rows], (0, 0, 0, max(0, rows - len(part_BD))))


class BilmTrunk(Trunk):
    spells = True
    above = ("softmax.",)

    def __init__(
        self,
        config: BilmTrunkConfig,
        spelling: Spelling | None = None,
        words: int = 0,
        unknown: int | None = None,
        backward: bool = False,
    ) -> None:
        """`spelling`: that of a vocabulary's ids; None: only batches of words can be read. `words`: the number that the
        trunk's own softmax predicts, from the `backward` direction if requested; other ids count as `unknown`."""
        super().__init__()
        self.config = config
        self.spelling = spelling
        self.bilm = Bilm(config)
        self.softmax = WordSoftmax(words, config.words.width) if words else None
        self.unknown, self.backward = unknown, backward

    def forward(self, batch: Batch, state: BilmState | None = None, keep_layers: bool = False) -> Hidden:
        """`layers`, on request: the words' encodings twice, then each layer's states."""
        characters_UC, ids_BT = self.spelled(batch)
        words_UD = self.bilm.words(characters_UC)
        if isinstance(batch, SpelledBatch) and batch.back_ids_BT is not None:
            assert not keep_layers, "the layers of two texts are not those of one"
            return self._two_texts(words_UD, batch, state)
        read = self.bilm(F.embedding(ids_BT, words_UD), batch.mask_BT, state)
        return Hidden(read.top, read.layers if keep_layers else (), None if state is None else read.state)

    def spelled(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The characters of the batch's distinct words, and the row of each position."""
        if isinstance(batch, SpelledBatch) and batch.characters_UC is not None:
            return batch.characters_UC, batch.ids_BT
        assert self.spelling is not None, "ids without the characters of their words"
        distinct_U, places_BT = torch.unique(batch.ids_BT, return_inverse=True)
        return torch.from_numpy(self.spelling(distinct_U.cpu().numpy())).to(batch.ids_BT.device), places_BT

    def _two_texts(self, words_UD: Tensor, batch: SpelledBatch, state: BilmState | None) -> Hidden:
        assert batch.back_ids_BT is not None
        given = (None, None) if state is None else state
        texts = ((batch.ids_BT, batch.mask_BT), (batch.back_ids_BT, batch.back_mask_BT))
        tops, after = [], []
        for number, stack in enumerate((self.bilm.forwards, self.bilm.backwards)):
            ids_BT, mask_BT = texts[number]
            mask_BT = torch.ones_like(ids_BT, dtype=torch.bool) if mask_BT is None else mask_BT
            order = reading_order(mask_BT, backward=number == 1)
            layers, last = stack(F.embedding(order.gather(ids_BT), words_UD), order, given[number])
            tops.append(order.scatter(layers[-1]))
            after.append(last)
        return Hidden(torch.cat(tops, dim=-1), (), None if state is None else tuple(after))

    def output_layer(self) -> OutputLayer:
        assert self.softmax is not None, "the softmax is the objective's"
        return self.softmax.over_all()

    def foretelling(self, top_BTD: Tensor, next_BT: Tensor) -> tuple[Tensor, Tensor]:
        """The states of one direction, and their targets, given the word that follows each. The backward direction
        predicts the previous word, except the token that begins every text."""
        ahead_BTD, back_BTD = top_BTD.chunk(2, dim=-1)
        told_BT = next_BT
        if self.backward:
            told_BT = torch.full_like(next_BT, IGNORE)
            told_BT[:, 2:] = torch.where(next_BT[:, 1:-1] != IGNORE, next_BT[:, :-2], IGNORE)
        if self.unknown is not None and self.softmax is not None:
            told_BT = torch.where(told_BT < len(self.softmax.bias_V), told_BT, self.unknown)
        return back_BTD if self.backward else ahead_BTD, told_BT

    def new_state(self, rows: int) -> BilmState:
        """Zeros: nothing has been read."""
        return self.bilm.new_state(rows)

    def grow_vocabulary(self, size: int) -> None:
        """Nothing to do: words have no rows here."""

    def layer_names(self) -> list[tuple[str, ...]]:
        return [(f"bilm.forwards.lstms.{n}.", f"bilm.backwards.lstms.{n}.") for n in range(self.config.layers)]
