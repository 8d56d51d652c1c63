"""Optimisers and learning rates: AdamW with decay on matrices only, Muon for the matrices between states, LAMB, SGD.

Muon (Jordan et al. 2024) replaces a matrix's momentum by the nearest orthogonal matrix, found by five Newton–Schulz
steps. torch's own version computes them in bf16, which is hundreds of times slower than fp32 on a CPU without bf16
units. Ours computes in the weights' own precision and batches matrices of one shape. The update is scaled by .2·√max(m,
n), the size of an Adam update, so that one learning rate serves both (Liu et al. 2025). Muon trains the matrices that
map states to states: those of the blocks, and the dense layers before, behind and on top of them, which Adam at the
embeddings' rate spoils. Embeddings and matrices with one row per class or token use Adam.

LAMB (You et al. 2019) is Adam for large batches: the update of each matrix, decay included, is scaled to the matrix's
own norm. Norms and biases, which have no decay, are updated as in Adam, as in the released code. Both means are
corrected for starting at zero, as in the paper's algorithm; ALBERT's released code leaves this out.

Queries, keys and values are one tensor here and three matrices in the papers. Muon and LAMB treat them as three.

The rate can depend on the kind of parameter. Matrices between states have the learning rate itself. Tables (one row per
token or class) have `table_rate` times as much, vectors (norms, biases, learned scalars) `vector_rate` times as much.

Cautious decay (Chen et al. 2025) applies weight decay only to those weights that the update also moves towards 0.

SGD is v ← β₁ v + g, w ← w − rate · v, with weight decay on matrices decoupled as in AdamW; without momentum it keeps no
state.

State is kept by parameter name, as tensors only, so that a checkpoint is a safetensors file.

The learning rate is a function of the share of the budget that is spent, so that a budget in minutes ends like one in
steps: linear warm-up to the peak, then decay until the end of the budget. It depends on the position alone, so that a
resumed run has the same rates as an uninterrupted one. Two schedules of recurrent systems ignore the budget. `halving`
(CoVe): constant until a validation loss is higher than the one before, then halved at once and after every further
epoch; the number of halvings is part of the position. `root` (the released code of cross-view training): 1 / (1 + .005
√step) of the rate, times the warm-up.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from foretext.errors import refuse_if
from foretext.nn.trunk import FOREIGN, Trunk, check_names, check_tensor
from foretext.objectives.base import Objective
from foretext.plan import TransferPlan
from foretext.systems.base import TrainingConfig

MOMENTUM = 0.95
ROOT_DECAY = 0.005
_ADAPTIVE = "trunk.adaptive."  # prefix of an adaptive softmax, which belongs to the output layer
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
NEWTON_SCHULZ_STEPS = 5
BETWEEN_STATES = frozenset(("blocks", "project", "dense", "pooler"))  # modules whose matrices Muon trains


@dataclass
class Group:
    """Parameters that share a rate factor and thaw at one step. A name may stand for some rows of a parameter
    (`split_rows`)."""

    names: list[str]
    factor: float = 1.0
    thaws_at: int = 0


@dataclass(frozen=True)
class Rows:
    """Some rows of a parameter, trained like a parameter of their own."""

    name: str  # of the parameter
    first: int
    last: int  # exclusive


def split_rows(groups: list[Group], name: str, first: int, rows: int) -> dict[str, Rows]:
    """Moves the rows of a parameter from `first` on into the last group, the head's: they are as new as the head.
    Returns the parts by name."""
    parts = {f"{name}[:{first}]": Rows(name, 0, first), f"{name}[{first}:]": Rows(name, first, rows)}
    old_name, new_name = parts
    for group in groups:
        group.names = [old_name if parameter == name else parameter for parameter in group.names]
    groups[-1].names = [*groups[-1].names, new_name]
    return parts


class Optimizer:
    """AdamW, LAMB or SGD for everything, or Muon for the matrices between states and AdamW for the rest."""

    def __init__(
        self,
        config: TrainingConfig,
        parameters: Mapping[str, nn.Parameter],
        groups: list[Group],
        rows: Mapping[str, Rows] | None = None,
    ) -> None:
        """`rows`: the row ranges behind those names in `groups` that are not whole parameters."""
        self.config = config
        self.parameters = dict(parameters)
        self.groups = groups
        self.rows = dict(rows or {})
        self.learning = list(groups)
        between = (name for name in parameters if not BETWEEN_STATES.isdisjoint(name.split(".")))
        self.between = {name for name in between if parameters[name].dim() == 2}
        self.muon = self.between if config.optimizer == "muon" else set()
        self.state: dict[str, Tensor] = {}

    def thaw(self, step: int) -> None:
        """Freezes what does not learn at `step`: it gets no gradient, costs nothing, and does not count in clipping. If
        only some rows of a parameter learn, the gradient of the others is ignored."""
        self.learning = [group for group in self.groups if step >= group.thaws_at]
        live = {self._parameter(name) for group in self.learning for name in group.names}
        for name, parameter in self.parameters.items():
            parameter.requires_grad_(name in live)

    def _parameter(self, name: str) -> str:
        return self.rows[name].name if name in self.rows else name

    def _part(self, name: str, whole: Tensor) -> Tensor:
        """The part of a parameter, or of its gradient, with this name."""
        rows = self.rows.get(name)
        return whole if rows is None else whole[rows.first : rows.last]

    def _weight(self, name: str) -> Tensor:
        return self._part(name, self.parameters[self._parameter(name)])

    def _gradient(self, name: str) -> Tensor:
        gradient = self.parameters[self._parameter(name)].grad
        assert gradient is not None
        return self._part(name, gradient)

    def _live(self, group: Group) -> list[str]:
        return [name for name in group.names if self.parameters[self._parameter(name)].grad is not None]

    def gradients(self) -> list[Tensor]:
        """The gradients of everything that learns now, in the order of the parameters."""
        live = [name for group in self.learning for name in self._live(group)]
        place = {name: number for number, name in enumerate(self.parameters)}
        return [self._gradient(name) for name in sorted(live, key=lambda name: place[self._parameter(name)])]

    def step(self, rate: float) -> None:
        """One update from the current gradients."""
        for group in self.learning:
            live = self._live(group)
            rest = [name for name in live if name not in self.muon]
            update = {"lamb": self._lamb, "sgd": self._sgd}.get(self.config.optimizer, self._adamw)
            for factor in dict.fromkeys(map(self._factor, rest)):
                update([name for name in rest if self._factor(name) == factor], rate * group.factor * factor)
            self._muon([name for name in live if name in self.muon], rate * group.factor)

    def _factor(self, name: str) -> float:
        """The factor on the rate, by the kind of parameter."""
        if self._parameter(name) in self.between:
            return 1.0
        return self.config.table_rate if self._weight(name).dim() > 1 else self.config.vector_rate

    def zero_grad(self) -> None:
        for parameter in self.parameters.values():
            parameter.grad = None

    @torch.no_grad()
    def _adamw(self, names: list[str], rate: float) -> None:
        """Adam with decoupled decay: torch's fused kernel, one call for the decayed parameters and one for the
        others."""
        config = self.config
        for decayed in (True, False):
            chosen = [name for name in names if (self._weight(name).dim() > 1) == decayed]
            if not chosen:
                continue
            decay = config.weight_decay if decayed else 0.0
            if config.cautious and decay:
                self._decay_adam_cautiously(chosen, rate * decay)
                decay = 0.0
            torch._fused_adamw_(
                [self._weight(name) for name in chosen],
                [self._gradient(name) for name in chosen],
                [self._buffer(name, "exp_avg") for name in chosen],
                [self._buffer(name, "exp_avg_sq") for name in chosen],
                [],
                [self._count(name) for name in chosen],
                amsgrad=False,
                lr=rate,
                beta1=config.beta1,
                beta2=config.beta2,
                weight_decay=decay,
                eps=config.epsilon,
                maximize=False,
            )

    def _decay_adam_cautiously(self, names: list[str], amount: float) -> None:
        """Called before the update. The update has the direction of its new mean gradient, computed here."""
        for name in names:
            mean = torch.lerp(self._buffer(name, "exp_avg"), self._gradient(name), 1.0 - self.config.beta1)
            _decay_where_agreed(self._weight(name), mean, amount)

    @torch.no_grad()
    def _lamb(self, names: list[str], rate: float) -> None:
        config = self.config
        for name in names:
            parameter, gradient = self._weight(name), self._gradient(name)
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
            parameter, update = self._weight(name), self._gradient(name)
            if config.beta1:
                update = self._buffer(name, "momentum").mul_(config.beta1).add_(update)
            if config.weight_decay and parameter.dim() > 1:
                parameter.mul_(1.0 - rate * config.weight_decay)
            parameter.add_(update, alpha=-rate)

    def _kinds(self, name: str) -> tuple[str, ...]:
        """The state tensors kept for a parameter."""
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
            parameter, gradient = self._weight(name), self._gradient(name)
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
                direction = direction if update.shape == direction.shape else direction.t()
                if self.config.cautious:
                    _decay_where_agreed(weight, direction, rate * self.config.weight_decay)
                else:
                    weight.mul_(1.0 - rate * self.config.weight_decay)
                weight.add_(direction, alpha=-rate * scale)

    def _buffer(self, name: str, kind: str) -> Tensor:
        key = f"{name}/{kind}"
        if key not in self.state:
            weight = self._weight(name)
            self.state[key] = weight.new_zeros((), dtype=torch.float32) if kind == "step" else torch.zeros_like(weight)
        return self.state[key]

    def _count(self, name: str) -> Tensor:
        return self._buffer(name, "step").add_(1)

    def state_tensors(self) -> dict[str, Tensor]:
        return dict(self.state)

    def load_state(self, tensors: Mapping[str, Tensor], where: str = "state of the optimiser", count: int = 0) -> None:
        """Loads the output of `state_tensors`, read from `where`. UserError if it does not fit: the fused kernels check
        nothing. A parameter that has not learned yet has no state; `count` is the number of tensors that were saved (0:
        unknown)."""
        names = {name for group in self.groups for name in group.names}
        begun = {key.rpartition("/")[0] for key in tensors} & names
        wanted = {f"{name}/{kind}": self._weight(name) for name in begun for kind in self._kinds(name)}
        check_names(tensors, wanted, where)
        for key, parameter in wanted.items():
            shape, dtype = ((), torch.float32) if key.endswith("/step") else (parameter.shape, parameter.dtype)
            check_tensor(tensors[key], shape, dtype, f"{where}: {key}")
        refuse_if(
            count and len(tensors) != count, f"{where}: {len(tensors)} tensors, but {count} were saved; {FOREIGN}"
        )
        self.state = {key: tensors[key].to(parameter.device).clone() for key, parameter in wanted.items()}


def _decay_where_agreed(weight: Tensor, update: Tensor, amount: float) -> None:
    """Decays the weights that the update also moves towards 0. The update will be subtracted, so it has their sign."""
    weight.sub_(weight * (weight * update > 0), alpha=amount)


def _matrices(name: str, *tensors: Tensor) -> list[tuple[Tensor, ...]]:
    """Each tensor as the matrices of the papers, which are parts of it."""
    return [tensor.chunk(3) if name.endswith("qkv.weight") else (tensor,) for tensor in tensors]


def _orthogonalise(matrices: Tensor) -> Tensor:
    """Newton–Schulz: pushes all singular values of each [m, n] matrix (m ≤ n) towards 1."""
    a, b, c = NEWTON_SCHULZ
    x = matrices / matrices.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(NEWTON_SCHULZ_STEPS):
        gram = torch.bmm(x, x.transpose(1, 2))
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x


def clip_gradients(gradients: list[Tensor], limit: float) -> float:
    """Scales the gradients so that their joint norm is at most `limit`; returns the norm before."""
    if not gradients:  # a step without targets
        return 0.0
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    if limit and bool(norm > limit):
        torch._foreach_mul_(gradients, limit / (norm + 1e-6))
    return float(norm)


# -- what learns, and how much -----------------------------------------------------------------------------------------


def layered_names(trunk: Trunk) -> list[list[str]]:
    """The names of a trunk's parameters, group by group from the embeddings up."""
    return [[f"trunk.{name}" for name in group] for group in trunk.layer_groups()]


