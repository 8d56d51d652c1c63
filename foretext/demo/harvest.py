"""The demonstration's corpus: the documentation inside the user's own Python.

Docstrings of the standard library and of the installed packages are read out of the source files with `ast`. Nothing
is imported, so nothing that is found can run. Which files are read is a seeded choice under limits on source size, for
each package and in all, so that the time is bounded and the same installation gives the same text every time.
"""

import ast
import heapq
import inspect
import os
import random
import re
import signal
import sysconfig
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

from foretext.demo import prose
from foretext.demo.prose import words


@dataclass(frozen=True)
class Docstring:
    """One docstring: where it stands, what it describes, and its paragraphs."""

    module: str  # "email.message"
    package: str  # "email"
    name: str  # "Message.as_string"; empty for a module's own
    signature: str  # "def as_string(unixfrom=False)", "class Message(policy)", "module email.message"
    blocks: tuple[prose.Block, ...]

    @property
    def heading(self) -> str:
        """The place and the signature: "email.message: def as_string(unixfrom=False)"; a module's own has its name."""
        if not self.name:
            return self.signature
        return f"{'.'.join(self.module.split('.')[:2])}: {self.signature}"

    def text(self) -> str:
        """The document as the corpus has it: the heading, then a paragraph a line."""
        return "\n".join([self.heading, *(block.text for block in self.blocks)])


@dataclass(frozen=True)
class HarvestLimits:
    """Bounds on what is read; sizes in bytes."""

    source_file: int = 600_000
    source_package: int = 6_000_000
    source_total: int = 48_000_000
    text_package: int = 2_500_000
    text_total: int = 16_000_000
    shortest: int = 40


@dataclass
class HarvestReport:
    """What was read and what was left out, for the plan and the report page."""

    files: int = 0
    source_bytes: int = 0
    unreadable: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    docstrings: int = 0
    text_bytes: int = 0
    packages: dict[str, int] = field(default_factory=dict)  # bytes of text by package


@dataclass(frozen=True)
class Source:
    path: Path
    module: str
    package: str
    size: int


_SKIPPED_FOLDERS = words("""
    __pycache__ test tests testing idle_test _vendor vendor vendored _vendored extern externals third_party
    site-packages dist-packages lib2to3 node_modules
""")
# Generated or old copies of code that is documented elsewhere, and this package itself.
_SKIPPED_PACKAGES = words("foretext distutils this antigravity pydoc_data idlelib _distutils_hack pip")
_LICENCE = re.compile(r"copyright|licen[cs]ed? under|redistribution and use|all rights reserved|warranty", re.I)


def standard_roots() -> list[Path]:
    """The standard library and the site-packages of the Python that runs."""
    paths = sysconfig.get_paths()
    return [Path(paths[name]) for name in ("stdlib", "purelib", "platlib")]


def find_sources(roots: Sequence[Path], limits: HarvestLimits) -> list[Source]:
    """Python source files below `roots`, without tests and vendored copies, sorted by module."""
    found: dict[str, Source] = {}
    for root in dict.fromkeys(Path(root) for root in roots):
        for folder, subfolders, files in os.walk(root):
            subfolders[:] = sorted(name for name in subfolders if _is_wanted_folder(name))
            for name in sorted(files):
                if name.endswith(".py") and not name.startswith("test_") and name != "conftest.py":
                    path = Path(folder, name)
                    module = _module_name(path.relative_to(root))
                    size = path.stat().st_size if path.is_file() else 0
                    package = module.split(".")[0]
                    if module and package not in _SKIPPED_PACKAGES and 0 < size <= limits.source_file:
                        found.setdefault(module, Source(path, module, package, size))
    return [found[module] for module in sorted(found)]


def _is_wanted_folder(name: str) -> bool:
    return name not in _SKIPPED_FOLDERS and name.isidentifier()


def _module_name(path: Path) -> str:
    parts = list(path.with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts)


