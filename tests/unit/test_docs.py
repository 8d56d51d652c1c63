"""The documents say what is so: links, file tree, options, configuration keys, excerpts of code, both languages."""

from __future__ import annotations

import dataclasses
import re
import shlex
import typing
from pathlib import Path
from typing import Any, Literal

import pytest
import typer.main

from foretext.cli.app import app

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
VERBS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
README, README_ZH = ROOT / "README.md", ROOT / "README.zh-CN.md"
GUIDE, GUIDE_ZH = ROOT / "docs" / "guide.md", ROOT / "docs" / "guide.zh-CN.md"
WALKS = [
    (ROOT / "docs" / f"{name}.md", ROOT / "docs" / f"{name}.zh-CN.md")
    for name in ("gpt-walk", "masked-walk", "elmo-walk", "ulmfit-walk", "xlnet-walk")
]
_FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_MEASURED = re.compile(r"<!--.*?-->", re.DOTALL)


def page_name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a page that are in `language` ("" for none)."""
    return [code for name, code in _FENCE.findall(page.read_text(encoding="utf-8")) if name == language]


def prose(page: Path) -> str:
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def headings(page: Path) -> list[str]:
    return re.findall(r"^#{1,6} .+$", prose(page), re.MULTILINE)


def anchor(heading: str) -> str:
    """The name that a heading has in a link."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lstrip("# ").lower()
    text = re.sub(r"[^\w\- ]", "", text)
    return text.strip().replace(" ", "-")


def commands(page: Path) -> list[str]:
    """What is to be typed: the lines of unnamed blocks that call foretext, make, python or pip, without comments."""
    found = []
    for block in blocks(page, ""):
        for line in block.replace("\\\n", " ").splitlines():
            line = re.sub(r"\s+#.*", "", line).removeprefix("$ ").strip()
            if re.match(r"(\S+=\S+ )*(foretext|make|python\S*|pip)\b|.*\| foretext\b", line):
                found.append(line)
    return found


def foretext_calls(page: Path) -> list[tuple[str, list[str]]]:
    """Verb and words of every call of foretext that is to be typed, in blocks and in the text."""
    inline = re.findall(r"`(foretext [^`]+)`", prose(page))
    calls = []
    for line in [*commands(page), *inline]:
        _, found, rest = line.partition("foretext ")
        words = shlex.split(rest) if found else []
        if words and not words[0].startswith("-") and words[0] != "VERB":
            calls.append((words[0], words[1:]))
    return calls


def options_of(verb: str) -> set[str]:
    return {name for parameter in VERBS[verb].params for name in parameter.opts if name.startswith("--")} - {"--help"}


# ── links and files ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in _LINK.findall(prose(page)):
        if re.match(r"https?://", link):
            continue
        path, _, place = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists() and target.is_relative_to(ROOT), f"{page_name(page)}: {link} does not exist"
        if place:
            assert place in {anchor(heading) for heading in headings(target)}, f"{page_name(page)}: no heading {link}"


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_pictures_are_there_and_small(page: Path) -> None:
    for name in re.findall(r"!\[[^\]]*\]\(([^)\s]+)\)", prose(page)):
        assert (page.parent / name).stat().st_size < 100_000, name


def test_the_picture_asks_no_other_machine() -> None:
    drawn = (ROOT / "docs" / "pictures" / "terminal.svg").read_text(encoding="utf-8")
    assert "font-face" not in drawn and not re.findall(r"(?:href=|url\()[\"']?(?!#)", drawn)


def test_the_list_of_pages_is_complete() -> None:
    folder = ROOT / "docs"
    index = "".join(page.read_text(encoding="utf-8") for page in (folder / "README.md", folder / "log.md"))
    missing = [page.name for page in folder.glob("*.md") if f"({page.name})" not in index and page.name != "README.md"]
    assert not missing, "docs/README.md leads to every page, docs/log.md to every day"


@pytest.mark.parametrize(("name", "most"), [("README.md", 120), ("README.zh-CN.md", 120), ("docs/results.md", 150)])
def test_what_is_read_first_is_short(name: str, most: int) -> None:
    assert len((ROOT / name).read_text(encoding="utf-8").splitlines()) <= most


