"""Which Debian packages are missing, and whether they can be installed."""

import pytest

from sandbox import packages

DEBIAN = {"ID": "debian", "PRETTY_NAME": "Debian GNU/Linux 12"}
UBUNTU_LIKE = {"ID": "linuxmint", "ID_LIKE": "ubuntu debian"}
FEDORA = {"ID": "fedora", "PRETTY_NAME": "Fedora Linux 42"}


def test_nothing_is_missing_when_all_are_installed() -> None:
    answer = "".join(f"{name} installed\n" for name in packages.NEEDED)
    assert packages.missing(answer) == ()


def test_removed_and_unknown_packages_are_missing() -> None:
    rest = "".join(f"{name} installed\n" for name in packages.NEEDED if name != "buildah")
    assert packages.missing(rest) == ("buildah",)
    assert packages.missing(f"{rest}buildah config-files\n") == ("buildah",)
    assert packages.missing("") == packages.NEEDED


@pytest.mark.parametrize("system", [DEBIAN, UBUNTU_LIKE])
def test_root_installs_on_debian_and_its_kin(system: dict[str, str]) -> None:
    assert packages.hindrance(system, uid=0) == ""
    assert "needs root" in packages.hindrance(system, uid=1000)


def test_other_systems_are_named() -> None:
    assert packages.hindrance(FEDORA, uid=0) == "Fedora Linux 42 is not Debian or Ubuntu"
    assert packages.hindrance({}, uid=0) == "this system is not Debian or Ubuntu"
