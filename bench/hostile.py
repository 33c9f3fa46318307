"""``python -m bench hostile``: what attacks of a provider, of a consumer and of the network cost.

Tests measure; what they record (``record_property``) is in the table beside how it was before.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator, Iterable, Sequence
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET

import pytest

_TEST: Final = "tests/peering/test_under_attack.py"
_ROOT: Final = Path(__file__).parent.parent
_GRANTS: Final = "tests/controllers/test_grants.py"
ROWS: Final = (
    ("X1: a full slice, granted beside others", "no other tenant in 90 s",
     f"{_GRANTS}::test_a_slice_without_room_for_its_cordon_is_closed_and_holds_up_no_other"),
    ("X2: a slice beyond every bound", "no cordon: 422",
     f"{_GRANTS}::test_a_slice_beyond_every_bound_is_denied_and_stops_no_other"),
    ("X3: a drain by force", "rights stay, 45 s and on",
     ("tests/peering/test_what_holds.py"
      "::test_a_drain_waits_and_by_force_it_takes_rights_and_namespaces")),
    ("X4: a full claim", "its twin stays for ever",
     "tests/controllers/test_namespacemap.py::test_a_full_claim_that_keeps_its_twin_is_emptied"),
    ("X5: large objects in a cache", "106 -> 509 MiB by 480 MB, killed",
     "tests/kube/test_cache.py::test_of_a_large_object_an_outline_is_kept_unless_it_is_needed_whole"),
    ("X5: numbers a tenant", "unbounded",
     ("tests/controllers/test_tenant_rights.py"
      "::test_numbers_of_a_consumer_are_bounded_once_the_cluster_counts_them")),
    ("X6: maps beyond a bound", "another tenant 41 s, then killed",
     "tests/manifests/test_schemas.py::test_what_cannot_be_created"),
    ("X8: what all tenants share", "1.2 MB, then no grant at all",
     f"{_GRANTS}::test_what_all_tenants_share_stays_small_whatever_they_ask_for"),
    ("X9: connections to metrics", "62 KiB each, unbounded",
     ("tests/certs/test_metricsserver.py"
      "::test_connections_are_bounded_and_who_may_do_nothing_keeps_none")),
    ("X9: 500 half-open and slow: metrics", "4,000 silent: 1.2 GB",
     "tests/certs/test_metricsserver.py::test_half_open_and_slow_connections_keep_nobody_out"),
    ("X9: 500 half-open and slow: webhook", "not measured",
     "tests/webhook/test_serving.py::test_half_open_and_slow_connections_keep_nobody_out"),
    ("X9: 500 half-open and slow: virtual kubelet", "not measured",
     "tests/kubelet/test_server.py::test_half_open_and_slow_connections_keep_nobody_out"),
    ("X9: 500 half-open and slow: metric agent", "not measured",
     ("tests/controllers/test_metricagent.py"
      "::test_half_open_and_slow_connections_keep_nobody_out")),
    ("X9: what is no HTTP", "2,000 requests: 138 MiB",
     "tests/certs/test_metricsserver.py::test_what_is_no_http_leaves_little_behind"),
    ("X10: metrics without sense", "1,541 MiB by 64 MiB",
     "tests/apis/test_texts.py::test_what_is_no_sample_takes_no_memory_beside_the_text"),
    ("X12: a status that cannot be written", "Quotas of others stay open",
     f"{_GRANTS}::test_a_status_that_cannot_be_written_keeps_no_quota_open"),
    ("a flood of ShadowPods, slices and data", "not measured",
     ("tests/peering/test_hostile_consumer.py"
      "::test_a_flood_holds_up_no_other_consumer_and_costs_the_controllers_no_memory")),
    ("a flood of objects without sense", "not measured",
     ("tests/peering/test_hostile_consumer.py"
      "::test_objects_without_sense_end_no_controller_and_hold_up_nobody")),
    ("a flood of one tenant in a queue", "all others after it",
     "tests/kube/test_queue.py::test_a_flood_of_one_keeps_nobody_else_from_their_turn"),
    ("random requests to the webhook", "not measured",
     "tests/webhook/test_serving.py::test_no_request_makes_it_fail"),
    ("random requests to the virtual kubelet", "not measured",
     "tests/kubelet/test_server.py::test_no_request_makes_it_fail"),
    ("random requests to the metric agent", "not measured",
     "tests/controllers/test_metricagent.py::test_no_request_makes_it_fail"),
    ("random requests to metrics and probes", "not measured",
     "tests/certs/test_metricsserver.py::test_no_request_makes_it_fail"),
)  # fmt: skip
"""What a consumer or a stranger tries, how it was before these bounds, and the test of it."""
_BAD: Final = ("failure", "error", "skipped")
_GROWN: Final = "MiB more:"


def main(argv: Sequence[str]) -> int:
    """Run each attack and print a table; return 0 if no process grew too much."""
    parser = argparse.ArgumentParser(
        prog="python -m bench hostile",
        description="Attack a consumer of 20 namespaces and 200 pods by what its provider says.",
    )
    parser.add_argument(
        "--seconds", type=float, default=600.0, help="of each attack (default: 600)"
    )
    seconds = parser.parse_args(argv).seconds
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report"
        report.touch()
        own = {"PYLIQO_TEST_ATTACK_S": str(seconds), "PYLIQO_TEST_ATTACK_REPORT": str(report)}
        command = (sys.executable, "-m", "pytest", "-q", _TEST)
        done = subprocess.run(command, check=False, cwd=_ROOT, env={**os.environ, **own})
        lines = report.read_text(encoding="utf-8").splitlines()
        sys.stdout.write(table(map(json.loads, lines)) + "\n")
        # Without pytest's log, which keeps the stack of each request that is none.
        report_to = ("-o", "junit_family=xunit1", f"--junitxml={folder}/tried.xml")
        plugins = ("-p", __name__, "-p", "no:logging")
        tests = (row[2] for row in ROWS)
        rows = (sys.executable, "-m", "pytest", "-q", *plugins, *report_to, *tests)
        tried = subprocess.run(rows, check=False, cwd=_ROOT)
        root = ET.parse(f"{folder}/tried.xml")  # noqa: S314  # pytest wrote it
        sys.stdout.write(consumers(root.iter("testcase")))
    return done.returncode or tried.returncode


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Record by how much the largest of our processes grows meanwhile: this one, or a child."""
    over, sizes = threading.Event(), [_largest_mib()]

    def look() -> None:
        while not over.wait(0.1):
            sizes.append(_largest_mib())

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield
    finally:
        over.set()
        looking.join()
        item.user_properties.append((_GROWN, f"{max(sizes) - sizes[0]:.0f}"))


