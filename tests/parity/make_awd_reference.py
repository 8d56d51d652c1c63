"""Makes `awd_reference.json`: what fastai's AWD-LSTM gives for small random weights, for `test_awd_fastai.py`.

fastai asks for torchvision and spaCy, which its text models do not import, and for a torch of any kind. So it lives in
an environment of its own that is filled without its dependencies; torch is the version that the tests here run with
(2.13.0; the one for the CPU will do, and is small):

    python3.11 -m venv fastai-env
    fastai-env/bin/pip install --no-deps -c constraints.txt torch fastai==2.8.12 fastcore==2.2.38 \\
        fasttransform==0.0.5 fastdownload==0.0.8 fastprogress==1.0.3 plum-dispatch==2.9.0 beartype==0.23.1
    fastai-env/bin/pip install -c constraints.txt numpy filelock typing_extensions sympy networkx jinja2 fsspec \\
        matplotlib pandas requests pyyaml pillow scikit-learn scipy packaging cloudpickle rich
    fastai-env/bin/python tests/parity/make_awd_reference.py

Kept are weights and ids; without dropout all layers and the state over two batches in a row; and a training step with
all five dropouts, whose masks are kept too, and both penalties: states, loss and every gradient.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

REFERENCE = Path(__file__).with_name("awd_reference.json")
SHAPE = {"emb_sz": 8, "n_hid": 12, "n_layers": 3}
DROPOUTS = {"embed_p": 0.2, "input_p": 0.4, "weight_p": 0.5, "hidden_p": 0.3, "output_p": 0.4}
VOCABULARY = 20
ROWS = 3
LENGTHS = (7, 5)  # of the two batches
ALPHA, BETA = 2.0, 1.0


def load_fastai() -> tuple[Any, Any, Any]:
    """The modules of its AWD-LSTM, its language model and its penalties."""
    names = ("fastai.text.models.awdlstm", "fastai.text.models.core", "fastai.callback.rnn")
    awdlstm, core, penalties = (importlib.import_module(name) for name in names)
    return awdlstm, core, penalties


def numbers(tensor: Tensor) -> Any:
    """Nested lists, with as many digits as float32 has."""
    if tensor.dim():
        return [numbers(part) for part in tensor.detach()]
    return float(f"{float(tensor):.8g}")


def weights_of(encoder: Any) -> dict[str, Tensor]:
    """Under our names."""
    found = {"tokens.weight": encoder.encoder.weight}
    for number, rnn in enumerate(encoder.rnns):
        found[f"layers.{number}.weight_ih"] = rnn.module.weight_ih_l0
        found[f"layers.{number}.weight_hh"] = rnn.weight_hh_l0_raw
        found[f"layers.{number}.bias_ih"] = rnn.module.bias_ih_l0
        found[f"layers.{number}.bias_hh"] = rnn.module.bias_hh_l0
    return found


def evaluated(encoder: Any, batches: list[Tensor]) -> list[dict[str, Any]]:
    """All layers of each batch and the state after it, carried on from batch to batch."""
    layers: list[Tensor] = []
    hooks = [encoder.input_dp.register_forward_hook(lambda module, inputs, output: layers.append(output))]
    for rnn in encoder.rnns:
        hooks.append(rnn.register_forward_hook(lambda module, inputs, output: layers.append(output[0])))
    encoder.reset()
    found = []
    for ids in batches:
        layers.clear()
        top = encoder(ids)
        assert torch.equal(top, layers[-1])
        state = [[numbers(part[0]) for part in pair] for pair in encoder.hidden]
        found.append({"layers": [numbers(layer) for layer in layers], "state": state})
    for hook in hooks:
        hook.remove()
    return found


def record_masks(awdlstm: Any) -> list[Tensor]:
    """From now on, every mask that is drawn, in order; that of a weight as the factor of its entries."""
    masks: list[Tensor] = []
    draw, setweights = awdlstm.dropout_mask, awdlstm.WeightDropout._setweights

    def drawn(x: Tensor, sz: Any, p: float) -> Tensor:
        masks.append(draw(x, sz, p))
        return masks[-1]

    def dropped(self: Any) -> None:
        setweights(self)
        masks.append((self.module.weight_hh_l0 / self.weight_hh_l0_raw).detach())

    awdlstm.dropout_mask, awdlstm.WeightDropout._setweights = drawn, dropped
    return masks


def trained(model: Any, penalties: Any, masks: list[Tensor], ids: Tensor, targets: Tensor) -> dict[str, Any]:
    """One step: cross-entropy as a mean, and fastai's own callback for the penalties."""
    model.reset()
    masks.clear()
    logits, top, dropped = model(ids)
    learner = SimpleNamespace(
        training=True,
        loss_grad=F.cross_entropy(logits.flatten(0, 1), targets.flatten()),
        rnn=SimpleNamespace(out=dropped, raw_out=top),
    )
    regularizer = penalties.RNNRegularizer(alpha=ALPHA, beta=BETA)
    regularizer.learn = learner
    plain = float(learner.loss_grad.detach())
    regularizer.after_loss()
    learner.loss_grad.backward()
    kept = []
    for mask in masks:
        flat = mask.flatten()
        kept.append({"shape": list(mask.shape), "scale": float(flat.max()), "kept": _bits(flat)})
    return {
        "ids": ids.tolist(),
        "targets": targets.tolist(),
        "masks": kept,
        "top": numbers(top),
        "dropped": numbers(dropped),
        "cross_entropy": plain,
        "loss": float(learner.loss_grad.detach()),
        "gradients": {name: numbers(weight.grad) for name, weight in weights_of(model[0]).items()},
    }


def _bits(flat: Tensor) -> str:
    return "".join("1" if value else "0" for value in flat.tolist())


def main() -> None:
    awdlstm, core, penalties = load_fastai()
    torch.manual_seed(7)
    config = SHAPE | DROPOUTS | {"pad_token": VOCABULARY - 1, "bidir": False, "tie_weights": True, "out_bias": False}
    model = core.get_language_model(awdlstm.AWD_LSTM, VOCABULARY, config)
    with torch.no_grad():
        for weight in weights_of(model[0]).values():
            weight.mul_(3.0)  # so large that everything matters to the result
    # fastai has no gradient for the embedding of its padding, the last id: it is not read.
    batches = [torch.randint(0, VOCABULARY - 1, (ROWS, length)) for length in LENGTHS]
    targets = torch.randint(0, VOCABULARY, batches[0].shape)
    reference = {
        "made_with": {name: importlib.metadata.version(name) for name in ("fastai", "torch")},
        "shape": SHAPE,
        "dropouts": DROPOUTS,
        "vocabulary": VOCABULARY,
        "penalties": [ALPHA, BETA],
        "weights": {name: numbers(weight) for name, weight in weights_of(model[0]).items()},
        "batches": [ids.tolist() for ids in batches],
        "evaluation": evaluated(model.eval()[0], batches),
        "training": trained(model.train(), penalties, record_masks(awdlstm), batches[0], targets),
    }
    REFERENCE.write_text(json.dumps(reference, separators=(",", ":")) + "\n")
    print(f"{REFERENCE.name}: {REFERENCE.stat().st_size / 1000:.0f} kB with {reference['made_with']}")


if __name__ == "__main__":
    main()
