"""Metrics as text: what is read is written again, and what makes no sense is passed over."""

import tracemalloc

import pytest

from apis import prometheus

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
    assert family.samples[0].labels == {
        "a": 'x\\",namespace=\\"kube-system',
        "namespace": "shop",
    }


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
