"""Every table and figure of the paper from rows, the verdicts, and ``icssl reproduce``."""

import csv
import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch
from matplotlib.image import imread
from typer.testing import CliRunner

import icssl.bench.paper
from icssl.app.cli import app
from icssl.bench.paper import curves as label_curves
from icssl.bench.paper import id_ood, image_transfer, judges, verdicts
from icssl.bench.paper import printed as printed_tables
from icssl.bench.paper.artefact import PROFILES, Cell, Profile, published
from icssl.bench.paper.claims import CLAIMS, claims_table, imbalance
from icssl.bench.paper.curves import IMPROVING, draw_curves, style_of
from icssl.bench.paper.params import parameter_counts
from icssl.bench.paper.registry import ARTEFACTS, all_specs, render, rows_of
from icssl.bench.paper.report import cost_text, write_report
from icssl.bench.paper.runs import SURFACES, title_of
from icssl.bench.paper.tables import LEGEND, accuracy_text, against_svc, seen_text
from icssl.bench.paper.verdicts import BREAK, Finding, Pair, by_level, by_margin, tally
from icssl.bench.probes import Alignment
from icssl.bench.render import Picture, Table
from icssl.bench.runner import run_missing, train_batch
from icssl.bench.spec import Scores
from icssl.bench.store import Store
from icssl.episodes.data_config import DataConfig
from icssl.episodes.labels import majority_rate
from icssl.episodes.stream import EpisodeStream
from icssl.evaluation.metrics import METRIC_NAMES, interval
from icssl.evaluation.predictors import METHODS
from icssl.methods import BASELINES, TRAINED
from icssl.methods.registry import REGISTRY

ROOT = Path(__file__).parents[1]
TOY = Profile(
    name="toy",
    note="Profile toy: nothing at all was learned.",
    judges=True,
    features="digits",
    seeds=1,
    runs=2,
    steps=1,
    batch=2,
    encoder_steps=1,
    hard_steps=1,
    eigenvector_episodes=4,
    image_episodes=2,
    episodes=3,
    tuning=2,
    budgets=(3, 39),
    product_budgets=(3,),
    sizes=(2, 4),
    iterations=3,
)
WITH_SPECS = [name for name, artefact in ARTEFACTS.items() if artefact.specs(TOY)]
VERDICTS = {
    verdicts.HOLDS,
    verdicts.IN_PART,
    verdicts.NOT,
    verdicts.UNTESTED,
    verdicts.UNDERTRAINED,
    verdicts.NO_ROWS,
}


