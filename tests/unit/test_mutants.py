"""The list of mutants keeps up with the code: a line that has changed takes its mutant with it, unnoticed."""

import json
from pathlib import Path

from mutants.run import LIST, ROOT, line_of

MUTANTS = json.loads(LIST.read_text(encoding="utf-8"))


def test_the_line_of_every_mutant_is_in_its_file() -> None:
    gone = [f"{mutant['id']} {mutant['file']}" for mutant in MUTANTS if line_of(mutant, ROOT / mutant["file"]) is None]
    assert not gone, "name the lines that do the same today in tests/mutants/mutants.json"


def test_every_mutant_changes_its_line_and_has_a_result() -> None:
    results = json.loads(Path(LIST).with_name("before.json").read_text(encoding="utf-8"))
    assert [mutant["id"] for mutant in MUTANTS] == sorted(results)
    assert all(mutant["before"] != mutant["after"] for mutant in MUTANTS)
