"""The page of what consumers may say has the rows of the table."""

from pathlib import Path

from apis import gate
from apis.gate import Rule

PAGE = Path(__file__).parents[2] / "docs" / "what-a-consumer-may-say.md"
HEADING = "| kind | field | refused | opened by |"


def line(rule: Rule) -> str:
    opened = f"`{rule.opened_by}`" if rule.opened_by else ""
    return f"| {gate.kinds_of(rule)} | `{rule.field}` | {rule.refused} | {opened} |"


def test_the_page_has_the_rows_of_the_table() -> None:
    written = PAGE.read_text().partition(HEADING)[2].partition("\n\n")[0].splitlines()[2:]

    assert written == [line(rule) for rule in gate.RULES]
