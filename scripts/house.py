"""Measure the house: files, rooms, names and docstrings of the package.

    python scripts/house.py                    # this tree
    python scripts/house.py --tree OTHER       # another checkout, as it is on disk
    python scripts/house.py --list classifier  # what is counted in one room, line by line

Prints one table, and one line of JSON at the end.
"""

import argparse
import ast
import json
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

LONG_FILE = 400
LONG_FUNCTION = 80
VERSION_RUNS = 5

# Participles that no ending tells, and words in -ed or -en that are none.
IRREGULAR = {
    "begun",
    "bound",
    "bought",
    "built",
    "caught",
    "cut",
    "done",
    "drawn",
    "fallen",
    "felt",
    "found",
    "given",
    "gone",
    "grown",
    "held",
    "hidden",
    "kept",
    "known",
    "laid",
    "left",
    "lent",
    "lost",
    "made",
    "meant",
    "met",
    "paid",
    "put",
    "run",
    "said",
    "seen",
    "sent",
    "set",
    "shown",
    "shut",
    "spent",
    "split",
    "spread",
    "stood",
    "stuck",
    "taken",
    "taught",
    "thought",
    "thrown",
    "told",
    "torn",
    "won",
    "worn",
    "written",
    "chosen",
    "broken",
    "woken",
    "frozen",
    "stolen",
    "spoken",
}
NOT_PARTICIPLES = {
    "embed",
    "feed",
    "need",
    "seed",
    "speed",
    "shed",
    "bed",
    "red",
    "index",
    "open",
    "even",
    "then",
    "when",
}
# Verbs in their plain form that look like participles: run(), set(), split(), cut().
ALSO_VERBS = {"run", "set", "split", "cut", "put", "shut", "spread"}
FRAGMENT = re.compile(
    r"(Of|By|Those|That|From|With|To|In|On|At|For|As|Which|Whose|Than|And|Or|But|Because|"
    r"Since|Until|Without|Beyond|Beside|Between|Under|Over|Within|Against|Into|Among)\s"
)
VAGUE = {
    "found",
    "own",
    "known",
    "kept",
    "given",
    "made",
    "one",
    "each",
    "there",
    "here",
    "got",
    "said",
    "told",
    "done",
}
DISTRIBUTIVE = re.compile(
    r"\b(labels?|lines?|rows?|files?|pieces?|draws?|points?|seconds?|cells?|columns?|steps?|"
    r"kernels?|numbers?|weights?) an? "
    r"(class|method|row|file|stage|view|core|column|piece|process|label|table|model|kernel|"
    r"step|line|point|episode|second|set|graph|head|factor)\b"
)


def python_files(tree: Path) -> list[Path]:
    """Return the package's Python files."""
    return sorted((tree / "src" / "icssl").rglob("*.py"))


def room_of(path: Path, tree: Path) -> str:
    """Return the top-level package or module of a file."""
    return path.relative_to(tree / "src" / "icssl").parts[0].removesuffix(".py")


def functions(module: ast.Module) -> Iterator[ast.FunctionDef]:
    """Yield every function and method."""
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def is_participle(name: str) -> bool:
    """Return whether a function is named by a lone participle: ``told``, ``_joined``."""
    word = name.strip("_")
    if not word.isalpha() or word in NOT_PARTICIPLES or word in ALSO_VERBS:
        return False
    return word in IRREGULAR or word.endswith("ed")


def answers_yes_or_no(function: ast.FunctionDef) -> bool:
    """Return whether a function returns a bool: an adjective is a good name for it."""
    return isinstance(function.returns, ast.Name) and function.returns.id == "bool"


