"""Versions: every requirement of every extra is pinned, and the minimum that is tested."""

import re
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
# Where the package is to be installed; a marker that holds on one of them is followed.
PLATFORMS = [
    {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"},
    {"sys_platform": "darwin", "platform_system": "Darwin", "os_name": "posix"},
    {"sys_platform": "win32", "platform_system": "Windows", "os_name": "nt"},
]
PYTHONS = ["3.11", "3.12", "3.13"]
# Not installed by `make test-min`; constraints-min.txt says why.
NOT_AT_MINIMUM = ("diffusion", "backbones", "peers")


def pins(name):
    lines = (ROOT / name).read_text().splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(package): Version(version) for package, version in pairs}


def extras():
    """Direct requirements by extra; "" are those of the package, "build" of its build."""
    project = PROJECT["project"]
    groups = {
        "": project["dependencies"],
        "build": PROJECT["build-system"]["requires"],
        **project["optional-dependencies"],
    }
    return {
        name: [r for r in map(Requirement, listed) if r.name != "icssl"]
        for name, listed in groups.items()
    }


def is_wanted(requirement, asked):
    """Whether a requirement holds for one of the extras asked for, on some platform."""
    if requirement.marker is None:
        return True
    return any(
        requirement.marker.evaluate(
            {**platform, "python_version": python, "python_full_version": f"{python}.0"}
            | {"extra": extra}
        )
        for platform in PLATFORMS
        for python in PYTHONS
        for extra in ("", *asked)
    )


def all_requirements():
    """Direct ones and theirs, as far as the pinned versions are installed, and who asks."""
    pinned = pins("constraints.txt")
    waiting = [(r, "pyproject.toml") for listed in extras().values() for r in listed]
    seen = set()
    while waiting:
        requirement, asker = waiting.pop()
        name = canonicalize_name(requirement.name)
        yield requirement, asker
        if (name, frozenset(requirement.extras)) in seen:
            continue
        seen.add((name, frozenset(requirement.extras)))
        try:
            installed = distribution(name)
        except PackageNotFoundError:
            continue
        if Version(Version(installed.version).public) != pinned.get(name):
            continue  # another version may need something else
        found = (Requirement(text) for text in installed.requires or [])
        waiting += [(r, name) for r in found if is_wanted(r, requirement.extras)]


def test_constraints_pin_what_every_extra_needs_on_every_platform():
    pinned = pins("constraints.txt")
    missing = {
        f"{requirement.name}, for {asker}"
        for requirement, asker in all_requirements()
        # What is asked for in one version needs no other pin, as CUDA's parts by torch.
        if canonicalize_name(requirement.name) not in pinned
        and not any(spec.operator == "==" for spec in requirement.specifier)
    }
    assert missing == set()


def test_constraints_pin_what_builds_the_package():
    assert {"pip", "setuptools", "hatchling"} <= set(pins("constraints.txt"))


def test_constraints_are_allowed_by_what_asks_for_them():
    pinned = pins("constraints.txt")
    for listed in extras().values():
        for requirement in listed:
            version = pinned[canonicalize_name(requirement.name)]
            assert requirement.specifier.contains(version), requirement


def test_every_requirement_has_a_minimum_and_that_version_is_tested():
    least = pins("constraints-min.txt")
    listed = {
        canonicalize_name(r.name): r
        for extra, requirements in extras().items()
        for r in requirements
        if extra not in (*NOT_AT_MINIMUM, "build")
    }
    for name, requirement in listed.items():
        (spec,) = requirement.specifier
        assert spec.operator == ">="
        if name in ("torch", "ruff", "mypy"):
            continue  # torch: see constraints-min.txt; the others do not run in tests
        minimum = Version(spec.version).release
        assert least[name].release[: len(minimum)] == minimum, name
    assert set(least) <= set(listed)


# From advisories: the first version without a hole that was known when this was written.
FIRST_SAFE = {
    "torch": "2.10",  # CVE-2026-24747, torch.load with weights_only
    "pillow": "12.3",  # CVE-2026-25990 until 12.1, more until 12.2
    "ray": "2.56",  # no tokens before 2.52; CVE-2026-41486 and CVE-2026-57516, pickles
    "pyarrow": "23.0.1",  # CVE-2023-47248, a pickle in Parquet; CVE-2026-25087
    "onnx": "1.21",  # CVE-2026-34445 to 34447, files outside of a model's folder
    "diffusers": "0.42.1",  # GHSA-4prv-5hj7-c2xr and CVE-2026-44513, code from a model
    "transformers": "5.3",  # CVE-2026-5241, code from a model
    "scikit-learn": "1.5",  # CVE-2024-5206
    "pytest": "9.0.3",  # CVE-2025-71176, folders in /tmp
}


@pytest.mark.parametrize("name", FIRST_SAFE)
def test_minimum_versions_have_no_known_holes(name):
    listed = [r for requirements in extras().values() for r in requirements]
    found = [r for r in listed if canonicalize_name(r.name) == name]
    assert found
    for requirement in found:
        (spec,) = requirement.specifier
        assert spec.operator == ">="
        assert Version(spec.version) >= Version(FIRST_SAFE[name])


def test_the_makefile_installs_what_is_pinned():
    text = (ROOT / "Makefile").read_text()
    installs = re.findall(r"pip install .*", text)
    assert len(installs) >= 5
    assert all(re.search(r"--constraint|[$][(]PINNED[)]", line) for line in installs)
