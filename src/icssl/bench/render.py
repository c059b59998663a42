"""What rows are made into: tables in Markdown, LaTeX and HTML, pictures as PNG and SVG."""

import base64
import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure

from icssl._util.files import replacing


@dataclass(frozen=True)
class Table:
    """A titled table; ``notes`` stand above it, the first one first of all.

    Examples
    --------
    >>> print(Table("Counts", ("model", "parameters"), (("paper", "1,310"),)).markdown())
    **Counts**
    <BLANKLINE>
    | model | parameters |
    |---|---|
    | paper | 1,310 |
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    def markdown(self) -> str:
        """Return the table in Markdown, for a page in the repository."""
        lines = [f"**{self.title}**", ""]
        for note in self.notes:
            lines += [note, ""]
        lines.append(f"| {' | '.join(self.header)} |")
        lines.append("|" + "---|" * len(self.header))
        lines += [f"| {' | '.join(row)} |" for row in self.rows]
        return "\n".join(lines)

    def latex(self) -> str:
        """Return the table in LaTeX, with the package booktabs."""
        columns = "l" + "r" * (len(self.header) - 1)
        lines = [f"\\begin{{tabular}}{{{columns}}}", "\\toprule"]
        lines.append(" & ".join(map(_tex, self.header)) + " \\\\")
        lines.append("\\midrule")
        lines += [" & ".join(map(_tex, row)) + " \\\\" for row in self.rows]
        return "\n".join([*lines, "\\bottomrule", "\\end{tabular}"])

    def html(self) -> str:
        """Return the table in HTML, for the report."""
        head = "".join(f"<th>{html.escape(cell)}</th>" for cell in self.header)
        body = "".join(
            f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>"
            for row in self.rows
        )
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes)
        title = f"<h3>{html.escape(self.title)}</h3>"
        return f"{title}{notes}<table><tr>{head}</tr>{body}</table>"


@dataclass(frozen=True)
class Picture:
    """A figure that was saved as ``path`` (PNG) and beside it as SVG."""

    title: str
    path: Path

    def markdown(self) -> str:
        """Return a link to the file, which lies beside the page."""
        return f"![{self.title}]({self.path.name})"

    def html(self) -> str:
        """Return the picture itself, so that the page needs no other file."""
        data = base64.b64encode(self.path.read_bytes()).decode()
        name = html.escape(self.title)
        return f'<figure><img alt="{name}" src="data:image/png;base64,{data}"></figure>'


Item = Table | Picture


def save_picture(figure: Figure, title: str, path: Path) -> Picture:
    """Save a figure as PNG and SVG; ``path`` has no suffix yet."""
    with replacing(path.with_suffix(".png")) as unfinished:
        figure.savefig(unfinished, dpi=130)
    # Without a date and with fixed names, so that the same rows give the same file.
    with (
        rc_context({"svg.hashsalt": path.name}),
        replacing(path.with_suffix(".svg")) as unfinished,
    ):
        figure.savefig(unfinished, metadata={"Date": None})
    return Picture(title, path.with_suffix(".png"))


def write_page(title: str, text: str, items: Sequence[Item], path: Path) -> None:
    """Write a Markdown page, and beside it a file of LaTeX tables if it has tables."""
    parts = [f"# {title}", text, *(item.markdown() for item in items)]
    with replacing(path) as unfinished:
        unfinished.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    tables = [item for item in items if isinstance(item, Table)]
    if tables:
        texts = [f"% {table.title}\n{table.latex()}\n" for table in tables]
        with replacing(path.with_suffix(".tex")) as unfinished:
            unfinished.write_text("\n".join(texts), encoding="utf-8")


def escape_markdown(text: str) -> str:
    """Return text that stands in Markdown, or in a cell of a table, as it is."""
    text = html.escape(" ".join(text.split()), quote=False)
    return re.sub(r"([\\`*\[\]|])", r"\\\1", text)


_TEX = {
    "&": "\\&",
    "%": "\\%",
    "_": "\\_",
    "#": "\\#",
    "±": "$\\pm$",
    "→": "$\\to$",
    "**": "",
}


def _tex(cell: str) -> str:
    for plain, escaped in _TEX.items():
        cell = cell.replace(plain, escaped)
    return cell