def _largest_mib() -> float:
    """Return the resident size of the largest Python process below this one, itself included."""
    children: dict[int, list[int]] = {}
    resident: dict[int, float] = {}
    for one in Path("/proc").glob("[0-9]*/status"):
        with contextlib.suppress(OSError, KeyError):
            told = dict(line.split(":\t", 1) for line in one.read_text().splitlines())
            children.setdefault(int(told["PPid"]), []).append(int(told["Pid"]))
            if told["Name"].startswith(("python", "gunicorn", "pytest")):
                resident[int(told["Pid"])] = int(told["VmRSS"].split()[0]) / 1024
    below = [os.getpid()]
    for pid in below:  # it grows meanwhile
        below += children.get(pid, [])
    return max(resident.get(pid, 0.0) for pid in below)


def consumers(cases: Iterable[ET.Element]) -> str:
    """Return a table of ``ROWS`` by the cases of a report of pytest: a row an attack."""
    found: dict[str, list[ET.Element]] = {}
    for case in cases:
        name = f"{case.get('file')}::{str(case.get('name')).partition('[')[0]}"
        found.setdefault(name, []).append(case)
    lines = ["| attack | before | now | seconds |\n| --- | --- | --- | --- |\n"]
    for what, before, test in ROWS:
        own = found.get(test, [])
        is_held = own and not any(one.find(bad) is not None for one in own for bad in _BAD)
        told = [(p.get("name"), str(p.get("value"))) for one in own for p in one.iter("property")]
        grown = [int(value) for name, value in told if name == _GROWN]
        rest = dict.fromkeys(f"{name} {value}" for name, value in told if name != _GROWN)
        now = ", ".join(["holds" if is_held else "not shown", *rest])
        now += f", {_GROWN} {max(grown)}" if grown else ""
        seconds = sum(float(one.get("time", "0")) for one in own)
        lines.append(f"| {what} | {before} | {now} | {seconds:.1f} |\n")
    return "".join(lines)


def table(attacks: Iterable[dict[str, Any]]) -> str:
    """Return a table of resident MiB, before and at most: a row an attack.

    Beside is how long an honest peer waits meanwhile for a namespace that is offloaded to it.

    Shape: ``attacks`` as ``tests/peering/test_under_attack.py`` reports them.
    """
    rows = list(attacks)
    names = list(rows[0]["usual_mib"]) if rows else []
    head = ["attack", "seconds", "lies", "beside, s", *names]
    lines = [head, ["---"] * len(head)]
    for row in rows:
        sizes = [f"{row['usual_mib'][name]:.0f} -> {row['most_mib'][name]:.0f}" for name in names]
        beside = " -> ".join(map(str, row["beside_s"]))
        counts = [f"{row['seconds']:.0f}", str(row["lies"]), beside]
        lines.append([row["attack"], *counts, *sizes])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
