"""From a docstring to plain prose: paragraphs without code, tables and markup, and sentences.

Docstrings mix prose with doctests, tables, section headings and reStructuredText roles. A small language model with a
few minutes to learn has no capacity to spare for those, so that the corpus keeps paragraphs only; the labelled tasks
use the narrative ones alone (not parameter lists), cut into sentences.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Block:
    """One paragraph; `narrative` when it is running text rather than an entry of a parameter list."""

    text: str
    narrative: bool


_ROLE = re.compile(r":[a-zA-Z][\w:+-]*:`[~!]?([^`<]*?)(?:\s*<[^`>]*>)?`")
_LINK = re.compile(r"`([^`<]+?)\s*<[^`>]*>`__?")
_TICKS = re.compile(r"``?([^`]+)``?_?")
_STARS = re.compile(r"(?<![\w*])\*\*?([^*\s](?:[^*]*[^*\s])?)\*\*?(?![\w*])")
_BRACKET_LINK = re.compile(r"\[([^\]]+)\]\([^)]*\)")
_UNSEEN = re.compile("[\x00-\x08\x0e-\x1f\x7f\ud800-\udfff]")
_SPACE = re.compile(r"\s+")
_RULE = re.compile(r"^[\s=\-~^#*+_|.:`'\"]{3,}$")
_UNDERLINE = re.compile(r"^([-=~^*#+])\1{2,}$")
_DIRECTIVE = re.compile(r"^\.\. *([\w:-]+?)::")
_ENTRY = re.compile(r"^(?::\w[^:]*:|[-*+•] |\d+[.)] |@\w+|\*{0,2}\w[\w, .*]{0,40}(?:\([^)]*\))? ?: ?)")
_LABEL = re.compile(r"^([A-Z][\w ]{2,30}):{1,2}$")
_PLACEHOLDER = re.compile(r"\{\w+\}|%\(\w+\)s")


def words(text: str) -> frozenset[str]:
    """A set of words, written as a text."""
    return frozenset(text.split())


_CODE_DIRECTIVES = words("""
    code code-block sourcecode plot math image figure testcode testsetup doctest autosummary toctree table list-table
    csv-table ipython parsed-literal literalinclude automodule autoclass autofunction graphviz
""")
_SKIPPED_SECTIONS = words("example examples reference references usage doctest doctests benchmark benchmarks") | {
    "see also",
    "example usage",
    "basic usage",
}
_LIST_SECTIONS = words("""
    parameters args arguments returns return yields yield raises raise attributes methods warns receives kwargs inputs
    outputs input output shape options properties
""") | {"other parameters", "keyword arguments", "keyword args"}


def plain(text: str) -> str:
    """`text` on one line, without roles, links, emphasis, back-quotes, and what is no character of a text (a docstring
    may hold NULs and halves of surrogate pairs)."""
    text = _UNSEEN.sub(" ", text)
    text = _ROLE.sub(lambda found: found.group(1).strip() or " ", text)
    text = _LINK.sub(r"\1", text)
    text = _BRACKET_LINK.sub(r"\1", text)
    text = _TICKS.sub(r"\1", text)
    text = _STARS.sub(r"\1", text)
    return _SPACE.sub(" ", text).strip()


def blocks(docstring: str) -> list[Block]:
    """The paragraphs of a cleaned docstring, without doctests, code, tables, examples and references."""
    found: list[Block] = []
    for lines, narrative in _paragraphs(docstring.split("\n")):
        text = plain(" ".join(lines))
        if len(text) >= 12 and _is_prose(text):
            found.append(Block(text, narrative and not _ENTRY.match(lines[0].strip())))
    return found


def _is_prose(text: str) -> bool:
    letters = sum(char.isalpha() or char == " " for char in text)
    return letters >= 0.75 * len(text) and " " in text and not _PLACEHOLDER.search(text)


def _paragraphs(lines: list[str]) -> Iterator[tuple[list[str], bool]]:
    """Groups of lines that belong together, each with whether it stands outside parameter lists."""
    group: list[str] = []
    section, label_indent, depth = "", -1, 0
    kept = list(_without_code(lines))
    for number, line in enumerate(kept):
        stripped = line.strip()
        indent = len(line) - len(line.lstrip())
        heading = _heading(kept, number, stripped)
        leaves_label = label_indent >= 0 and stripped and indent <= label_indent
        broken = not stripped or bool(_RULE.match(stripped)) or heading or leaves_label
        if broken or (group and (_ENTRY.match(stripped) or (indent != depth and not _ENTRY.match(group[0].strip())))):
            if group and section not in _SKIPPED_SECTIONS:
                yield group, section not in _LIST_SECTIONS
            group = []
        if leaves_label:
            section, label_indent = "", -1
        if heading:
            section = heading
            label_indent = indent if _LABEL.match(stripped) else -1
        elif stripped and not _RULE.match(stripped):
            group.append(line)
            depth = indent
    if group and section not in _SKIPPED_SECTIONS:
        yield group, section not in _LIST_SECTIONS


def _heading(lines: list[str], number: int, stripped: str) -> str:
    """The section's name in lower case if this line opens one: underlined, or a known name and a colon."""
    if not stripped or len(stripped) > 60:
        return ""
    following = lines[number + 1].strip() if number + 1 < len(lines) else ""
    if _UNDERLINE.match(following) and len(following) >= min(len(stripped), 4):
        return stripped.rstrip(":").lower()
    label = _LABEL.match(stripped)
    name = label.group(1).lower() if label else ""
    return name if name in _SKIPPED_SECTIONS or name in _LIST_SECTIONS or name in ("note", "notes", "warning") else ""