def tree_paths(page: Path) -> list[str]:
    """The paths of the file tree: two spaces a level, names first, then what they are."""
    tree = next(block for block in blocks(page, "") if block.startswith("foretext/\n"))
    folders: list[str] = []
    paths = []
    for line in tree.splitlines():
        level = (len(line) - len(line.lstrip())) // 2
        names = re.match(r"\s*((?:[\w./-]+(?:/|\.\w+)(?:  |$))+)", line + "  ")
        assert names, f"{line!r} begins with no file or folder"
        del folders[level:]
        for name in names[1].split():
            paths.append("".join(folders) + name)
        if names[1].split()[-1].endswith("/"):
            folders.append(names[1].split()[-1])
    return paths


@pytest.mark.parametrize("page", [GUIDE, GUIDE_ZH], ids=page_name)
def test_the_tree_is_that_of_the_repository(page: Path) -> None:
    paths = tree_paths(page)
    assert len(paths) > 20
    missing = [path for path in paths if not (ROOT / path).exists()]
    assert not missing
    rooms = {folder.name for folder in (ROOT / "foretext").iterdir() if (folder / "__init__.py").exists()}
    assert rooms <= {path.split("/")[1] for path in paths if path.startswith("foretext/")}


# ── commands ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_verbs_and_options_exist(page: Path) -> None:
    for verb, words in foretext_calls(page):
        assert verb in VERBS, f"{page_name(page)}: foretext {verb}"
        if verb == "lm-eval":  # hands its options over to a program with its own
            continue
        given = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert given <= options_of(verb), f"{page_name(page)}: foretext {verb} {' '.join(words)}"


