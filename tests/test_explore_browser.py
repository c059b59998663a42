"""``icssl explore`` in a real browser, as a person uses it.

Set ``ICSSL_SCREENSHOTS`` to a folder to keep a picture of every step.
"""

import re
import threading
from pathlib import Path

import pandas as pd
import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from sklearn.datasets import load_iris

from explore_browser import (
    PATIENCE,
    address,
    browser,
    downloads,
    needs_browser,
    page,
)
from icssl.app.explore import page_views
from icssl.app.explore.clouds import predict_cloud

__all__ = ["address", "browser", "downloads", "page"]  # fixtures
pytestmark = needs_browser


def test_a_source_is_drawn_and_clicked_labels_change_predictions(page):
    page.open()
    page.says("#play-scores", "from 2 labels", "ICSSL", "Label spreading", "SVC")
    before = page.drawn("play_cloud")
    assert [name for name, _ in before][:2] == ["upper", "lower"]
    page.keep("play")
    page.choose("brush", "upper")
    # A point of the lower moon, far from its label, gets the wrong class on purpose.
    page.click_point("play_cloud", 20)
    page.says("#play-scores", "from 3 labels")
    page.says("#play-note", "Point 20 has the label 'upper'", "in truth 'lower'")
    page.until(lambda: page.drawn("play_cloud") != before)
    assert dict(page.drawn("play_cloud"))["upper"] != dict(before)["upper"]
    assert "labels=20:0,150:1,173:0" in page.browser.current_url
    page.keep("play-labelled")
    page.click_point("play_cloud", 20)  # again: the label is taken away
    page.says("#play-scores", "from 2 labels")
    assert page.drawn("play_cloud") == before


def test_any_number_of_classes_probability_and_reach(page):
    page.open()
    page.says("#play-scores", "from 2 labels")
    page.press("new_class")
    page.until(lambda: "C" in page.text("#brush"))
    page.click_point("play_cloud", 12)
    page.says("#play-note", "Point 12 has the label 'C'")
    page.choose("colouring", "probability")
    page.until(lambda: page.drawn("play_cloud")[0] == ["probability", 200])
    page.choose("colouring", "reach")
    page.until(lambda: page.drawn("play_cloud")[0] == ["reach", 200])
    page.keep("play-reach")
    page.choose("rival", "SVC")
    page.says("#rival-title", "SVC")


def test_solid_clouds_and_the_dark_theme(page):
    page.open("?source=sphere&n=300&theme=dark&labels=4:0,20:1,77:1,130:0")
    page.says("#play-scores", "from 4 labels")
    canvas = page.until(lambda: page.find("#play_cloud canvas"))
    assert canvas.size["width"] > 300
    page.keep("play-dark")
    page.click_solid_point(canvas)
    page.says("#play-scores", "from 5 labels")
    colour = page.find("#page").value_of_css_property("background-color")
    assert colour == "rgba(22, 24, 27, 1)"


def test_the_theme_is_that_of_the_system_unless_chosen(page):
    dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    page.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)

    def background():
        return page.find("#page").value_of_css_property("background-color")

    try:
        page.open("?tab=why")
        page.until(lambda: background() == "rgba(22, 24, 27, 1)")
        page.choose("theme", "light")
        page.until(lambda: background() == "rgba(255, 255, 255, 1)")
    finally:
        page.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_the_slider_walks_through_the_layers(page):
    page.open("?tab=inside&point=20")
    page.says("#inside-title", "Walks: walk 1 of 8")
    page.says("#inside-note", "Point 20 attends most to")
    page.keep("inside-walks")
    thumb = page.find("#layer [role=slider]")
    for _ in range(8):
        thumb.send_keys(Keys.ARROW_RIGHT)
    page.says("#inside-title", "Eigenmap: layer 1 of 16")
    page.says("#inside-note", "The largest angle is")
    thumb.send_keys(Keys.END)
    page.says("#inside-title", "Descent: step 4 of 4")
    page.says("#inside-note", "Logits of point 20")
    page.keep("inside-descent")
    page.choose("weights", "constructed by the lemmas")
    page.says("#inside-title", "Walks: walk 1 of 1")
    for _ in range(12):
        thumb.send_keys(Keys.ARROW_RIGHT)
    page.says("#inside-title", "Eigenmap:", "of 2,000")
    page.keep("inside-eigenmap")


