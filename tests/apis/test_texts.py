"""What others wrote is bounded, and moves no cursor."""

import pytest

from apis import objects, texts


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


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("20s", 20.0), ("2m", 120.0), ("1m30s", 90.0), ("500ms", 0.5), ("1h", 3600.0),
        ("0.5s", 0.5), ("0", 0.0),
    ],
)  # fmt: skip
def test_durations(text: str, seconds: float) -> None:
    assert objects.parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "20", "s", "20 s", "-1s", "1d", "20sx", "1_0s", "\u0661s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        objects.parse_duration(text)


def test_pairs() -> None:
    assert texts.pairs("a=1,b=2, c=x=y,d=,") == {"a": "1", "b": "2", "c": "x=y", "d": ""}
    for text, part in {"a": "a", "a=1,b": "b", "=1": "=1"}.items():
        with pytest.raises(ValueError, match=f"'{part}' is not key=value"):
            texts.pairs(text)
