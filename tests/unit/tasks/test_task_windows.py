"""Windows over long passages and sentences: what they cover, which of them counts, and what is made of their scores."""

import math
from itertools import pairwise

import numpy as np
import pytest
from complaints import refused
from hypothesis import given
from hypothesis import strategies as st
from systems_under_test import byte_tokenizer
from tolerance import close, terms_of

from foretext.tasks.heads.token_tasks import span_example, tagged_example
from foretext.tasks.layouts.base import DELIMITER, EXTRACT, START, DelimitedLayout, FramedLayout
from foretext.tasks.layouts.windows import (
    SpanWindow,
    Window,
    answer_place,
    answer_tokens,
    best_answer,
    best_windows,
    by_word,
    cut,
    fallback_tag,
    running_words,
    span_windows,
    tag_windows,
)

SPECIALS = {START: 900, DELIMITER: 901, EXTRACT: 902}
directions = st.sampled_from(["forward", "backward"])


def layout(context: int, direction: str = "forward") -> DelimitedLayout:
    return DelimitedLayout(SPECIALS, context, direction)  # type: ignore[arg-type]


# -- frames ----------------------------------------------------------------------------------------------------------


def test_frames_by_hand() -> None:
    one = layout(20).frame([1, 2, 3])
    assert one.ids == (900, 1, 2, 3, 902) and one.extract == 4
    assert [one.place(0, token) for token in range(3)] == [1, 2, 3]
    two = layout(20).frame([1, 2], [5, 6, 7])
    assert two.ids == (900, 1, 2, 901, 5, 6, 7, 902) and two.extract == 7
    assert [two.place(1, token) for token in range(3)] == [4, 5, 6]
    turned = layout(20, "backward").frame([1, 2], [5, 6, 7])
    assert turned.ids == (900, 2, 1, 901, 7, 6, 5, 902)
    assert [turned.place(1, token) for token in range(3)] == [6, 5, 4]


@given(st.lists(st.integers(0, 99), max_size=9), st.lists(st.integers(0, 99), max_size=9), directions)
def test_a_frame_is_the_sequence_that_sentence_tasks_read(first: list[int], second: list[int], direction: str) -> None:
    made = layout(40, direction)
    for kind, texts in (("classification", [first]), ("entailment", [first, second])):
        frame = made.frame(*texts)
        (sequence,) = made.sequences(kind, texts)
        assert (frame.ids, frame.extract) == (sequence.ids, sequence.extract) and sequence.cut == 0
        assert len(frame.ids) == sum(map(len, texts)) + made.overhead(len(texts))
        for part, text in enumerate(texts):
            assert [frame.ids[frame.place(part, token)] for token in range(len(text))] == text


# -- windows ---------------------------------------------------------------------------------------------------------


def test_windows_by_hand() -> None:
    assert cut(10, 4, 2) == [Window(0, 4), Window(2, 6), Window(4, 8), Window(6, 10)]
    assert cut(3, 4) == [Window(0, 3)] and cut(4, 4) == [Window(0, 4)] and cut(0, 4) == [Window(0, 0)]
    assert [window.start for window in cut(1000, 600)] == [0, 128, 256, 384, 512]  # 128 is less than half of the room
    assert [window.start for window in cut(100, 40)] == [0, 20, 40, 60]
    assert cut(5, 2, stride=9) == [Window(0, 2), Window(2, 4), Window(4, 5)]  # no token is passed over
    assert best_windows(cut(10, 4, 2), 10) == [0, 0, 0, 1, 1, 2, 2, 3, 3, 3]


@pytest.mark.parametrize("length", [384, 512])
def test_windows_are_those_of_the_released_code_at_its_lengths(length: int) -> None:
    """BERT's run_squad.py, literally: doc_stride 128, max_query_length 64."""
    for asked, passage in ((0, 2000), (10, 900), (64, 700), (64, 100)):
        room, starts, start = length - asked - 3, [], 0
        while start < passage:
            size = min(passage - start, room)
            starts.append((start, start + size))
            if start + size == passage:
                break
            start += min(size, 128)
        made = FramedLayout(1, (2,), length, segments=True)
        windows, _ = span_windows(range(asked), range(passage), made)
        assert [(window.start, window.end) for window in windows] == starts


