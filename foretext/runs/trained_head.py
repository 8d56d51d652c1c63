"""What predicts tokens must have been trained: a folder from elsewhere may lack it, and then it was drawn."""

from __future__ import annotations

from foretext.errors import UserError
from foretext.objectives.masked import MaskedObjective
from foretext.objectives.permutation import PermutationObjective
from foretext.runs.model import SavedModel

_LACKED = {MaskedObjective: "a head for masked tokens", PermutationObjective: "its output bias"}


def need_trained_head(model: SavedModel, what: str) -> None:
    """UserError where what predicts tokens was drawn on import, and not trained since."""
    data = model.sections.get("data")
    if data is not None and data.head_drawn:
        where = model.run.path if model.run else "this model"
        lacked = next((words for kind, words in _LACKED.items() if isinstance(model.objective, kind)), "its softmax")
        raise UserError(
            f"{where} was imported without {lacked}, and the one that was drawn knows nothing: {what} needs one that "
            f"was trained; go on with it: foretext pretrain TEXT --from {where} --out ANOTHER"
        )
