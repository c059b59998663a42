"""Write ten tables as people have them, each with its truth, and the same table cleaned.

Every table is about customers who leave or stay. ``clean.csv`` has numbers, ISO dates and
empty cells; each other file holds the same rows as some program or person saves them, with
faults of its own. ``truth.csv`` says who left. Run it again and the files stay the same:

    python scripts/make_messy_tables.py tests/messy
"""

import gzip
import json
import sys
from datetime import datetime
from io import BytesIO
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import numpy as np
import pandas as pd

ROWS, LABELS = 160, 8  # per class
WRITTEN = datetime(2021, 1, 1)  # the date in the spreadsheet, which would be that of today


def customers() -> tuple[pd.DataFrame, np.ndarray]:
    """Return clean rows, and who left."""
    rng = np.random.default_rng(21)
    left = np.arange(ROWS) % 2
    rng.shuffle(left)
    # Dates whose days go up to 28, so that most of them prove their order.
    joined = pd.Timestamp("2018-01-03") + pd.to_timedelta(
        (700 - 120 * left + rng.integers(0, 300, ROWS)), unit="D"
    )
    income = np.round(np.exp(rng.normal(10.4 - 0.45 * left, 0.3)), 2)
    share = np.round(np.clip(rng.normal(0.3 + 0.12 * left, 0.1, ROWS), 0, 0.99), 3)
    rating = np.round(np.clip(rng.normal(7 - 1.3 * left, 1.0, ROWS), 1, 9.9), 1)
    visits = rng.poisson(12 - 3 * left)
    plan = np.where(rng.random(ROWS) < 0.3 + 0.4 * left, "basic", "premium")
    frame = pd.DataFrame(
        {
            "joined": joined.strftime("%Y-%m-%d"),
            "income": income,
            "share": share,
            "rating": rating,
            "visits": visits,
            "plan": plan,
        }
    )
    frame.loc[rng.choice(ROWS, 9, replace=False), "income"] = np.nan
    frame.loc[rng.choice(ROWS, 7, replace=False), "rating"] = np.nan
    names = np.where(left == 1, "yes", "no")
    given = np.full(ROWS, "", dtype=object)
    for name in ("yes", "no"):
        chosen = rng.choice(np.flatnonzero(names == name), LABELS, replace=False)
        given[chosen] = name
    return frame.assign(churned=given), names


def texts(frame: pd.DataFrame, missing: str = "") -> pd.DataFrame:
    """Return the cells as texts."""
    return frame.astype(object).where(frame.notna(), missing).map(str)


def comma(number: float, digits: int = 2, group: str = ".") -> str:
    """Return a number with a decimal comma and points between thousands."""
    text = f"{number:,.{digits}f}"
    return text.translate(str.maketrans({",": group, ".": ","}))


def german(frame: pd.DataFrame) -> bytes:
    """Semicolons, decimal commas, days first, Latin-1, and umlauts in the header."""
    rows = frame.assign(
        joined=[f"{d[8:]}.{d[5:7]}.{d[:4]}" for d in frame.joined],
        income=["k. A." if pd.isna(x) else comma(x) for x in frame.income],
        share=[comma(100 * x, 1) + " %" for x in frame.share],
        rating=["" if pd.isna(x) else comma(x, 1) for x in frame.rating],
        plan=frame.plan.map({"basic": "günstig", "premium": "groß"}),
    ).rename(columns={"income": "Einkünfte"})
    return rows.to_csv(index=False, sep=";").encode("latin-1")


def money(frame: pd.DataFrame) -> bytes:
    """Dollars with thousands, percents, months first, and three marks for no value."""
    marks = np.array(["-", "NULL", "n/a"])
    rows = frame.assign(
        joined=[f"{d[5:7]}/{d[8:]}/{d[:4]}" for d in frame.joined],
        income=[
            marks[i % 3] if pd.isna(x) else f"${x:,.2f}" for i, x in enumerate(frame.income)
        ],
        share=[f"{100 * x:.1f}%" for x in frame.share],
        rating=["-" if pd.isna(x) else f"{x}" for x in frame.rating],
    )
    return rows.to_csv(index=False).encode()


def header_twice(frame: pd.DataFrame) -> bytes:
    """Two exports put one after the other, with a mark before the text."""
    half = ROWS // 2
    parts = [frame[:half].to_csv(index=False), frame[half:].to_csv(index=False)]
    return "".join(parts).encode("utf-8-sig")


def equal_names(frame: pd.DataFrame) -> bytes:
    """Two columns with one name, as a join leaves them, and CRLF at the ends of lines."""
    rows = frame.rename(columns={"rating": "value", "share": "value"})
    return rows.to_csv(index=False, lineterminator="\r\n").encode()