def test_the_page_on_the_command_line_is_complete() -> None:
    text = prose(ROOT / "docs" / "cli.md")
    sections = dict(re.findall(r"^## ([\w-]+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    assert VERBS.keys() <= sections.keys()
    for verb in VERBS:
        options = [line for line in sections[verb].splitlines() if re.match(r"\| `--|.*Options: ", line)]
        named = {name for line in options for name in re.findall(r"`(--[\w-]+)`", line.split("Options: ")[-1])}
        assert named == options_of(verb), verb


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for page in PAGES:
        named = {words[0] for line in commands(page) if (words := line.partition("make ")[2].split())}
        assert named <= targets, page_name(page)


# ── two languages ────────────────────────────────────────────────────────────────────────────────────────────────────


SYSTEM_PAGES = [(ROOT / "docs" / f"{name}.md", ROOT / "docs" / f"{name}.zh-CN.md") for name in ("cove", "cvt")]
PAIRS = [(README, README_ZH), (GUIDE, GUIDE_ZH), *WALKS, *SYSTEM_PAGES]


@pytest.mark.parametrize(
    ("english", "chinese"), PAIRS, ids=["README", "guide", "gpt", "masked", "elmo", "ulmfit", "xlnet", "cove", "cvt"]
)
def test_both_languages_say_the_same(english: Path, chinese: Path) -> None:
    levels = [[len(heading.split()[0]) for heading in headings(page)] for page in (english, chinese)]
    assert levels[0] == levels[1]
    assert commands(english) == commands(chinese) and commands(english)
    bare = [[re.sub(r"\s+#[^\n]*", "", code) for code in blocks(page, "python")] for page in (english, chinese)]
    assert bare[0] == bare[1]
    measured = [_MEASURED.findall(page.read_text(encoding="utf-8")) for page in (english, chinese)]
    assert measured[0] == measured[1]
    rows = [len(re.findall(r"^\|", prose(page), re.MULTILINE)) for page in (english, chinese)]
    assert rows[0] == rows[1]


# ── figures ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("page", [README, README_ZH, GUIDE, GUIDE_ZH], ids=page_name)
def test_figures_of_the_first_pages_stand_in_the_results(page: Path) -> None:
    """Accuracies, such as 78.3: with one decimal, in the table and in the text."""
    bare = re.sub(r"\]\([^)]*\)", "]", prose(page))
    measured = set(re.findall(r"(?<![\d.])\d\d\.\d(?!\d)", (ROOT / "docs" / "results.md").read_text(encoding="utf-8")))
    quoted = set(re.findall(r"(?<![\d.])\d\d\.\d(?!\d)", bare))
    assert quoted and quoted <= measured, sorted(quoted - measured)


# ── excerpts ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("page", [page for walk in WALKS for page in walk], ids=page_name)
def test_excerpts_stand_in_the_code(page: Path) -> None:
    excerpts = blocks(page, "python")
    assert len(excerpts) > 15
    for excerpt in excerpts:
        head, _, code = excerpt.partition("\n")
        named = re.fullmatch(r"# (foretext/\S+\.py), (?:(\w+)\.)?(\w+)", head)
        assert named, head
        source = (ROOT / named[1]).read_text(encoding="utf-8")
        owner = re.search(rf"^class {named[2]}\b", source, re.MULTILINE) if named[2] else None
        start = source.index(f"def {named[3]}(", owner.start() if owner else 0)
        end = re.compile(r"^(    )?(@|def |class )", re.MULTILINE).search(source, source.index("\n", start))
        assert code in source[start : end.start() if end else None], f"not in {head[2:]}:\n{code}"


# ── configuration ────────────────────────────────────────────────────────────────────────────────────────────────────


def documented_keys() -> dict[str, dict[str, tuple[str, str]]]:
    """Heading of a section → key → its default and what it means, from the tables of the page on formats."""
    text = prose(ROOT / "docs" / "formats.md")
    sections = re.findall(r"^### (\[\w+\][^\n]*)\n(.*?)(?=^##)", text, re.MULTILINE | re.DOTALL)
    rows = re.compile(r"^\| `(\w+)` \| ([^|]*?) ?\| (.*) \|$", re.MULTILINE)
    return {name: {key: (default, meaning) for key, default, meaning in rows.findall(body)} for name, body in sections}


def configured() -> dict[str, type[Any]]:
    """The same headings and the dataclass of each."""
    from foretext.nn.recurrent.char_cnn import CharEncoderConfig
    from foretext.plan import ReaderPlan
    from foretext.runs.run_config import SECTIONS
    from foretext.systems import SYSTEMS

    gpt, bert, elmo, ulmfit = SYSTEMS["gpt"], SYSTEMS["bert"], SYSTEMS["elmo"], SYSTEMS["ulmfit"]
    found: dict[str, type[Any]] = {f"[{name}]": cls for name, cls in SECTIONS.items()}
    found |= {"[model]": gpt.config, "[model] of masked systems": bert.config, "[objective]": bert.objective_config}
    found |= {"[model] of ulmfit": ulmfit.config, "[objective] of ulmfit": ulmfit.objective_config}
    found |= {"[model] of ELMo": elmo.config, "[objective] of ELMo": elmo.objective_config}
    found |= {"[model] of ELMo: words": CharEncoderConfig, "[transfer]: reader": ReaderPlan}
    found["[model] of transformer_xl"] = SYSTEMS["transformer_xl"].config
    found["[objective] of causal systems"] = gpt.objective_config
    found["[objective] of electra"] = SYSTEMS["electra"].objective_config
    found["[objective] of transformer_xl"] = SYSTEMS["transformer_xl"].objective_config
    for name in ("cove", "cvt", "word2vec", "xlnet"):
        found[f"[model] of {name}"] = SYSTEMS[name].config
        found[f"[objective] of {name}"] = SYSTEMS[name].objective_config
    for system in SYSTEMS.values():
        assert system.config in found.values(), f"[model] of {system.name} is in no table"
        empty = not dataclasses.fields(system.objective_config)
        assert empty or system.objective_config in found.values(), f"[objective] of {system.name} is in no table"
    return found


def shown_default(field: dataclasses.Field[Any]) -> str:
    """A field's default as the tables have it; nothing for none or an empty text."""
    if field.default_factory is not dataclasses.MISSING:
        made = field.default_factory()
        return "" if dataclasses.is_dataclass(made) else repr(made)  # it has a table of its own
    value = field.default
    if value is dataclasses.MISSING or value == "":
        return ""
    if isinstance(value, str):
        return f"`{value}`"
    words = {"None": "none", "True": "true", "False": "false", "()": "[]"}
    return words.get(repr(value), repr(value))


def test_every_key_of_the_configuration_is_documented() -> None:
    documented, sections = documented_keys(), configured()
    assert documented.keys() == sections.keys()
    for section, cls in sections.items():
        assert documented[section].keys() == {field.name for field in dataclasses.fields(cls)}, section
        for field in dataclasses.fields(cls):
            if (section, field.name) == ("[run]", "foretext"):  # the version
                continue
            shown, _ = documented[section][field.name]
            assert shown == shown_default(field), f"{section} {field.name}: docs/formats.md has another default"


@pytest.mark.parametrize("name", ["xlnet", "transformer_xl"])
def test_what_the_sizes_of_minutes_have_is_documented(name: str) -> None:
    """Beside the default of a key, where they have another number: what is said is so, and nothing is left unsaid."""
    from foretext.systems import SYSTEMS

    sizes, documented = SYSTEMS[name].sizes, documented_keys()
    for section in ("model", "objective"):
        tables = [getattr(sizes[size], section) for size in ("tiny", "small")]
        for field in dataclasses.fields(tables[0]):
            values = [getattr(table, field.name) for table in tables]
            meaning = documented[f"[{section}] of {name}"][field.name][1]
            said = re.findall(r"`tiny` and `small`: ([^,;)]+)", meaning) * 2
            for pair in re.findall(r"`tiny`: ([^,;)]+), `small`: ([^,;)]+)", meaning):
                said += pair
            shown = ["true" if value is True else str(value) for value in values]
            if field.name in ("dropout", "vocabulary", "layers", "width", "heads") or values == [field.default] * 2:
                shown = said and shown  # said elsewhere, or the default: then it need not be said
            assert said == shown, f"[{section}] of {name}, {field.name}: docs/formats.md says {said}, it is {shown}"


def test_the_epochs_of_every_size_are_documented() -> None:
    from foretext.systems import SYSTEMS

    (row,) = re.findall(r"^\| `--epochs` .*$", (ROOT / "docs/cli.md").read_text(encoding="utf-8"), re.MULTILINE)
    said = re.findall(r"((?:`\w+`(?:, )?)+): (\d+) \(([^)]*)\)", row)
    found: dict[str, dict[str, int]] = {}
    for names, usual, others in said:
        exceptions = {name.lower(): int(count) for name, count in re.findall(r"([\w-]+): (\d+)", others)}
        assert exceptions.keys() <= SYSTEMS.keys()
        for size in re.findall(r"`(\w+)`", names):
            found[size] = {name: exceptions.get(name, int(usual)) for name in SYSTEMS}
    assert found.keys() == {"tiny", "small", "paper"}
    for size, epochs in found.items():
        assert epochs == {name: system.sizes[size].epochs for name, system in SYSTEMS.items()}, size


def test_the_least_updates_of_every_size_are_documented() -> None:
    """The page on formats has them, and leaves epochs to the page on the command line: each number stands once."""
    from foretext.systems import SYSTEMS
    from foretext.train.finetuning.finetune_settings import MOST_EPOCHS

    _, meaning = documented_keys()["[task]"]["epochs"]
    assert "[`--epochs`](cli.md#finetune); `tiny` and `small` take more" in meaning
    ((usual, others),) = re.findall(r"under (\d+) updates \(([^)]*)\)", meaning)
    said = {name: int(usual) for name in SYSTEMS}
    for names, count in re.findall(r"([\w, -]+): (\d+)", others):
        exceptions = {name.strip().lower(): int(count) for name in names.split(",")}
        assert exceptions.keys() <= SYSTEMS.keys()
        said |= exceptions
    for name, system in SYSTEMS.items():
        for size, found in system.sizes.items():
            least = said[name] if size in ("tiny", "small", "nano", "medium") else 0
            assert found.least_updates == least, f"{name} {size}"
    assert set(re.findall(r"\b\d+\b", meaning)) == {str(MOST_EPOCHS), *map(str, said.values())}, "and no epochs"


def test_every_word_that_a_key_may_be_is_documented() -> None:
    documented = documented_keys()
    looked_at = 0
    for section, cls in configured().items():
        for name, hint in typing.get_type_hints(cls).items():
            if typing.get_origin(hint) is Literal:
                _, meaning = documented[section][name]
                missing = [word for word in typing.get_args(hint) if f"`{word}`" not in meaning]
                assert not missing, f"{section} {name}: docs/formats.md does not say what {missing} is"
                looked_at += 1
    assert looked_at > 10
