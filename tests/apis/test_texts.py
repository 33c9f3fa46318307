"""What others wrote is bounded, and moves no cursor."""

import pytest

from apis import texts


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("plain ü\n\ttext", "plain ü\n\ttext"),
        ("\x1b[2J", "\\u001b[2J"),
        ("a\u202eb", "a\\u202eb"),
        (None, ""),
        (["x"], ""),
    ],
)
def test_only_what_can_be_printed_stays_as_it_is(value: object, shown: str) -> None:
    assert texts.clamp(value) == shown


def test_a_text_is_as_long_as_that_of_an_event_at_most() -> None:
    assert len(texts.clamp("\x00" * 10_000_000)) == texts.MOST
    assert texts.clamp("abc", most=2) == "ab"
