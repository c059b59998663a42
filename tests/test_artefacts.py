"""Every table and figure of the paper: what is run, what is drawn, and from which rows."""

import json
import re

import pytest

from bench_helpers import TOY_PROFILE, WITH_SPECS, made_up, published_rows, row_with
from helpers import drawn_colours
from icssl.bench.paper import id_ood, image_transfer
from icssl.bench.paper.artefact import PROFILES, Cell, published_values
from icssl.bench.paper.as_published import UNEVEN
from icssl.bench.paper.catalogue import ARTEFACTS, all_specs, render, rows_of, specs_of
from icssl.bench.paper.curves import IMPROVING, draw_curves, style_of
from icssl.bench.paper.null_cells import null_specs, null_table
from icssl.bench.paper.params import parameter_counts
from icssl.bench.paper.table_cells import (
    LEGEND,
    SURFACES,
    accuracy_text,
    against_svc,
    classical,
    scores,
    title_of,
    training_text,
    trainings,
)
from icssl.bench.probes import EIG
from icssl.bench.render import Picture, Table
from icssl.bench.runner import run_missing
from icssl.bench.spec import Scores
from icssl.bench.store import Store
from icssl.episodes.data_config import DataConfig
from icssl.evaluation.predictors import METHODS
from icssl.methods import BASELINES, TRAINED
from icssl.methods.registry import REGISTRY
from icssl.training.config import config_from, load_config

pytestmark = pytest.mark.usefixtures("elsewhere")


# --- What the artefacts run


@pytest.mark.parametrize("profile", PROFILES.values(), ids=lambda profile: profile.name)
@pytest.mark.parametrize("name", WITH_SPECS)
def test_models_are_those_that_the_cell_of_a_row_names(name, profile):
    """By their seeds, sources, thresholds, kernels, depths and sizes."""
    for cell, spec in ARTEFACTS[name].specs(profile).items():
        assert spec.data.sources == (cell.source,), cell
        # Uneven classes of the product are a share of the ball, and no threshold.
        rule = "median" if cell.threshold == UNEVEN else cell.threshold
        assert (spec.labels, spec.data.threshold) == (cell.labels, rule)
        assert (spec.data.ball_share < 0.3) == (cell.threshold == UNEVEN)
        assert spec.data.n == (cell.n or DataConfig().n)
        assert [config.seed for config in spec.trainings] == seeds_of(name, cell, profile)
        for config in spec.trainings:
            assert set(config.data.sources) == trained_on(cell)
            assert config.data.threshold == rule
            if name in OVER_SIZES:
                assert config.data.episodes == cell.size
            if name == "depth":
                assert config.model.steps == cell.size
            if name == "sample-efficiency":
                assert config.steps == cell.steps
            descends = getattr(config.model, "head", "") == "descent"
            if descends and isinstance(spec, Scores):
                assert config.model.kernel == cell.kernel


OVER_SIZES = ("imagenet", "alignment", "imagenet-as-published", "sample-efficiency")


def seeds_of(name, cell, profile):
    if cell.method in BASELINES:
        return []
    seeds = [*range(profile.literal_seeds)] if name.endswith("as-published") else [0]
    if cell.beside:  # no model where a side is the ground truth
        return seeds * (1 if cell.method == EIG else 2)
    if name.endswith("as-published"):
        return seeds
    if cell.threshold != "median":
        return [0]
    return [*range(profile.runs if name == "ablation" else profile.seeds)]


def trained_on(cell):
    if cell.setting == "ood":
        return set(cell.trained_on) or set(SURFACES) - {cell.source}
    return {cell.source}


@pytest.mark.parametrize("profile", PROFILES.values(), ids=lambda profile: profile.name)
def test_one_cell_is_one_row_and_artefacts_share_what_is_the_same(profile):
    specs = all_specs(ARTEFACTS, profile)
    by_name = {name: specs_of(ARTEFACTS[name], profile) for name in WITH_SPECS}
    keys = [[spec.key for spec in own.values()] for own in by_name.values()]
    assert all(len(set(own)) == len(own) for own in keys)
    assert {spec.key for spec in specs} == set().union(*keys)
    assert len({spec.key for spec in specs}) == len(specs) < sum(map(len, keys))
    assert by_name["alignment"].items() <= by_name["imagenet"].items()


