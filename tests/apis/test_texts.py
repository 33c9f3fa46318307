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


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://liqo:pw@proxy:3128", "http://proxy:3128"),
        ("http://liqo:p/w@proxy:3128", "http://proxy:3128"),
        ("liqo:pw@proxy:3128", "proxy:3128"),
        (
            "GET https://a: 407, url='http://liqo:pw@b:1' no",
            "GET https://a: 407, url='http://b:1' no",
        ),
        ("https://milan.example:6443/livez", "https://milan.example:6443/livez"),
        ("ask a@b.example", "ask a@b.example"),
        ("//" * 30_000, "//" * 30_000),
    ],
)
def test_no_password_of_a_url_is_shown(text: str, shown: str) -> None:
    assert texts.without_userinfo(text) == shown