def test_a_selected_point_shows_what_each_label_contributes(page):
    page.open("?tab=why&labels=16:0,20:1,150:1,173:0")
    page.says("#why-table", "logit (their sum)")
    page.click_point("why_cloud", 33)
    page.says("#why-title", "at point 33")
    rows = page.until(lambda: _cells(page.find("#why-table table")))
    sums = [sum(float(row[c]) for row in rows[:-2]) for c in (1, 2)]
    assert sums == pytest.approx([float(cell) for cell in rows[-2][1:]], abs=1e-3)
    assert "point=33" in page.browser.current_url
    page.keep("why")


def _cells(table):
    rows = table.find_elements(By.CSS_SELECTOR, "tbody tr")
    return [[c.text for c in row.find_elements(By.TAG_NAME, "td")] for row in rows]


@pytest.fixture
def flowers(tmp_path):
    """Iris with two labels a class, as a person has it."""
    iris = load_iris(as_frame=True)
    frame = iris.data.copy()
    names = iris.target_names[iris.target]
    frame["species"] = [name if i % 50 in (3, 30) else "" for i, name in enumerate(names)]
    path = tmp_path / "flowers.csv"
    frame.to_csv(path, index=False)
    return path


def test_a_table_is_labelled_marked_and_downloaded(page, flowers, downloads):
    page.open("?tab=data")
    upload = page.until(lambda: page.find("#upload input[type=file]"))
    upload.send_keys(str(flowers))
    page.says("#data-note", "flowers.csv: 150 rows, 6 labelled", "3 classes")
    page.says("#data-next", "The most useful first. Click a row", "Row 0 is")
    # The answer begins with the row that is worth a label most.
    first = page.find("#data-next tr[data-row]").get_attribute("data-row")
    page.until(lambda: page.find("#row").get_attribute("value") == first)
    page.says("#data-selected", f"Row {first}: ")
    page.says("#data-tables", "The least certain rows", "What was understood")
    page.keep("data")
    assert "species" in page.text("#target")
    row = 112  # no other flower is drawn near it: 101, for one, lies under its double
    page.click_point("data_cloud", row)
    page.until(lambda: f"row={row}" in page.browser.current_url)
    page.says("#data-selected", f"Row {row}: ", "because of row", "like a labelled row")
    page.pick("mark-label", "virginica")
    page.press("mark")
    page.says("#data-note", "7 labelled", "1 label was given on this page")
    page.says("#data-selected", f"Row {row} has the label 'virginica'")
    page.press("download")
    written = downloads / "flowers-labelled.csv"
    page.until(written.exists)
    labelled = pd.read_csv(written)
    assert len(labelled) == 150
    assert labelled.loc[row, ["label", "species"]].tolist() == ["virginica"] * 2
    assert labelled["label"].notna().all()
    assert {"probability", "reach"} <= set(labelled)


def test_a_row_to_label_next_is_clicked_and_gets_a_new_class(page, flowers):
    def press_last_row(key):
        """Press the row; the table may just be drawn again, as after each selection."""
        line = page.browser.find_elements(By.CSS_SELECTOR, "#data-next tr[data-row]")[-1]
        row = line.get_attribute("data-row")
        line.click() if key == "mouse" else line.send_keys(key)
        return row

    page.open("?tab=data")
    page.until(lambda: page.find("#upload input[type=file]")).send_keys(str(flowers))
    page.says("#data-next", "The most useful first")
    for key in ("mouse", Keys.ENTER):
        row = page.until(lambda key=key: press_last_row(key))
        page.says("#data-selected", f"Row {row}: ")
        assert page.find("#row").get_attribute("value") == row
        page.find("#mark-new").send_keys("unknown kind")
        page.press("mark")
        page.says("#data-selected", f"Row {row} has the label 'unknown kind'")
        page.until(lambda: page.find("#mark-new").get_attribute("value") == "")
    page.says("#data-note", "8 labelled", "4 classes", "2 labels were given")


