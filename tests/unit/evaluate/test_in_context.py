"""Templates, examples and the four normalisations, over scripted likelihoods and over a model."""

from __future__ import annotations

from typing import Any

import pytest
from complaints import refused
from systems_under_test import TERMS, base_model
from tolerance import close, terms_of

from foretext.evaluate import in_context
from foretext.evaluate.in_context import Answered, Prompt, Template, answer_rows
from foretext.evaluate.likelihood import Likelihood
from foretext.tasks.files.rows import Row


def rows(*pairs: tuple[str, str]) -> list[Row]:
    return [Row((text,), label, f"row {number}") for number, (text, label) in enumerate(pairs, 1)]


def test_the_answer_takes_the_space_before_it() -> None:
    made = Template("classification", labels=("neg", "pos")).prompt(Row(("A film.",), "pos", "row 1"))
    assert (made.context, made.answers, made.right) == ("Text: A film.\nLabel:", (" neg", " pos"), 1)
    assert made.solved == "Text: A film.\nLabel: pos"


def test_ones_own_template_and_words() -> None:
    template = Template("classification", r"{text}\nIt was {label}", ("0", "1"), {"0": "terrible", "1": "great"})
    made = template.prompt(Row(("So {text} {label}",), "1", "row 1"))
    assert made.context == "So {text} {label}\nIt was" and made.answers == (" terrible", " great")


def test_white_space_round_a_field_is_the_files() -> None:
    made = Template("classification", "{text} very {label}", ("0", "1")).prompt(Row((" A journey . ",), "1", "row 1"))
    assert (made.context, made.answers) == ("A journey . very", (" 0", " 1"))
    choice = Template("choice").prompt(Row(("It rained. ", " We got wet. ", "We sang."), 0, "row 1"))
    assert (choice.context, choice.answers) == ("It rained.", (" We got wet.", " We sang."))


def test_kinds() -> None:
    choice = Template("choice").prompt(Row(("It rained.", "We got wet.", "We sang."), 0, "row 1"))
    assert (choice.context, choice.answers, choice.right) == ("It rained.", (" We got wet.", " We sang."), 0)
    word = Template("last-word").prompt(Row(("He said hello  \n",), None, "row 1"))
    assert (word.context, word.answers, word.right) == ("He said", (" hello",), 0)
    pair = Template("entailment", labels=("no", "yes")).prompt(Row(("p", "h"), "no", "row 1"))
    assert "Premise: p\nHypothesis: h" in pair.context


@pytest.mark.parametrize(
    ("kind", "text", "named"),
    [
        ("classification", "{text}", ("end", "{label}")),
        ("classification", "{label} {text}", ("end", "{label}")),
        ("classification", "It is {label}", ("lacks {text}", "needs {text}")),
        ("classification", "{txt} {label}", ("{txt}", "classification", "{text}, {label}")),
        ("entailment", "{premise} {label}", ("lacks {hypothesis}", "needs {premise}, {hypothesis}")),
    ],
)
def test_templates_that_cannot_work(kind: str, text: str, named: tuple[str, ...]) -> None:
    with refused("--template", *named):
        Template(kind, text, ("a", "b"))
    with refused("--words", "'c'", "a, b"):
        Template("classification", None, ("a", "b"), {"c": "x"})
    with refused("--words", "same"):
        Template("classification", None, ("a", "b"), {"a": "b"})


def test_four_normalisations_may_choose_four_answers() -> None:
    likelihoods = [(-4.0, 1), (-6.0, 6), (-5.0, 2), (-9.0, 3)]
    answered = Answered(
        Prompt("", (" ab", " abcd", " " + "好" * 16 + "ab", " abcde"), 0),  # 2, 4, 50 and 5 bytes, without the space
        tuple(Likelihood(total, tokens, False, 0) for total, tokens in likelihoods),
        alone=(-2.0, -5.0, -4.0, -20.0),
    )
    assert answered.scores("sum") == [-4.0, -6.0, -5.0, -9.0]
    assert answered.scores("per token") == [-4.0, -1.0, -2.5, -3.0]
    assert answered.scores("per byte") == [-2.0, -1.5, -0.1, -1.8]
    assert answered.scores("unbiased") == [-2.0, -1.0, -1.0, 11.0]
    assert [answered.best(name) for name in in_context.NORMALISATIONS] == [0, 1, 2, 3]