@pytest.fixture(autouse=True, scope="module")
def elsewhere(tmp_path_factory):
    """A folder without features of CIFAR-10, and a home for the images of all tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("elsewhere"))
        patch.setenv("ICSSL_HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture
def small_chunks(monkeypatch):
    """Finite sets of episodes are made 256 at a time, of which these runs need four."""
    monkeypatch.setattr("icssl.episodes.stream.EPISODES_AT_ONCE", 4)


# --- Rows that were not measured


def row_with(mean, *, majority=0.5, spread=0.01, seeds=1, undertrained=None):
    """A row of scores around a mean."""
    values = mean + spread * torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64)
    found = interval(values)
    each = {"mean": found.mean, "half_width": found.half_width}
    row = {
        "metrics": dict.fromkeys(METRIC_NAMES, each),
        "seeds": [mean] * seeds,
        "accuracies": values.tolist(),
        "majority_rate": majority,
        "settings": "",
    }
    return row if undertrained is None else row | {"undertrained": undertrained}


def aligned(value, separation=0.3):
    each = {"mean": value, "half_width": 0.001}
    apart = {"mean": separation, "half_width": 0.001}
    names = ("mutual_knn", "cycle_knn", "lcs_knn")
    measures = dict.fromkeys(names, each)
    both = dict.fromkeys(("separation_first", "separation_second"), apart)
    return {"measures": measures | both}


def looked_into(spec):
    """A row of :class:`Mechanism`."""
    heads, count = [[0.5, 0.25], [1.0, 2.0]], len(spec.trainings)
    stage1 = {"bandwidth": heads, "attracts": [[True, False]] * 2, "mix": heads}
    line = {"f": [-1.0, 1.0], "mlp": [0.0, 0.5], "exact": [0.1, 0.4]}
    each = {"mean": 0.8125, "half_width": 0.01}
    return {
        "stage1": [{**stage1, "skip": [0.1, 0.2]}] * count,
        "stage2": [{"to_operator": [1.0, 0.5], "to_truth": [1.2, 0.7]}] * count,
        "stage3": [line] * count,
        "trained": [each] * count,
        "constructed": {"mean": 0.625, "half_width": 0.02},
    }


def made_up(spec, mean):
    """A row as the runner would have stored it."""
    if isinstance(spec, Scores):
        measured = row_with(mean, seeds=max(1, len(spec.trainings)))
    elif isinstance(spec, Alignment):
        measured = aligned(mean)
    else:
        measured = looked_into(spec)
    row = {"key": spec.key, "spec": spec.describe(), **measured}
    if spec.trainings:
        count = len(spec.trainings)
        row |= {"held_out_loss": [0.5] * count, "slope": [0.0] * count}
        row |= {"episodes_seen": 2, "undertrained": False}
    made_with = {"device": "a CPU", "torch": "2", "version": "0", "commit": "c"}
    return row | {"seconds": 1.0} | made_with


@pytest.fixture(scope="module")
def full_store(tmp_path_factory, elsewhere):
    """Every row of the toy profile, each with an accuracy of its own."""
    store = Store(tmp_path_factory.mktemp("made-up") / "rows.jsonl")
    for number, spec in enumerate(all_specs(ARTEFACTS, TOY)):
        store.append(made_up(spec, number / 1000))
    return store


@pytest.fixture(scope="module")
def report(full_store, tmp_path_factory):
    """The folder of a report of these rows, and the pages written."""
    folder = tmp_path_factory.mktemp("report")
    return folder, write_report(TOY, full_store, folder, folder / "docs" / "claims.md")


# --- What the artefacts run


@pytest.mark.parametrize("profile", PROFILES.values(), ids=lambda profile: profile.name)
@pytest.mark.parametrize("name", WITH_SPECS)
def test_models_are_those_that_the_cell_of_a_row_names(name, profile):
    """By their seeds, sources, thresholds, kernels, depths and sizes."""
    for cell, spec in ARTEFACTS[name].specs(profile).items():
        threshold = cell.threshold if cell.threshold.isalpha() else float(cell.threshold)
        assert spec.data.sources == (cell.source,), cell
        assert (spec.labels, spec.data.threshold) == (cell.labels, threshold)
        assert [config.seed for config in spec.trainings] == seeds_of(name, cell, profile)
        for config in spec.trainings:
            assert set(config.data.sources) == trained_on(cell)
            assert config.data.threshold == threshold
            if name == "imagenet":
                assert config.data.episodes == cell.size
            if name == "depth":
                assert config.model.steps == cell.size
            descends = getattr(config.model, "head", "") == "descent"
            if descends and isinstance(spec, Scores):
                assert config.model.kernel == cell.kernel


def seeds_of(name, cell, profile):
    if cell.method in BASELINES:
        return []
    if "|" in cell.method:  # one model a side, unless that is the ground truth
        return [0] * (1 if cell.method.startswith("eig|") else 2)
    if cell.threshold != "median":
        return [0]
    return [*range(profile.runs if name == "ablation" else profile.seeds)]


def trained_on(cell):
    if cell.setting == "ood":
        return set(SURFACES) - {cell.source}
    return {cell.source} if cell.setting == "id" else set(cell.setting.split("+"))


@pytest.mark.parametrize("profile", PROFILES.values(), ids=lambda profile: profile.name)
def test_one_cell_is_one_row_and_artefacts_share_what_is_the_same(profile):
    specs = all_specs(ARTEFACTS, profile)
    by_name = {name: ARTEFACTS[name].specs(profile) for name in WITH_SPECS}
    keys = [[spec.key for spec in own.values()] for own in by_name.values()]
    assert all(len(set(own)) == len(own) for own in keys)
    assert {spec.key for spec in specs} == set().union(*keys)
    assert len({spec.key for spec in specs}) == len(specs) < sum(map(len, keys))
    assert by_name["alignment"].items() <= by_name["imagenet"].items()


# --- Artefacts from toy runs to pages


def covering(specs):
    """A spec of every method, kernel, setting and rule, from all sources and budgets."""
    kinds = {}
    for cell, spec in specs.items():
        kind = (cell.method, cell.kernel, cell.setting == "id", cell.threshold)
        kinds.setdefault(kind, []).append(spec)
    return [each[i % len(each)] for i, each in enumerate(kinds.values())]


# Of their many specs, which take minutes, a few are run.
LARGE = ("id-ood", "label-curves", "image-transfer", "imagenet")


@pytest.mark.parametrize("name", ARTEFACTS)
def test_every_artefact_is_run_and_drawn_at_toy_size(name, tmp_path, small_chunks):
    artefact = ARTEFACTS[name]
    specs = artefact.specs(TOY)
    chosen = covering(specs) if name in LARGE else [*specs.values()]
    store = Store(tmp_path / "rows.jsonl")
    assert run_missing(chosen, store) == len(chosen) == len(store)
    assert run_missing(chosen, Store(store.path)) == 0
    for spec in chosen:  # what other tests make up has the form of what is measured
        row, other = store[spec.key], made_up(spec, 0.5)
        assert set(row) == set(other)
        for part in ("metrics", "measures"):
            assert set(row.get(part, ())) == set(other.get(part, ()))

    items = render(name, TOY, Store(store.path), tmp_path)
    page = (tmp_path / f"{name}.md").read_text()
    assert page.startswith(f"# {artefact.title}\n\n**The paper:** {artefact.says}\n")
    assert ("nothing at all was learned" in page) == bool(specs)
    if specs:
        assert f"{len(chosen)} of {len(specs)} rows are there." in page
    check_items(items, tmp_path / name, page)
    if name in LARGE:  # what was not run leaves its cell empty
        shown = {cell for item in tables_of(items) for line in item.rows for cell in line}
        scored = [store[spec.key] for spec in chosen if isinstance(spec, Scores)]
        texts = {accuracy_text(row) for row in scored}
        assert "" in shown
        assert shown & texts


def tables_of(items):
    return [item for item in items if isinstance(item, Table)]


def check_items(items, path, page):
    """Every picture twice, every table on the page and in LaTeX, none of them empty."""
    assert items
    for item in items:
        if isinstance(item, Picture):
            assert imread(item.path).std() > 0.02
            assert item.path.with_suffix(".svg").read_text().count("<path") > 10
            assert f"]({item.path.name})" in page
        else:
            assert item.rows
            assert {len(line) for line in item.rows} == {len(item.header)}
            assert item.markdown() in page
    tables = tables_of(items)
    assert path.with_suffix(".tex").exists() == bool(tables)
    if tables:
        text = path.with_suffix(".tex").read_text()
        assert text.count(r"\toprule") == len(tables)
        assert not re.search(r"(?<!\\)[%#_]", text.replace("% ", ""))


# --- The tables hold what the rows and the paper say


def lines_of(table):
    """Lines by their first cells, up to the first number."""
    first = 2 if table.header[1] == "manifold" else 1
    return {line[:2] if first == 2 else line[0]: line for line in table.rows}


def test_cells_of_id_ood_are_where_they_belong(full_store, tmp_path):
    rows = rows_of(ARTEFACTS["id-ood"], TOY, full_store)
    items = ARTEFACTS["id-ood"].draw(TOY, rows, tmp_path)
    tables = {table.title: lines_of(table) for table in items}
    specs = ARTEFACTS["id-ood"].specs(TOY)
    for cell, spec in specs.items():
        mean = full_store[spec.key]["accuracies"][1]
        table = tables[f"{cell.labels} labels, {id_ood.THRESHOLDS[cell.threshold]}"]
        line = table[title_of(cell._replace(setting="id")), cell.source.replace("_", " ")]
        column = 2 if cell.setting == "id" else 4
        assert line[column].startswith(f"{mean:.3f} ± 0.025"), cell
        assert line[-1] == "0.500"


@pytest.mark.parametrize("name", [name for name in WITH_SPECS if name != "alignment"])
def test_every_row_is_shown(name, report, full_store):
    page = (report[0] / f"{name}.md").read_text()
    for cell, spec in ARTEFACTS[name].specs(TOY).items():
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
    for spec in ARTEFACTS["alignment"].specs(TOY).values():
        text = f"{full_store[spec.key]['measures']['mutual_knn']['mean']:.3f} ± 0.001"
        (line,) = [line for line in page.splitlines() if text in line]
        assert line.count(text) == 3
    page = (report[0] / "mechanism.md").read_text()
    assert "| 0 | 1 | 0.50, 0.25* | 0.50, 0.25 | 0.10 |" in page
    assert "| trained, mean over seeds | 0.812 |" in page
    assert "| constructed, k = 2, 3 iterations | 0.625 ± 0.020 |" in page


def paper_values(artefact):
    with (ROOT / "results" / "paper_values.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["artefact"] == artefact]
    assert len(rows) > 5
    return rows


def printed(row):
    return f"{float(row['value']):.3f} ± {float(row['sd']):.3f}"


def test_the_package_has_the_published_values():
    shipped = Path(icssl.bench.paper.__file__).parent / "paper_values.csv"
    assert shipped.read_bytes() == (ROOT / "results" / "paper_values.csv").read_bytes()
    names = {artefact for artefact, _ in published()}
    assert {"id-ood", "ablation", "image-transfer"} <= names


@pytest.mark.parametrize("threshold", id_ood.THRESHOLDS)
def test_every_published_value_of_id_ood_stands_in_its_cell(threshold):
    rows = paper_values("id-ood")
    for row in rows:
        table = id_ood.table({}, threshold, int(row["context"]))
        name = title_of(Cell("", 0, row["method"], row["kernel"]))
        line = lines_of(table)[name, row["data"].replace("_", " ")]
        assert line[3 if row["setting"] == "id" else 5] == printed(row)
    tables = [id_ood.table({}, threshold, labels) for labels in id_ood.CONTEXTS]
    shown = [cell for t in tables for line in t.rows for cell in (line[3], line[5]) if cell]
    assert len(shown) == len(rows) == 120


def test_every_published_value_of_the_ablation_stands_in_its_cell(tmp_path):
    (table,) = ARTEFACTS["ablation"].draw(PROFILES["full"], {}, tmp_path)
    lines = lines_of(table)
    rows = paper_values("ablation")
    for row in rows:
        place = table.header.index(METHODS[row["method"]])
        assert table.header[place + 1] == "paper"
        assert lines[row["context"]][place + 1] == printed(row)
    assert len(rows) == 3 * len(lines)


def test_every_published_value_of_image_transfer_stands_in_its_cell():
    rows = paper_values("image-transfer")
    for row in rows:
        table = image_transfer.table({}, int(row["context"]))
        where = "images" if row["setting"] == "id" else "these four"
        place = table.header.index(f"{METHODS[row['method']]}, {where}")
        four = ", ".join(sorted(row["data"].split("+"))).replace("_", " ")
        assert lines_of(table)[four][place + 1] == printed(row)
    tables = [image_transfer.table({}, labels) for labels in image_transfer.CONTEXTS]
    shown = [cell for table in tables for line in table.rows for cell in line[1:] if cell]
    assert len(shown) == len(rows) == 60


def test_the_text_of_a_cell():
    row = row_with(0.9, undertrained=True) | {"seeds": [0.88, 0.92]}
    assert accuracy_text(row) == "0.900 ± 0.025 (0.028) †"
    assert "†" in LEGEND
    assert accuracy_text(row_with(0.9)) == "0.900 ± 0.025"
    assert accuracy_text(None) == ""


def test_the_first_line_says_where_the_svc_is_not_beaten():
    ours = [Cell("swiss_roll", labels, "e2e_icl", "rbf") for labels in (3, 5, 10)]
    svc = {Cell("swiss_roll", m, "svc_rbf"): row_with(0.7) for m in (3, 5, 10)}
    name = "Orig+E2E-ICL (RBF)"
    assert against_svc({}, ours) == f"{name} has not been compared with the tuned SVC yet."
    ahead = {cell: row_with(0.8) for cell in ours}
    assert against_svc(svc | ahead, ours) == (
        f"{name} beats the tuned RBF-SVC in all 3 cells, beyond the 95% interval."
    )
    rows = svc | ahead | {ours[0]: row_with(0.6), ours[1]: row_with(0.7)}
    assert against_svc(rows, ours) == (
        f"{name} does not beat the tuned RBF-SVC on swiss roll at 3 (behind), "
        "swiss roll at 5 (level)."
    )


def test_the_line_of_training_episodes_is_of_one_model():
    """However many seeds a row has; where a method's models differ, it says for which."""

    def trained(count, different, seeds):
        spec = {"trainings": [{"data": {"episodes": different}}]}
        return row_with(0.9, seeds=seeds) | {"episodes_seen": count, "spec": spec}

    inside = Cell("torus", 3, "e2e_encoder")
    rows = {
        inside: trained(3000, 0, 3),
        inside._replace(setting="ood"): trained(500, 0, 1),
        Cell("torus", 3, "eig_icl", "rbf"): trained(3000, 20, 3),
        Cell("torus", 3, "transformer", size=40): trained(1000, 40, 1),
        Cell("torus", 3, "svc_rbf"): row_with(0.8),
    }
    assert seen_text(rows, rows) == (
        "3 test episodes. Training episodes of each model. "
        "1,000: Orig+E2E, encoder head (torus); Transformer baseline. "
        "500: Orig+E2E, encoder head (out of distribution). "
        "1,000, 20 of them different: Eig+ICL."
    )
    assert seen_text({}, rows) == "No rows."


