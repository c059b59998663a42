"""Measure how long a click on the page of ``icssl explore`` waits for its answer.

Labels one point of two moons after the other on Play. On the server, measures from the
event of the click until everything is sent that the page then shows. In the browser, if
Chromium and its driver are installed, measures from the click to the redrawn plot. Prints a
table of medians, writes results/benchmark-explore.json and prints the same JSON as its last
line. Takes less than a minute.

    python benchmarks/explore.py [--clicks 15] [--points 300 3000] [--root FOLDER]
"""

import argparse
import json
import os
import shutil
import threading
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

from icssl.app.explore import page_views
from icssl.app.explore.app import listen, server_on
from icssl.app.explore.clouds import ALL_VIEWS_ROWS, limit_to_one_thread
from icssl.app.explore.events import after_click
from icssl.app.explore.state import State, cloud_of, to_link, with_one_label_per_class

# When plotly has been clicked, and when it has drawn what the click led to.
_WATCH = """
const plot = document.querySelector('#play_cloud .js-plotly-plot');
window.clicked = window.drawn = 0;
plot.on('plotly_click', () => { window.clicked = performance.now(); window.drawn = 0; });
plot.on('plotly_afterplot', () => {
  if (window.clicked && !window.drawn) window.drawn = performance.now(); });
"""
_PLACE = """
const plot = document.querySelector('#play_cloud .js-plotly-plot');
const [x, y] = [plot._fullLayout.xaxis, plot._fullLayout.yaxis];
for (const t of plot.data) { const i = t.customdata.indexOf(arguments[0]);
  if (i >= 0) return [x.d2p(t.x[i]), y.d2p(t.y[i])]; }
"""
_HOVERS = """
const plot = document.querySelector('#play_cloud .js-plotly-plot');
return plot._hoverdata?.[0]?.customdata === arguments[0];
"""
_SETTLED = "document.querySelector('#page').dataset.busyPlay === 'false'"


def start(points, seed):
    """Return the state of two moons with one label each."""
    return with_one_label_per_class(replace(State(), n=points, seed=seed, labels=()))


def others(state, clicks):
    """Return points without a label, one per click."""
    known = dict(state.labels)
    return [point for point in range(len(cloud_of(state).y)) if point not in known][:clicks]


def on_the_server(points, clicks):
    """Return the milliseconds of each click."""
    state, found = start(points, 0), []
    page_views.play(state)
    for point in others(state, clicks):
        begin = time.perf_counter()
        state = after_click(state, "play_cloud", {"points": [{"customdata": point}]})
        shown = {"frame": page_views.frame(state), "play": page_views.play(state)}
        json.dumps(shown, default=lambda part: part.to_plotly_json())
        found.append(1000 * (time.perf_counter() - begin))
    return found


def open_browser():
    """Return Chromium without a window, or None if it is not installed."""
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    try:
        from selenium import webdriver
    except ImportError:
        return None
    if not (binary and driver):
        return None
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--enable-unsafe-swiftshader",  # plots of many points, without a graphics card
    ):
        options.add_argument(argument)
    service = webdriver.ChromeService(driver)
    browser = webdriver.Chrome(options=options, service=service)
    browser.set_window_size(1280, 1000)
    return browser


def in_the_browser(browser, address, points, clicks):
    """Return the milliseconds of each click, by the browser's own clock."""
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait

    def wait(script):
        WebDriverWait(browser, 60, poll_frequency=0.02).until(
            lambda _: browser.execute_script(f"return {script};")
        )

    def is_under_the_mouse(point, seconds=1):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if browser.execute_script(_HOVERS, point):
                return True
            time.sleep(0.05)
        return False

    state, found = start(points, 1), []  # not what the server remembers
    browser.get(address + to_link(state))
    for part in ("#play-scores table", "#play_cloud .nsewdrag"):
        wait(f"document.querySelector('{part}') !== null")
    wait(_SETTLED)
    browser.execute_script(_WATCH)
    for point in others(state, 4 * clicks):
        wait(_SETTLED)
        plot = browser.find_element(By.CSS_SELECTOR, "#play_cloud .nsewdrag")
        x, y = browser.execute_script(_PLACE, point)
        where = round(x - plot.size["width"] / 2), round(y - plot.size["height"] / 2)
        chain = ActionChains(browser)
        chain.move_to_element_with_offset(plot, where[0] + 3, where[1]).pause(0.1)
        chain.move_to_element_with_offset(plot, *where).pause(0.2).perform()
        if not is_under_the_mouse(point):
            continue  # another point lies on it
        browser.execute_script("window.clicked = window.drawn = 0;")
        ActionChains(browser).click().perform()
        wait("window.clicked > 0 && window.drawn > 0")
        found.append(browser.execute_script("return window.drawn - window.clicked;"))
        if len(found) == clicks:
            break
    return found


def measure(sizes, clicks):
    """Return one row per number of points."""
    limit_to_one_thread()  # as the command does
    waiting = listen("127.0.0.1", 8450)
    address = f"http://127.0.0.1:{waiting.getsockname()[1]}/"
    server = server_on(waiting, "127.0.0.1")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    browser, rows = open_browser(), []
    try:
        for points in sizes:
            row = {"points": points, "views": 5 if points <= ALL_VIEWS_ROWS else 1}
            row["server_ms"] = round(median(on_the_server(points, clicks)), 1)
            if browser is not None:
                each = in_the_browser(browser, address, points, clicks)
                row["browser_ms"] = round(median(each), 1)
            rows.append(row)
    finally:
        if browser is not None:
            browser.quit()
        server.shutdown()
    return rows


def main():
    """Measure, print and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clicks", type=int, default=15)
    parser.add_argument("--points", type=int, nargs="+", default=[300, 3000])
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1])
    given = parser.parse_args()
    rows = measure(given.points, given.clicks)
    print(f"{'points':>8} {'views':>6} {'server, ms':>11} {'in the browser, ms':>19}")
    for row in rows:
        seen = row.get("browser_ms", "no browser")
        print(f"{row['points']:8,} {row['views']:6} {row['server_ms']:11} {seen:>19}")
    result = {"benchmark": "explore", "clicks": given.clicks, "cores": os.cpu_count()}
    result["medians"] = rows
    path = given.root / "results" / "benchmark-explore.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
