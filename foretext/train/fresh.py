"""A model without pre-training, for fine-tuning from nothing: new weights, and a vocabulary trained on the rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from foretext.config import Setting, apply_sets
from foretext.systems import size_named, system_named
from foretext.systems.base import TokenizerConfig, TrunkParts
from foretext.tasks.rows import Row
from foretext.train.checks import check_seed, check_sets, check_tokenizer
from foretext.train.planning import Memory, check_memory
from foretext.train.report import Reporter, Silent
from foretext.train.saved import RunConfig, SavedModel
from foretext.train.vocabulary import new_tokenizer


def fresh_model(
    system: str,
    size: str,
    rows: Sequence[Row],
    seed: int = 0,
    sets: Sequence[str | Setting] = (),
    reporter: Reporter | None = None,
) -> SavedModel:
    """`system` at `size` with `sets` (model.…, tokenizer.…), not trained at all; `reporter` hears of the vocabulary."""
    check_seed(seed)
    check_sets(sets)
    found = system_named(system)
    chosen = size_named(found, size)
    sections = apply_sets({"model": chosen.model, "tokenizer": chosen.tokenizer}, sets)
    sections["model"].check()
    check_tokenizer(sections["tokenizer"])
    check_memory(Memory(sections["model"], 1, 1))
    config: TokenizerConfig = sections["tokenizer"]
    texts = (text for row in rows for text in row.texts)
    tokenizer = new_tokenizer(found, texts, config, seed, (reporter or Silent()).work)
    sections["model"] = dataclasses.replace(sections["model"], vocabulary=tokenizer.size)
    sections["run"] = RunConfig("pretrain", system, size, "forward", seed, tokenizer.fingerprint())
    return SavedModel(None, sections, found, tokenizer, found.build_trunk(TrunkParts(sections["model"], tokenizer)))