def test_parameters_of_every_trained_method_are_counted():
    totals = {c.model: c.parameters for c in parameter_counts() if c.stage == "total"}
    assert set(TRAINED) - {"transformer_unscaled"} <= set(totals)
    assert totals["e2e_icl"] == totals["free"] < totals["e2e_wide"]
    assert totals["e2e_encoder"] < totals["e2e_encoder, 4 layers"] < totals["transformer"]


# --- Figures


@pytest.mark.parametrize("count", [1, 2, 6])
def test_legends_lie_within_the_figure_and_name_every_curve_once(count):
    columns = [("e2e_icl", "rbf"), ("e2e_wide", "linear"), ("svc_rbf", "")]
    cells = [Cell("torus", m, *column) for column in columns for m in (3, 10, 39)]
    cells += [cell._replace(setting="ood") for cell in cells[:3]]
    rows = {cell: row_with(0.8, undertrained=cell == cells[1]) for cell in cells}
    figure = draw_curves(rows, [(f"panel {i}", cells) for i in range(count)], "labels")
    figure.draw_without_rendering()
    (legend,) = figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert names == [*dict.fromkeys(map(title_of, cells)), IMPROVING]
    box, whole = legend.get_window_extent(), figure.bbox
    assert whole.x0 <= box.x0 < box.x1 <= whole.x1
    assert whole.y0 <= box.y0 < box.y1 <= whole.y1
    for axes in figure.axes:
        assert axes.get_xlabel() == "labels"
        assert axes.get_ylabel() == "accuracy"
        (still,) = [line for line in axes.lines if line.get_markerfacecolor() == "white"]
        assert still.get_xdata().tolist() == [10]
        assert [text.get_text() for text in axes.get_xticklabels()] == ["3", "10", "39"]