def docstrings(module: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Yield every node that has a docstring, and the docstring."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(module):
        if isinstance(node, kinds) and (text := ast.get_docstring(node)):
            yield node, text


def assigned_names(module: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield every name that is assigned to, with its line."""
    for node in ast.walk(module):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno


def public_names(module: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield functions, classes and constants at the top of a module without underscore."""
    for node in module.body:
        names: list[str] = []
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.Assign):
            names = [t.id for t in node.targets if isinstance(t, ast.Name)]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names = [node.target.id]
        yield from ((name, node.lineno) for name in names if not name.startswith("_"))


def words_by_file(tree: Path) -> dict[Path, set[str]]:
    """Return the words of every file that may use a name of the package."""
    folders = ("src", "tests", "benchmarks", "scripts", "examples", "docs")
    files = [
        p for f in folders for s in ("*.py", "*.rst", "*.md") for p in (tree / f).rglob(s)
    ]
    built = {"_build", "generated", "tutorials"}
    files = [path for path in files if not built & set(path.parts)]
    return {path: set(re.findall(r"\w+", path.read_text())) for path in files}


def findings_in(module: ast.Module, text: str) -> Iterator[tuple[str, int, str]]:
    """Yield what one file tells by itself: kind, line, and what stands there."""
    lines = text.splitlines()
    if len(lines) > LONG_FILE:
        yield "files over 400 lines", 1, f"{len(lines)} lines"
    for function in functions(module):
        if (function.end_lineno or 0) - function.lineno >= LONG_FUNCTION:
            yield "functions over 80 lines", function.lineno, function.name
        if is_participle(function.name) and not answers_yes_or_no(function):
            yield "functions named by a participle", function.lineno, function.name
    for node, doc in docstrings(module):
        if FRAGMENT.match(doc):
            first = doc.split("\n")[0]
            yield "docstrings that open with a fragment", getattr(node, "lineno", 1), first
    for name, line in assigned_names(module):
        if name in VAGUE:
            yield "assigned names that say nothing", line, name
    for number, line_text in enumerate(lines, 1):
        if match := DISTRIBUTIVE.search(line_text):
            yield "'labels a class' for 'labels per class'", number, match.group()


def findings(tree: Path) -> Iterator[tuple[str, Path, int, str]]:
    """Yield what is counted: kind, file, line, and what stands there."""
    words = words_by_file(tree)
    for path in python_files(tree):
        text = path.read_text()
        module = ast.parse(text)
        for kind, line, what in findings_in(module, text):
            yield kind, path, line, what
        for name, line in public_names(module):
            if not any(name in ws for other, ws in words.items() if other != path):
                yield "names used in one file, without underscore", path, line, name


def comments(tree: Path) -> float:
    """Return comment lines per hundred lines."""
    lines = [line for path in python_files(tree) for line in path.read_text().splitlines()]
    return 100 * sum("# " in line for line in lines) / len(lines)


def ranks(tree: Path) -> int:
    """Return how many ranks the architecture test names."""
    module = ast.parse((tree / "tests" / "test_architecture.py").read_text())
    for node in module.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "LAYERS":
            return len(
                [name for name in ast.literal_eval(node.value) if name != "__main__"]
            )
    raise ValueError(f"{tree}: tests/test_architecture.py has no list LAYERS.")


def run_python(tree: Path, *arguments: str) -> str:
    """Run Python on that tree's package and return what it printed."""
    environment = {"PYTHONPATH": str(tree / "src"), "PATH": "/usr/bin:/bin", "HOME": "/tmp"}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stdout


def loaded_modules(tree: Path) -> list[str]:
    """Return the package's modules that importing the classifier loads."""
    code = "import sys; from icssl import ICSSLClassifier; print(*sys.modules)"
    return [m for m in run_python(tree, "-c", code).split() if m.startswith("icssl")]


def version_seconds(tree: Path) -> float:
    """Return the least of several times of ``icssl --version``."""
    seconds = []
    for _ in range(VERSION_RUNS):
        start = time.perf_counter()
        run_python(tree, "-m", "icssl", "--version")
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def measure(tree: Path) -> dict[str, float]:
    """Return every figure of the house by its name."""
    files = python_files(tree)
    names = Counter(path.name for path in files if path.name != "__init__.py")
    rooms = {room_of(path, tree) for path in files} - {"__init__", "__main__"}
    loaded = loaded_modules(tree)
    counted = Counter(kind for kind, *_ in findings(tree))
    return {
        "files": len(files),
        "lines": sum(path.read_text().count("\n") for path in files),
        "rooms": len(rooms),
        "ranks": ranks(tree),
        "file names that occur twice": sum(count > 1 for count in names.values()),
        **{kind: counted[kind] for kind in KINDS},
        "comments per 100 lines": round(comments(tree), 1),
        "modules that ICSSLClassifier loads": len(loaded),
        "of these, of the paper's model": sum(m.startswith("icssl.model") for m in loaded),
        "seconds of icssl --version": round(version_seconds(tree), 2),
    }


KINDS = (
    "files over 400 lines",
    "functions over 80 lines",
    "functions named by a participle",
    "docstrings that open with a fragment",
    "assigned names that say nothing",
    "names used in one file, without underscore",
    "'labels a class' for 'labels per class'",
)


def main() -> None:
    """Print the table, or the list of one room."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    here = Path(__file__).resolve().parents[1]
    parser.add_argument("--tree", type=Path, default=here, help="root of a checkout")
    parser.add_argument("--list", metavar="ROOM", help="list what is counted in one room")
    options = parser.parse_args()
    tree = options.tree.resolve()
    if options.list:
        for kind, path, line, what in findings(tree):
            if room_of(path, tree) == options.list:
                print(f"{path.relative_to(tree)}:{line}: {kind}: {what}")
        return
    figures = measure(tree)
    for name, value in figures.items():
        print(f"| {name} | {value:,} |")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
