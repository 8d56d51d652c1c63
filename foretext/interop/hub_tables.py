"""Which table of names each system has in Hugging Face folders. A system without one cannot be exchanged yet."""

from __future__ import annotations

from foretext.interop.hub_decoders import GPT, GPT2, LLAMA, QWEN3
from foretext.interop.hub_encoders import ALBERT, BERT, ROBERTA, XLNET
from foretext.interop.hub_names import HubNames

# system → its table, for import and export
TABLES: dict[str, HubNames] = {
    "gpt": GPT,
    "gpt2": GPT2,
    "bert": BERT,
    "roberta": ROBERTA,
    "albert": ALBERT,
    "xlnet": XLNET,
}
# system → tables for export only; the first that fits a run is used
WRITTEN_AS: dict[str, tuple[HubNames, ...]] = {"modern": (QWEN3, LLAMA)}
