"""Chooses the mutants: small mistakes in Foretext's own code that the tests should notice.

    python tests/mutants/choose.py            # writes tests/mutants/mutants.json

A mutant changes one line: a sign, a comparison, a constant, or a statement that is dropped. The choice is drawn from a
fixed seed: the four kinds in turn, and the rooms by the square root of their size, so that small rooms have some too.
The list is chosen once and kept: a later one could not be held against what was killed before. A mutant names its file,
the line's text and which of the lines with that text it is, so that it outlives changes around it.
"""

from __future__ import annotations

import ast
import json
import math
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIST = Path(__file__).with_name("mutants.json")
COUNT, SEED = 120, 25
KINDS = ("sign", "comparison", "constant", "dropped")
SIGNS = {ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*")}
COMPARISONS = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
}

Mutant = dict[str, str | int]


def main() -> None:
    rooms: dict[str, list[Path]] = {}
    for path in sorted((ROOT / "foretext").rglob("*.py")):
        room = path.parent.name if path.parent.name != "foretext" else "(top)"
        rooms.setdefault(room, []).append(path)
    weights = {room: math.sqrt(sum(len(path.read_text().splitlines()) for path in rooms[room])) for room in rooms}
    draw = random.Random(SEED)
    chosen: list[Mutant] = []
    for room, count in shares(weights, COUNT).items():
        possible = {kind: [mutant for path in rooms[room] for mutant in mutants(path, kind)] for kind in KINDS}
        used: set[tuple[object, object]] = set()
        for _ in range(count):
            kind = KINDS[len(chosen) % len(KINDS)]
            mutant = draw.choice([mutant for mutant in possible[kind] if (mutant["file"], mutant["line"]) not in used])
            used.add((mutant["file"], mutant["line"]))
            possible[kind].remove(mutant)
            chosen.append({"id": f"{len(chosen) + 1:03d}", "room": room, **mutant})
    LIST.write_text(json.dumps(chosen, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(Counter(mutant["room"] for mutant in chosen), Counter(mutant["kind"] for mutant in chosen))


def shares(weights: dict[str, float], count: int) -> dict[str, int]:
    """`count` in proportion to the weights, the largest remainders rounded up."""
    exact = {name: count * weight / sum(weights.values()) for name, weight in weights.items()}
    counts = {name: int(share) for name, share in exact.items()}
    for name in sorted(exact, key=lambda name: counts[name] - exact[name])[: count - sum(counts.values())]:
        counts[name] += 1
    return counts


def mutants(path: Path, kind: str) -> Iterator[Mutant]:
    """All mutants of one kind in a file."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    for number, start, stop, new in changes(ast.parse(text), lines, kind):
        line = lines[number]
        changed = line[:start] + new + line[stop:]
        yield {
            "kind": kind,
            "file": str(path.relative_to(ROOT)),
            "line": number + 1,
            "before": line,
            "nth": lines[:number].count(line),
            "after": changed,
        }


def changes(tree: ast.Module, lines: list[str], kind: str) -> Iterator[tuple[int, int, int, str]]:
    """Line (from 0), columns, and what stands there instead."""
    unread = annotations(tree)
    for node in ast.walk(tree):
        if id(node) in unread or not hasattr(node, "lineno") or node.lineno != node.end_lineno:
            continue
        line = lines[node.lineno - 1]
        start, stop = (len(line.encode()[:offset].decode()) for offset in (node.col_offset, node.end_col_offset))
        if kind == "sign" and isinstance(node, ast.BinOp) and type(node.op) in SIGNS:
            if not any(
                isinstance(side, ast.JoinedStr | ast.List | ast.Tuple) or is_text(side)
                for side in (node.left, node.right)
            ):
                yield from between(node.left, node.right, line, node.lineno, *SIGNS[type(node.op)])
        elif kind == "comparison" and isinstance(node, ast.Compare) and len(node.ops) == 1:
            yield from between(node.left, node.comparators[0], line, node.lineno, *COMPARISONS[type(node.ops[0])])
        elif kind == "constant" and isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
            yield node.lineno - 1, start, stop, other(node.value)
        elif kind == "dropped" and droppable(node):
            yield node.lineno - 1, start, stop, "pass"


def between(
    left: ast.expr, right: ast.expr, line: str, number: int, old: str, new: str
) -> Iterator[tuple[int, int, int, str]]:
    """The operator between two operands on one line."""
    assert left.end_col_offset is not None
    start = len(line.encode()[: left.end_col_offset].decode())
    stop = len(line.encode()[: right.col_offset].decode())
    at = line.find(f" {old} ", start - 1, stop + 1)
    if at >= 0 and line.count(old, start, stop) == 1:
        yield number - 1, at + 1, at + 1 + len(old), new


def other(value: bool | int | float) -> str:
    if isinstance(value, bool):
        return str(not value)
    return repr(value + 1) if isinstance(value, int) else repr(value * 2 if value else 1.0)


def is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def droppable(node: ast.AST) -> bool:
    """A call for its effect, a raise, an addition to a name, a loop's continue."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call)
    return isinstance(node, ast.Raise | ast.AugAssign | ast.Continue)


def annotations(tree: ast.Module) -> set[int]:
    """Nodes that only a type checker reads."""
    nodes: set[int] = set()
    for node in ast.walk(tree):
        for part in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            if isinstance(part, ast.AST):
                nodes.update(id(inner) for inner in ast.walk(part))
    return nodes


if __name__ == "__main__":
    main()
