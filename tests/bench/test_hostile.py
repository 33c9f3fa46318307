"""The table of ``bench hostile``; what it measures is ``tests/peering/test_under_attack.py``."""

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
