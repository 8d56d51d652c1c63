"""Optimisers: AdamW with decay on matrices only, Muon for the matrices between states, LAMB, and plain SGD.

Muon (Jordan et al. 2024) replaces a matrix's momentum by the nearest orthogonal matrix, found by five Newton–Schulz
steps. torch's own computes them in bf16, which a CPU without bf16 units does hundreds of times slower than fp32; here
they run in the weights' own precision, and matrices of one shape are handled as one batch. The update is scaled by
.2·√max(m, n), so that its size is that of an Adam update and one learning rate serves both (Liu et al. 2025). It is for
matrices that make states of states: those of the blocks, and the dense layers before, behind and on top of them, which
Adam at the rate of the embeddings spoils. Embeddings and what is a row for each class or token are Adam's.

LAMB (You et al. 2019) is Adam whose update of each matrix, decay included, is scaled to the matrix's own norm, for
large batches. Norms and biases, which are not decayed either, are updated as Adam would, as in the released code. Both
means are corrected for their start at zero, as in the paper's algorithm; ALBERT's released code leaves that out.

Queries, keys and values are one tensor here and three matrices in the papers: Muon and LAMB treat them as three.

SGD is v ← β₁ v + g, w ← w − rate · v, the decay of matrices decoupled as AdamW's is; without momentum it keeps nothing.

State is kept by parameter name, as tensors only, so that a checkpoint is a safetensors file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from foretext.errors import UserError
from foretext.nn.loading import FOREIGN, check_names, check_tensor
from foretext.systems.base import TrainingConfig

MOMENTUM = 0.95
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
NEWTON_SCHULZ_STEPS = 5
BETWEEN_STATES = frozenset(("blocks", "project", "dense", "pooler"))  # modules whose matrices Muon takes


@dataclass
class Group:
    """Parameters that share a rate factor and thaw at one epoch."""

    names: list[str]
    factor: float = 1.0
    thaws_at: int = 0


class Optimizer:
    """AdamW, LAMB or SGD for everything, or Muon for the matrices between states and AdamW for the rest."""

    def __init__(self, config: TrainingConfig, parameters: Mapping[str, nn.Parameter], groups: list[Group]) -> None:
        self.config = config
        self.parameters = dict(parameters)
        self.groups = groups
        self.muon = {name for name in parameters if config.optimizer == "muon" and _is_between_states(name, parameters)}
        self.state: dict[str, Tensor] = {}

    def thaw(self, epoch: int) -> None:
        """Freezes what does not learn in `epoch`: it gets no gradient, costs none, and has no part in clipping."""
        for group in self.groups:
            for name in group.names:
                self.parameters[name].requires_grad_(epoch >= group.thaws_at)

    def step(self, rate: float) -> None:
        """One update from the gradients that are there."""
        for group in self.groups:
            live = [name for name in group.names if self.parameters[name].grad is not None]
            rest = [name for name in live if name not in self.muon]
            if self.config.optimizer == "lamb":
                self._lamb(rest, rate * group.factor)
            elif self.config.optimizer == "sgd":
                self._sgd(rest, rate * group.factor)
            else:
                self._adamw(rest, rate * group.factor)
            self._muon([name for name in live if name in self.muon], rate * group.factor)

    def zero_grad(self) -> None:
        for parameter in self.parameters.values():
            parameter.grad = None

    @torch.no_grad()
    def _adamw(self, names: list[str], rate: float) -> None:
        """Adam with decoupled decay; torch's fused kernel, one call for the decayed and one for the others."""
        config = self.config
        for decayed in (True, False):
            chosen = [name for name in names if (self.parameters[name].dim() > 1) == decayed]
            if not chosen:
                continue
            tensors: list[Tensor] = [self.parameters[name] for name in chosen]
            torch._fused_adamw_(
                tensors,
                [_gradient(tensor) for tensor in tensors],
                [self._buffer(name, "exp_avg") for name in chosen],
                [self._buffer(name, "exp_avg_sq") for name in chosen],
                [],
                [self._count(name) for name in chosen],
                amsgrad=False,
                lr=rate,
                beta1=config.beta1,
                beta2=config.beta2,
                weight_decay=config.weight_decay if decayed else 0.0,
                eps=config.epsilon,
                maximize=False,
            )

    @torch.no_grad()
    def _lamb(self, names: list[str], rate: float) -> None:
        config = self.config
        for name in names:
            parameter, gradient = self.parameters[name], _gradient(self.parameters[name])
            first, second = self._buffer(name, "exp_avg"), self._buffer(name, "exp_avg_sq")
            count = float(self._count(name))
            first.lerp_(gradient, 1.0 - config.beta1)
            second.mul_(config.beta2).addcmul_(gradient, gradient, value=1.0 - config.beta2)
            scale = (second / (1.0 - config.beta2**count)).sqrt_().add_(config.epsilon)
            update = (first / (1.0 - config.beta1**count)).div_(scale)
            if parameter.dim() < 2:
                parameter.add_(update, alpha=-rate)
                continue
            update.add_(parameter, alpha=config.weight_decay)
            for weight, change in zip(*_matrices(name, parameter, update)):
                of_weight, of_change = float(weight.norm()), float(change.norm())
                trust = of_weight / of_change if of_weight > 0 and of_change > 0 else 1.0
                weight.add_(change, alpha=-rate * trust)

    @torch.no_grad()
    def _sgd(self, names: list[str], rate: float) -> None:
        config = self.config
        for name in names:
            parameter, update = self.parameters[name], _gradient(self.parameters[name])
            if config.beta1:
                update = self._buffer(name, "momentum").mul_(config.beta1).add_(update)
            if config.weight_decay and parameter.dim() > 1:
                parameter.mul_(1.0 - rate * config.weight_decay)
            parameter.add_(update, alpha=-rate)

    def _kinds(self, name: str) -> tuple[str, ...]:
        """The tensors that are kept for a parameter."""
        if self.config.optimizer == "sgd":
            return ("momentum",) if self.config.beta1 > 0 else ()
        return ("momentum",) if name in self.muon else ("exp_avg", "exp_avg_sq", "step")

    def kept(self, name: str) -> int:
        """How many tensors of a parameter's size are kept for it."""
        return sum(kind != "step" for kind in self._kinds(name))

    @torch.no_grad()
    def _muon(self, names: list[str], rate: float) -> None:
        shapes: dict[tuple[int, int], list[tuple[Tensor, Tensor]]] = {}
        for name in names:
            parameter = self.parameters[name]
            gradient = _gradient(parameter)
            momentum = self._buffer(name, "momentum")
            momentum.lerp_(gradient, 1.0 - MOMENTUM)
            nesterov = gradient.lerp(momentum, MOMENTUM)
            for weight, update in zip(*_matrices(name, parameter, nesterov)):
                wide = update if update.shape[0] <= update.shape[1] else update.t()
                shapes.setdefault((wide.shape[0], wide.shape[1]), []).append((weight, update))
        for shape, pairs in shapes.items():
            stacked = torch.stack([u if tuple(u.shape) == shape else u.t() for _, u in pairs])
            scale = 0.2 * max(shape) ** 0.5
            for (weight, update), direction in zip(pairs, _orthogonalise(stacked)):
                weight.mul_(1.0 - rate * self.config.weight_decay)
                weight.add_(direction if update.shape == direction.shape else direction.t(), alpha=-rate * scale)

    def _buffer(self, name: str, kind: str) -> Tensor:
        key = f"{name}/{kind}"
        if key not in self.state:
            self.state[key] = torch.zeros_like(self.parameters[name])
        return self.state[key]

    def _count(self, name: str) -> Tensor:
        key = f"{name}/step"
        if key not in self.state:
            self.state[key] = torch.zeros((), dtype=torch.float32, device=self.parameters[name].device)
        return self.state[key].add_(1)

    def state_tensors(self) -> dict[str, Tensor]:
        return dict(self.state)

    def load_state(self, tensors: Mapping[str, Tensor], where: str = "state of the optimiser", count: int = 0) -> None:
        """What `state_tensors` gave, read from `where`. UserError if it does not fit: the fused kernels check nothing.
        A parameter that has not learned yet has no state; `count` says how many tensors there were (0: not known)."""
        begun = {key.rpartition("/")[0] for key in tensors} & self.parameters.keys()
        wanted = {f"{name}/{kind}": self.parameters[name] for name in begun for kind in self._kinds(name)}
        check_names(tensors, wanted, where)
        for key, parameter in wanted.items():
            shape, dtype = ((), torch.float32) if key.endswith("/step") else (parameter.shape, parameter.dtype)
            check_tensor(tensors[key], shape, dtype, f"{where}: {key}")
        if count and len(tensors) != count:
            raise UserError(f"{where}: {len(tensors)} tensors instead of {count}; {FOREIGN}")
        self.state = {key: tensors[key].to(parameter.device).clone() for key, parameter in wanted.items()}


