"""[task] of a fine-tuned run's config.toml: what it was taught, whatever the kind of task."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass


@dataclass(frozen=True)
class TaskConfig:
    """[task]: what a fine-tuned run was taught."""

    kind: str = ""
    labels: tuple[str, ...] = ()  # classes, or tags (chunk tags as IOB2)
    choices: int = 0  # the largest number of alternatives seen
    texts: int = 0  # regression: texts a row, 1 or 2 (pairs); 0: not kept, in runs of earlier versions
    both_orders: bool = False  # regression of pairs: read as a similarity is; false in runs of earlier versions
    mean: float = 0.0  # regression: scores are learned standardised
    deviation: float = 1.0
    shrinks: bool = False  # regression: scores are drawn towards the mean by a factor; false in earlier versions
    scheme: str = ""  # tagging: how chunks are marked in the training file; empty: the tags mark none
    fallback: str = ""  # tagging: the tag of a word of which the tokenizer leaves nothing
    unanswerable: bool = False  # span: whether a question may have no answer
    softmax: int = 0  # words that λ·L1 is told from where the trunk has no output layer of its own (elmo)
    columns: dict[str, str] = dataclasses.field(default_factory=dict)
    format: str | None = None
    metric: str | None = None  # what the best epoch is chosen by; None: the kind's own
    base: str | None = None
    from_scratch: bool = False
    epochs: int = 0
    also: dict[str, str] = dataclasses.field(default_factory=dict)  # tasks learned beside it: name → kind and classes
    sentences: int = 0  # of unlabelled text that is learned from too
    unlabelled: str = ""  # fingerprint of the unlabelled text and of the other tasks' rows
    rows: str = ""  # fingerprint of the labelled rows, so that going on with others is refused

    @property
    def arrangement(self) -> str:
        """The kind of task whose input transformation it has: a score for a pair has no order, as a similarity."""
        return "similarity" if self.both_orders else self.kind
