"""--resume in all its forms, and --from."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_harness import MINUTE, Said, fails, foretext, works
from complaints import names

from foretext.cli.output import Stopper

Interrupting = Callable[..., Said]


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> Interrupting:
    """Runs a command that is asked to stop after `steps` steps, as by a signal."""

    def run(steps: int, *arguments: object) -> Said:
        finished = 0

        def count(report: object, losses: object, tokens: object) -> None:
            nonlocal finished
            finished += 1

        with monkeypatch.context() as patch:
            patch.setattr("foretext.train.loop.Loop._report", count)
            patch.setattr(Stopper, "requested", property(lambda self: 143 if finished >= steps else None))
            said = foretext(*arguments)
        assert said.code == 143, said.err
        assert ("--resume" in names(said.complaint, "signal")) == (steps > 0)
        return said

    return run


def weights(run: str) -> bytes:
    return Path(run, "model.safetensors").read_bytes()


def position(run: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(Path(run, "training/position.json").read_text())
    return found


def test_in_the_middle_it_ends_like_one_that_was_never_stopped(
    files: Path, here: Path, interrupted: Interrupting
) -> None:
    command = ["pretrain", files / "text.txt", "--steps", 5, *MINUTE]
    works(*command, "--out", "whole")
    interrupted(2, *command, "--out", "parts")
    assert position("parts")["step"] == 2 and "--resume" in works("info", "parts").out
    works("generate", "parts", "--max-tokens", 2)
    works("pretrain", "--out", "parts", "--resume").note("resuming", "step 2")
    assert weights("parts") == weights("whole")


def test_before_the_first_checkpoint_it_starts_over(files: Path, here: Path, interrupted: Interrupting) -> None:
    command = ["pretrain", files / "text.txt", "--steps", 3, *MINUTE, "--out", "run"]
    interrupted(0, *command)
    assert not Path("run").exists()
    works(*command, "--resume")
    assert position("run")["step"] == 3


def test_finished_it_says_so(base: Path, clf: Path, files: Path) -> None:
    works("pretrain", "--out", base, "--resume").note(str(base), "finished", f"--from {base}")
    again = ["finetune", base, files / "cls.csv", "--task", "classification", "--out", clf, "--epochs", 1, "--resume"]
    works(*again).note(str(clf), "finished")


@pytest.mark.usefixtures("drawn")
def test_finished_but_killed_before_its_pictures_it_draws_them(base: Path, clf: Path, files: Path, here: Path) -> None:
    for run in (base, clf):
        shutil.copytree(run, run.name)
        kept = weights(run.name)
        for picture in ("loss.png", "confusion.png"):
            Path(run.name, picture).unlink(missing_ok=True)
        rows = [files / "cls.csv", "--task", "classification"]
        command = ["pretrain"] if run is base else ["finetune", base, *rows]
        said = works(*command, "--out", run.name, "--resume")
        said.note(run.name, "finished")
        said.note(f"{run.name}/loss.png", "missing")
        assert Path(run.name, "loss.png").read_bytes() == (run / "loss.png").read_bytes()
        assert weights(run.name) == kept
        assert "loss.png" not in works(*command, "--out", run.name, "--resume").err
    assert "accuracy" in said.out, "killed at that point it had not shown its scores either"
    assert Path("clf/confusion.png").read_bytes() == (clf / "confusion.png").read_bytes()
    assert works(*command, "--out", "clf", "--resume").out == ""
    Path("clf/confusion.png").unlink()
    with Path("other.csv").open("w") as file:
        file.write((files / "cls.csv").read_text() + "one more,pos\n")
    other = ["finetune", base, "other.csv", "--task", "classification", "--out", "clf", "--resume"]
    names(fails(*other), "clf: ", "rows", "--valid", "--hold-out")
    assert not Path("clf/confusion.png").exists()


def test_finished_with_another_budget(base: Path) -> None:
    said = works("pretrain", "--out", base, "--resume", "--tokens", 100)
    said.note(str(base), "finished", "budget.steps: 4 → (", "budget.tokens: (", ") → 100", f"--from {base}")


def test_finished_with_other_rows_or_settings(files: Path, base: Path, clf: Path, here: Path) -> None:
    rows = files / "cls.csv"
    Path("other.csv").write_text(rows.read_text() + "one more,pos\n")
    rest = ["--task", "classification", "--out", clf, "--resume"]
    names(fails("finetune", base, "other.csv", *rest), f"{clf}: ", "rows", "--valid", "--hold-out")
    names(fails("finetune", base, rows, *rest, "--epochs", 2), f"{clf}: ", "task.epochs", "1", "2")
    said = works("finetune", base, rows, *rest, "--set", "training.rate=0.001")
    said.note(str(clf), "finished", "training.rate: 0.0005 → 0.001")


def test_finetuning_needs_the_same_command(files: Path, base: Path, clf: Path) -> None:
    for given in ([], [base], [base, files / "cls.csv"]):
        names(fails("finetune", *given, "--resume", "--out", clf), "--resume", "RUN, FILE", "--task")
    assert "--resume" not in names(fails("finetune", "--task", "classification"), "rows", "--system NAME")


def test_without_a_run_to_go_on_with(files: Path, here: Path) -> None:
    names(fails("pretrain", "--out", "run", "--resume"), "run: ", "text", "budget")
    assert not Path("run").exists()
    works("pretrain", files / "text.txt", "--steps", 1, *MINUTE, "--out", "run", "--resume")


def test_a_changed_configuration(files: Path, here: Path, interrupted: Interrupting) -> None:
    text = files / "text.txt"
    interrupted(2, "pretrain", text, "--steps", 4, *MINUTE, "--out", "run")
    kept = weights("run")
    go_on = ["pretrain", "--out", "run", "--resume"]
    names(fails(*go_on, "--set", "model.layers=3"), "run: ", "model.layers", "2", "3")
    names(fails(*go_on, "--seed", 3), "run: ", "run.seed", "0", "3")
    names(fails(*go_on, "--size", "small"), "run: ", "run.size", "'tiny'", "'small'")
    names(fails(*go_on, "--direction", "backward"), "run: ", "run.direction", "'forward'", "'backward'")
    said = fails("pretrain", files / "cls.csv", "--out", "run", "--resume")
    names(said, "run: ", "data.inputs", f"['{text}']", f"['{files / 'cls.csv'}']")
    names(fails(*go_on, "--set", "training.batch_size=0"), "training.batch_size", "0")
    assert weights("run") == kept
    # The same command again is no change, and a budget or a rate may change.
    works("pretrain", text, *MINUTE, "--out", "run", "--resume", "--steps", 6, "--set", "training.rate=0.001")
    assert position("run")["step"] == 6 and "training.rate=0.001" in works("info", "run").out


def test_finetuning(files: Path, base: Path, here: Path, interrupted: Interrupting) -> None:
    command = ["finetune", base, files / "cls.csv", "--task", "classification", "--epochs", 3]
    works(*command, "--out", "whole")
    interrupted(3, *command, "--out", "parts")
    resumed = ["finetune", base, files / "cls.csv", "--task", "classification", "--out", "parts", "--resume"]
    names(fails(*resumed, "--epochs", 4), "parts: ", "task.epochs", "3", "4")
    shutil.copy(files / "cls.csv", "other.csv")
    with Path("other.csv").open("a") as file:
        file.write("one more,pos\n")
    other = [part if part != files / "cls.csv" else "other.csv" for part in resumed]
    names(fails(*other), "parts: ", "rows", "--valid", "--hold-out")
    said = works(*resumed)
    said.note("resuming", "step 3")
    assert "accuracy" in said.out
    assert weights("parts") == weights("whole")


def test_a_run_of_the_other_kind(files: Path, base: Path, clf: Path) -> None:
    rows = files / "cls.csv"
    again = ["finetune", base, rows, "--task", "classification", "--out", base, "--resume"]
    names(fails(*again), str(base), "pre-trained", "--out")
    names(fails("pretrain", "--out", clf, "--resume"), str(clf), f"foretext finetune … --out {clf} --resume")


def test_from_a_run_with_new_text(files: Path, base: Path, here: Path, interrupted: Interrupting) -> None:
    Path("new.txt").write_text("\n".join(f"a new film was good {i}" for i in range(60)))
    command = ["pretrain", "new.txt", "--from", base, "--steps", 3]
    works(*command, "--out", "whole")
    tokenizer = Path("whole/tokenizer.json").read_bytes()
    assert tokenizer == (base / "tokenizer.json").read_bytes()
    interrupted(1, *command, "--out", "parts")
    works("pretrain", "--out", "parts", "--resume")
    assert weights("parts") == weights("whole")
    wider = ["--steps", 1, "--set", "model.width=64", "--out", "x"]
    names(fails("pretrain", "new.txt", "--from", base, *wider), f"--from {base}", "model.width", "32", "64")
    assert not Path("x").exists()


def test_from_a_run_killed_before_its_first_checkpoint(
    files: Path, base: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It starts over from the other run's weights, not from new ones."""
    Path("new.txt").write_text("\n".join(f"a new film was good {i}" for i in range(60)))
    command = ["pretrain", "new.txt", "--from", base, "--steps", 2]
    works(*command, "--out", "whole")

    def killed(loop: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("foretext.train.loop.Loop.run", killed)
        assert foretext(*command, "--out", "parts").code == 130
    assert Path("parts/tokenizer.json").exists() and not Path("parts/model.safetensors").exists()
    names(fails("generate", "parts"), "parts: ", "checkpoint", "--resume")
    works("pretrain", "--out", "parts", "--resume")
    assert weights("parts") == weights("whole")


def test_too_many_bad_steps_exit_with_three(files: Path, here: Path) -> None:
    said = foretext(
        "pretrain", files / "text.txt", "--steps", 6, *MINUTE, "--out", "run", "--set", "training.rate=1e38"
    )
    assert said.code == 3
    names(said.complaint, "finite", "run/metrics.jsonl", "--set training.rate=", "--resume")
