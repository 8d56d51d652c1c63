"""A reporter that keeps what it is told."""

from foretext.runs.report import Reporter


class Notes(Reporter):
    def __init__(self) -> None:
        self.notes: list[str] = []
        self.plans: list[dict[str, str]] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def plan(self, title: str, lines: list[tuple[str, str]]) -> None:
        self.plans.append(dict(lines))