def test_methods_have_looks_of_their_own():
    styled = [name for name in METHODS if REGISTRY[name].style]
    looks = [tuple(style_of(method).values())[:3] for method in styled]
    assert len(set(looks)) == len(styled) == 11
    assert style_of("e2e_icl") != style_of("e2e_icl", again=True)


# --- What is committed


@pytest.fixture(scope="module")
def committed():
    return Store(ROOT / "results" / "full" / "rows.jsonl")


def one_line(path):
    return " ".join(path.read_text().split())


def test_the_main_table_of_the_documents_is_that_of_the_rows(committed):
    full = PROFILES["full"]
    rows = rows_of(ARTEFACTS["label-curves"], full, committed)
    table = label_curves.main_table(full, rows).markdown()
    assert table in (ROOT / "results" / "full" / "label-curves.md").read_text()
    lines = table[table.index("| ") :]
    assert lines.count("\n") == 2 + len(label_curves.MAIN)
    assert lines in (ROOT / "docs" / "reproduce.md").read_text()
    cell = Cell("torus", 10, "transformer")
    mean = f"{rows[cell]['metrics']['accuracy']['mean']:.3f}".lstrip("0")
    (line,) = [line for line in lines.splitlines() if "| Transformer baseline |" in line]
    assert line.split("|")[4].split("/")[1].strip() == mean