@given(st.integers(0, 200), st.integers(1, 60), st.one_of(st.none(), st.integers(1, 80)))
def test_every_token_is_in_a_window_that_has_its_best_context(length: int, room: int, stride: int | None) -> None:
    windows = cut(length, room, stride)
    assert windows[0].start == 0 and windows[-1].end == length
    assert all(window.end - window.start <= room for window in windows)
    assert all(a.start < b.start <= a.end and a.end < b.end for a, b in pairwise(windows))
    best = best_windows(windows, length)
    for token in range(length):
        scores = {
            number: min(token - window.start, window.end - 1 - token) + 0.01 * (window.end - window.start)
            for number, window in enumerate(windows)
            if window.start <= token < window.end
        }
        assert best[token] == min(number for number in scores if scores[number] == max(scores.values()))


# -- spans -----------------------------------------------------------------------------------------------------------


def test_tokens_of_an_answer() -> None:
    offsets = [(0, 3), (3, 7), (7, 7), (7, 9)]
    assert answer_tokens(offsets, 4, 8) == (1, 3)
    assert answer_tokens(offsets, 0, 3) == (0, 0)
    assert answer_tokens(offsets, 8, 9) == (3, 3)
    assert answer_tokens(offsets, 9, 12) is None and answer_tokens([], 0, 1) is None
    passage = "The cat sat."
    pieces = [(0, 3), (3, 7), (7, 11), (11, 12)]  # a piece has the space before its word
    assert answer_place(passage, pieces, 1, 1) == (4, 7)
    assert answer_place(passage, pieces, 1, 3) == (4, 12)


def test_a_question_that_is_too_long_is_cut_and_counted() -> None:
    windows, lost = span_windows(range(100), range(500, 510), layout(33))
    assert lost == 85 and {window.frame.parts[0] for window in windows} == {(1, 15)}
    windows, lost = span_windows(range(100), range(500, 510), layout(503))
    assert lost == 36 and windows[0].frame.parts == ((1, 64), (66, 10))
    with refused("1 token", "question", "context"):
        span_windows([1], [2], layout(4))


@given(st.integers(0, 12), st.integers(0, 120), st.integers(8, 40), directions)
def test_span_windows_fit_and_know_their_tokens(question: int, passage: int, context: int, direction: str) -> None:
    made = layout(context, direction)
    text = [500 + number % 300 for number in range(passage)]
    windows, lost = span_windows(range(question), text, made, number=7)
    assert windows[0].start == 0 and windows[-1].end == passage
    for window in windows:
        frame = window.frame
        assert len(frame.ids) <= context and window.question == 7
        assert frame.parts[0][1] == question - lost
        here = [frame.ids[frame.place(1, token)] for token in range(window.end - window.start)]
        assert here == text[window.start : window.end]


def words_of(count: int) -> tuple[str, list[tuple[int, int]]]:
    """A passage of different words, a token each with the space before it, and the tokens' offsets."""
    passage, offsets = "", []
    for number in range(count):
        start = len(passage)
        passage += f" w{number}" if number else "w0"
        offsets.append((start, len(passage)))
    return passage, offsets


def tables(windows: list[SpanWindow], seed: int) -> list[np.ndarray]:
    draw = np.random.default_rng(seed)
    return [draw.normal(size=(len(window.frame.ids) + 3, 2)).astype(np.float32) for window in windows]  # padded


def literal_spans(
    passage: str, offsets: list[tuple[int, int]], windows: list[SpanWindow], scores: list[np.ndarray], longest: int
) -> list[tuple[float, str]]:
    """Every span that may be an answer, looked at one by one, best first."""
    best = best_windows([Window(window.start, window.end) for window in windows], len(offsets))
    spans = []
    for number, window in enumerate(windows):
        for first in range(window.start, window.end):
            for last in range(first, window.end):
                if best[first] == number and last - first + 1 <= longest:
                    start = scores[number][window.frame.place(1, first - window.start), 0]
                    end = scores[number][window.frame.place(1, last - window.start), 1]
                    text = passage[offsets[first][0] : offsets[last][1]].strip()
                    spans.append((float(start) + float(end), text))
    return sorted(spans, reverse=True)


