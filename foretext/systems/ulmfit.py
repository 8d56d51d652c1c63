"""ULMFiT: "Universal Language Model Fine-tuning for Text Classification" (Howard, Ruder, 2018), on the AWD-LSTM of
"Regularizing and Optimizing LSTM Language Models" (Merity, Keskar, Socher, 2017).

Followed
    Trunk: embeddings of 400, three LSTM layers of 1150, 1150 and 400 cells, softmax tied to the embeddings; dropout of
    .05 on embedding rows, .4 on the input, .5 on the hidden-to-hidden weights, .3 between layers, .4 on the output, all
    multiplied by `training.dropout`. BPTT of 70 over contiguous streams with carried state, of varying length: N(70, 5)
    and, one time in twenty, N(35, 5). Adam with β₁ .7 and β₂ .99, batch 64. Slanted triangular rates: up for a tenth of
    the updates, then down to 1/32. The second stage (`pretrain --from`) learns at .004, the classifier at .01, each
    layer group below at 1/2.6 of the rate of the one above (the classifier has five groups: embeddings, each LSTM
    layer, the head). The classifier thaws one more group per epoch from the top, and reads [h_T; maxpool(H);
    meanpool(H)] of whole documents in pieces of 70 through two blocks with batch norm, dropout and 50 hidden units
    (`tasks/heads/concat_pooling.py`). A new vocabulary (`--new-vocabulary`) keeps the rows of known pieces, and new
    ones get the mean (`train/pretraining/pretrain.py`). Either direction, and both averaged (`predict --with`).

From the released code, where the paper is silent or differs
    AR with α 2 and TAR with β 1, as means of squares, in pre-training and in the classifier. Gradients are clipped at
    norm .3 (language model, in the second stage; here in the first too) and 25 (classifier); decay 1e-7. Pre-training
    at 3e-4, the script's default, since the paper gives a rate only for its second stage. In the second stage the
    embeddings, which are also the output layer, are in the top group (`pretrain.py`). No bias in the softmax. In the
    classifier the state is detached between pieces, and a batch has documents of similar length. The released code has
    β₁ .8, and about half of the paper's dropouts in the second stage, a quarter in the first: `--set
    training.dropout=0.5`. The rate does not depend on the length of a piece, unlike in AWD-LSTM's paper.

Deviations
    Words are pieces of a subword vocabulary (`paper`: 30,000 of lower-cased WordPiece), with practically no unknown
    words, not spaCy's 30,000 most frequent words; there are no marks for capitals and repetitions; a document begins
    after the end-of-text token, not after its own marks. The first piece of an epoch is not longer than the others. All
    states of a document are pooled; the released code pools the last 1,400, and cuts pieces from the beginning. The
    triangle rises from 0, not from 1/32, and there is one for a whole fine-tuning; the released code has one for each
    of the first thaws. Pairs of texts, which the paper does not have, are read one after the other. `tiny` and `small`
    are not the paper's: byte-level BPE, narrow layers, embeddings of a fixed size and input weights that affect every
    layer from the first update on (`model.lively`), no dropout and no penalties in pre-training (a short run sees no
    text twice), higher rates, and a decay of .1, since weights and the gates' inputs otherwise grow too much. In
    fine-tuning everything learns from the start at .004, which did better in trials (docs/log.md; the paper's way:
    `--plan paper`). If there are fewer epochs than groups, groups thaw faster than one per epoch (`plan.WHOLE`). GPT's
    way on the LSTM (`--plan gpt`) is GPT's loss L3 and schedule on running text: documents are read as in ULMFiT
    (`RunningTextLayout`), without GPT's start, delimiter and extract tokens. It learns at .001, not tuned: the
    classifier's .01 is for one layer at a time.
"""

from dataclasses import replace

from foretext.nn.recurrent.awd_lstm import AwdLstm, AwdLstmConfig
from foretext.objectives.stream import StreamConfig, StreamObjective
from foretext.plan import WAYS, ConcatPoolingConfig
from foretext.systems.base import Size, StartConfig, System, TokenizerConfig, TrainingConfig
from foretext.tasks.layouts.base import RunningTextLayout

WAY = WAYS["ulmfit"]  # rates by depth, one more layer per epoch, concatenated pooling, the slanted triangle
START = StartConfig(rate_decay=WAY.transfer.rate_decay)  # of the second stage
POOLING = ConcatPoolingConfig()
RATES = {"gpt": 1e-3}  # everything from the start; not tuned


def _training(rate: float, clip: float, batch_size: int, dropout: float, decay: float = 1e-7) -> TrainingConfig:
    """Adam and the slanted triangle."""
    return TrainingConfig(
        rate=rate,
        schedule=WAY.schedule,
        warmup=WAY.warmup,
        final_rate=WAY.final_rate,
        weight_decay=decay,
        beta1=0.7,
        beta2=0.99,
        clip=clip,
        batch_size=batch_size,
        dropout=dropout,
    )


def _short(model: AwdLstmConfig, pieces: int, rate: float) -> Size:
    """For minutes on a CPU."""
    return Size(
        model,
        TokenizerConfig("byte-bpe", pieces),
        _training(rate=rate, clip=0.3, batch_size=32, dropout=0.0, decay=0.1),
        _training(rate=4e-3, clip=25.0, batch_size=16, dropout=0.5),
        epochs=6,
        least_updates=500,
        transfer=replace(WAY.transfer, rate_decay=1.0, thaw="all"),
        objective=StreamConfig(activation=0.0, temporal=0.0),
        onward=_training(rate=4e-3, clip=0.3, batch_size=32, dropout=0.0),
        start=START,
        pooling=POOLING,
        rates=RATES | {"ulmfit": 1e-2},
    )


SIZES = {
    "tiny": _short(AwdLstmConfig(vocabulary=0, layers=3, width=192, hidden=320, lively=True), 8000, 8e-3),
    "small": _short(AwdLstmConfig(vocabulary=0, layers=3, width=256, hidden=768, lively=True), 16000, 4e-3),
    "paper": Size(
        AwdLstmConfig(vocabulary=0),
        TokenizerConfig("wordpiece", 30000),
        _training(rate=3e-4, clip=0.3, batch_size=64, dropout=1.0),
        _training(rate=1e-2, clip=25.0, batch_size=64, dropout=1.0),
        epochs=14,
        transfer=WAY.transfer,
        objective=StreamConfig(),
        onward=_training(rate=4e-3, clip=0.3, batch_size=64, dropout=1.0),
        start=START,
        pooling=POOLING,
        rates=RATES,
    ),
}


ULMFIT = System(
    name="ulmfit",
    paper="Howard and Ruder 2018, Universal Language Model Fine-tuning for Text Classification",
    base="AWD-LSTM, state carried over streams",
    objective="causal language model, with penalties on activations and their changes",
    direction="left to right, or right to left",
    tokenizer="WordPiece (paper), byte-level BPE (tiny, small)",
    transfer="slanted triangular rates, lower by depth, one more layer per epoch (paper; tiny, small: all at once); "
    "last, maximum and mean state",
    specials=RunningTextLayout.specials,
    sizes=SIZES,
    config=AwdLstmConfig,
    build_trunk=lambda parts: AwdLstm(parts.model),
    build_objective=lambda parts: StreamObjective(parts.model, parts.settings, parts.direction),
    build_layout=lambda ids, context, direction: RunningTextLayout(ids, direction),
    objective_config=StreamConfig,
    piece_rows=("trunk.tokens.weight",),
)