def _without_code(lines: list[str]) -> Iterator[str]:
    """The lines without doctests, fenced code, literal blocks and directives."""
    fenced = doctest = False
    block_indent = -1
    for line in lines:
        stripped = line.strip()
        indent = len(line) - len(line.lstrip())
        if block_indent >= 0:
            if not stripped or indent > block_indent:
                continue
            block_indent = -1
        if stripped.startswith(("```", "~~~")):
            fenced = not fenced
            yield ""
        elif fenced:
            continue
        elif stripped.startswith(">>>") or (doctest and stripped):
            doctest = True
        elif directive := _DIRECTIVE.match(stripped):
            if directive.group(1).lower() in _CODE_DIRECTIVES:
                block_indent = indent
            yield ""
        elif stripped.startswith(".. "):
            yield ""
        elif stripped.endswith("::"):
            block_indent = indent
            yield line.rstrip()[:-1]
            yield ""
        else:
            doctest = False
            yield "" if _is_table(stripped) else line


def _is_table(line: str) -> bool:
    return line.count("|") >= 2 or (line.startswith(("+-", "+=", "==")) and bool(_RULE.match(line)))


_ABBREVIATION = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|vs|cf|fig|eq|no|resp|approx|al|incl|sec|ref|[A-Za-z])|\.\.)\.$", re.I
)
_BOUNDARY = re.compile(r"(?<=[.!?。！？])[\"')\]]?\s+(?=[\"'(\[]?[A-Z\u0080-\uffff])")
_WORD = re.compile(r"\w+")


def sentences(paragraph: str) -> list[str]:
    """Sentences of one plain paragraph; abbreviations do not end one."""
    found: list[str] = []
    start = 0
    for boundary in _BOUNDARY.finditer(paragraph):
        candidate = paragraph[start : boundary.end()].strip()
        if not _ABBREVIATION.search(candidate):
            found.append(candidate)
            start = boundary.end()
    rest = paragraph[start:].strip()
    return [*found, rest] if rest else found


def is_usable(sentence: str, least_words: int = 5, most_words: int = 24) -> bool:
    """Whether a sentence can stand in a labelled row: whole, of middling length, mostly words."""
    words = sentence.split()
    letters = sum(char.isalpha() or char == " " for char in sentence)
    return (
        least_words <= len(words) <= most_words
        and len(sentence) <= 9 * most_words
        and (sentence[0].isupper() or ord(sentence[0]) > 127)
        and sentence[-1] in ".!?。！？"
        and letters >= 0.85 * len(sentence)
        and "http" not in sentence
        and "::" not in sentence
    )


def key(sentence: str) -> str:
    """What two copies of a sentence share: its words without case, punctuation and numbers."""
    return " ".join(word for word in _WORD.findall(sentence.lower()) if not word.isdigit())
