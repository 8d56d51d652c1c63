"""The head fitted before fine-tuning, against scikit-learn's logistic regression and least squares."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression, Ridge
from tolerance import close, doubles, terms_of

from foretext.batch import Batch, Hidden
from foretext.nn.trunk import Trunk
from foretext.tasks.heads.supervised import INVERSE_PENALTY, Example, SupervisedTask
from foretext.tasks.layouts.base import TokenSequence

WIDTH = 6
DROPOUT = 0.2
ROWS = 60
# A gradient is a sum over rows of states weighed by W_y, and means over rows go into a bias. The minimum is off by the
# gradient's error over the curvature, which is a fifth or more.
TERMS = terms_of(5 * (2 * ROWS + 2 * WIDTH))


@pytest.fixture(autouse=True)
def _doubles() -> Iterator[None]:
    with doubles():
        yield


@pytest.fixture
def to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fit goes on by the gradient alone until that is nothing but rounding: a loss tells half as many digits."""
    solver = partial(torch.optim.LBFGS, tolerance_grad=1e-16, tolerance_change=0)
    monkeypatch.setattr(torch.optim, "LBFGS", lambda weights, **_: solver(weights, max_iter=1000))


class Table(Trunk):
    """A trunk whose state at each position is the row of its token."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.states = torch.nn.Parameter(torch.randn(rows, WIDTH) * torch.linspace(0.5, 3, WIDTH) + 1)

    def forward(self, batch: Batch) -> Hidden:
        return Hidden(self.states[batch.ids_BT])


def one(number: int) -> tuple[TokenSequence, ...]:
    return (TokenSequence((number,), 0, 0),)


def fitted(kind: str, classes: int, examples: list[Example], trunk: Table) -> tuple[np.ndarray, np.ndarray]:
    task = SupervisedTask(kind, classes, WIDTH, 0.0, DROPOUT)
    task.fit_head(trunk, examples, torch.device("cpu"), seed=0)
    assert trunk.training and task.training
    return task.head.weight.detach().numpy(), task.head.bias.detach().numpy()


def standardised(states: torch.Tensor) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """By the deviation that dropout gives them: the state, or none of it, over 1 − p."""
    features = states.detach().numpy().astype(np.float64)
    seen = np.concatenate([features / (1 - DROPOUT)] * 4 + [np.zeros_like(features)])
    return (features - features.mean(0)) / seen.std(0), features.mean(0), seen.std(0)


def is_logistic_regression(weight: np.ndarray, bias: np.ndarray, states: torch.Tensor, labels: list[int]) -> None:
    standard, mean, deviation = standardised(states)
    # Two classes: one row there, the difference of two here, each with half the penalty's due.
    penalty = 2 * INVERSE_PENALTY if len(weight) == 2 else INVERSE_PENALTY
    reference = LogisticRegression(C=penalty, solver="newton-cg", tol=1e-14).fit(standard, labels)
    coefficients = reference.coef_ / deviation
    shifted = reference.intercept_ - coefficients @ mean
    if len(weight) == 2:
        weight, bias = weight[1:] - weight[:1], bias[1:] - bias[:1]
    else:  # softmax does not see a shift
        bias, shifted = bias - bias.mean(), shifted - shifted.mean()
    close([weight, bias], [coefficients, shifted], terms=TERMS)


def three_classes(trunk: Table) -> tuple[list[int], np.ndarray, np.ndarray]:
    labels = [int(state.argmax()) % 3 for state in trunk.states]
    return labels, *fitted("classification", 3, [Example(one(n), label) for n, label in enumerate(labels)], trunk)


def test_three_classes_as_scikit_learn_fits_them(to_the_end: None) -> None:
    trunk = Table(ROWS)
    labels, weight, bias = three_classes(trunk)
    is_logistic_regression(weight, bias, trunk.states, labels)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_fit_ends_where_the_loss_is_the_least_to_all_digits_of_float32(
    dtype: torch.dtype, request: pytest.FixtureRequest
) -> None:
    """And that without `to_the_end`."""
    trunk = Table(ROWS)
    states, (_, _, deviation) = trunk.states.detach().clone(), standardised(trunk.states)

    def loss_of(labels: list[int], weight: np.ndarray, bias: np.ndarray) -> float:
        logits = states @ torch.from_numpy(weight).double().t() + torch.from_numpy(bias).double()
        fitted = torch.nn.functional.cross_entropy(logits, torch.tensor(labels), reduction="sum")
        return float(fitted) + float(((weight * deviation) ** 2).sum()) / (2 * INVERSE_PENALTY)

    torch.set_default_dtype(dtype)
    loss = loss_of(*three_classes(trunk.to(dtype)))
    torch.set_default_dtype(torch.float64)
    request.getfixturevalue("to_the_end")
    least = loss_of(*three_classes(Table(ROWS)))
    close(loss, least, terms=terms_of(ROWS, WIDTH), precision=torch.float32)


def test_what_hardly_varies_does_not_turn_dropout_into_noise() -> None:
    trunk = Table(ROWS)
    with torch.no_grad():
        trunk.states[:, 3:] = 5 + 0.01 * trunk.states[:, 3:]  # it tells the label too, if one looks closely
    labels = [int(state[3] > trunk.states[:, 3].mean() and state[0] > 1) for state in trunk.states]
    task = SupervisedTask("classification", 2, WIDTH, 0.0, DROPOUT)
    task.fit_head(trunk, [Example(one(n), label) for n, label in enumerate(labels)], torch.device("cpu"), seed=0)
    torch.manual_seed(0)
    with torch.no_grad():
        dropped = torch.nn.functional.dropout(trunk.states.repeat(50, 1), DROPOUT)
        noise = (task.head(dropped) - task.head(trunk.states).repeat(50, 1)).std()
    assert noise < 1.0


def test_similarity_is_fitted_to_the_sum_of_both_orders(to_the_end: None) -> None:
    trunk = Table(ROWS)
    pairs = [(n, (7 * n + 3) % ROWS) for n in range(ROWS)]
    sums = torch.stack([trunk.states[a] + trunk.states[b] for a, b in pairs])
    labels = [int(total[0] > total[1]) for total in sums]
    examples = [Example(one(a) + one(b), label) for (a, b), label in zip(pairs, labels)]
    weight, bias = fitted("similarity", 2, examples, trunk)
    is_logistic_regression(weight, bias, sums, labels)


def test_scores_as_ridge_regression_fits_them(to_the_end: None) -> None:
    trunk = Table(ROWS)
    labels = [round(8 * (state[0] - state[2]).item()) / 8 for state in trunk.states]  # which float32 holds as well
    weight, bias = fitted("regression", 1, [Example(one(n), label) for n, label in enumerate(labels)], trunk)
    standard, mean, deviation = standardised(trunk.states)
    reference = Ridge(alpha=1 / (2 * INVERSE_PENALTY)).fit(standard, labels)
    coefficients = reference.coef_ / deviation
    close([weight[0], bias], [coefficients, [reference.intercept_ - coefficients @ mean]], terms=TERMS)


def test_a_choice_is_told_from_the_other_alternatives() -> None:
    trunk = Table(ROWS)
    pairs = [(n, (7 * n + 3) % ROWS) for n in range(ROWS)]
    labels = [int(trunk.states[b, 0] > trunk.states[a, 0]) for a, b in pairs]
    examples = [Example(one(a) + one(b), label) for (a, b), label in zip(pairs, labels)]
    task = SupervisedTask("choice", 2, WIDTH, 0.0, 0.5)
    task.fit_head(trunk, examples, torch.device("cpu"), seed=0)
    task.eval()
    guesses = task(trunk, task.make(examples)).scores.argmax(1).tolist()
    assert np.mean([guess == label for guess, label in zip(guesses, labels)]) > 0.85


def test_the_same_for_every_seed() -> None:
    trunk = Table(30)
    examples = [Example(one(n), n % 2) for n in range(30)]
    heads = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        task = SupervisedTask("classification", 2, WIDTH, 0.0, 0.5)
        task.fit_head(trunk, examples, torch.device("cpu"), seed=seed)
        heads.append(task.head.weight.detach().clone())
    assert torch.equal(*heads)