def placeholders(frame: pd.DataFrame) -> bytes:
    """A target in which texts stand for no label."""
    marks = np.array(["?", "unknown", ""])
    cells = [marks[i % 3] if c == "" else c for i, c in enumerate(frame.churned)]
    return frame.assign(churned=cells).to_csv(index=False).encode()


def spellings(frame: pd.DataFrame) -> bytes:
    """Blanks around labels, and two labels that differ by case alone."""
    cells, seen = [], 0
    for cell in frame.churned:
        seen += cell != ""
        cells.append(f" {cell} " if cell and seen % 3 == 0 else cell)
    first = next(i for i, cell in enumerate(cells) if cell == "yes")
    cells[first] = "Yes"
    return frame.assign(churned=cells).to_csv(index=False).encode()


def days_first(frame: pd.DataFrame) -> bytes:
    """Tabs, days before months with a slash, and times; packed."""
    rows = frame.assign(joined=[f"{d[8:]}/{d[5:7]}/{d[:4]} 09:30" for d in frame.joined])
    content = texts(rows, "NA").to_csv(index=False, sep="\t").encode()
    return gzip.compress(content, mtime=0)


def swiss(number: float) -> str:
    """Return francs with apostrophes between thousands."""
    return "" if pd.isna(number) else f"CHF {number:,.2f}".replace(",", "'")


def utf16(frame: pd.DataFrame) -> bytes:
    """UTF-16 with tabs, as spreadsheets save text, and Swiss thousands."""
    rows = frame.assign(income=frame.income.map(swiss))
    return rows.to_csv(index=False, sep="\t").encode("utf-16")


def json_lines(frame: pd.DataFrame) -> bytes:
    """One object per line, with numbers as texts here and there; empty values left out."""
    lines = []
    for i, row in enumerate(frame.to_dict("records")):
        cells = {
            name: cell for name, cell in row.items() if cell != "" and not pd.isna(cell)
        }
        if i % 4 == 0 and "income" in cells:
            cells["income"] = f"{cells['income']:,.2f}"
        if i == 9:
            cells["rating"] = "?"
        lines.append(json.dumps(cells))
    return "\n".join(lines).encode() + b"\n"


def spreadsheet(frame: pd.DataFrame) -> bytes:
    """A spreadsheet with blank rows at the top, dates, and a second sheet."""
    from openpyxl import Workbook
    from openpyxl.writer.excel import ExcelWriter

    book = Workbook()
    book.properties.created = book.properties.modified = WRITTEN
    sheet = book.active
    sheet.title = "customers"
    for j, name in enumerate(frame.columns, start=1):
        sheet.cell(3, j, name)
    for i, row in enumerate(frame.itertuples(index=False), start=4):
        for j, cell in enumerate(row, start=1):
            if cell == "" or pd.isna(cell):
                continue
            day = datetime.fromisoformat(cell) if j == 1 else cell
            sheet.cell(i, j, day)
    book.create_sheet("notes")["A1"] = "exported in March"
    content = BytesIO()
    # Not book.save(), which sets the time of modification to now.
    ExcelWriter(book, ZipFile(content, "w")).save()
    return pack_with_fixed_dates(content)


def pack_with_fixed_dates(archive: BytesIO) -> bytes:
    """Pack the parts of an archive again, all with the same date."""
    packed = BytesIO()
    with ZipFile(archive) as parts, ZipFile(packed, "w") as out:
        for name in parts.namelist():
            info = ZipInfo(name, WRITTEN.timetuple()[:6])
            out.writestr(info, parts.read(name), ZIP_DEFLATED)
    return packed.getvalue()


def main(folder: Path) -> None:
    """Write all files."""
    folder.mkdir(parents=True, exist_ok=True)
    frame, names = customers()
    frame.to_csv(folder / "clean.csv", index=False, lineterminator="\n")
    truth = pd.DataFrame({"churned": names})
    truth.to_csv(folder / "truth.csv", index=False, lineterminator="\n")
    made = {
        "german.csv": german,
        "money.csv": money,
        "header_twice.csv": header_twice,
        "equal_names.csv": equal_names,
        "placeholders.csv": placeholders,
        "spellings.csv": spellings,
        "days_first.tsv.gz": days_first,
        "utf16.csv": utf16,
        "lines.jsonl": json_lines,
        "sheet.xlsx": spreadsheet,
    }
    for name, make in made.items():
        (folder / name).write_bytes(make(frame))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "tests/messy"))
