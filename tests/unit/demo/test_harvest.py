import inspect
from collections import Counter
from pathlib import Path

import pytest

from foretext.demo.harvest import harvest, read_docstrings, sentence_key, sentences

LONG = "This text is long enough to be kept as a docstring."


def write(root: Path, name: str, text: str) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def modules(root: Path) -> list[str]:
    return [one.module for one in harvest([root])]


def test_nothing_that_is_read_runs(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    write(tmp_path, "lib/evil.py", f'"""{LONG}"""\nopen({str(marker)!r}, "w").close()\n')
    assert modules(tmp_path / "lib") == ["evil"]
    assert not marker.exists()


def test_modules_classes_functions_and_nested_ones(tmp_path: Path) -> None:
    write(
        tmp_path,
        "pack/deep.py",
        f'"""Module words, {LONG}"""\nclass A:\n    """Class words, {LONG}"""\n    def __init__(self, x): ...\n'
        f'    async def go(self, y=1):\n        """Method words, {LONG}"""\nif True:\n    def f():\n'
        f'        """Guarded words, {LONG}"""\n',
    )
    docstrings = harvest([tmp_path])
    assert {one.module for one in docstrings} == {"pack.deep"}
    assert {one.heading for one in docstrings} == {
        "module pack.deep",
        "pack.deep: class A(x)",
        "pack.deep: def go(y)",
        "pack.deep: def f()",
    }


def test_what_no_text_may_hold_is_left_out(tmp_path: Path) -> None:
    odd = r"Files that look like this \0 one, are found.\n\nAnd half a pair \ud800 too, here."
    write(tmp_path, "lib/odd.py", f'"""{odd}\n\n{LONG}"""\n')
    assert harvest([tmp_path])[0].opening == [LONG]


@pytest.mark.parametrize(
    "name",
    ["p/tests/a.py", "p/_vendor/a.py", "p/test_a.py", "site-packages/p/a.py", "pip/a.py", "p-1.0.dist-info/a.py"],
)
def test_tests_and_vendored_copies_are_skipped(tmp_path: Path, name: str) -> None:
    write(tmp_path, name, f'"""Hidden words. {LONG}"""\n')
    write(tmp_path, "p/good.py", f'"""Shown words. {LONG}"""\n')
    assert modules(tmp_path) == ["p.good"]


def test_copies_licences_and_short_ones_are_left_out(tmp_path: Path) -> None:
    write(tmp_path, "a.py", f'"""{LONG}"""\n')
    write(tmp_path, "b.py", f'"""{LONG.upper()}"""\n')
    write(tmp_path, "c.py", '"""Short."""\n')
    write(tmp_path, "d.py", f'"""Copyright 2020 by someone. {LONG}"""\n')
    assert modules(tmp_path) == ["a"]


@pytest.mark.parametrize("content", [b'"""broken\n', b'"""x"""\n\x00', b'"""\xff\xfe"""', b'"""a"""\n' + b"(" * 5000])
def test_a_file_that_cannot_be_parsed_is_passed_over(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.py").write_bytes(content)
    write(tmp_path, "good.py", f'"""{LONG}"""\n')
    assert modules(tmp_path) == ["good"]


def test_limits_hold_and_the_choice_is_seeded(site: Path) -> None:
    first = harvest([site], seed=1, in_package=4_000, in_all=40_000)
    assert (
        first
        == harvest([site], seed=1, in_package=4_000, in_all=40_000)
        != harvest([site], seed=2, in_package=4_000, in_all=40_000)
    )
    source = {one.module: (site / f"{one.module.replace('.', '/')}.py").stat().st_size for one in first}
    assert 20_000 < sum(source.values()) <= 40_000
    packages = Counter(module.split(".")[0] for module in source)
    assert len(packages) == 11 and max(packages.values()) <= 5  # none crowds out another


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def f(self, a, b=1, *args, c, d=None, **rest):", "def f(a, b, args, c, d, rest)"),
        ("async def g(a, /, b: int = -1, *, c='x'):", "def g(a, b, c)"),
        ("class L:", "class L()"),
    ],
)
def test_signatures(tmp_path: Path, source: str, expected: str) -> None:
    path = write(tmp_path, "m.py", f'{source}\n    """{LONG}"""\n')
    assert ("m: " + expected, LONG) in list(read_docstrings("m", path))


def test_a_missing_file_is_unreadable(tmp_path: Path) -> None:
    assert list(read_docstrings("gone", tmp_path / "gone.py")) == []


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
    """
)


def test_prose_is_kept_without_markup_and_code_and_tables_are_left_out() -> None:
    opening, rest = sentences(NUMPY_STYLE, set())
    assert opening == ["Compute the pack.Mean of values, see the page.", "It goes slowly here and there."]
    assert any("The mean of the values given." in one for one in rest)
    assert any("The sum is exact up to rounding." in one for one in rest)
    for unwanted in ("other_code", ">>>", "1.5", "----"):
        assert unwanted not in " ".join(opening + rest)
    table = "A sentence that stays here.\n\n+----+----+\n| ab | cd |\n+----+----+\n\nSee {input} for the description."
    assert sentences(table, set()) == (["A sentence that stays here."], [])


def test_the_opening_ends_where_a_list_begins() -> None:
    listed = "Open the file.\n\nArgs:\n    path: the place where it is.\n\nThe caller closes it afterwards."
    assert sentences(listed, set())[0] == ["Open the file."]
    assert sentences(listed, set())[1][-1] == "The caller closes it afterwards."
    entry = "Open the file.\n\npath: the place where it is."
    assert sentences(entry, set()) == (["Open the file."], ["path: the place where it is."])


def test_a_sentence_is_kept_once() -> None:
    seen: set[str] = set()
    assert sentences("Open the file. Close it again.", seen)[0] == ["Open the file.", "Close it again."]
    assert sentences("Read it now. OPEN the file!", seen)[0] == ["Read it now."]


def test_sentences_respect_abbreviations() -> None:
    paragraph = "Use a name, e.g. Tom or similar. It works (i.e. Not always). See J. Smith for more! Done"
    assert sentences(paragraph, set())[0] == [
        "Use a name, e.g. Tom or similar.",
        "It works (i.e. Not always).",
        "See J. Smith for more!",
        "Done",
    ]


def test_key_ignores_case_punctuation_and_numbers() -> None:
    assert sentence_key("Return the 3 Values.") == sentence_key("return  the 4 values!")
    assert sentence_key("Return the values.") != sentence_key("Return a value.")
