"""``icssl reproduce`` and ``icssl report``, their pages, and what is committed of them."""

from html.parser import HTMLParser
from pathlib import Path

import pytest

from bench_helpers import TOY_PROFILE, WITH_SPECS
from helpers import run_command, text_of
from icssl.app.cli.trainers import run_beside
from icssl.bench.batches import train_batch
from icssl.bench.paper import curves, image_transfer, verdicts
from icssl.bench.paper.artefact import PROFILES, Cell
from icssl.bench.paper.catalogue import ARTEFACTS, all_specs, rows_of, specs_of
from icssl.bench.paper.claims import CLAIMS, claims_table
from icssl.bench.paper.report import cost_text, write_report
from icssl.bench.paper.verdicts import BREAK
from icssl.bench.spec import Scores
from icssl.bench.store import Store

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.usefixtures("elsewhere")
VERDICTS = {*verdicts.KINDS}


@pytest.fixture(scope="module")
def report(full_store, tmp_path_factory):
    """The folder of a report of these rows, and the pages written."""
    folder = tmp_path_factory.mktemp("report")
    return folder, write_report(
        TOY_PROFILE, full_store, folder, folder / "docs" / "claims.md"
    )


# --- The report


class Links(HTMLParser):
    """All that a page refers to, and what it has names for."""

    def __init__(self):
        super().__init__()
        self.sources, self.links, self.names, self.tags = [], [], set(), []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        for name, value in attributes:
            if name == "src":
                self.sources.append(value)
            elif name == "href":
                self.links.append(value)
            elif name == "id":
                self.names.add(value)


def test_the_report_is_one_page_that_needs_no_other_file(report):
    folder, pages = report
    copy = folder / "docs" / "claims.md"
    names = ("report.html", "claims.md", "docs/claims.md", "cost.md", "published.csv")
    assert pages == [folder / name for name in names]
    text = pages[0].read_text()
    page = Links()
    page.feed(text)
    assert len(page.sources) == len(list(folder.glob("*.png"))) > 8
    assert all(source.startswith("data:image/png;base64,") for source in page.sources)
    assert {link.removeprefix("#") for link in page.links} == set(ARTEFACTS) <= page.names
    assert not {"link", "script", "iframe", "object"} & set(page.tags)
    assert "url(" not in text
    assert "@import" not in text
    count = len(all_specs(ARTEFACTS, TOY_PROFILE))
    assert f"{count} of {count} rows: {count} on a CPU, torch 2, icssl 0 (c)." in text
    for artefact in ARTEFACTS.values():
        assert artefact.title in text
    for name in ARTEFACTS:
        assert (folder / f"{name}.md").exists()

    assert copy.read_text() == pages[1].read_text()
    found = verdicts_of(copy)
    assert copy.read_text().count(BREAK) == text.count(BREAK) > len(CLAIMS)
    for claim in CLAIMS:
        verdict = found[claim.says]
        if claim.stand_in and verdict != verdicts.NOT_RUN:
            here = f"{verdicts.UNTESTED}; with {claim.stand_in}: "
            assert verdict.startswith(here)
            verdict = verdict.removeprefix(here)
        assert verdict in VERDICTS