def make_optimizer(
    config: TrainingConfig,
    trunk: Trunk,
    objective: Objective,
    rate_decay: float = 1.0,
    predicting: tuple[str, ...] = (),
) -> Optimizer:
    """The optimiser. Every parameter learns from the start, all at one rate, or each group at 1/`rate_decay` of the one
    above.

    `predicting`: the embeddings, if they are also the output layer. They then belong to the top group, as in ULMFiT's
    released code, and so does an adaptive softmax. In a classifier they belong to the bottom.
    """
    parameters = {f"trunk.{name}": p for name, p in trunk.named_parameters()}
    parameters |= {f"task.{name}": p for name, p in objective.named_parameters()}
    if rate_decay == 1.0:
        return Optimizer(config, parameters, [Group(list(parameters))])
    top = [name for name in parameters if name in predicting or name.startswith(("task.", _ADAPTIVE))]
    names = [[name for name in group if name not in top] for group in layered_names(trunk)]
    names = [group for group in (*names, top) if group]
    plan = TransferPlan(rate_decay=rate_decay)
    return Optimizer(
        config, parameters, [Group(group, plan.rate_factor(i, len(names))) for i, group in enumerate(names)]
    )


# -- the rate ----------------------------------------------------------------------------------------------------------


def rate_at(config: TrainingConfig, progress: float, step: int, halvings: int = 0) -> float:
    """The rate at `progress` (0 … 1 of the budget). Warm-up counts steps if `warmup_steps` is set, otherwise the
    budget."""
    progress = min(max(progress, 0.0), 1.0)
    peak = config.rate * 0.5**halvings
    if config.schedule == "root":
        peak /= 1.0 + ROOT_DECAY * math.sqrt(step)
    if config.warmup_steps:
        warm = min(1.0, (step + 1) / config.warmup_steps)
        rest = _rest_after_steps(progress, step, config.warmup_steps - 1)
    else:
        # The first step of a budget in minutes has progress 0; a rate of exactly 0 would waste it.
        warm = min(1.0, max(progress, 1e-3) / config.warmup) if config.warmup else 1.0
        rest = max(0.0, (progress - config.warmup) / (1.0 - config.warmup)) if config.warmup < 1.0 else 0.0
    return peak * min(warm, _shape(config, rest))


def _rest_after_steps(progress: float, step: int, peak: int) -> float:
    """The share (0 … 1) of the way from step `peak` to the end of the budget.

    The budget spent at that step is estimated as progress · peak / step. This is exact for a budget in steps; for
    tokens and minutes it assumes steps of equal length. The result is 0 at the peak, 1 at the end of the budget, and
    never falls, however long the steps are.
    """
    return progress * (step - peak) / (step - progress * peak) if step > peak else 0.0


def _shape(config: TrainingConfig, rest: float) -> float:
    if config.schedule in ("constant", "halving", "root"):
        falling = 1.0
    elif config.schedule == "linear":
        falling = 1.0 - rest
    else:
        falling = 0.5 * (1.0 + math.cos(math.pi * rest))
    return config.final_rate + (1.0 - config.final_rate) * falling