def _gradient(parameter: Tensor) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad


def _matrices(name: str, *tensors: Tensor) -> list[tuple[Tensor, ...]]:
    """Each tensor as the matrices of the papers, which are parts of it."""
    return [tensor.chunk(3) if name.endswith("qkv.weight") else (tensor,) for tensor in tensors]


def _is_between_states(name: str, parameters: Mapping[str, nn.Parameter]) -> bool:
    return parameters[name].dim() == 2 and not BETWEEN_STATES.isdisjoint(name.split("."))


def _orthogonalise(matrices: Tensor) -> Tensor:
    """Newton–Schulz: pushes all singular values of each [m, n] matrix (m ≤ n) towards 1."""
    a, b, c = NEWTON_SCHULZ
    x = matrices / matrices.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(NEWTON_SCHULZ_STEPS):
        gram = torch.bmm(x, x.transpose(1, 2))
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x


def clip_gradients(parameters: Mapping[str, nn.Parameter], limit: float) -> float:
    """Scales all gradients so that their joint norm is at most `limit`; returns the norm before."""
    gradients = [p.grad for p in parameters.values() if p.grad is not None]
    if not gradients:  # a step without a single target
        return 0.0
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    if limit and bool(norm > limit):
        torch._foreach_mul_(gradients, limit / (norm + 1e-6))
    return float(norm)
