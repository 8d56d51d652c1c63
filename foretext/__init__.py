"""Foretext turns a pile of unlabelled text and a few labels into a working language model.

`import foretext as ft` gives `ft.pretrain`, `ft.load` and `ft.TextClassifier`, and for models without pre-training
`ft.finetune`, `ft.new_model`, `ft.OtherTask` and `ft.read_sentences`. torch is imported only when one of them needs it.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from foretext.api import LanguageModel, OtherTask, TaskModel, finetune, load, new_model, pretrain
    from foretext.learn.estimator import TextClassifier
    from foretext.tasks.files.conll import read_sentences

__all__ = [
    "LanguageModel",
    "OtherTask",
    "TaskModel",
    "TextClassifier",
    "__version__",
    "finetune",
    "load",
    "new_model",
    "pretrain",
    "read_sentences",
]


def __getattr__(name: str) -> Any:
    if name == "TextClassifier":
        from foretext.learn.estimator import TextClassifier

        return TextClassifier
    if name == "read_sentences":
        from foretext.tasks.files.conll import read_sentences

        return read_sentences
    if name in __all__:
        from foretext import api

        return getattr(api, name)
    raise AttributeError(f"module 'foretext' has no attribute {name!r}")
