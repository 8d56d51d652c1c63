"""The order of the rooms (docs/architecture.md): imports go to lower rooms or the same; torch stays where it is."""

import ast
import subprocess
import sys
from pathlib import Path

from foretext.systems import SYSTEMS
from foretext.tasks.family import KINDS

PACKAGE = Path(__file__).parents[2] / "foretext"

# From low to high. Rooms of one line do not import each other, except inside the first and the last.
ORDER = [
    {"errors", "config", "batch", "plan"},
    {"text", "nn"},
    {"objectives"},
    {"tasks"},  # a task is an objective over labelled rows
    {"systems"},
    {"runs"},
    {"train", "generate"},
    {"evaluate"},  # what is scored is read by a decoder
    {"interop"},  # others' harness asks what our own evaluation asks
    {"task_model"},
    {"language_model"},  # fine-tuning makes a task model of it
    {"learn"},
    {"api"},
    {"demo", "cli", "serve", "__init__", "__main__"},
]
APART = {("evaluate", "train"), ("interop", "train")}  # they stand on runs: a finished run needs no training code
LEVEL = {room: level for level, rooms in enumerate(ORDER) for room in rooms}
TORCH_FREE = [
    *("errors", "config", "text", "tasks/files", "tasks/layouts", "tasks/scores", "tasks/labelled"),
    *("tasks/family", "tasks/row_family", "tasks/tag_family", "tasks/span_family"),
]

FILES = sorted(PACKAGE.rglob("*.py"))


def name_of(file: Path) -> str:
    return file.relative_to(PACKAGE).with_suffix("").as_posix()