def choose_sources(sources: Sequence[Source], limits: HarvestLimits, seed: int) -> list[Source]:
    """A seeded choice of files within the limits on source size; the package with the least so far is next."""
    generator = random.Random(f"sources {seed}")
    queues: dict[str, list[Source]] = {}
    for source in sources:
        queues.setdefault(source.package, []).append(source)
    for queue in queues.values():
        generator.shuffle(queue)
    turns = [(0, package) for package in sorted(queues)]
    taken: list[Source] = []
    total = 0
    while turns:
        spent, package = heapq.heappop(turns)
        source = queues[package].pop()
        if spent + source.size <= limits.source_package and total + source.size <= limits.source_total:
            taken.append(source)
            spent += source.size
            total += source.size
        if queues[package]:
            heapq.heappush(turns, (spent, package))
    return sorted(taken, key=lambda source: source.module)


def read_docstrings(source: Source, shortest: int = 40) -> list[Docstring] | None:
    """The docstrings of one file in the order of its source; None where it cannot be read or parsed."""
    try:
        content = source.path.read_bytes()
        if b'"""' not in content and b"'''" not in content:
            return []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(content)
            return list(_documented(tree, source, "", shortest))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _documented(node: ast.AST, source: Source, prefix: str, shortest: int) -> Iterator[Docstring]:
    if isinstance(node, ast.Module):
        yield from _record(ast.get_docstring(node, clean=False), f"module {source.module}", "", source, shortest)
    for child in getattr(node, "body", []):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{prefix}{child.name}"
            raw = ast.get_docstring(child, clean=False)
            yield from _record(raw, signature_of(child), name, source, shortest)
            yield from _documented(child, source, f"{name}.", shortest)
        elif isinstance(child, ast.If | ast.Try):
            yield from _documented(child, source, prefix, shortest)
        elif isinstance(child, ast.Expr) and isinstance(child.value, ast.Call):
            yield from _attached(child.value, source, shortest)


def _record(raw: str | None, signature: str, name: str, source: Source, shortest: int) -> Iterator[Docstring]:
    if raw is None or len(raw) < shortest or _LICENCE.search(raw):
        return
    found = tuple(prose.blocks(inspect.cleandoc(raw)))
    if sum(len(block.text) for block in found) >= shortest:
        yield Docstring(source.module, source.package, name, signature, found)


def _attached(call: ast.Call, source: Source, shortest: int) -> Iterator[Docstring]:
    """Documentation of compiled functions, attached by a call: numpy's `add_newdoc`, torch's `add_docstr`."""
    called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if not called.startswith(("add_newdoc", "add_docstr")) or len(call.args) < 2:
        return
    target, text = call.args[-2], call.args[-1]
    if isinstance(text, ast.Call) and isinstance(text.func, ast.Attribute):  # "…".format(…)
        text = text.func.value
    if not (isinstance(text, ast.Constant) and isinstance(text.value, str)):
        return
    name = str(target.value) if isinstance(target, ast.Constant) else ast.unparse(target)
    # The first line of such a text is often the signature itself: "abs(input, *, out=None) -> Tensor".
    head, _, rest = inspect.cleandoc(text.value).partition("\n")
    short = name.rpartition(".")[2]
    opening = head.partition(" ->")[0].strip()
    has_signature = opening.startswith(f"{short}(") and opening.endswith(")")
    signature = f"def {opening}" if has_signature else f"def {short}()"
    yield from _record(rest if has_signature else f"{head}\n{rest}", signature, name, source, shortest)


def signature_of(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> str:
    """One line for a function or class, without annotations, `self` and long defaults."""
    if isinstance(node, ast.ClassDef):
        makers = [child for child in node.body if isinstance(child, ast.FunctionDef) and child.name == "__init__"]
        return f"class {node.name}({_arguments(makers[0].args) if makers else ''})"
    return f"def {node.name}({_arguments(node.args)})"


def _arguments(arguments: ast.arguments) -> str:
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults))
    parts = [_argument(one.arg, default) for one, default in zip(positional, [*defaults, *arguments.defaults])]
    if positional and positional[0].arg in ("self", "cls"):
        parts.pop(0)
    if arguments.vararg:
        parts.append(f"*{arguments.vararg.arg}")
    elif arguments.kwonlyargs:
        parts.append("*")
    parts += [_argument(one.arg, default) for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults)]
    if arguments.kwarg:
        parts.append(f"**{arguments.kwarg.arg}")
    return ", ".join(parts)


