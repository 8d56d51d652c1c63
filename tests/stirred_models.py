"""Minute language models whose weights were moved far from where they started, so that every neighbour matters."""

from pathlib import Path

import torch
from systems_under_test import pretrain_request, write_text

import foretext as ft
from foretext.api import LanguageModel
from foretext.train.pretraining.pretrain import pretrain


def stirred(system: str, folder: Path, *more: object) -> LanguageModel:
    """A model after a few steps in `folder`. `more`: of `pretrain_request`, the steps and settings."""
    lm = ft.load(pretrain(pretrain_request(system, write_text(folder), folder / "run", *more)))  # type: ignore[arg-type]
    assert isinstance(lm, LanguageModel)
    torch.manual_seed(3)
    with torch.no_grad():
        for module in (lm.model.trunk, lm.model.objective):
            assert module is not None
            for parameter in module.parameters():
                parameter.add_(0.2 * torch.randn_like(parameter))
    return lm