@given(st.integers(1, 40), st.integers(8, 30), st.integers(1, 5), st.integers(0, 99), directions)
def test_the_best_answers_are_those_of_a_search_through_all(
    count: int, context: int, longest: int, seed: int, direction: str
) -> None:
    passage, offsets = words_of(count)
    windows, _ = span_windows([1, 2], list(range(500, 500 + count)), layout(context, direction))
    scores = tables(windows, seed)
    answered = best_answer(passage, offsets, windows, scores, n_best=5, longest=longest)
    expected = literal_spans(passage, offsets, windows, scores, longest)[:5]
    assert [candidate.text for candidate in answered.candidates] == [text for _, text in expected]
    scored = [score for score, _ in expected]
    close([candidate.score for candidate in answered.candidates], scored, terms=2)
    assert answered.text == expected[0][1]
    for candidate in answered.candidates:
        assert passage[candidate.start : candidate.end] == candidate.text
    weights = [math.exp(score) for score in scored]
    shares = [weight / sum(weights) for weight in weights]
    # An exponent's rounding is in proportion to its size, which is below 10.
    close([candidate.probability for candidate in answered.candidates], shares, terms=terms_of(2 * 10, len(shares)))
    null = min(float(table[w.frame.extract].sum(dtype=np.float64)) for w, table in zip(windows, scores))
    close(answered.margin, null - scored[0], terms=3, size=abs(null) + abs(scored[0]))


@pytest.mark.parametrize(("threshold", "text"), [(None, "w1 w2"), (-1.5, ""), (-1.0, "w1 w2"), (0.0, "w1 w2")])
def test_no_answer_is_a_matter_of_the_threshold(threshold: float | None, text: str) -> None:
    passage, offsets = words_of(4)
    windows, _ = span_windows([1], [5, 6, 7, 8], layout(20))
    table = np.zeros((len(windows[0].frame.ids), 2))
    table[windows[0].frame.place(1, 1), 0] = 3.0
    table[windows[0].frame.place(1, 2), 1] = 2.0
    table[windows[0].frame.extract] = (1.0, 3.0)
    answered = best_answer(passage, offsets, windows, [table], threshold=threshold)
    assert answered.text == text and answered.margin == -1.0
    close(sum(candidate.probability for candidate in answered.candidates), 1.0, terms=len(answered.candidates))
    assert answered.candidates[0].text == "w1 w2"
    assert ("" in [candidate.text for candidate in answered.candidates]) == (threshold is not None)


def test_a_passage_without_tokens_has_no_answer() -> None:
    windows, _ = span_windows([1], [], layout(20))
    (window,) = windows
    answered = best_answer("…", [], windows, [np.zeros((len(window.frame.ids), 2))])
    assert answered.text == "" and answered.candidates == () and answered.margin == math.inf
    example = span_example(window, None)
    assert (example.start, example.end) == (window.frame.extract, window.frame.extract)


def test_the_same_text_is_a_candidate_once() -> None:
    windows, _ = span_windows([1], [5, 6, 7], layout(20))
    answered = best_answer("a a a", [(0, 1), (2, 3), (4, 5)], windows, [np.zeros((len(windows[0].frame.ids), 2))])
    assert sorted(candidate.text for candidate in answered.candidates) == ["a", "a a", "a a a"]


