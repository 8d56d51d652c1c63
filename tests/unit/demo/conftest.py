"""A small installation of made-up packages: enough docstrings for every task, each sentence of its own."""

import random
from pathlib import Path

import pytest

PACKAGES = (
    "email",
    "http",
    "numpy",
    "scipy",
    "json",
    "difflib",
    "asyncio",
    "threading",
    "shutil",
    "tempfile",
    "mystery",
)
TEXT = """
table server window matrix letter signal folder thread packet gradient colour header socket vector column margin
queue buffer parser widget kernel cursor handle branch
"""
WORDS = TEXT.split()


def sentence(generator: random.Random, number: int) -> str:
    words = [generator.choice(WORDS) for _ in range(generator.randint(5, 12))]
    return f"Item{_letters(number)} {' '.join(words)}."


def _letters(number: int) -> str:
    """Numbers do not tell sentences apart, so each one's own word is spelt in letters."""
    return "".join("abcdefghij"[int(digit)] for digit in str(number))


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("site")
    generator = random.Random(5)
    number = 0
    for package in PACKAGES:
        folder = root / package
        folder.mkdir()
        (folder / "__init__.py").write_text('"""A short one."""\n')
        for module in range(18):
            parts = []
            for function in range(6):
                first, second, third = (sentence(generator, number + part) for part in range(3))
                number += 3
                name = f"act_{_letters(number)}"
                parts.append(f'def {name}(a, b={function}):\n    """{first} {second}\n\n    {third}\n    """\n')
            (folder / f"part{module}.py").write_text("\n\n".join(parts))
    return root
