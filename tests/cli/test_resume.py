"""--resume in all its forms, and --from."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_harness import MINUTE, Said, fails, foretext, works

from foretext.train.signals import Stopper

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
        end = "go on with --resume" if steps else "nothing was kept; give the same command again"
        assert said.complaint.endswith(end)
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
    assert position("parts")["step"] == 2 and "go on with --resume" in works("info", "parts").out
    works("generate", "parts", "--max-tokens", 2)
    assert "going on at step 2" in works("pretrain", "--out", "parts", "--resume").err
    assert weights("parts") == weights("whole")


def test_before_the_first_checkpoint_it_starts_over(files: Path, here: Path, interrupted: Interrupting) -> None:
    command = ["pretrain", files / "text.txt", "--steps", 3, *MINUTE, "--out", "run"]
    interrupted(0, *command)
    assert not Path("run").exists()
    works(*command, "--resume")
    assert position("run")["step"] == 3


def test_finished_it_says_so(base: Path, clf: Path, files: Path) -> None:
    assert "is finished; nothing to do" in works("pretrain", "--out", base, "--resume").err
    again = ["finetune", base, files / "cls.csv", "--task", "classification", "--out", clf, "--epochs", 1, "--resume"]
    assert "is finished; nothing to do" in works(*again).err


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
        assert "is finished; nothing to do" in said.err and "loss.png was missing" in said.err
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
    assert "the rows are not those it was begun with" in fails(*other)
    assert not Path("clf/confusion.png").exists()


def test_finished_with_another_budget(base: Path) -> None:
    said = works("pretrain", "--out", base, "--resume", "--tokens", 100)
    words = (
        "is finished, so what is given now is not used (budget.steps: 4 → (not set), budget.tokens: (not set) → 100)"
    )
    assert words in said.err and f"--from {base}" in said.err


def test_finished_with_other_rows_or_settings(files: Path, base: Path, clf: Path, here: Path) -> None:
    rows = files / "cls.csv"
    Path("other.csv").write_text(rows.read_text() + "one more,pos\n")
    rest = ["--task", "classification", "--out", clf, "--resume"]
    assert "the rows are not those it was begun with" in fails("finetune", base, "other.csv", *rest)
    assert "task.epochs was 1 and cannot become 2" in fails("finetune", base, rows, *rest, "--epochs", 2)
    said = works("finetune", base, rows, *rest, "--set", "training.rate=0.001")
    assert "is finished, so what is given now is not used (training.rate: 0.0005 → 0.001)" in said.err


def test_finetuning_needs_the_same_command(files: Path, base: Path, clf: Path) -> None:
    words = "--resume takes the same command again: RUN, FILE and --task"
    assert words in fails("finetune", "--resume", "--out", clf)
    assert words in fails("finetune", base, "--resume", "--out", clf)
    assert words in fails("finetune", base, files / "cls.csv", "--resume", "--out", clf)
    assert "name a run and a file of rows" in fails("finetune", "--task", "classification")


def test_without_a_run_to_go_on_with(files: Path, here: Path) -> None:
    assert "no run to go on with" in fails("pretrain", "--out", "run", "--resume")
    assert not Path("run").exists()
    works("pretrain", files / "text.txt", "--steps", 1, *MINUTE, "--out", "run", "--resume")


def test_a_changed_configuration(files: Path, here: Path, interrupted: Interrupting) -> None:
    text = files / "text.txt"
    interrupted(2, "pretrain", text, "--steps", 4, *MINUTE, "--out", "run")
    kept = weights("run")
    go_on = ["pretrain", "--out", "run", "--resume"]
    assert "model.layers was 2 and cannot become 3" in fails(*go_on, "--set", "model.layers=3")
    assert "run.seed was 0 and cannot become 3" in fails(*go_on, "--seed", 3)
    assert "run.size was 'tiny' and cannot become 'small'" in fails(*go_on, "--size", "small")
    assert "run.direction was 'forward'" in fails(*go_on, "--direction", "backward")
    assert "data.inputs was" in fails("pretrain", files / "cls.csv", "--out", "run", "--resume")
    assert "training.batch_size must be" in fails(*go_on, "--set", "training.batch_size=0")
    assert weights("run") == kept
    # The same command again is no change, and a budget or a rate may change.
    works("pretrain", text, *MINUTE, "--out", "run", "--resume", "--steps", 6, "--set", "training.rate=0.001")
    assert position("run")["step"] == 6 and "training.rate=0.001" in works("info", "run").out


def test_finetuning(files: Path, base: Path, here: Path, interrupted: Interrupting) -> None:
    command = ["finetune", base, files / "cls.csv", "--task", "classification", "--epochs", 3]
    works(*command, "--out", "whole")
    interrupted(3, *command, "--out", "parts")
    resumed = ["finetune", base, files / "cls.csv", "--task", "classification", "--out", "parts", "--resume"]
    assert "task.epochs was 3 and cannot become 4" in fails(*resumed, "--epochs", 4)
    shutil.copy(files / "cls.csv", "other.csv")
    with Path("other.csv").open("a") as file:
        file.write("one more,pos\n")
    other = [part if part != files / "cls.csv" else "other.csv" for part in resumed]
    assert "the rows are not those it was begun with" in fails(*other)
    said = works(*resumed)
    assert "going on at step 3" in said.err and "accuracy" in said.out
    assert weights("parts") == weights("whole")


def test_a_run_of_the_other_kind(files: Path, base: Path, clf: Path) -> None:
    rows = files / "cls.csv"
    again = ["finetune", base, rows, "--task", "classification", "--out", base, "--resume"]
    assert "is a pre-trained run" in fails(*again)
    assert "is a fine-tuned run" in fails("pretrain", "--out", clf, "--resume")


def test_from_a_run_with_new_text(files: Path, base: Path, here: Path, interrupted: Interrupting) -> None:
    Path("new.txt").write_text("\n".join(f"a new film was good {i}" for i in range(60)))
    command = ["pretrain", "new.txt", "--from", base, "--steps", 3]
    works(*command, "--out", "whole")
    tokenizer = Path("whole/tokenizer.json").read_bytes()
    assert tokenizer == (base / "tokenizer.json").read_bytes()
    interrupted(1, *command, "--out", "parts")
    works("pretrain", "--out", "parts", "--resume")
    assert weights("parts") == weights("whole")
    assert "keeps that run's model.width, 32: it cannot become 64" in fails(
        "pretrain", "new.txt", "--from", base, "--steps", 1, "--set", "model.width=64", "--out", "x"
    )
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
    assert "no weights before the first checkpoint" in fails("generate", "parts")
    works("pretrain", "--out", "parts", "--resume")
    assert weights("parts") == weights("whole")


def test_too_many_bad_steps_exit_with_three(files: Path, here: Path) -> None:
    said = foretext(
        "pretrain", files / "text.txt", "--steps", 6, *MINUTE, "--out", "run", "--set", "training.rate=1e38"
    )
    assert said.code == 3 and "not finite" in said.complaint