def test_all_that_decides_how_a_file_is_read_is_set_on_the_page(page, tmp_path):
    """A file whose separator, decimal mark, missing texts and types are all unusual."""
    path = tmp_path / "odd.csv"
    rows = [f"r{i}|{i % 2 * 9 + i / 99:.3f}|{i % 2}|" for i in range(40)]
    rows[:6] = [rows[i] + ("odd" if i % 2 else "even") for i in range(6)]
    rows[6:] = [row + "nobody knows" for row in rows[6:]]
    text = "name|size|zip|kind\n" + "\n".join(rows).replace(".", ",") + "\n"
    path.write_bytes(text.encode("cp1252"))
    page.open("?tab=data")
    page.until(lambda: page.find("#upload input[type=file]")).send_keys(str(path))
    page.until(lambda: page.find("#target").is_displayed())
    page.find("#data-controls summary").click()
    page.type("separator", "|")
    page.until(lambda: "separator=" in page.browser.current_url)
    page.pick("target", "kind")
    page.says("#data-note", "3 classes")
    page.type("missing", "nobody knows")
    page.says("#data-note", "40 rows, 6 labelled, 3 columns, 2 classes")
    page.type("drop", "name")
    page.says("#data-note", "6 labelled, 2 columns")
    page.type("types", "zip=category")
    page.says("#data-tables", "zip category")
    page.type("decimal", ",")
    page.says("#data-tables", "size number")
    page.type("types", "zip=colour")
    page.says("#data-note", "unknown type 'colour'", "'category'")
    link = page.browser.current_url.replace(page.address, "")
    page.open(link.replace("colour", "number"))
    page.says("#data-tables", "zip number")
    page.find("#data-controls summary").click()
    page.type("encoding", "no-such")
    page.says("#data-note", "no-such")


_KINDS = [*("oak", "oak", "Oak"), *[""] * 18, *("elm", "elm", "ELM"), *[""] * 10]


@pytest.fixture
def spellings(tmp_path):
    """A table of which two warnings say that labels differ by case alone."""
    lines = [f"{i % 7 + 90 * (i > 20)},{kind}" for i, kind in enumerate(_KINDS)]
    path = tmp_path / "spellings.csv"
    path.write_text("\n".join(["size,kind", *lines]))
    return path


def test_a_button_beside_a_warning_answers_it(page, spellings):
    page.open("?tab=data")
    page.until(lambda: page.find("#upload input[type=file]")).send_keys(str(spellings))
    page.says("#data-note", "4 classes", "2 warnings below the picture")
    assert page.find("#reading").get_attribute("open") is None  # the picture stays in view
    for left in (1, 0):
        page.find("#data-doubts button").click()
        page.says("#data-note", f"{2 + left} classes")
        page.until(page.settled)
    assert "warning" not in page.text("#data-note")
    page.find("#reading summary").click()
    assert page.find("#relabel").get_attribute("value") == "ELM=elm; Oak=oak"


def test_rows_are_stepped_through_in_both_directions(page, spellings):
    page.open("?tab=data")
    page.until(lambda: page.find("#upload input[type=file]")).send_keys(str(spellings))
    page.says("#data-note", "4 classes")
    page.until(lambda: page.find("#row").get_attribute("value"))
    page.type("row", 1)
    page.says("#data-selected", "Row 1 ")
    minus = "#row ~ .dash-stepper-decrement"
    for _ in range(2):  # the second one would be row -1
        page.find(minus).click()
        page.says("#data-selected", "Row 0 ")
        page.until(lambda: page.find("#row").get_attribute("value") == "0")
    row = int(page.find("#data-next tr[data-row]").get_attribute("data-row"))
    # The table may just be drawn again, as after each selection.
    page.until(lambda: page.find("#data-next tr[data-row]").click() is None)
    page.says("#data-selected", f"Row {row}: ")
    page.find(minus).click()
    page.says("#data-selected", f"Row {row - 1}")