@pytest.mark.parametrize("profile", PROFILES.values(), ids=lambda profile: profile.name)
@pytest.mark.parametrize("name", WITH_SPECS)
def test_training_runs_are_those_that_their_plain_values_describe(name, profile):
    """Made with ``replace``, they are what a file with the same values gives."""
    specs = ARTEFACTS[name].specs(profile).values()
    for config in {config for spec in specs for config in spec.trainings}:
        plain = json.loads(json.dumps(config.to_dict()))
        assert config_from(plain) == config
        assert json.loads(json.dumps(config_from(plain).to_dict())) == plain


FULL = PROFILES["full"]
TYPED = {
    "hard": (
        "e2e_encoder",
        trainings(FULL, "e2e_encoder", ("torus",)),
        [
            "steps=4000",
            "learning_rate=1e-3",
            "model.encoder_layers=4",
            "data.sources=torus",
        ],
    ),
    "linear": (
        "e2e_icl",
        trainings(FULL, "e2e_icl", ("cone",), kernel="linear", threshold=0.5),
        [
            "steps=500",
            *("model.kernel=linear", "model.start=fourier", "model.step_size=1"),
            "learning_rate=5e-3",
            "data.sources=cone",
            "data.threshold=0.5",
        ],
    ),
    "finite": (
        "eig_icl",
        trainings(FULL, "eig_icl", ("sphere", "cone"), labels=(3,)),
        [
            *("model.step_size=1", "gamma_rate=0"),
            *("steps=500", "data.episodes=2000", "data.sources=sphere,cone", "labels=3"),
        ],
    ),
    "product": (
        "transformer",
        trainings(FULL, "transformer", ("product",)),
        ["steps=4000", "learning_rate=1e-3", "model.d=15", "data.sources=product"],
    ),
}


@pytest.mark.parametrize(("preset", "runs", "overrides"), TYPED.values(), ids=TYPED.keys())
def test_training_runs_are_presets_with_some_fields_changed(preset, runs, overrides):
    given = ["labels=3,5,10,15,21,30,39,60,80", "batch=128", *overrides]
    wanted = [load_config(preset, [*given, f"seed={seed}"]) for seed in range(3)]
    assert list(runs) == wanted


# --- Artefacts from toy runs to pages


def covering(specs):
    """A spec of every method, kernel, setting and rule, from all sources and budgets."""
    kinds = {}
    for cell, spec in specs.items():
        kind = (cell.method, cell.kernel, cell.setting == "id", cell.threshold)
        kinds.setdefault(kind, []).append(spec)
    return [each[i % len(each)] for i, each in enumerate(kinds.values())]


# Of their many specs, which take minutes, a few are run.
LARGE = (
    *("id-ood", "label-curves", "image-transfer", "imagenet"),
    *("as-published", "imagenet-as-published"),
)


@pytest.mark.parametrize("name", ARTEFACTS)
def test_every_artefact_is_run_and_drawn_at_toy_size(name, tmp_path, small_chunks):
    artefact = ARTEFACTS[name]
    specs = specs_of(artefact, TOY_PROFILE)
    chosen = covering(specs) if name in LARGE else [*specs.values()]
    store = Store(tmp_path / "rows.jsonl")
    assert run_missing(chosen, store) == len(chosen) == len(store)
    assert run_missing(chosen, Store(store.path)) == 0
    for spec in chosen:  # what other tests make up has the form of what is measured
        row, other = store[spec.key], made_up(spec, 0.5)
        assert set(row) == set(other)
        for part in ("metrics", "measures"):
            assert set(row.get(part, ())) == set(other.get(part, ()))

    items = render(name, TOY_PROFILE, Store(store.path), tmp_path)
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
            assert drawn_colours(item.path) - {"#ffffff", "#000000"}  # more than axes
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
    rows = rows_of(ARTEFACTS["id-ood"], TOY_PROFILE, full_store)
    items = ARTEFACTS["id-ood"].draw(TOY_PROFILE, rows, tmp_path)
    tables = {table.title: lines_of(table) for table in items}
    specs = ARTEFACTS["id-ood"].specs(TOY_PROFILE)
    for cell, spec in specs.items():
        mean = full_store[spec.key]["accuracies"][1]
        table = tables[f"{cell.labels} labels, {id_ood.THRESHOLDS[cell.threshold]}"]
        line = table[title_of(cell._replace(setting="id")), cell.source.replace("_", " ")]
        column = 2 if cell.setting == "id" else 4
        assert line[column].startswith(f"{mean:.3f} ± 0.025"), cell
        assert line[-1] == "0.500"


