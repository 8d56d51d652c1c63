"""Sentence vectors: the mean of the top layer's states over a text's tokens."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np
import torch

from foretext.batch import Batch, padded
from foretext.text.encoding import encode_texts
from foretext.text.tokenizer import END
from foretext.train.report import Reporter, Silent
from foretext.train.saved import SavedModel
from foretext.train.scoring import length_batches


@torch.no_grad()
def text_vectors(
    model: SavedModel,
    texts: Sequence[str],
    progress: Callable[[int, int], None] | None = None,
    reporter: Reporter | None = None,
) -> np.ndarray:
    """One float32 vector of the model's width for each text; texts beyond the context count with their beginning.
    `progress` hears of the vectors, `reporter` of the encoding before them."""
    trunk = model.trunk.eval()
    device = next(trunk.parameters()).device
    start = [model.tokenizer.specials[END]] if END in model.tokenizer.specials else []
    room = model.model_config.context - len(start)
    step = -1 if model.info.direction == "backward" else 1
    heard = functools.partial((reporter or Silent()).work, "encoding")
    encoded = [start + ids[:room].tolist()[::step] for ids in encode_texts(texts, model.tokenizer, heard)]
    vectors = np.zeros((len(texts), model.model_config.width), dtype=np.float32)
    done = 0
    for group in length_batches([len(ids) for ids in encoded]):
        batch = Batch(*padded([encoded[index] for index in group])).to(device)
        assert batch.mask_BT is not None
        mask = batch.mask_BT.float()
        mean = (trunk(batch).top * mask[..., None]).sum(1) / mask.sum(1, keepdim=True).clamp(min=1)
        vectors[group] = mean.cpu().numpy()
        done += len(group)
        if progress is not None:
            progress(done, len(texts))
    return vectors
