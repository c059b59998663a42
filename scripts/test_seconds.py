"""Print how many seconds each test file takes, from a report of pytest.

    .venv/bin/pytest -n 2 --junitxml build/tests.xml
    python scripts/test_seconds.py build/tests.xml                    # print the table
    python scripts/test_seconds.py build/tests.xml --write            # into CONTRIBUTING.md

Seconds are those of the tests themselves, with their fixtures, added up over all processes;
importing torch takes two or three more seconds per run. All doctests together are one line.
"""

import argparse
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
BEGIN = "<!-- begin: scripts/test_seconds.py -->"
END = "<!-- end: scripts/test_seconds.py -->"


def file_of(classname: str) -> str:
    """Return the test file of a test case, from pytest's dotted name of its class.

    >>> file_of("tests.test_head.TestKernel"), file_of("src.icssl.model.head")
    ('tests/test_head.py', 'doctests of src/icssl')
    """
    parts = classname.split(".")
    if parts[0] != "tests":
        return "doctests of src/icssl"
    return f"tests/{parts[1]}.py"


def seconds_by_file(report: Path) -> dict[str, tuple[int, float]]:
    """Return the number of tests that ran and their seconds, by test file."""
    counts: dict[str, int] = defaultdict(int)
    seconds: dict[str, float] = defaultdict(float)
    for case in ElementTree.parse(report).iter("testcase"):
        file = file_of(case.attrib["classname"])
        counts[file] += case.find("skipped") is None
        seconds[file] += float(case.attrib["time"])
    return {file: (counts[file], seconds[file]) for file in seconds}


def table_of(files: dict[str, tuple[int, float]]) -> str:
    """Return a Markdown table, the slowest file first."""
    lines = ["| test file | tests run | seconds |", "|---|---|---|"]
    for file, (count, seconds) in sorted(files.items(), key=lambda item: -item[1][1]):
        shown = f"{seconds:.0f}" if seconds >= 1 else "less than 1"
        lines.append(f"| `{file}` | {count:,} | {shown} |")
    return "\n".join(lines)


def replace_table(text: str, table: str) -> str:
    """Return a document with the table between its two markers replaced."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the document needs the lines {BEGIN} and {END}.")
    return f"{before}{begin}\n\n{table}\n\n{end}{after}"


def main() -> None:
    """Print the table, or write it into CONTRIBUTING.md."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("report", type=Path, help="The file that --junitxml wrote.")
    parser.add_argument(
        "--write", action="store_true", help="Replace the table in CONTRIBUTING.md."
    )
    options = parser.parse_args()
    table = table_of(seconds_by_file(options.report))
    page = ROOT / "CONTRIBUTING.md"
    if options.write:
        page.write_text(replace_table(page.read_text(), table))
    else:
        print(table)


if __name__ == "__main__":
    main()