def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The contexts that were scored, as text."""
    seen: list[str] = []
    real = in_context.query_of

    def watched(tokenizer: Any, context: str, *given: Any) -> Any:
        seen.append(context)
        return real(tokenizer, context, *given)

    monkeypatch.setattr(in_context, "query_of", watched)
    return seen


def test_examples_are_the_same_for_every_row_of_a_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = asked(monkeypatch)
    data = rows(*((f"t{number}", "ab"[number % 2]) for number in range(12)))
    template = Template("classification", "{text}:{label}", ("a", "b"))
    model = base_model()
    rounds = answer_rows(model, template, data[:3], data[3:], 2, [0, 1, 2])
    assert [(one.shots, one.seed) for one in rounds] == [(2, 0), (2, 1), (2, 2)]
    contexts = [text for text in seen if not text.startswith("Answer")]
    assert len(contexts) == 9
    for start in range(0, 9, 3):
        examples = {text.rsplit("\n\n", 1)[0] for text in contexts[start : start + 3]}
        assert len(examples) == 1 and examples.pop().count(":") == 2
    assert len({text.rsplit("\n\n", 1)[0] for text in contexts}) > 1, "other seeds draw others"
    again = answer_rows(model, template, data[:3], data[3:], 2, [0])[0]
    for one, other in zip(again.answers, rounds[0].answers, strict=True):
        assert one.prompt == other.prompt
        close([*one.scores("sum"), *one.alone], [*other.scores("sum"), *other.alone], terms=terms_of(TERMS, 257))
    assert all(0 <= one.accuracy("sum") <= 1 for one in rounds)


def test_a_row_is_no_example_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = asked(monkeypatch)
    data = rows(("t0", "a"), ("t1", "b"), ("t2", "a"), ("t3", "b"))
    answer_rows(base_model(), Template("classification", "{text}:{label}", ("a", "b")), data, data, 2, range(4))
    for text in seen:
        if not text.startswith("Answer"):
            *examples, question = text.split("\n\n")
            assert len(examples) == 2 and not any(example.startswith(question) for example in examples)


def test_copies_of_a_row_are_no_examples_for_it_either(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = asked(monkeypatch)
    data = rows(("t0", "a"), ("t0", "b"), ("t0", "a"), ("t1", "b"), ("t2", "a"))
    answer_rows(base_model(), Template("classification", "{text}:{label}", ("a", "b")), data[:1], data, 2, range(5))
    for text in seen:
        if not text.startswith("Answer"):
            assert text.count("t0") == 1 and text.count("\n\n") == 2


def test_as_many_examples_as_rows_elsewhere() -> None:
    data = rows(("t0", "a"), ("t1", "b"), ("t2", "a"))
    template = Template("classification", "{text}:{label}", ("a", "b"))
    assert answer_rows(base_model(), template, data[:1], data[1:], 2, [0])[0].shots == 2


def test_too_few_rows_to_draw_from() -> None:
    data = rows(("t0", "a"), ("t1", "b"))
    with refused("5 examples", "1 row "):
        answer_rows(base_model(), Template("classification", None, ("a", "b")), data, data, 5, [0])


def test_long_contexts_lose_their_beginning_and_are_counted() -> None:
    data = rows(*((f"some long text {number}", "ab"[number % 2]) for number in range(12)))
    template = Template("classification", "{text}:{label}", ("a", "b"))
    assert answer_rows(base_model(), template, data[:4], data[4:], 0, [0])[0].cut == 0
    assert answer_rows(base_model(), template, data[:4], data[4:], 5, [0])[0].cut == 4


def test_copas_question_becomes_a_sentence() -> None:
    rows = [
        Row(("The man broke his toe. What was the cause?", "He dropped a hammer on it.", "I saw him."), 0, "a"),
        Row(("It rained. What happened as a result?", "The road got wet.", "A dog barked."), 0, "b"),
        Row(("She ran.", "Then he did."), 0, "c"),
    ]
    made = [Template("choice").prompt(row) for row in rows]
    assert [(one.context, one.answers) for one in made] == [
        ("The man broke his toe because", (" he dropped a hammer on it.", " I saw him.")),
        ("It rained so", (" the road got wet.", " a dog barked.")),
        ("She ran.", (" Then he did.",)),
    ]
    kept = Template("choice", "{context}\nAnswer: {choice}").prompt(rows[0])
    assert kept.context == "The man broke his toe. What was the cause?\nAnswer:"
