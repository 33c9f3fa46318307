"""The page of what a consumer may say: ``python -m tests.apis.gatepage`` makes its tables.

Its first part, without tables, is written by hand.
"""

from pathlib import Path
from typing import Final

from apis import gate

PAGE: Final = Path(__file__).parents[2] / "docs" / "what-a-consumer-may-say.md"


def page() -> str:
    """Return the whole page."""
    sections = [
        f"## {title}\n\n" + "".join(f"{line}\n" for line in gate.lines(rows))
        for title, rows in gate.SECTIONS.items()
    ]
    by_hand = PAGE.read_text().partition(f"## {next(iter(gate.SECTIONS))}")[0]
    return by_hand + "\n".join(sections)


if __name__ == "__main__":
    PAGE.write_text(page())
