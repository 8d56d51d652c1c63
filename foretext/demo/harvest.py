"""The demonstration's corpus: the documentation inside the user's own Python.

Docstrings of the standard library and of installed packages are read from source files with `ast`. Nothing is imported,
so no code runs. The files are a seeded choice under a limit on source size, balanced over packages, so that the time is
bounded and the same installation always gives the same text. A small language model has no capacity to spare for
doctests, tables and markup, so only paragraphs of plain text are kept.
"""

import ast
import inspect
import itertools
import os
import random
import re
import sysconfig
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

SHORTEST = 40  # characters of a docstring
MOST_IN_FILE, MOST_IN_ALL = 600_000, 48_000_000  # bytes of source

# Tests, vendored, generated or old copies of code that is documented elsewhere, and this package itself.
_SKIPPED = re.compile(
    r"test_.*|tests?|testing|idle_test|conftest|_?vendor(ed)?|externa?l?s?|third_party|lib2to3|pip|foretext|distutils"
    r"|_distutils_hack|this|antigravity|pydoc_data|idlelib|__pycache__"
)
_LICENCE = re.compile(r"copyright|licen[cs]ed? under|redistribution and use|all rights reserved|warranty", re.I)

_CODE = re.compile(
    r"^ *(?:```|~~~)(?s:.*?)^ *(?:```|~~~).*$"  # fenced
    r"|^ *>>>.*(?:\n.*\S.*)*"  # a doctest, up to the blank line after its output
    r"|^( *)(?:\.\. .*|(.*:):)$(?:\n(?:\1 +.*| *$))*"  # a directive, or the block after a "::"
    r"|^ *[+=|].*[+=|] *$",  # a line of a table
    re.M,
)
_SECTION = re.compile(r"^ *([A-Z]\w+(?=:$)|[A-Z][\w ]{2,30}(?=:?\n *[-=~^*#+]{3,}$)):?(?:\n *[-=~^*#+]{3,})?$", re.M)
_LEFT_OUT = re.compile(r"(?:.* )?(?:examples?|references?|usage|doctests?|benchmarks?|see also)", re.I)
_ENTRY = re.compile(r"(?::\w[^:]*:|[-*+•] |\d+[.)] |@\w+|\*{0,2}\w[\w, .*]{0,40}(?:\([^)]*\))? ?: ?(?=\S))")
_MARKUP = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        ("[\x00-\x08\x0e-\x1f\x7f\ud800-\udfff]", " "),  # control characters and surrogates
        (r":[a-zA-Z][\w:+-]*:`[~!]?([^`<]*?)(?:\s*<[^`>]*>)?`", r"\1"),  # :class:`~pack.Mean`
        (r"`([^`<]+?)\s*<[^`>]*>`__?|\[([^\]]+)\]\([^)]*\)", r"\1\2"),  # links
        (r"``?([^`]+)``?_?", r"\1"),
        (r"(?<![\w*])\*\*?([^*\s](?:[^*]*[^*\s])?)\*\*?(?![\w*])", r"\1"),
        (r"\s+", " "),
    )
]
_PLACEHOLDER = re.compile(r"\{\w+\}|%\(\w+\)s")
_ABBREVIATION = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|vs|cf|fig|eq|no|resp|approx|al|incl|sec|ref|[A-Za-z])|\.\.)\.$", re.I
)
_BOUNDARY = re.compile(r"(?<=[.!?。！？])[\"')\]]?\s+(?=[\"'(\[]?[A-Z\u0080-\uffff])")


@dataclass(frozen=True)
class Docstring:
    """One docstring: its module, what it documents, and its paragraphs."""

    module: str  # "email.message"
    signature: str  # "def as_string(unixfrom=False)", "class Message(policy)"; empty for a module's docstring
    opening: tuple[str, ...]  # the paragraphs of running text before its first section or list
    rest: tuple[str, ...] = ()

    @property
    def package(self) -> str:
        return self.module.partition(".")[0]

    @property
    def heading(self) -> str:
        """The module and the signature: "email.message: def as_string(unixfrom=False)"; for a module's docstring, its
        name."""
        place = ".".join(self.module.split(".")[:2])
        return f"{place}: {self.signature}" if self.signature else f"module {self.module}"

    @property
    def paragraphs(self) -> tuple[str, ...]:
        return self.opening + self.rest


