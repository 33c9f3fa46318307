"""The text in which Prometheus and kubelets say metrics: read, narrowed, and written again.

Source: the Prometheus text exposition format, version 0.0.4.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from apis.objects import Key

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
MAX_LINE: Final = 16 * 1024
_LINE: Final = re.compile(r"[^\n]+")
"""Lines end at nothing else: labels may have odd characters."""
_SAMPLE: Final = re.compile(
    r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?[ \t]+([-+.0-9a-zA-Z]+)(?:[ \t]+(-?[0-9]{1,18}))?"
)
_LABEL_NAME, _TEXT = r"[a-zA-Z_][a-zA-Z0-9_]*+", r'[^"\\]*+(?:\\[\\n"][^"\\]*+)*+'
_LABEL: Final = re.compile(rf'({_LABEL_NAME})="({_TEXT})",?')
_LABELS: Final = re.compile(rf'(?:{_LABEL_NAME}="{_TEXT}",?)*+')
_OF_CLAIMS: Final = frozenset({"namespace", "persistentvolumeclaim"})
_CLAIM_NAME: Final = re.compile(r"kubelet_volume_stats_[a-z_]{1,100}")
_ABOUT: Final = re.compile(r"# (HELP|TYPE) ([a-zA-Z_:][a-zA-Z0-9_:]*)(?: .*)?")


class Sample(NamedTuple):
    """One line; ``labels`` are as written, escapes and all, and ``at`` is in ms or empty."""

    name: str
    labels: Mapping[str, str]
    value: str
    at: str = ""

    def __str__(self) -> str:
        labels = ",".join(f'{name}="{value}"' for name, value in self.labels.items())
        return f"{self.name}{{{labels}}} {self.value} {self.at}".rstrip()

    def number(self) -> float:
        """Return the value; NaN if it is not a number."""
        try:
            return float(self.value)
        except ValueError:
            return float("nan")


@dataclass
class Family:
    """The samples of one metric, and the lines that tell about it."""

    name: str
    about: list[str] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)


def families(
    texts: Iterable[str],
    keep: Callable[[Sample], bool] = lambda _: True,
    is_known: Callable[[str], bool] = lambda _: True,
) -> list[Family]:
    """Return the metrics of all ``texts`` together, each once, in the order in which they came.

    Of the samples those that ``keep`` wants: a node's are many, and others' are not even kept. What
    is told about a metric whose name ``is_known`` does not know is passed over.
    """
    found: dict[str, Family] = {}
    for text in texts:
        current = ""
        for each in _LINE.finditer(text):
            if each.end() - each.start() > MAX_LINE:
                continue
            line = each[0]
            if about := told_about(line):
                current = about
                if is_known(current):
                    _tell(found.setdefault(current, Family(current)), line)
            elif (sample := _sample(line)) and keep(sample):
                name = current if current and sample.name.startswith(current) else sample.name
                found.setdefault(name, Family(name)).samples.append(sample)
    return list(found.values())


def told_about(line: str) -> str:
    """Return the metric about which ``line`` tells; empty of all other lines."""
    found = _ABOUT.fullmatch(line) if line.startswith("#") else None
    return found[2] if found else ""


def is_of_claims(name: str) -> bool:
    """Whether kubelets may have a metric of that name of the volumes of claims."""
    return bool(_CLAIM_NAME.fullmatch(name))


def claim_of(sample: Sample) -> Key | None:
    """Return the claim whose volume ``sample`` is about; None of all other samples.

    Source: Kubernetes, "Kubernetes Metrics Reference", kubelet_volume_stats.
    """
    if not is_of_claims(sample.name) or sample.labels.keys() != _OF_CLAIMS:
        return None
    return Key(sample.labels["namespace"], sample.labels["persistentvolumeclaim"])


def text(of: Iterable[Family]) -> str:
    lines = (
        line
        for family in of
        if family.samples
        for line in (*family.about, *map(str, family.samples))
    )
    return "".join(f"{line}\n" for line in lines)


def _tell(family: Family, line: str) -> None:
    if line not in family.about and not family.samples:
        family.about.append(line)


def _sample(line: str) -> Sample | None:
    if line.startswith("#") or not (found := _SAMPLE.fullmatch(line.strip())):
        return None
    labels = _labels(found[2] or "")
    return None if labels is None else Sample(found[1], labels, found[3], found[4] or "")


def _labels(inner: str) -> dict[str, str] | None:
    return dict(_LABEL.findall(inner)) if _LABELS.fullmatch(inner) else None