@pytest.mark.parametrize(("width", "height"), [(1400, 900), (400, 800)])
def test_the_picture_of_a_table_begins_on_the_first_screen(page, spellings, width, height):
    page.view(width, height)
    page.open("?tab=data")
    page.until(lambda: page.find("#upload input[type=file]")).send_keys(str(spellings))
    page.says("#data-note", "2 warnings below the picture")
    page.until(lambda: page.find("#data_cloud .nsewdrag"))
    page.browser.execute_script("window.scrollTo(0, 0)")
    left, top, right, _ = page.box("#data_cloud")
    assert left >= 0
    assert right <= width
    assert top < 0.85 * height


@pytest.mark.parametrize(("width", "height"), [(1400, 900), (400, 800)])
def test_the_first_screen_has_the_picture_and_the_score(page, width, height):
    page.view(width, height)
    page.open()
    page.says("#play-scores", "ICSSL", "Logistic regression")
    page.until(lambda: page.find("#play_cloud .nsewdrag"))
    for css in ("#play-scores", "#brush", "#play_cloud"):
        left, top, right, bottom = page.box(css)
        assert left >= 0, css
        assert top >= 0, css
        assert right <= width, css
        assert bottom <= height, css
    page.keep(f"first-screen-{width}")


def test_a_long_wait_is_told(page, monkeypatch):
    page.open()
    page.says("#play-scores", "from 2 labels")
    said = threading.Event()

    def predict_late(cloud, labels):
        """Predict when the page has said that it works, however fast the machine is."""
        said.wait(PATIENCE)
        return predict_cloud(cloud, labels)

    # The server runs in this process.
    monkeypatch.setattr(page_views, "predict_cloud", predict_late)
    try:
        page.type("n", 60)
        page.says("#busy", "Working, ", " s so far")
        assert "from 2 labels" in page.text("#play-scores")
        assert "58 points" not in page.text("#play-scores")
    finally:
        said.set()
    page.says("#play-scores", "58 points")
    page.until(lambda: page.text("#busy") == "")


def test_no_message_of_the_page_speaks_of_options_of_the_terminal(page):
    """On all messy files, with everything that the page says of them."""
    files = sorted((Path(__file__).parent / "messy").iterdir())
    assert len(files) >= 12
    page.open("?tab=data")
    upload = page.until(lambda: page.find("#upload input[type=file]"))
    for path in files:
        upload.send_keys(str(path))
        page.until(lambda name=path.name: name in page.text("#data-note"))
        assert not re.search(r"--\w", page.text("#page")), path.name


def test_bad_files_are_explained_and_the_page_lives_on(page, tmp_path, flowers):
    page.open("?tab=data")
    upload = page.until(lambda: page.find("#upload input[type=file]"))
    bad = {
        "notes.txt": (b"hello", "drop a file that ends in .csv or .parquet"),
        "torn.parquet": (b"PAR1 and nothing", "cannot be read as .parquet"),
        "picture.csv": (b"\x89PNG\r\n\xff\xfe", "is no table in text: it looks like a PNG"),
        "large.csv": (b"x,y\n" * (3 * 2**20), "the page takes 8 MB"),
    }
    for name, (content, words) in bad.items():
        path = tmp_path / name
        path.write_bytes(content)
        upload.send_keys(str(path))
        page.says("#message", name, words)
    page.keep("data-bad-file")
    one = tmp_path / "one.csv"
    one.write_text("a,label\n" + "1,yes\n2,\n3,\n" * 5)
    upload.send_keys(str(one))
    page.says("#data-note", "one class only, 'yes'", "Is 'label' the column of labels?")
    upload.send_keys(str(flowers))
    page.says("#data-note", "flowers.csv: 150 rows")
    assert page.text("#message") == ""


def test_a_file_that_no_browser_could_send_is_explained(page, tmp_path, flowers):
    page.open("?tab=data")
    upload = page.until(lambda: page.find("#upload input[type=file]"))
    huge = tmp_path / "huge.csv"
    with huge.open("wb") as file:
        file.truncate(2**30)  # takes no room on the disk
    upload.send_keys(str(huge))
    page.says("#message", "huge.csv has 1,024.0 MB, and the page takes 8 MB")
    page.browser.execute_script(
        "const files = new DataTransfer();"
        "files.items.add(new File([new Uint8Array(9 * 2 ** 20)], 'let-fall.csv'));"
        "document.querySelector('#upload button').dispatchEvent("
        "new DragEvent('drop', {dataTransfer: files, bubbles: true, cancelable: true}));"
    )
    page.says("#message", "let-fall.csv has 9.0 MB, and the page takes 8 MB")
    upload.send_keys(str(flowers))
    page.says("#data-note", "flowers.csv: 150 rows")
    assert page.text("#message") == ""