def paragraphs(docstring: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The opening and the rest of a cleaned docstring, without doctests, code, tables, examples and references."""
    opening: list[str] = []
    rest: list[str] = []
    parts = _SECTION.split(_CODE.sub(lambda code: f"{code[2] or ''}\n", docstring))
    for section, body in zip(["", *parts[1::2]], parts[::2]):
        for lines in [] if _LEFT_OUT.fullmatch(section) else _groups(body):
            text = " ".join(lines)
            for pattern, replacement in _MARKUP:
                text = pattern.sub(replacement, text)
            text = text.strip()
            letters = sum(char.isalpha() or char == " " for char in text)
            if len(text) >= 12 and letters >= 0.75 * len(text) and " " in text and not _PLACEHOLDER.search(text):
                (rest if section or rest or _ENTRY.match(text) else opening).append(text)
    return tuple(opening), tuple(rest)


def _groups(body: str) -> Iterator[list[str]]:
    """Lines that belong together: a paragraph, or a list item with the lines indented below it."""
    group: list[str] = []
    depth = 0
    for line in [*body.split("\n"), ""]:
        text, indent = line.strip(), len(line) - len(line.lstrip())
        if group and (not text or _ENTRY.match(text) or (indent != depth and not _ENTRY.match(group[0]))):
            yield group
            group = []
        if text:
            group.append(text)
            depth = indent


def sentences(paragraph: str) -> list[str]:
    """The sentences of one plain paragraph; abbreviations do not end a sentence."""
    texts: list[str] = []
    start = 0
    for boundary in [*_BOUNDARY.finditer(paragraph), None]:
        end = boundary.end() if boundary else len(paragraph)
        candidate = paragraph[start:end].strip()
        if candidate and not (boundary and _ABBREVIATION.search(candidate)):
            texts.append(candidate)
            start = end
    return texts


def sentence_key(sentence: str) -> str:
    """What copies of a sentence share: its words without case, punctuation and numbers."""
    return " ".join(word for word in re.findall(r"\w+", sentence.lower()) if not word.isdigit())


def signature_of(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> str:
    """One line for a function or class, without annotations, `self` and long defaults."""
    if isinstance(node, ast.ClassDef):
        makers = [member for member in node.body if isinstance(member, ast.FunctionDef) and member.name == "__init__"]
        return f"class {node.name}({_arguments(makers[0].args) if makers else ''})"
    return f"def {node.name}({_arguments(node.args)})"


def _arguments(given: ast.arguments) -> str:
    for argument in ast.walk(given):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    given.defaults = [_short(default) for default in given.defaults]
    given.kw_defaults = [default and _short(default) for default in given.kw_defaults]
    given.args, given.posonlyargs = given.posonlyargs + given.args, []
    return re.sub(r"^(?:self|cls)(?:, |$)", "", ast.unparse(given))


def _short(default: ast.expr) -> ast.expr:
    is_short = isinstance(default, ast.Constant | ast.Name | ast.UnaryOp) and len(ast.unparse(default)) <= 16
    return default if is_short else ast.Constant(...)


def find_sources(roots: Sequence[Path]) -> dict[str, Path]:
    """Python source files below `roots` by module, without tests and vendored copies."""
    sources: dict[str, Path] = {}
    for root in roots:
        for folder, subfolders, files in os.walk(root):
            subfolders[:] = [name for name in subfolders if name.isidentifier() and not _SKIPPED.fullmatch(name)]
            parts = Path(folder).relative_to(root).parts
            for stem in (name[:-3] for name in files if name.endswith(".py") and not _SKIPPED.fullmatch(name[:-3])):
                module = ".".join(parts if stem == "__init__" else (*parts, stem))
                sources.setdefault(module, Path(folder, f"{stem}.py"))
    return sources


def choose_sources(sources: dict[str, Path], seed: int, all_bytes: int) -> list[tuple[str, Path]]:
    """A seeded choice of files within `all_bytes` of source; the next file is from the package with the least so
    far."""
    order = [(module, path) for module, path in sorted(sources.items()) if path.is_file()]
    random.Random(f"sources {seed}").shuffle(order)
    spent: Counter[str] = Counter()
    ranked: list[tuple[int, str, Path]] = []
    for module, path in order:
        if (size := path.stat().st_size) <= MOST_IN_FILE:
            spent[module.partition(".")[0]] += size
            ranked.append((spent[module.partition(".")[0]], module, path))
    sizes = itertools.accumulate(path.stat().st_size for _, _, path in sorted(ranked))
    return sorted((module, path) for total, (_, module, path) in zip(sizes, sorted(ranked)) if total <= all_bytes)


def read_docstrings(module: str, path: Path) -> Iterator[Docstring]:
    """The docstrings of one file in source order; empty if it cannot be read or parsed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in _documented(tree):
        raw = ast.get_docstring(node, clean=False) or ""
        if len(raw) >= SHORTEST and not _LICENCE.search(raw):
            signature = "" if isinstance(node, ast.Module) else signature_of(node)
            docstring = Docstring(module, signature, *paragraphs(inspect.cleandoc(raw)))
            if sum(map(len, docstring.paragraphs)) >= SHORTEST:
                yield docstring


def _documented(node: ast.AST) -> Iterator[ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    if isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node
    for child in node.body if isinstance(node, ast.Module | ast.stmt) and hasattr(node, "body") else ():
        yield from _documented(child)


def harvest(
    roots: Sequence[Path] = (),
    *,
    seed: int = 0,
    all_bytes: int = MOST_IN_ALL,
    watch: Callable[[], None] = lambda: None,
) -> list[Docstring]:
    """The docstrings below `roots` (default: this Python's own), sorted by module. Copies are left out, and so are
    docstrings most of whose paragraphs have occurred before (generated families of classes). `watch` is called for each
    file, and may end the work by raising."""
    roots = roots or [Path(sysconfig.get_paths()[name]) for name in ("stdlib", "purelib", "platlib")]
    seen: set[str] = set()
    kept: list[Docstring] = []
    for module, path in choose_sources(find_sources(roots), seed, all_bytes):
        watch()
        for docstring in read_docstrings(module, path):
            keys = [sentence_key(text) for text in docstring.paragraphs]
            new = sum(len(key) for key in keys if key not in seen)
            seen.update(keys)
            if new and new * 2 >= sum(map(len, keys)):
                kept.append(docstring)
    return kept
