"""What others wrote is bounded, and moves no cursor."""

import tracemalloc

import pytest

from apis import objects, prometheus, texts


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


# Metrics as text: what is read is written again, and what makes no sense is passed over.


TEXT = """\
# HELP container_cpu_usage_seconds_total [STABLE] Cumulative cpu time
# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container="main",namespace="shop",pod="web"} 4.71 1633253809720
# TYPE up gauge
up{} 1
# TYPE seconds histogram
seconds_bucket{le="+Inf"} 2
seconds_sum{} 3.5
"""


def test_what_is_read_is_written_again() -> None:
    assert prometheus.text(prometheus.families([TEXT])) == TEXT


def test_metrics_of_several_sources_are_told_about_once() -> None:
    more = TEXT.replace('pod="web"', 'pod="db"').replace("4.71", "1")
    text = prometheus.text(prometheus.families([TEXT, more]))
    assert text.count("# TYPE container_cpu_usage_seconds_total counter") == 1
    assert text.index('pod="web"') < text.index('pod="db"') < text.index("# TYPE up gauge")


def test_a_metric_without_samples_is_not_written() -> None:
    families = prometheus.families([TEXT])
    families[0].samples = []
    assert "container_cpu" not in prometheus.text(families)


def test_a_line_ends_at_the_end_of_a_line_only() -> None:
    """Else a label's odd characters could make a sample of what is in it."""
    line = 'm{image="a\u2028up 1\x0bup 2\x85up 3"} 1'
    assert prometheus.text(prometheus.families([line])) == f"{line}\n"


def test_a_value_may_look_like_a_label() -> None:
    [family] = prometheus.families(['m{a="x\\",namespace=\\"kube-system",namespace="shop"} 1'])
    assert family.samples[0].labels == {"a": 'x\\",namespace=\\"kube-system', "namespace": "shop"}


@pytest.mark.parametrize(
    "line",
    [
        'm{a="b} 1', 'm{a=b} 1', "m{} ", "m", "1m 2", 'm{a="b"x="c"} 1 2 3', 'm{a="\\q"} 1',
        "\x00", "{} 1",
        'm{a="' + "x" * 20_000 + '"} 1', "m 1_0", "m \u0661", "m 1 \u0661", f"m 1 {'1' * 19}",
    ],
)  # fmt: skip
def test_a_line_that_makes_no_sense_is_passed_over(line: str) -> None:
    families = prometheus.families([f"{line}\nup 1\n"])
    assert prometheus.text(families) == "up{} 1\n"


@pytest.mark.parametrize("line", ["ab\n", "\n", "a\U0001f600\n"])
def test_what_is_no_sample_takes_no_memory_beside_the_text(line: str) -> None:
    """X10: a provider says millions of lines."""
    text = line * 300_000
    tracemalloc.start()
    try:
        assert prometheus.families([text]) == []
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000