def test_a_narrow_window(page):
    page.view(400, 1700)
    page.open()
    page.says("#play-scores", "from 2 labels")
    assert page.wide() <= 0
    page.keep("narrow-play")
    for tab in ("inside", "why", "data"):
        page.open(f"?tab={tab}")
        page.until(lambda tab=tab: page.find(f"#panel-{tab}").is_displayed())
        assert page.wide() <= 0
    page.open("?tab=why&point=20")
    page.says("#why-table", "probability")
    page.keep("narrow-why")


def test_the_keyboard_is_enough(page):
    page.open()
    page.says("#play-scores", "from 2 labels")
    page.type("point", 20)
    page.says("#play-note", "Point 20")
    page.find("#label").send_keys(Keys.ENTER)
    page.says("#play-scores", "from 3 labels")
    page.find("#suggest").send_keys(Keys.ENTER)
    page.until(lambda: "Point 20 " not in page.text("#play-note"))
    page.find("#tab input:checked").send_keys(Keys.ARROW_RIGHT)
    page.until(lambda: page.find("#panel-inside").is_displayed())
    assert "tab=inside" in page.browser.current_url


def test_a_link_opens_its_state_and_a_wrong_one_says_so(page):
    page.open("?source=wine&n=178&labels=3:0,9:1,40:2&tab=why&point=7")
    page.says("#why-title", "at point 7")
    page.open("?source=donut&n=100")
    page.says("#message", "unknown source 'donut'", "'torus'")
    page.says("#play-scores", "from 2 labels")
    page.open("?seed=abc&n=50&labels=1:0,2:1")
    page.says("#message", "seed=abc")
    page.says("#play-scores", "48 points")


def test_nothing_is_fetched_from_elsewhere(page):
    page.open()
    page.says("#play-scores", "from 2 labels")
    fetched = page.browser.execute_script(
        "return performance.getEntriesByType('resource').map(e => e.name);"
    )
    assert len(fetched) > 5
    assert all(name.startswith((page.address, "data:", "blob:")) for name in fetched)


@pytest.mark.parametrize("rows", [40, 1200])
def test_names_of_classes_are_shown_as_text(page, tmp_path, rows):
    """In the legend and above points, whether the points are drawn as SVG or by WebGL."""
    names = ["<b>%{customdata}</b> &amp;", "<a href='javascript:alert(1)'>x</a>"]
    kinds = [names[i % 2] if i < 4 else None for i in range(rows)]
    x = [10 * (i % 2) + i / rows for i in range(rows)]
    path = tmp_path / "odd.csv"
    pd.DataFrame({"x": x, "y": x[::-1], "label": kinds}).to_csv(path, index=False)
    page.open("?tab=data")
    page.until(lambda: page.find("#upload input[type=file]")).send_keys(str(path))
    page.says("#data-note", f"odd.csv: {rows:,} rows")

    def shown(css):
        found = page.browser.find_elements(By.CSS_SELECTOR, f"#data_cloud {css}")
        return sorted({element.get_attribute("textContent") for element in found})

    page.until(lambda: shown(".legendtext") == sorted(names))
    page.until(lambda: shown(".textpoint text") == sorted(names))
    assert not page.browser.find_elements(By.CSS_SELECTOR, "#data_cloud svg a")


def test_a_page_around_this_one_cannot_show_it(page, tmp_path):
    """The frame stays empty; the browser says why, which is no fault of the page."""
    outer = tmp_path / "outer.html"
    outer.write_text(f"<iframe src='{page.address}' width=900 height=900></iframe>")
    page.expected_errors.append("frame-ancestors")
    page.browser.get(outer.as_uri())
    page.until(lambda: any("frame-ancestors" in error for error in page.errors()))
    page.browser.switch_to.frame(0)
    assert not page.browser.find_elements(By.CSS_SELECTOR, "#page")
    page.browser.switch_to.default_content()