def verdicts_of(path):
    """As published, by statement; every statement has one line."""
    lines = [line for line in path.read_text().splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    says = {claim.says for claim in CLAIMS}
    found = [line for line in cells if line[0] in says]
    assert [line[0] for line in found] == [claim.says for claim in CLAIMS]
    assert {len(line) for line in found} == {9}
    assert [line[1:3] for line in found] == [[c.about, c.tables()] for c in CLAIMS]
    return {line[0]: line[5] for line in found}


def test_the_report_before_anything_was_run_says_so(tmp_path, monkeypatch):
    for name in set(ARTEFACTS) - set(WITH_SPECS):  # whatever was run, they are the same
        monkeypatch.delitem(ARTEFACTS, name)
    pages = write_report(TOY_PROFILE, Store(tmp_path / "rows.jsonl"), tmp_path)
    count = len(all_specs(ARTEFACTS, TOY_PROFILE))
    assert f"0 of {count} rows: none yet." in pages[0].read_text()
    for name in ARTEFACTS:
        assert ": nothing at all was learned. 0 of" in (tmp_path / f"{name}.md").read_text()
    found = verdicts_of(pages[1])
    unproved = [claim.says for claim in CLAIMS if not claim.by_proof]
    assert {found[says] for says in unproved} == {verdicts.NOT_RUN}


@pytest.mark.parametrize("name", [name for name in WITH_SPECS if name != "alignment"])
def test_every_row_is_shown(name, report, full_store):
    page = (report[0] / f"{name}.md").read_text()
    for cell, spec in ARTEFACTS[name].specs(TOY_PROFILE).items():
        if not isinstance(spec, Scores):
            continue
        only_in_the_figure = (name, cell.setting) == ("label-curves", "ood") or (
            name == "image-transfer" and cell.labels not in image_transfer.CONTEXTS
        )
        row = full_store[spec.key]
        sd = " (0.000)" if len(row["seeds"]) > 1 else ""
        text = f"{row['accuracies'][1]:.3f} ± 0.025{sd}"
        in_a_note = name == "image-transfer" and not spec.trainings
        wanted = text if in_a_note else f"| {text} |"
        assert only_in_the_figure or wanted in page, cell


def test_alignment_and_mechanism_show_their_rows(report, full_store):
    page = (report[0] / "alignment.md").read_text()
    for spec in ARTEFACTS["alignment"].specs(TOY_PROFILE).values():
        text = f"{full_store[spec.key]['measures']['mutual_knn']['mean']:.3f} ± 0.001"
        (line,) = [line for line in page.splitlines() if text in line]
        assert line.count(text) == 4
    page = (report[0] / "mechanism.md").read_text()
    assert "| 0 | 1 | 0.50, 0.25* | 0.50, 0.25 | 0.10 |" in page
    assert "| trained, mean over seeds | 0.812 |" in page
    assert "| constructed, k = 2, 3 iterations | 0.625 ± 0.020 |" in page


# --- What is committed


@pytest.fixture(scope="module")
def committed():
    return Store(ROOT / "results" / "full" / "rows.jsonl")


def one_line(path):
    return " ".join(path.read_text().split())


def test_the_main_table_of_the_documents_is_that_of_the_rows(committed):
    full = PROFILES["full"]
    rows = rows_of(ARTEFACTS["label-curves"], full, committed)
    table = curves.main_table(full, rows).markdown()
    assert table in (ROOT / "results" / "full" / "label-curves.md").read_text()
    lines = table[table.index("| ") :]
    assert lines.count("\n") == 2 + len(curves.MAIN)
    assert lines in (ROOT / "docs" / "reproduce.md").read_text()
    cell = Cell("torus", 10, "transformer")
    mean = f"{rows[cell]['metrics']['accuracy']['mean']:.3f}".lstrip("0")
    (line,) = [line for line in lines.splitlines() if "| Transformer baseline |" in line]
    assert line.split("|")[4].split("/")[1].strip() == mean


def test_numbers_of_training_episodes_in_the_documents_are_those_of_the_rows(committed):
    full = PROFILES["full"]
    rows = rows_of(ARTEFACTS["sample-efficiency"], full, committed)
    text = (ROOT / "docs" / "reproduce.md").read_text()
    for steps, size in ((250, 0), (1000, 0), (4000, 0), (1000, 100), (1000, 300)):
        seen = f"{steps * full.batch:,}"
        line = [f"{seen} drawn from {size}" if size else f"{seen}, each seen once"]
        for method in ("e2e_encoder", "transformer"):
            cells = [Cell("cylinder", m, method, size=size, steps=steps) for m in (3, 21)]
            means = [rows[cell]["metrics"]["accuracy"]["mean"] for cell in cells]
            line.append(" / ".join(f"{mean:.3f}".lstrip("0") for mean in means))
        assert f"| {' | '.join(line)} |" in text


def test_verdicts_and_cost_in_the_documents_are_those_of_the_rows(committed):
    full = PROFILES["full"]
    claims = claims_table(full, committed)
    assert claims.markdown() in (ROOT / "docs" / "claims.md").read_text()
    assert claims.notes[0] in one_line(ROOT / "README.md")
    assert cost_text(full, committed) in one_line(ROOT / "docs" / "reproduce.md")


# --- The command line


@pytest.fixture
def quick(monkeypatch, small_chunks):
    """The quick profile at toy size."""
    monkeypatch.setitem(PROFILES, "quick", TOY_PROFILE)


def test_cli_lists_artefacts():
    result = run_command("reproduce", "list")
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert [line.split()[0] for line in lines] == list(ARTEFACTS)
    for line, artefact in zip(lines, ARTEFACTS.values(), strict=True):
        assert line.endswith(artefact.title)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["reproduce", "id-odd"], "Did you mean 'id-ood'?"),
        (["reproduce", "ablations"], "Did you mean 'ablation'?"),
        (["reproduce", "depth", "--profile", "quik"], "Did you mean 'quick'?"),
        (["reproduce", "depth", "--device", "gpu"], "device 'gpu' cannot be used here"),
        (["reproduce", "depth", "--minutes", "-1"], "--minutes"),
        (["reproduce", "depth", "--trainers", "0"], "--trainers"),
        (
            ["reproduce", "depth", "--trainers", "2", "--engine", "ray"],
            "--trainers is for --engine local",
        ),
        (["reproduce", "depth", "-o", "file"], "file cannot be a folder"),
        (["reproduce", "depth", "-o", "broken"], "line 1, is no row"),
        (["report", "--profile", "ful"], "Did you mean 'full'?"),
        (
            ["report", "--profile", "full"],
            "results/full/rows.jsonl does not exist: run `icssl reproduce all --profile "
            "full` first.",
        ),
    ],
)
def test_cli_says_what_is_wrong_before_it_runs_anything(
    tmp_path, monkeypatch, arguments, message
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("icssl.bench.runner.run_missing", pytest.fail)
    Path("file").write_text("in the way")
    Path("broken").mkdir()
    Path("broken/rows.jsonl").write_text("no row\n{}\n")
    result = run_command(*arguments)
    assert result.exit_code == 2, result.output
    assert message in text_of(result)
    assert not Path("results").exists()


def test_further_processes_run_the_command_and_say_why_they_failed(tmp_path):
    with run_beside(2, ["reproduce", "params", "-o", str(tmp_path), "--no-draw"]) as said:
        pass
    assert said == []
    with run_beside(2, ["reproduce", "parms"]) as said:
        pass
    (line,) = said
    assert line.startswith("2 of 2 further processes failed")
    assert "Did you mean 'params'?" in line
    with pytest.raises(KeyError), run_beside(1, ["explore", "--no-browser"]):
        raise KeyError  # does not wait for a process that never ends


def test_cli_runs_what_is_missing_and_draws_it(tmp_path, quick):
    where = ["-o", tmp_path / "out"]
    result = run_command("reproduce", "ablation", "--no-draw", "--minutes", 0, *where)
    assert result.exit_code == 0, result.output
    count = len(specs_of(ARTEFACTS["ablation"], TOY_PROFILE))
    assert f"0 rows added, 0 of {count} are there." in text_of(result)
    assert "Run the same command again to go on." in text_of(result)

    result = run_command("reproduce", "ablation", *where)
    assert result.exit_code == 0, result.output
    assert "nothing at all was learned" in text_of(result)
    assert f"{count} rows added, {count} of {count} are there." in text_of(result)
    assert "again to go on" not in text_of(result)
    assert (tmp_path / "out" / "ablation.md").exists()
    assert (tmp_path / "out" / "ablation.tex").exists()
    assert len((tmp_path / "out" / "rows.jsonl").read_text().splitlines()) == count

    (tmp_path / "out" / "ablation.md").unlink()
    result = run_command("reproduce", "ablation", "--no-draw", *where)
    assert f"0 rows added, {count} of {count} are there." in text_of(result)
    assert not (tmp_path / "out" / "ablation.md").exists()


def test_cli_keeps_a_profile_in_a_folder_of_its_own(tmp_path, monkeypatch, quick):
    monkeypatch.chdir(tmp_path)
    assert run_command("reproduce", "params").exit_code == 0
    assert "1,442,178" in Path("results/quick/params.md").read_text()


def test_cli_interrupted_by_ctrl_c_says_how_to_go_on(tmp_path, monkeypatch, quick):
    told = []

    def interrupt(*arguments, **options):
        told.append(arguments)
        if len(told) == 2:
            raise KeyboardInterrupt
        return train_batch(*arguments, **options)

    monkeypatch.setattr("icssl.bench.batches.train_batch", interrupt)
    result = run_command("reproduce", "ablation", "-o", tmp_path)
    assert result.exit_code == 130
    text = "Interrupted: rows so far are stored. The same command goes on."
    assert text in text_of(result)
    result = run_command("reproduce", "ablation", "-o", tmp_path)
    assert result.exit_code == 0, result.output
    count = len(specs_of(ARTEFACTS["ablation"], TOY_PROFILE))
    assert f"{count} of {count} are there." in text_of(result)


def test_cli_reports_from_rows(full_store, tmp_path, quick, monkeypatch):
    monkeypatch.setattr("icssl.bench.batches.train_batch", pytest.fail)
    folder = full_store.path.parent
    names = ("params", "alignment")  # drawing them all has a test of its own
    monkeypatch.setattr(
        "icssl.bench.paper.report.ARTEFACTS", {n: ARTEFACTS[n] for n in names}
    )
    result = run_command("report", "-o", folder, "--claims", tmp_path / "claims.md")
    assert result.exit_code == 0, result.output
    for page in (folder / "report.html", folder / "claims.md", tmp_path / "claims.md"):
        assert page.name in result.output
        assert f"Of {len(CLAIMS)} statements" in page.read_text()