def test_verdicts_and_cost_in_the_documents_are_those_of_the_rows(committed):
    full = PROFILES["full"]
    claims = claims_table(full, committed)
    assert claims.markdown() in (ROOT / "docs" / "claims.md").read_text()
    assert claims.notes[0] in one_line(ROOT / "README.md")
    assert cost_text(full, committed) in one_line(ROOT / "docs" / "reproduce.md")


# --- Claims

A, B, C = (Cell("torus", labels, "e2e_icl") for labels in (3, 5, 10))
OTHER = {cell: cell._replace(method="eig_icl") for cell in (A, B, C)}
PAIRS = [Pair(f"{cell.labels}", cell, OTHER[cell]) for cell in (A, B, C)]


def apart(*differences, spread=0.0):
    """Rows whose pairs differ by so much on average, and not the same in every episode."""
    rows = {}
    for cell, difference in zip((A, B, C), differences, strict=True):
        rows[OTHER[cell]] = row_with(0.7, majority=0.6)
        rows[cell] = row_with(0.7 + difference, spread=0.01 + spread)
    return rows


MARGINS = {
    "all ahead": (apart(0.05, 0.1, 0.2), 0.0, verdicts.HOLDS),
    "by the margin": (apart(0.05, 0.1, 0.2), 0.05, verdicts.HOLDS),
    "by less than the margin": (apart(0.05, 0.1, 0.2), 0.08, verdicts.IN_PART),
    "by far less": (apart(0.05, 0.1, 0.2), 0.3, verdicts.NOT),
    "margin within the interval": (
        apart(0.05, 0.1, 0.2, spread=0.01),
        0.06,
        verdicts.IN_PART,
    ),
    "most ahead": (apart(0.05, 0.0, 0.2), 0.0, verdicts.IN_PART),
    "one ahead": (apart(0.05, 0.0, -0.2), 0.0, verdicts.NOT),
    "level": (apart(0.0, 0.0, 0.0), 0.0, verdicts.NOT),
    "ahead within the interval": (apart(0.01, 0.02, 0.01, spread=0.1), 0.0, verdicts.NOT),
    "behind": (apart(-0.05, -0.1, -0.2), 0.0, verdicts.NOT),
}


@pytest.mark.parametrize(("rows", "least", "verdict"), MARGINS.values(), ids=MARGINS.keys())
def test_a_margin_is_judged_by_paired_intervals(rows, least, verdict):
    found = by_margin(rows, {"": PAIRS}, least)
    assert found.verdict == verdict
    means = [
        sum(rows[pair.first]["accuracies"]) - sum(rows[pair.second]["accuracies"])
        for pair in PAIRS
    ]
    texts = [f"{100 * mean / 3:+.1f}" for mean in means]
    assert re.findall(r"([+-][\d.]+) ± ", found.ours) == texts
    assert re.findall(r"(\d+): ", found.ours) == ["3", "5", "10"]
    assert found.majority == "0.500 to 0.600"


def test_every_series_of_a_claim_has_a_line_and_a_count():
    rows = apart(0.05, -0.1, 0.2)
    both = by_margin(rows, {"one": PAIRS[:2], "two": PAIRS[2:]})
    assert both.verdict == verdicts.IN_PART
    assert both.ours.split(BREAK) == [
        "one; 3: +5.0 ± 0.0, 5: -10.0 ± 0.0 points; 1 of 2",
        "two; 10: +20.0 ± 0.0 points; 1 of 1",
        "in all 2 of 3",
    ]


@pytest.mark.parametrize("place", [A, OTHER[C]])
def test_rows_that_are_missing_or_undertrained_support_no_margin(place):
    rows = apart(0.05, 0.1, 0.2)
    tired = rows | {place: rows[place] | {"undertrained": True}}
    assert by_margin(tired, {"": PAIRS}).verdict == verdicts.UNDERTRAINED
    fine = rows | {place: rows[place] | {"undertrained": False}}
    assert by_margin(fine, {"": PAIRS}).verdict == verdicts.HOLDS
    del rows[place]
    assert by_margin(rows, {"": PAIRS}).verdict == verdicts.NO_ROWS


@pytest.mark.parametrize(
    ("level", "verdict"),
    [
        (0.87, verdicts.HOLDS),
        (0.89, verdicts.IN_PART),
        (0.92, verdicts.IN_PART),
        (0.93, verdicts.NOT),
    ],
)
def test_a_level_is_judged_by_its_interval(level, verdict):
    rows = {A: row_with(0.9)}  # ± 0.025
    assert by_level(rows, A, level).verdict == verdict
    assert by_level(rows, A, level).ours == "3: 0.900 ± 0.025"
    assert by_level({}, A, level).verdict == verdicts.NO_ROWS
    tired = {A: row_with(0.9, undertrained=True)}
    assert by_level(tired, A, level).verdict == verdicts.UNDERTRAINED


