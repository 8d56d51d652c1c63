"""The losses that a fine-tuning adds up, read from its configuration: for the plan before training, and for `info`.

label + 0.5 · language model                                        GPT
label + 2 · activation + 1 · temporal activation                    ULMFiT
label; unlabelled text: 1 · (forward, backward, future, past)       Cross-View Training
"""

from __future__ import annotations

from typing import Any

LABEL = "label"
MIXTURE = "squared weights of the mixture"  # part of the label's loss, so not a loss with a name of its own
_WORDS = {"lm": "language model", "temporal": "temporal activation"}


def loss_terms(sections: dict[str, Any]) -> dict[str, float]:
    """Each named loss and its weight, as the task itself has them; a weight that rises is given as it ends."""
    objective, task = sections.get("objective"), sections["task"]
    if objective is not None:  # of a system that has heads of its own
        kinds = {LABEL: task.kind} | {name: said.split()[0] for name, said in task.also.items()}
        terms: dict[str, float] = objective.loss_terms(kinds)
        return terms
    transfer, pooling = sections["transfer"], sections.get("pooling")
    penalties = {} if pooling is None else {"activation": pooling.activation, "temporal": pooling.temporal}
    added = {"lm": transfer.lm_weight} | penalties
    return {LABEL: 1.0} | {name: weight for name, weight in added.items() if weight}


def describe_loss(sections: dict[str, Any]) -> str:
    """The same in one line. Losses on unlabelled text stand apart, and only where there is such text."""
    terms, transfer = loss_terms(sections), sections["transfer"]
    tasks = {name: weight for name, weight in terms.items() if "." not in name}
    words = _WORDS | ({"lm": "language model, right to left"} if sections["run"].direction == "backward" else {})
    line = " + ".join(
        name if weight == 1.0 and name not in ("activation", "temporal") else f"{weight:g} · {words.get(name, name)}"
        for name, weight in tasks.items()
    )
    reader = transfer.reader
    if transfer.model == "recurrent" and reader.penalty and (reader.mix or reader.twice):
        line += f" + {reader.penalty:g} · {MIXTURE}"
    views = list(dict.fromkeys(name.partition(".")[2] for name in terms if "." in name))
    if views and sections["task"].sentences:
        line += f"; unlabelled text: {sections['objective'].unlabelled_weight:g} · ({', '.join(views)})"
    return line
