"""The demonstration's corpus: the documentation inside the user's own Python.

Docstrings of the standard library and of installed packages are read from source files with `ast`. Nothing is imported,
so no code runs. The files are a seeded choice under a limit on source size, for each package and in all, so that the
time is bounded and the same installation always gives the same text. A small language model has no capacity to spare
for doctests, tables and markup, so only paragraphs of plain text are kept, and each sentence only where it first
occurs: no two modules share one.
"""

import ast
import random
import re
import sysconfig
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

SHORTEST = 40  # characters of a docstring
MOST_IN_PACKAGE, MOST_IN_ALL = 3_000_000, 48_000_000  # bytes of source

# Tests, vendored or old copies of code that is documented elsewhere, and this package itself.
_SKIPPED = re.compile(
    r"test_.*|tests?|testing|idle_test|conftest|_?vendor(ed)?|externa?l?s?|third_party|lib2to3|pip|foretext|distutils"
    r"|_distutils_hack|this|antigravity|pydoc_data|idlelib|__pycache__"
)
_UNWANTED = re.compile(  # in a paragraph: code, tables, placeholders, licences
    r"```|~~~|>>>|^ *(?:\.\. |[+=|]|\$ )|\{\w+\}|%\(\w+\)s"
    r"|(?i:copyright|licen[cs]ed? under|redistribution and use|all rights reserved|warranty)",
    re.M,
)
_MARKUP = re.compile(r":[\w:+-]+:(?=`)|\s*<[^\s>]+>(?=`)|`+[_~!]*|\*+(?=\w)|(?<=\w)\*+|^\s*[-=~^*#+]{3,}$", re.M)
_STRUCTURE = re.compile(r"\s|[-*+•:@]|\d+[.)] |\w[\w ]*:(?: |$)")  # how a line of a section or list begins
_BOUNDARY = re.compile(r"(?<!\b\w\.)(?<=[.!?])\s+(?=[\"'(\[]?[A-Z])")  # "e.g. Tom" and "J. Smith" are none
_DOCUMENTED = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class Docstring(NamedTuple):
    """One docstring: its module, a line on what it documents, and its sentences."""

    module: str  # "email.message"
    heading: (
        str  # "email.message: def as_string(unixfrom)", "email.message: class Message(policy)"; "module email.message"
    )
    opening: list[str]  # the sentences before its first section or list
    rest: list[str]


def sentences(docstring: str, seen: set[str]) -> tuple[list[str], list[str]]:
    """The sentences of a cleaned docstring's opening and of the rest, without doctests, code and tables. Those that are
    in `seen` are left out; the others are added to it."""
    parts: list[list[str]] = [[], []]
    part = 0
    for paragraph in re.split(r"\n\s*\n", docstring):
        plain = _MARKUP.sub("", paragraph)
        text = " ".join(plain.split())
        part = part or any(map(_STRUCTURE.match, plain.splitlines()))
        is_mostly_words = sum(char.isalpha() or char == " " for char in text) >= 0.8 * len(text)
        if is_mostly_words and " " in text and text.isprintable() and not _UNWANTED.search(paragraph):
            new = {key: text for text in _BOUNDARY.split(text) if (key := sentence_key(text)) not in seen}
            seen.update(new)
            parts[part] += new.values()
    return parts[0], parts[1]


def sentence_key(sentence: str) -> str:
    """What copies of a sentence share: its words without case, punctuation and numbers."""
    return " ".join(word for word in re.findall(r"\w+", sentence.lower()) if not word.isdigit())


def choose_sources(roots: Sequence[Path], seed: int, in_package: int, in_all: int) -> list[tuple[str, Path]]:
    """Python source files below `roots` with their modules, without tests and vendored copies: a seeded choice within
    these bytes of source."""
    sources: dict[str, Path] = {}
    for root, path in ((top, file) for top in roots for file in sorted(top.rglob("*.py"))):
        *parts, stem = path.relative_to(root).with_suffix("").parts
        if all(part.isidentifier() and not _SKIPPED.fullmatch(part) for part in (*parts, stem)) and path.is_file():
            module = ".".join(parts if stem == "__init__" else (*parts, stem))
            sources.setdefault(module, path)
    order = sorted(sources.items())
    random.Random(f"sources {seed}").shuffle(order)
    spent: Counter[str] = Counter()
    chosen = []
    for module, path in order:
        package, size = module.partition(".")[0], path.stat().st_size
        if spent[package] + size <= in_package and spent.total() + size <= in_all:
            spent[package] += size
            chosen.append((module, path))
    return sorted(chosen)


def read_docstrings(module: str, path: Path) -> Iterator[tuple[str, str]]:
    """The headings and cleaned docstrings of one file; empty if it cannot be read or parsed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED):
            yield _heading(module, node), ast.get_docstring(node) or ""


def _heading(module: str, node: _DOCUMENTED) -> str:
    """One line for what is documented; of the arguments the names."""
    if isinstance(node, ast.Module):
        return f"module {module}"
    functions = (one for one in (node, *node.body) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef))
    taken = next((one.args for one in functions if one is node or one.name == "__init__"), None)
    names = (child.arg for child in ast.iter_child_nodes(taken or ast.Pass()) if isinstance(child, ast.arg))
    kind = "class" if isinstance(node, ast.ClassDef) else "def"
    return f"{module}: {kind} {node.name}({', '.join(name for name in names if name not in ('self', 'cls'))})"


def harvest(
    roots: Sequence[Path] = (),
    *,
    seed: int = 0,
    in_package: int = MOST_IN_PACKAGE,
    in_all: int = MOST_IN_ALL,
    watch: Callable[[], None] = lambda: None,
) -> list[Docstring]:
    """The docstrings below `roots` (default: this Python's own), sorted by module, without the sentences that have
    occurred before. `watch` is called for each file, and may end the work by raising."""
    roots = roots or [Path(sysconfig.get_paths()[name]) for name in ("stdlib", "purelib", "platlib")]
    seen: set[str] = set()
    kept: list[Docstring] = []
    for module, path in choose_sources(roots, seed, in_package, in_all):
        watch()
        for heading, text in read_docstrings(module, path):
            docstring = Docstring(module, heading, *sentences(text, seen))
            if sum(map(len, docstring.opening + docstring.rest)) >= SHORTEST:
                kept.append(docstring)
    return kept