@given(st.integers(1, 120), st.integers(20, 60), st.integers(0, 10**6), directions)
def test_labels_lead_back_to_the_answer(count: int, context: int, seed: int, direction: str) -> None:
    """Scores that are high where the labels are give the answer that the labels were made of, over all windows."""
    passage, offsets = words_of(count)
    made = layout(context, direction)
    windows, _ = span_windows([1, 2, 3], list(range(500, 500 + count)), made)
    room = context - made.overhead(2) - 3
    first = seed % count
    last = min(count - 1, first + seed % (room // 4))
    gold = passage[offsets[first][0] : offsets[last][1]].strip()
    start = offsets[first][1] - len(f"w{first}")
    tokens = answer_tokens(offsets, start, start + len(gold))
    assert tokens == (first, last)
    scores, held = [], 0
    for window in windows:
        example = span_example(window, tokens)
        inside = window.start <= first and last < window.end
        held += inside
        assert example.ids == window.frame.ids and example.start is not None and example.end is not None
        assert (example.start == example.end == window.frame.extract) == (not inside)
        low, high = example.passage
        assert not inside or (low <= min(example.start, example.end) and max(example.start, example.end) <= high)
        table = np.zeros((len(example.ids), 2))
        table[example.start, 0] = table[example.end, 1] = 5.0
        scores.append(table)
    assert held
    assert best_answer(passage, offsets, windows, scores).text == gold
    unknown = span_example(windows[0], None, known=False)
    assert unknown.start is None and unknown.end is None


# -- tags ------------------------------------------------------------------------------------------------------------


def test_words_as_in_running_text() -> None:
    assert running_words(["Tom", "'s", "中", "国", "x", "ไทย"]) == ["Tom", " 's", " 中", "国", " x", " ไทย"]
    assert running_words(["カレー", "を", "x"]) == ["カレー", "を", " x"]
    assert running_words([]) == []
    tokenizer = byte_tokenizer()
    words = ["He", "said", ":", "«", "no", "»", "."]
    pieces = [tokenizer.encode(word) for word in running_words(words)]
    assert [number for own in pieces for number in own] == tokenizer.encode(" ".join(words))


def test_tag_windows_by_hand() -> None:
    (window,) = tag_windows([[1, 2], [], [3], [4, 5]], layout(20), number=3)
    assert window.sentence == 3 and window.words == (0, 2, 3)
    assert window.frame.ids == (900, 1, 2, 3, 4, 5, 902) and window.places == (2, 3, 5), "where it has read the words"
    example = tagged_example(window, [7, 8, 9, 6])
    assert example.tags == (7, 9, 6) and example.places == window.places
    assert tagged_example(window, None).tags is None
    assert tag_windows([[], []], layout(20)) == [] and tag_windows([], layout(20)) == []
    (turned,) = tag_windows([[1, 2], [3]], layout(20, "backward"))
    assert turned.frame.ids == (900, 3, 2, 1, 902) and turned.places == (3, 1), "likewise, from right to left"
    (framed,) = tag_windows([[1, 2], [3]], FramedLayout(900, (902,), 20, segments=False))
    assert framed.frame.ids == (900, 1, 2, 3, 902) and framed.places == (1, 3), "it sees both sides anyway"
    with refused("sentence", "context"):
        tag_windows([[1]], layout(2))


@given(st.lists(st.integers(0, 5), max_size=80), st.integers(4, 30), st.one_of(st.none(), directions))
def test_each_word_is_tagged_once_where_it_has_the_most_context(
    sizes: list[int], context: int, direction: str | None
) -> None:
    pieces = [[100 * word + piece for piece in range(size)] for word, size in enumerate(sizes)]
    framed = FramedLayout(900, (902,), context, segments=False)
    windows = tag_windows(pieces, layout(context, direction) if direction else framed)
    asked = sorted(word for window in windows for word in window.words)
    assert asked == [word for word, size in enumerate(sizes) if size]
    room = context - 2
    for window in windows:
        assert len(window.frame.ids) <= context
        for word, place in zip(window.words, window.places, strict=True):
            assert window.frame.ids[place] == 100 * word + (sizes[word] - 1 if direction == "forward" else 0)
    if sum(sizes) <= room:
        assert len(windows) <= 1
    tags = [[f"tag {word}" for word in window.words] for window in windows]
    (predicted,) = by_word([len(sizes)], windows, tags)
    assert predicted == [f"tag {word}" if size else None for word, size in enumerate(sizes)]


def test_the_fallback_tag() -> None:
    assert fallback_tag([["B-X", "I-X"], ["B-X", "O"]]) == "O"
    assert fallback_tag([["NN", "VB"], ["VB"]]) == "VB"
    assert fallback_tag([["VB", "NN"]]) == "NN"
