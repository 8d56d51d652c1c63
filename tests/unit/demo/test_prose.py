import inspect

from foretext.demo import prose

NUMPY_STYLE = inspect.cleandoc(
    """Compute the :class:`~pack.Mean` of ``values``, see `the page <http://x.y>`_.

    It goes *slowly* here
    and there.

    Parameters
    ----------
    values : array-like
        What to average over the axis.

    Returns
    -------
    float
        The mean of the values given.

    Notes
    -----
    The sum is exact up to rounding.

    .. code-block:: python

        secret_code = 1

    As follows::

        other_code(2)

    Examples
    --------
    >>> mean([1, 2])
    1.5

    The example text is left out too.
    """
)


def test_blocks_keep_prose_and_drop_code_and_examples() -> None:
    found = prose.blocks(NUMPY_STYLE)
    texts = [block.text for block in found]
    assert texts[0] == "Compute the pack.Mean of values, see the page."
    assert texts[1] == "It goes slowly here and there."
    assert "The sum is exact up to rounding." in texts
    joined = " ".join(texts)
    for unwanted in ("secret_code", "other_code", ">>>", "1.5", "example text", "----", "Parameters"):
        assert unwanted not in joined


def test_parameter_lists_are_not_narrative() -> None:
    narrative = {block.text: block.narrative for block in prose.blocks(NUMPY_STYLE)}
    assert narrative["It goes slowly here and there."] is True
    assert narrative["The sum is exact up to rounding."] is True
    assert narrative["The mean of the values given."] is False


def test_google_sections_end_where_the_indentation_does() -> None:
    text = "Open it.\n\nArgs:\n    path: the place where it is.\n\nThe caller closes it afterwards."
    found = {block.text: block.narrative for block in prose.blocks(text)}
    assert found["path: the place where it is."] is False
    assert found["The caller closes it afterwards."] is True


def test_tables_and_placeholders_are_dropped() -> None:
    text = "A sentence that stays here.\n\n+----+----+\n| ab | cd |\n+----+----+\n\nSee {input} for the description."
    assert [block.text for block in prose.blocks(text)] == ["A sentence that stays here."]


def test_sentences_respect_abbreviations() -> None:
    paragraph = "Use a name, e.g. Tom or similar. It works (i.e. Not always). See J. Smith for more! Done"
    assert prose.sentences(paragraph) == [
        "Use a name, e.g. Tom or similar.",
        "It works (i.e. Not always).",
        "See J. Smith for more!",
        "Done",
    ]


def test_key_ignores_case_punctuation_and_numbers() -> None:
    assert prose.key("Return the 3 Values.") == prose.key("return  the 4 values!")
    assert prose.key("Return the values.") != prose.key("Return a value.")


def test_usable_sentences() -> None:
    assert prose.is_usable("Return the number of open files here.")
    for bad in (
        "Too short.",
        "no capital letter at the start here.",
        "No full stop at the end of this",
        "See http://example.org for all of the rest.",
        "A[0] == B[1] + {c: 2} | 0x3f ** 7 -- 8 //.",
        "Word " * 40 + "end.",
    ):
        assert not prose.is_usable(bad), bad
