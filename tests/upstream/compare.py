"""Other packages' own tests, run bare and with every tool guarded: ``make test-upstream``.

Downloads the source archives of the installed langchain-core, langchain and langgraph-prebuilt from PyPI and runs their
tests of tools, nodes and agents twice. What passes bare and fails guarded has to be in differences.txt, which
docs/differences.md explains; so has all that is there. Exits with 1 otherwise.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path
from xml.etree import ElementTree

HERE = Path(__file__).parent
SUITES = {
    "langchain-core": "tests/unit_tests/test_tools.py",
    "langgraph-prebuilt": "tests",
    "langchain": "tests/unit_tests/agents",
}


def source(package: str, folder: Path) -> Path:
    """The unpacked source archive of a package, as it is installed."""
    wanted = f"{package}=={version(package)}"
    flags = ["--quiet", "--no-deps", "--no-binary", ":all:", "--no-build-isolation"]
    subprocess.run([sys.executable, "-m", "pip", "download", *flags, "--dest", str(folder), wanted], check=True)
    (archive,) = folder.glob(f"{package.replace('-', '_')}-{version(package)}.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")
    return Path(str(archive).removesuffix(".tar.gz"))


def outcomes(root: Path, tests: str, *plugins: str) -> dict[str, str]:
    """What became of each test: passed, failed or skipped."""
    report = root / "report.xml"
    flags = [
        "-q",
        "-p",
        "no:cacheprovider",
        "-o",
        "addopts=",
        "-o",
        "asyncio_mode=auto",
        "--tb=no",
        f"--junitxml={report}",
    ]
    paths = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    subprocess.run(
        [sys.executable, "-m", "pytest", *flags, f"--junitxml={report}", *plugins, tests],
        cwd=root,
        env={**os.environ, "NO_DOCKER": "true", "LANGGRAPH_TEST_FAST": "1", "PYTHONPATH": paths},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        ends = {child.tag for child in case} & {"failure", "error", "skipped"}
        name = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
        found[name] = "skipped" if "skipped" in ends else "failed" if ends else "passed"
    return found


def named(package: str) -> set[str]:
    """The differences that are explained."""
    lines = (HERE / "differences.txt").read_text().splitlines()
    return {line.split(maxsplit=2)[2] for line in lines if line.startswith(f"{package} ")}


def main() -> int:
    """Print the counts of each suite, and what is not explained. Returns the exit code."""
    unexplained = 0
    with tempfile.TemporaryDirectory() as folder:
        for package, tests in SUITES.items():
            root = source(package, Path(folder))
            bare, guarded = outcomes(root, tests), outcomes(root, tests, "-p", "guard_everything")
            passed = [sum(end == "passed" for end in ends.values()) for ends in (bare, guarded)]
            differ = {name for name, end in bare.items() if end == "passed" and guarded.get(name) != "passed"}
            print(f"{package} {version(package)}: {passed[0]} of {len(bare)} pass bare, {passed[1]} guarded")
            for name in sorted(differ - named(package)):
                print(f"  not explained: {name}")
            for name in sorted(named(package) - differ):
                print(f"  no difference any more: {name}")
            unexplained += len(differ ^ named(package))
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
