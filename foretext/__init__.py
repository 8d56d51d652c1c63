"""Foretext turns a pile of unlabelled text and a few labels into a working language model.

`import foretext as ft` gives `ft.pretrain`, `ft.load` and `ft.TextClassifier`; torch is imported when one of them is
first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from foretext.api import LanguageModel, TaskModel, load, pretrain
    from foretext.interop.sklearn import TextClassifier

__all__ = ["LanguageModel", "TaskModel", "TextClassifier", "__version__", "load", "pretrain"]


def __getattr__(name: str) -> Any:
    if name == "TextClassifier":
        from foretext.interop.sklearn import TextClassifier

        return TextClassifier
    if name in __all__:
        from foretext import api

        return getattr(api, name)
    raise AttributeError(f"module 'foretext' has no attribute {name!r}")