def as_the_paper_says(name, cell):
    """Accuracies for which every claim is true."""
    if name == "image-transfer":
        both = {"torus", "swiss_roll"} <= set(cell.setting.split("+"))
        ours = 0.99 if cell.setting == "id" else (0.9 if both else 0.8)
        return ours if cell.method == "e2e_icl" else 0.6
    if name == "imagenet":
        late = cell.size >= 1200
        return {"e2e_icl": 0.9, "transformer": 0.9 if late else 0.6}.get(cell.method, 0.5)
    if name == "depth":
        better = 0.05 * (cell.kernel == "rbf") + 0.1 * (cell.size >= 2)
        return 0.7 + better if cell.method == "e2e_icl" else 0.5
    if cell.method == "e2e_icl":
        return 0.96 if cell.setting == "ood" else 0.92
    return {"eig_icl": 0.83, "orig_rbf_lr": 0.6}.get(cell.method, 0.75)


def as_nobody_says(name, cell):
    """Accuracies for which none of them is."""
    if name == "image-transfer":
        both = {"torus", "swiss_roll"} <= set(cell.setting.split("+"))
        return 0.4 if both else (0.5 if cell.method == "e2e_icl" else 0.6)
    if name == "imagenet":
        return {"e2e_icl": 0.5, "transformer": 0.6}.get(cell.method, 0.7)
    if name == "depth":
        worse = 0.05 * (cell.kernel == "rbf") + 0.1 * (cell.size >= 2)
        return 0.7 - worse if cell.method == "e2e_icl" else 0.5
    if cell.method == "e2e_icl":
        return 0.5 if cell.setting == "ood" else 0.6
    return {"orig_rbf_lr": 0.9}.get(cell.method, 0.8)


class Seen(dict):
    """Rows that remember who was looked for."""

    def __init__(self, *given):
        super().__init__(*given)
        self.cells = {}

    def __contains__(self, cell):
        self.cells[cell] = None
        return super().__contains__(cell)

    def get(self, cell, default=None):
        self.cells[cell] = None
        return super().get(cell, default)


@cache
def narrow(mean, majority):
    return row_with(mean, majority=majority, spread=0.001)


@cache
def full_specs(name):
    return ARTEFACTS[name].specs(PROFILES["full"])


def world(accuracy, grows=True, **about):
    """Rows of every artefact of the full profile, in which this is the accuracy."""
    found = {}
    for name in WITH_SPECS:
        rows = {}
        for cell, spec in full_specs(name).items():
            if isinstance(spec, Alignment):
                value = 0.2 + (1 if grows else -1) * cell.size / 1e5
                jump = 0.2 * (cell.size >= 1200) if grows else 0.0
                rows[cell] = aligned(value, 0.3 + jump) | about
            elif isinstance(spec, Scores):
                trained = about if spec.trainings else {}
                share = 0.9 if cell.threshold == "0.5" else 0.5
                rows[cell] = narrow(accuracy(name, cell), share) | trained
        found[name] = Seen(rows)
    return found


def judged(found):
    return {
        claim.judge.__qualname__: claim.judge(PROFILES["full"], found).verdict
        for claim in CLAIMS
    }


def test_verdicts_where_the_paper_is_right_and_where_it_is_not():
    right = judged(world(as_the_paper_says))
    assert right == dict.fromkeys(right, verdicts.HOLDS)
    wrong = judged(world(as_nobody_says, grows=False))
    assert wrong == dict.fromkeys(wrong, verdicts.NOT)


def test_undertrained_models_support_no_verdict():
    found = judged(world(as_the_paper_says, undertrained=True))
    assert found == dict.fromkeys(found, verdicts.UNDERTRAINED)


MARGIN = {"e2e_icl", "eig_icl"}
COMPARED = [  # the methods of each claim, in order, and how many rows of the full profile
    (MARGIN, 2 * 9),
    ({"e2e_icl"}, 1),
    (MARGIN | {"orig_icl", "eig_lr", "orig_rbf_lr"}, 5 * 9 * (3 * 2 + 2)),
    ({"eig_icl", "eig_lr", "orig_rbf_lr"}, 3 * 9),
    ({"e2e_icl"}, 2 * 9),
    ({"e2e_icl"}, 3),
    (MARGIN, 2 * 7),
    ({"e2e_icl"}, 1),
    ({"e2e_icl"}, 1),
    ({"e2e_icl"}, 1),
    ({"e2e_icl"}, 5),
    (MARGIN | {"svc_rbf", "label_spreading"}, 4),
    ({"transformer", "eig|transformer"}, 2 * 6),
    ({"e2e_icl", "transformer"}, 2 * 2),
    (MARGIN | {"transformer"}, 3),
    ({"e2e_icl|transformer", "eig|e2e_icl", "eig|transformer"}, 3 * 2),
    ({"e2e_icl"}, 2 * 2 * 7),
    ({"e2e_icl"}, 2 * 2 * 7),
    ({"e2e_icl", "lap_linear", "lap_pe_1layer"}, 3 * 7),
]


