"""The table of ``bench hostile``; what it measures is ``tests/peering/test_under_attack.py``."""

from pathlib import Path
from xml.etree import ElementTree as ET

from bench import hostile


def test_the_table_has_a_row_an_attack() -> None:
    told = {
        "attack": "answers without end",
        "seconds": 60.0,
        "lies": 7,
        "beside_s": [0.2, 0.3],
        "usual_mib": {"kubelet": 75.3, "reflector": 85.3},
        "most_mib": {"kubelet": 78.0, "reflector": 90.6},
    }
    assert hostile.table([told]) == (
        "| attack | seconds | lies | beside, s | kubelet | reflector |\n"
        "| --- | --- | --- | --- | --- | --- |\n"
        "| answers without end | 60 | 7 | 0.2 -> 0.3 | 75 -> 78 | 85 -> 91 |\n"
    )
    assert hostile.table([]) == (
        "| attack | seconds | lies | beside, s |\n| --- | --- | --- | --- |\n"
    )


def test_each_attack_of_a_consumer_has_a_row_that_says_whether_it_was_tried() -> None:
    what, before, test = hostile.ROWS[-1]
    file, _, name = test.partition("::")
    case = ET.Element("testcase", file=file, name=f"{name}[a]", time="2.04")
    ET.SubElement(case, "property", name="MiB at most:", value="61")

    lines = hostile.consumers([case]).splitlines()

    assert len(lines) == 2 + len(hostile.ROWS)
    assert lines[-1] == f"| {what} | {before} | holds, MiB at most: 61 | 2.0 |"
    assert all("| not shown |" in line for line in lines[2:-1])


def test_each_row_names_a_test_that_is_there() -> None:
    for _, _, test in hostile.ROWS:
        file, _, name = test.partition("::")
        assert f"def {name}(" in Path(file).read_text(), test