def printed(row):
    return f"{float(row['value']):.3f} ± {float(row['sd']):.3f}"


def test_the_package_has_the_published_values():
    names = {artefact for artefact, _ in published_values()}
    assert {"id-ood", "ablation", "image-transfer"} <= names


@pytest.mark.parametrize("threshold", id_ood.THRESHOLDS)
def test_every_published_value_of_id_ood_stands_in_its_cell(threshold):
    rows = published_rows("id-ood")
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
    rows = published_rows("ablation")
    for row in rows:
        place = table.header.index(METHODS[row["method"]])
        assert table.header[place + 1] == "paper"
        assert lines[row["context"]][place + 1] == printed(row)
    assert len(rows) == 3 * len(lines)


def test_every_published_value_of_image_transfer_stands_in_its_cell():
    rows = published_rows("image-transfer")
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
    name = "Our variant of E2E-ICL (RBF)"
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
    assert training_text(rows, rows) == (
        "3 test episodes. Training episodes of each model. "
        "1,000: Orig+E2E, encoder head (torus); Transformer baseline. "
        "500: Orig+E2E, encoder head (out of distribution). "
        "1,000, 20 of them different: Eig+ICL."
    )
    assert training_text({}, rows) == "No rows."


def test_parameters_of_every_trained_method_are_counted():
    totals = {c.model: c.parameters for c in parameter_counts() if c.stage == "total"}
    assert set(TRAINED) - {"transformer_unscaled"} <= set(totals)
    assert totals["e2e_icl"] == totals["free"] < totals["e2e_wide"]
    assert totals["e2e_encoder"] < totals["e2e_encoder, 4 layers"] < totals["transformer"]


def test_a_table_over_n_has_null_models_beside_every_n():
    cells = {}
    for n in (0, 120):
        cells |= classical(TOY_PROFILE, "torus", (3,), methods=("svc_rbf",), n=n)
        cell = Cell("torus", 3, "e2e_icl", "rbf", n=n)
        cells[cell] = scores(TOY_PROFILE, cell, trainings(TOY_PROFILE, *PLACE, n=n))
    nulls = null_specs(cells)
    assert {cell.n for cell in nulls} == {0, 120}
    for cell, spec in (cells | nulls).items():
        assert spec.data.n == (cell.n or 100)
        assert [c.data.n for c in spec.trainings] == [cell.n or 100] * len(spec.trainings)
    # A row of 100 points has the key that it had before cells had an n.
    svc = Cell("torus", 3, "svc_rbf")
    plain = Scores("svc_rbf", DataConfig(("torus",)), 3, (), 3, 2)
    assert cells[svc].key == plain.key != cells[svc._replace(n=120)].key

    rows = {cell: row_with(0.6 if cell.n else 0.7) for cell in cells | nulls}
    places = [line[0] for line in null_table(rows).rows]
    assert places == ["torus", "torus, 120 points"]
    rows[Cell("torus", 3, "e2e_icl", "rbf")] = row_with(0.65)  # behind .7, ahead of .6
    ours = Cell("torus", 3, "e2e_icl", "rbf")
    assert "torus at 3 (behind)" in against_svc(rows, [ours])
    rows[ours._replace(n=120)] = row_with(0.65)
    assert "beats" in against_svc(rows, [ours._replace(n=120)])


PLACE = ("e2e_icl", ("torus",))


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