@pytest.mark.parametrize("number", range(len(CLAIMS)))
def test_no_verdict_without_all_of_its_rows(number):
    """Every row that a claim looks for is one that its artefact runs, and is needed."""
    judge = CLAIMS[number].judge
    found = world(as_the_paper_says)
    judge(PROFILES["full"], found)
    read = [(name, cell) for name, rows in found.items() for cell in rows.cells]
    assert ({cell.method for _, cell in read}, len(read)) == COMPARED[number]
    for name, cell in {read[0], read[len(read) // 2], read[-1]}:
        kept = dict(found[name])
        del kept[cell]
        assert judge(PROFILES["full"], found | {name: kept}).verdict == verdicts.NO_ROWS


def test_a_curve_that_jumps_elsewhere_holds_in_part():
    """And one that rises evenly has no jump that could be anywhere."""

    def early(name, cell):
        return 0.6 if cell.size < 300 else 0.9

    found = world(early)
    assert judges.transition(PROFILES["full"], found).verdict == verdicts.NOT
    for cell in found["imagenet"]:
        if "|" in cell.method:
            jump = 0.2 * (cell.size >= 300)
            found["imagenet"][cell] = aligned(0.2, 0.3 + jump)
    assert judges.transition(PROFILES["full"], found).verdict == verdicts.IN_PART
    even = world(lambda name, cell: 0.6 + cell.size / 1e6)
    assert judges.transition(PROFILES["full"], even).verdict == verdicts.NOT


def test_a_jump_within_its_interval_is_none():
    found = world(as_the_paper_says)
    assert judges.transition(PROFILES["full"], found).verdict == verdicts.HOLDS
    for cell in found["imagenet"]:
        if cell.method == "transformer":  # the same means, far apart in single episodes
            late = cell.size >= 1200
            found["imagenet"][cell] = row_with(0.6 + 0.3 * late, spread=0.3 - 0.6 * late)
    assert judges.transition(PROFILES["full"], found).verdict == verdicts.NOT


def test_a_stand_in_is_named_whatever_it_says():
    (claim,) = [claim for claim in CLAIMS if claim.judge is judges.transition]
    here = "cannot be tested here; with features of CIFAR-10: "
    for verdict in (verdicts.HOLDS, verdicts.NOT, verdicts.UNDERTRAINED):
        assert verdicts.verdict_of(claim, Finding("", "", verdict)) == f"{here}{verdict}"
    assert verdicts.UNDERTRAINED == "no verdict, models were still improving"
    nothing = Finding("", "", verdicts.NO_ROWS)
    assert verdicts.verdict_of(claim, nothing) == verdicts.NO_ROWS


def test_claims_are_counted_by_verdict_and_stand_ins_apart():
    given = [verdicts.HOLDS, verdicts.NOT, verdicts.NOT, verdicts.UNDERTRAINED]
    own = [claim for claim in CLAIMS if not claim.stand_in]
    away = [claim for claim in CLAIMS if claim.stand_in]
    judged = [(own[i], Finding("", "", verdict)) for i, verdict in enumerate(given)]
    judged += [(away[0], Finding("", "", verdicts.IN_PART))]
    assert tally(judged) == (
        "Of 5 claims, 4 can be tested here: holds 1, holds in part 0, does not hold 2, no "
        "verdict 1. Of the 1 others, with stand-ins for their data: holds 0, holds in part "
        "1, does not hold 0, no verdict 0."
    )


@pytest.mark.parametrize(
    ("number", "data"),
    [
        (0, DataConfig(("sphere",), threshold=0.5, measure="area")),
        (1, DataConfig(("cylinder",), threshold=0.5)),
        (2, DataConfig(("torus",), threshold=0.5)),
    ],
)
def test_the_arithmetic_of_imbalance_is_what_episodes_have(number, data):
    name, _, share, paper = imbalance()[number]
    assert name.startswith(data.sources[0])
    y = EpisodeStream(data.build(), 4000, 0, "imbalance").at(0).y
    measured = majority_rate(y, 2).mean().item()
    assert share == pytest.approx(measured, abs=0.002)
    assert share == pytest.approx(float(paper), abs=0.005)


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
    names = ("report.html", "claims.md", "docs/claims.md", "cost.md")
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
    count = len(all_specs(ARTEFACTS, TOY))
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
        if claim.stand_in:
            here = f"{verdicts.UNTESTED}; with {claim.stand_in}: "
            assert verdict.startswith(here)
            verdict = verdict.removeprefix(here)
        assert verdict in VERDICTS - {verdicts.NO_ROWS, verdicts.UNTESTED}


def verdicts_of(path):
    """By claim; every claim has one line."""
    lines = [line for line in path.read_text().splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    says = {claim.says for claim in CLAIMS}
    found = [line for line in cells if line[0] in says]
    assert [line[0] for line in found] == [claim.says for claim in CLAIMS]
    assert {len(line) for line in found} == {5}
    assert [line[1] for line in found] == [claim.tables() for claim in CLAIMS]
    return {line[0]: line[-1] for line in found}


def test_what_the_papers_own_tables_say_is_read_from_them():
    """Against the file itself, at the places where they differ from its sentences."""
    lines = (Path(__file__).parent.parent / "results" / "paper_values.csv").read_text()
    values = {
        (
            row["artefact"],
            row["data"],
            row["kernel"],
            row["method"],
            row["setting"],
            row["context"],
        ): float(row["value"])
        for row in csv.DictReader(lines.splitlines())
    }

    def on_cylinder(method, setting):
        return [
            values["id-ood", "cylinder", "rbf", method, setting, m]
            for m in ("3", "21", "39")
        ]

    def shown(first, second):
        return " / ".join(
            f"{100 * (a - b):+.1f}" for a, b in zip(first, second, strict=True)
        )

    e2e = on_cylinder("e2e_icl", "id")
    assert printed_tables.cylinder_margin().startswith(
        shown(e2e, on_cylinder("eig_icl", "id"))
    )
    outside = on_cylinder("e2e_icl", "ood")
    assert printed_tables.outside_cylinder().startswith(shown(outside, e2e))
    assert "0.557 / 0.686" in printed_tables.pictures()
    third = values[
        "image-transfer", "cylinder+sphere+torus+swiss_roll", "rbf", "e2e_icl", "ood", "39"
    ]
    assert f"{third:.3f}" in printed_tables.best_sets().split(";")[0]


def test_the_report_before_anything_was_run_says_so(tmp_path, monkeypatch):
    for name in set(ARTEFACTS) - set(WITH_SPECS):  # whatever was run, they are the same
        monkeypatch.delitem(ARTEFACTS, name)
    pages = write_report(TOY, Store(tmp_path / "rows.jsonl"), tmp_path)
    count = len(all_specs(ARTEFACTS, TOY))
    assert f"0 of {count} rows: none yet." in pages[0].read_text()
    for name in ARTEFACTS:
        assert ": nothing at all was learned. 0 of" in (tmp_path / f"{name}.md").read_text()
    assert set(verdicts_of(pages[1]).values()) == {verdicts.NO_ROWS}


def test_a_profile_that_is_too_small_judges_nothing(tmp_path):
    """Whatever its rows say, or were there none."""
    store = Store(tmp_path / "rows.jsonl")
    table = claims_table(PROFILES["quick"], store)
    assert {row[-1] for row in table.rows} == {verdicts.TOO_SMALL}
    assert {row[-1] for row in claims_table(TOY, store).rows} == {verdicts.NO_ROWS}


# --- The command line


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def text_of(result):
    """The output without boxes and line breaks."""
    return " ".join(re.sub(r"[│╭╮╰╯─]", " ", result.output).split())


@pytest.fixture
def quick(monkeypatch, small_chunks):
    """The quick profile at toy size."""
    monkeypatch.setitem(PROFILES, "quick", TOY)


def test_cli_lists_artefacts():
    result = run("reproduce", "list")
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
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert message in text_of(result)
    assert not Path("results").exists()


def test_cli_runs_what_is_missing_and_draws_it(tmp_path, quick):
    where = ["-o", tmp_path / "out"]
    result = run("reproduce", "ablation", "--no-draw", "--minutes", 0, *where)
    assert result.exit_code == 0, result.output
    count = len(ARTEFACTS["ablation"].specs(TOY))
    assert f"0 rows added, 0 of {count} are there." in text_of(result)
    assert "Run the same command again to go on." in text_of(result)

    result = run("reproduce", "ablation", *where)
    assert result.exit_code == 0, result.output
    assert "nothing at all was learned" in text_of(result)
    assert f"{count} rows added, {count} of {count} are there." in text_of(result)
    assert "again to go on" not in text_of(result)
    assert (tmp_path / "out" / "ablation.md").exists()
    assert (tmp_path / "out" / "ablation.tex").exists()
    assert len((tmp_path / "out" / "rows.jsonl").read_text().splitlines()) == count

    (tmp_path / "out" / "ablation.md").unlink()
    result = run("reproduce", "ablation", "--no-draw", *where)
    assert f"0 rows added, {count} of {count} are there." in text_of(result)
    assert not (tmp_path / "out" / "ablation.md").exists()


def test_cli_keeps_a_profile_in_a_folder_of_its_own(tmp_path, monkeypatch, quick):
    monkeypatch.chdir(tmp_path)
    assert run("reproduce", "params").exit_code == 0
    assert "1,442,178" in Path("results/quick/params.md").read_text()


def test_cli_interrupted_by_ctrl_c_says_how_to_go_on(tmp_path, monkeypatch, quick):
    told = []

    def interrupt(*arguments, **options):
        told.append(arguments)
        if len(told) == 2:
            raise KeyboardInterrupt
        return train_batch(*arguments, **options)

    monkeypatch.setattr("icssl.bench.runner.train_batch", interrupt)
    result = run("reproduce", "ablation", "-o", tmp_path)
    assert result.exit_code == 130
    text = "Interrupted: rows so far are stored. The same command goes on."
    assert text in text_of(result)
    result = run("reproduce", "ablation", "-o", tmp_path)
    assert result.exit_code == 0, result.output
    count = len(ARTEFACTS["ablation"].specs(TOY))
    assert f"{count} of {count} are there." in text_of(result)


def test_cli_reports_from_rows(full_store, tmp_path, quick, monkeypatch):
    monkeypatch.setattr("icssl.bench.runner.train_batch", pytest.fail)
    folder = full_store.path.parent
    names = ("params", "alignment")  # drawing them all has a test of its own
    monkeypatch.setattr(
        "icssl.bench.paper.report.ARTEFACTS", {n: ARTEFACTS[n] for n in names}
    )
    result = run("report", "-o", folder, "--claims", tmp_path / "claims.md")
    assert result.exit_code == 0, result.output
    for page in (folder / "report.html", folder / "claims.md", tmp_path / "claims.md"):
        assert page.name in result.output
        assert page.stat().st_size > 1000