def imported(source: str, package: list[str]) -> set[str]:
    """Every module or attribute that the source imports, at any level, as an absolute dotted name."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            prefix = [*base, *([node.module] if node.module else [])]
            names |= {".".join([*prefix, alias.name]) for alias in node.names}
    return names


def imports_of(file: Path) -> set[str]:
    return imported(file.read_text(encoding="utf-8"), ["foretext", *file.relative_to(PACKAGE).parent.parts])


def room_of(dotted: str) -> str | None:
    """The room that `foretext.room.…` names; None for another package, or for `foretext.__version__` and the like."""
    parts = dotted.split(".")
    if parts[0] != "foretext" or len(parts) == 1:
        return None
    exists = (PACKAGE / parts[1]).is_dir() or (PACKAGE / f"{parts[1]}.py").is_file()
    return parts[1] if exists or parts[1] in LEVEL else None


def allowed(source: str, target: str) -> bool:
    low, high = LEVEL[target], LEVEL[source]
    if (source, target) in APART:
        return False
    return source == target or low < high or (low == high and high in (0, len(ORDER) - 1))


def test_every_room_has_its_place() -> None:
    rooms = {name_of(file).split("/")[0] for file in FILES}
    assert rooms <= LEVEL.keys(), f"not in the order of the rooms: {sorted(rooms - LEVEL.keys())}"


def test_imports_go_down() -> None:
    wrong = []
    for file in FILES:
        here = name_of(file).split("/")[0]
        rooms = {room for name in imports_of(file) if (room := room_of(name)) is not None}
        wrong += [
            f"{name_of(file)} imports {room}, which stands beside or above {here}"
            for room in sorted(rooms)
            if not allowed(here, room)
        ]
    assert not wrong, "\n".join(wrong)


def _is_by_name(name: str, trunks: set[str]) -> bool:
    """Whether this import names one system, task, loss or trunk, where what is asked of it must go by the contracts."""
    parts = name.split(".")[1:]
    if parts[:1] == ["objectives"]:
        return parts[1:2] != ["base"]
    if parts[:1] == ["systems"]:
        return len(parts) > 2 and parts[1] != "base"
    return parts[:2] == ["tasks", "heads"] or any(name.startswith(f"foretext.{module}.") for module in trunks)


def trunk_modules() -> set[str]:
    """Those of nn/ that define a trunk, as dotted names."""
    found = set()
    for file in FILES:
        classes = [node for node in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(node, ast.ClassDef)]
        is_one = any(ast.unparse(base).endswith("Trunk") for node in classes for base in node.bases)
        if is_one and name_of(file).startswith("nn/") and name_of(file) != "nn/trunk":
            found.add(name_of(file).replace("/", "."))
    return found


def test_no_system_task_or_loss_is_known_by_name_above_the_systems() -> None:
    """What a system can do it says itself: a new one needs no edit in these rooms."""
    trunks = trunk_modules()
    assert len(trunks) >= 8, f"trunks: {sorted(trunks)}"
    wrong = [
        f"{name_of(file)} imports {name}"
        for file in FILES
        if name_of(file).split("/")[0] in ("runs", "train", "generate", "evaluate", "task_model", "language_model")
        for name in sorted(imports_of(file))
        if _is_by_name(name, trunks)
    ]
    assert not wrong, "\n".join(wrong)


BLIND = ("train", "runs", "generate", "evaluate")  # they know no kind of task, no system and no view by name
OTHER_SENSES = {
    ("evaluate/word_space", "similarity"),  # the name of a result: how alike words are
    # The table of the ways that `prompt` asks, with the options of each; six of ten are no kinds of labelled rows.
    *(("evaluate/options", way) for way in ("classification", "entailment", "similarity", "choice")),
}


def constants(source: str) -> set[str]:
    """The strings of a source that are values: docstrings are not."""
    tree = ast.parse(source)
    texts = {
        node.body[0].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    values = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and node not in texts)
    return {node.value for node in values if isinstance(node.value, str)}


def test_no_kind_of_task_or_system_is_named_where_they_speak_for_themselves() -> None:
    """What a kind of task can do its family says, and what a system can do its `System`. A message may name them."""
    wrong = [
        f"{name_of(file)} has {text!r}"
        for file in FILES
        if name_of(file).split("/")[0] in BLIND
        for text in sorted(constants(file.read_text("utf-8")) & {*KINDS, *SYSTEMS})
        if (name_of(file), text) not in OTHER_SENSES
    ]
    assert not wrong, "\n".join(wrong)


def test_no_view_is_known_by_name_where_kinds_of_task_speak_for_themselves() -> None:
    """A kind of task says itself which views it has: the particular ones are in the sub-rooms of `tasks/views/`."""
    views = PACKAGE / "tasks" / "views"
    rooms = {f"foretext.tasks.views.{room.name}" for room in views.iterdir() if (room / "__init__.py").exists()}
    assert len(rooms) == 3, f"sub-rooms: {sorted(rooms)}"
    wrong = [
        f"{name_of(file)} imports {name}"
        for file in FILES
        if name_of(file).split("/")[0] in BLIND
        for name in sorted(imports_of(file))
        if ".".join(name.split(".")[:4]) in rooms
    ]
    assert not wrong, "\n".join(wrong)


def test_torch_stays_out_of_the_light_rooms() -> None:
    light = [
        file
        for file in FILES
        if any(name_of(file) == room or name_of(file).startswith(room + "/") for room in TORCH_FREE)
    ]
    assert len(light) >= len(TORCH_FREE)
    heavy = [name_of(file) for file in light if any(name.split(".")[0] == "torch" for name in imports_of(file))]
    assert not heavy, f"these import torch: {heavy}"


def test_the_finder_sees_all_kinds_of_import() -> None:
    source = "import foretext.cli.app\nfrom foretext import api\n"
    source += "def f():\n  from .. import nn\n  from ..train.loop import x\n"
    found = imported(source, ["foretext", "text"])
    assert found == {"foretext.cli.app", "foretext.api", "foretext.nn", "foretext.train.loop.x"}
    assert {room_of(name) for name in found} == {"cli", "api", "nn", "train"}
    assert room_of("foretext.__version__") is None
    assert (
        not allowed("text", "nn")
        and not allowed("train", "generate")
        and not allowed("evaluate", "train")
        and allowed("cli", "demo")
    )


def test_the_finder_sees_values_and_no_docstrings() -> None:
    source = '"""span"""\ndef f(kind):\n  "choice"\n  return kind == "tagging" or f"{kind} is tagging"\n'
    assert constants(source) == {"tagging", " is tagging"}


def test_importing_does_not_import_torch() -> None:
    light = ("foretext", "foretext.errors", "foretext.config", "foretext.text", "foretext.tasks.family")
    for module in (*light, "foretext.tasks.files.conll", "foretext.cli.app"):
        code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
        done = subprocess.run([sys.executable, "-c", code], cwd=PACKAGE.parent, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr or f"import {module} imports torch"
