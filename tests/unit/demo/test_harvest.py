import ast
from pathlib import Path

import pytest

from foretext.demo.harvest import HarvestLimits, Source, harvest, read_docstrings, signature_of

LONG = "This text is long enough to be kept as a docstring."


def write(root: Path, name: str, text: str) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def names(root: Path, limits: HarvestLimits | None = None) -> list[str]:
    found, _ = harvest([root], limits=limits)
    return [f"{one.module}:{one.name}" for one in found]


def test_nothing_that_is_read_runs(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    write(tmp_path, "lib/evil.py", f'"""{LONG}"""\nopen({str(marker)!r}, "w").close()\n')
    assert names(tmp_path / "lib") == ["evil:"]
    assert not marker.exists()


def test_modules_classes_functions_and_nested_ones(tmp_path: Path) -> None:
    write(
        tmp_path,
        "pack/deep.py",
        f'"""Module words, {LONG}"""\nclass A:\n    """Class words, {LONG}"""\n    def __init__(self, x): ...\n'
        f'    async def go(self, y=1):\n        """Method words, {LONG}"""\nif True:\n    def f():\n'
        f'        """Guarded words, {LONG}"""\n',
    )
    found, report = harvest([tmp_path])
    assert [(one.module, one.package, one.name, one.signature) for one in found] == [
        ("pack.deep", "pack", "", "module pack.deep"),
        ("pack.deep", "pack", "A", "class A(x)"),
        ("pack.deep", "pack", "A.go", "def go(y=1)"),
        ("pack.deep", "pack", "f", "def f()"),
    ]
    assert report.docstrings == 4
    assert report.packages == {"pack": report.text_bytes}


def test_attached_documentation_of_compiled_functions(tmp_path: Path) -> None:
    write(
        tmp_path,
        "pack/docs.py",
        f'add_docstr(torch.abs, r"""\nabs(input, *, out=None) -> Tensor\n\nAbsolute value. {LONG}\n""".format(**c))\n'
        f'add_newdoc("numpy.core", "ufunc", """\nApplies a thing. {LONG}\n""")\n# """\n',
    )
    found, _ = harvest([tmp_path])
    assert [one.signature for one in found] == ["def abs(input, *, out=None)", "def ufunc()"]
    assert found[0].blocks[0].text.startswith("Absolute value.")


def test_what_no_text_may_hold_is_left_out(tmp_path: Path) -> None:
    odd = r"Files that look like this \0 one, and half a pair \ud800 too, are found here."
    write(tmp_path, "lib/odd.py", f'"""{odd}"""\n')
    found, _ = harvest([tmp_path])
    text = "Files that look like this one, and half a pair too, are found here."
    assert [block.text for block in found[0].blocks] == [text]


@pytest.mark.parametrize(
    "name",
    ["p/tests/a.py", "p/_vendor/a.py", "p/test_a.py", "site-packages/p/a.py", "pip/a.py", "p-1.0.dist-info/a.py"],
)
def test_tests_and_vendored_copies_are_skipped(tmp_path: Path, name: str) -> None:
    write(tmp_path, name, f'"""Hidden words. {LONG}"""\n')
    write(tmp_path, "p/good.py", f'"""Shown words. {LONG}"""\n')
    assert names(tmp_path) == ["p.good:"]


def test_copies_licences_and_short_ones_are_left_out(tmp_path: Path) -> None:
    write(tmp_path, "a.py", f'"""{LONG}"""\n')
    write(tmp_path, "b.py", f'"""{LONG.upper()}"""\n')
    write(tmp_path, "c.py", '"""Short."""\n')
    write(tmp_path, "d.py", f'"""Copyright 2020 by someone. {LONG}"""\n')
    found, report = harvest([tmp_path])
    assert [one.module for one in found] == ["a"]
    assert report.left_out["copies"] == 1


@pytest.mark.parametrize("content", [b'"""broken\n', b'"""x"""\n\x00', b'"""\xff\xfe"""', b'"""a"""\n' + b"(" * 5000])
def test_a_file_that_cannot_be_parsed_is_counted_not_fatal(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.py").write_bytes(content)
    write(tmp_path, "good.py", f'"""{LONG}"""\n')
    found, report = harvest([tmp_path])
    assert [one.module for one in found] == ["good"]
    assert report.unreadable == 1


def test_limits_hold_and_the_choice_is_seeded(site: Path) -> None:
    limits = HarvestLimits(source_package=4_000, source_total=20_000, text_total=8_000)
    first, report = harvest([site], seed=1, limits=limits)
    again, _ = harvest([site], seed=1, limits=limits)
    other, _ = harvest([site], seed=2, limits=limits)
    assert first == again
    assert first != other
    assert report.source_bytes <= 20_000
    assert 4_000 < report.text_bytes <= 8_000
    assert len(report.packages) == 11  # no package crowds out another


def test_two_processes_read_what_one_reads(site: Path) -> None:
    for number in range(80):
        write(site.parent / "more", f"extra{number}.py", f'"""{LONG} {"x" * (number + 1)}"""\n')
    roots = [site, site.parent / "more"]
    assert harvest(roots, workers=2)[0] == harvest(roots, workers=1)[0]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def f(self, a, b=1, *args, c, d=None, **rest): ...", "def f(a, b=1, *args, c, d=None, **rest)"),
        ("async def g(a, /, b: int = -1, *, c='x'): ...", "def g(a, b=-1, *, c='x')"),
        ("def h(a={1: 2}, b='a very long default value'): ...", "def h(a=..., b=...)"),
        ("class K(Base):\n    def __init__(self, n): ...", "class K(n)"),
        ("class L: ...", "class L()"),
    ],
)
def test_signatures(source: str, expected: str) -> None:
    node = ast.parse(source).body[0]
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    assert signature_of(node) == expected


def test_a_missing_file_is_unreadable(tmp_path: Path) -> None:
    assert read_docstrings(Source(tmp_path / "gone.py", "gone", "gone", 1)) is None
