"""The head fitted before fine-tuning, against scikit-learn's logistic regression and least squares."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression, Ridge

from foretext.batch import Batch, Hidden
from foretext.tasks.layout import TokenSequence
from foretext.tasks.supervised import Example, SupervisedTask
from foretext.train.probe import INVERSE_PENALTY, fit_head

WIDTH = 6
DROPOUT = 0.2


class Table(torch.nn.Module):
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
    fit_head(trunk, task, examples, torch.device("cpu"), seed=0)
    assert trunk.training and task.training
    return task.head.weight.detach().numpy(), task.head.bias.detach().numpy()


def standardised(states: torch.Tensor) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """By the deviation that dropout gives them: the state, or none of it, over 1 − p."""
    found = states.detach().numpy().astype(np.float64)
    seen = np.concatenate([found / (1 - DROPOUT)] * 4 + [np.zeros_like(found)])
    return (found - found.mean(0)) / seen.std(0), found.mean(0), seen.std(0)


def is_logistic_regression(weight: np.ndarray, bias: np.ndarray, states: torch.Tensor, labels: list[int]) -> None:
    standard, mean, deviation = standardised(states)
    reference = LogisticRegression(C=INVERSE_PENALTY, tol=1e-10, max_iter=1000).fit(standard, labels)
    coefficients = reference.coef_ / deviation
    shifted = reference.intercept_ - coefficients @ mean
    if (
        len(coefficients) == 1
    ):  # two classes: one row there, the difference of two here, each with half the penalty's due
        reference = LogisticRegression(C=2 * INVERSE_PENALTY, tol=1e-10, max_iter=1000).fit(standard, labels)
        coefficients = reference.coef_ / deviation
        shifted = reference.intercept_ - coefficients @ mean
        weight, bias = weight[1:] - weight[:1], bias[1:] - bias[:1]
    else:  # softmax does not see a shift
        bias, shifted = bias - bias.mean(), shifted - shifted.mean()
    np.testing.assert_allclose(weight, coefficients, atol=2e-4)
    np.testing.assert_allclose(bias, shifted, atol=2e-3)


def test_three_classes_as_scikit_learn_fits_them() -> None:
    trunk = Table(60)
    labels = [int(state.argmax()) % 3 for state in trunk.states]
    weight, bias = fitted("classification", 3, [Example(one(n), label) for n, label in enumerate(labels)], trunk)
    is_logistic_regression(weight, bias, trunk.states, labels)


def test_what_hardly_varies_does_not_turn_dropout_into_noise() -> None:
    trunk = Table(60)
    with torch.no_grad():
        trunk.states[:, 3:] = 5 + 0.01 * trunk.states[:, 3:]  # it tells the label too, if one looks closely
    labels = [int(state[3] > state[3:4].mean() and state[0] > 1) for state in trunk.states]
    task = SupervisedTask("classification", 2, WIDTH, 0.0, DROPOUT)
    fit_head(trunk, task, [Example(one(n), label) for n, label in enumerate(labels)], torch.device("cpu"), seed=0)
    torch.manual_seed(0)
    with torch.no_grad():
        dropped = torch.nn.functional.dropout(trunk.states.repeat(50, 1), DROPOUT)
        noise = (task.head(dropped) - task.head(trunk.states).repeat(50, 1)).std()
    assert noise < 1.0


def test_similarity_is_fitted_to_the_sum_of_both_orders() -> None:
    trunk = Table(60)
    pairs = [(n, (7 * n + 3) % 60) for n in range(60)]
    sums = torch.stack([trunk.states[a] + trunk.states[b] for a, b in pairs])
    labels = [int(total[0] > total[1]) for total in sums]
    examples = [Example(one(a) + one(b), label) for (a, b), label in zip(pairs, labels)]
    weight, bias = fitted("similarity", 2, examples, trunk)
    is_logistic_regression(weight, bias, sums, labels)


def test_scores_as_ridge_regression_fits_them() -> None:
    trunk = Table(60)
    labels = [(state[0] - state[2]).item() for state in trunk.states]
    weight, bias = fitted("regression", 1, [Example(one(n), label) for n, label in enumerate(labels)], trunk)
    standard, mean, deviation = standardised(trunk.states)
    reference = Ridge(alpha=1 / (2 * INVERSE_PENALTY)).fit(standard, labels)
    np.testing.assert_allclose(weight[0], reference.coef_ / deviation, atol=1e-4)
    np.testing.assert_allclose(bias[0], reference.intercept_ - (reference.coef_ / deviation) @ mean, atol=1e-3)


def test_a_choice_is_told_from_the_other_alternatives() -> None:
    trunk = Table(60)
    pairs = [(n, (7 * n + 3) % 60) for n in range(60)]
    labels = [int(trunk.states[b, 0] > trunk.states[a, 0]) for a, b in pairs]
    examples = [Example(one(a) + one(b), label) for (a, b), label in zip(pairs, labels)]
    task = SupervisedTask("choice", 2, WIDTH, 0.0, 0.5)
    fit_head(trunk, task, examples, torch.device("cpu"), seed=0)
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
        fit_head(trunk, task, examples, torch.device("cpu"), seed=seed)
        heads.append(task.head.weight.detach().clone())
    assert torch.equal(*heads)