def _argument(name: str, default: ast.expr | None) -> str:
    if default is None:
        return name
    text = ast.unparse(default) if isinstance(default, ast.Constant | ast.Name | ast.UnaryOp) else "..."
    return f"{name}={text if len(text) <= 16 else '...'}"


def harvest(
    roots: Sequence[Path] | None = None,
    *,
    seed: int = 0,
    limits: HarvestLimits | None = None,
    workers: int | None = None,
    watch: Callable[[], None] = lambda: None,
) -> tuple[list[Docstring], HarvestReport]:
    """The docstrings below `roots` (this Python's own by default), without duplicates, sorted by module. `watch` is
    called at each file, and may end the work by an exception."""
    limits = limits or HarvestLimits()
    chosen = choose_sources(find_sources(roots or standard_roots(), limits), limits, seed)
    report = HarvestReport(files=len(chosen), source_bytes=sum(source.size for source in chosen))
    everything: list[Docstring] = []
    for docstrings in _read_all(chosen, limits.shortest, workers, watch):
        if docstrings is None:
            report.unreadable += 1
        else:
            everything += docstrings
    kept = _within(_without_copies(everything, report), limits, seed, report)
    report.docstrings = len(kept)
    for docstring in kept:
        size = len(docstring.text().encode())
        report.text_bytes += size
        report.packages[docstring.package] = report.packages.get(docstring.package, 0) + size
    return kept, report


def _read_all(
    chosen: list[Source], shortest: int, workers: int | None, watch: Callable[[], None]
) -> Iterator[list[Docstring] | None]:
    workers = min(2, os.cpu_count() or 1) if workers is None else workers
    if workers < 2 or len(chosen) < 200:
        for source in chosen:
            watch()
            yield read_docstrings(source, shortest)
        return
    # Spawned, not forked: the caller may already run torch's threads, and a fork of those can hang.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_leave_ctrl_c) as pool:
        try:
            for found in pool.map(read_docstrings, chosen, [shortest] * len(chosen), chunksize=32):
                watch()
                yield found
        except BrokenProcessPool:
            watch()  # Ctrl-C reaches a worker that is only starting, too
            raise


def _leave_ctrl_c() -> None:
    """In a worker: Ctrl-C goes to the whole group of processes and is the parent's to answer."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _without_copies(docstrings: list[Docstring], report: HarvestReport) -> list[Docstring]:
    """Drops copies and texts of which most paragraphs were seen before (generated families of classes)."""
    seen: set[str] = set()
    kept: list[Docstring] = []
    for docstring in docstrings:
        keys = [prose.key(block.text) for block in docstring.blocks]
        fresh = sum(len(one) for one in keys if one not in seen)
        seen.update(keys)
        if fresh * 2 >= sum(map(len, keys)) and fresh:
            kept.append(docstring)
    report.left_out["copies"] = len(docstrings) - len(kept)
    return kept


def _within(docstrings: list[Docstring], limits: HarvestLimits, seed: int, report: HarvestReport) -> list[Docstring]:
    """A seeded choice within the limits on text, for each package and in all, in the original order."""
    order = list(range(len(docstrings)))
    random.Random(f"texts {seed}").shuffle(order)
    spent: Counter[str] = Counter()
    total = 0
    taken: list[int] = []
    for index in order:
        size = len(docstrings[index].text().encode())
        package = docstrings[index].package
        if spent[package] + size <= limits.text_package and total + size <= limits.text_total:
            spent[package] += size
            total += size
            taken.append(index)
    report.left_out["over the size limit"] = len(docstrings) - len(taken)
    return [docstrings[index] for index in sorted(taken)]
