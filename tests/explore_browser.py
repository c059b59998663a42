"""A real browser for tests of ``icssl explore``, and what a person does on the page.

Set ``ICSSL_SCREENSHOTS`` to a folder to keep a picture of every step, and
``ICSSL_TEST_PATIENCE`` to the seconds until an answer counts as missing.
"""

import os
import shutil
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("dash", reason="dash is not installed: pip install 'icssl[explore]'")
pytest.importorskip("selenium", reason="selenium is not installed: pip install selenium")
pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from icssl.app.explore.app import listen, server_on
from icssl.app.explore.page_views import VIEWS

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")

needs_browser = pytest.mark.skipif(
    not (BROWSER and DRIVER),
    reason="no browser: install chromium and chromedriver (Debian: chromium-driver)",
)
# Seconds until an answer counts as missing. Only a failing test waits so long, and a busy
# machine is slow.
PATIENCE = float(os.environ.get("ICSSL_TEST_PATIENCE", "120"))


@pytest.fixture(scope="module")
def address():
    waiting = listen("127.0.0.1", 8150)
    port = waiting.getsockname()[1]
    server = server_on(waiting, "127.0.0.1")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{port}/"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def downloads(tmp_path_factory):
    return tmp_path_factory.mktemp("downloads")


@pytest.fixture(scope="module")
def browser(downloads):
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--enable-unsafe-swiftshader",  # scenes without a graphics card
        "--force-device-scale-factor=1",
        "--hide-scrollbars",
    ):
        options.add_argument(argument)
    options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    driver.set_window_size(1280, 1250)
    driver.set_script_timeout(PATIENCE)
    yield driver
    driver.quit()


class Page:
    """The page and what a person does on it."""

    def __init__(self, browser, address):
        self.browser, self.address = browser, address
        self.expected_errors = []  # parts of messages that the browser may log
        self._errors = []

    def open(self, link=""):
        self.browser.get("about:blank")
        self.browser.get(self.address + link)
        self.until(lambda: self.browser.current_url.startswith(self.address))
        return self

    def until(self, condition):
        """Wait for something to become true, and give it."""
        wait = WebDriverWait(self.browser, PATIENCE, poll_frequency=0.05)
        return wait.until(lambda _: _quietly(condition))

    def find(self, css):
        return self.browser.find_element(By.CSS_SELECTOR, css)

    def text(self, css):
        return self.find(css).text

    def says(self, css, *words):
        return self.until(lambda: all(word in self.text(css) for word in words))

    def press(self, name):
        self.find(f"#{name}").click()

    def choose(self, name, text):
        """A radio button by its words."""
        path = f"//*[@id='{name}']//label[normalize-space()='{text}']"
        self.browser.find_element(By.XPATH, path).click()

    def type(self, name, value):
        field = self.find(f"#{name}")
        field.send_keys(Keys.CONTROL, "a")
        field.send_keys(str(value), Keys.ENTER)

    def pick(self, name, text):
        """Open a menu and choose an entry by its words."""
        self.find(f"#{name}").click()
        path = f"//*[contains(@class, 'dash-dropdown-option')][normalize-space()='{text}']"
        self.until(lambda: self.browser.find_element(By.XPATH, path)).click()

    def box(self, css):
        """Return left, top, right and bottom of an element in the view."""
        return self.browser.execute_script(
            "const b = document.querySelector(arguments[0]).getBoundingClientRect();"
            "return [b.left, b.top, b.right, b.bottom];",
            css,
        )

    def drawn(self, graph):
        """Points that plotly has drawn, by class of trace."""
        return self.browser.execute_script(
            "const g = document.querySelector(arguments[0] + ' .js-plotly-plot');"
            "return g && g.data ? g.data.map(t => [t.name, t.x ? t.x.length : 0]) : [];",
            f"#{graph}",
        )

    def settled(self):
        """Whether every part of the page has been filled, and none waits for an answer."""
        return self.browser.execute_script(
            "const data = document.querySelector('#page').dataset;"
            "return arguments[0].every(part => data['busy' + part] === 'false');",
            [name.capitalize() for name in (*VIEWS, "data")],
        )

    def errors(self):
        """Errors that the browser has logged since the test began.

        The browser gives each of them once, so they are kept here.
        """
        log = self.browser.get_log("browser")
        self._errors += [entry["message"] for entry in log if entry["level"] == "SEVERE"]
        return self._errors

    def unexpected_errors(self):
        """Errors without any of the texts in ``expected_errors``."""
        return [
            error
            for error in self.errors()
            if not any(text in error for text in self.expected_errors)
        ]

    def click_point(self, graph, point):
        """Click a point where it is drawn, as a mouse does."""
        self.until(lambda: self._hover(graph, point))
        ActionChains(self.browser).click().perform()

    def _hover(self, graph, point):
        """Move the mouse to a point; whether plotly has noticed, as a click needs."""
        where = self._place(graph, point)
        if where is None or not self.settled():
            return False
        plot = self.find(f"#{graph} .nsewdrag")
        size = plot.size
        x, y = where[0] - size["width"] / 2, where[1] - size["height"] / 2
        chain = ActionChains(self.browser)
        chain.move_to_element_with_offset(plot, int(x) + 3, int(y)).pause(0.1)
        # plotly looks what is under the mouse at most every 50 ms.
        chain.move_to_element_with_offset(plot, round(x), round(y)).pause(0.1).perform()
        return self.browser.execute_script(
            "const g = document.querySelector(arguments[0] + ' .js-plotly-plot');"
            "return g._hoverdata?.[0]?.customdata === arguments[1];",
            f"#{graph}",
            point,
        )

    def click_solid_point(self, canvas):
        """Go across a scene until a point is under the mouse, and click that."""
        glplot = (
            "const g = document.querySelector('#play_cloud .js-plotly-plot');"
            "const glplot = g?._fullLayout?.scene?._scene?.glplot;"
        )
        self.until(lambda: self.browser.execute_script(f"{glplot} return !!glplot;"))
        distance = (
            f"{glplot} const s = glplot.selection; return s && s.object ? s.distance : 99;"
        )
        # plotly takes every redraw with the button down for a click. On a slow machine the
        # answer to the first is drawn before the button is up.
        click_once = f"{glplot} g.once('plotly_click', () => glplot.selection.buttons = 0);"
        for step in range(-100, 100, 3):
            chain = ActionChains(self.browser)
            chain.move_to_element_with_offset(canvas, step, 70).perform()
            self.await_frames()
            if self.browser.execute_script(distance) < 4:
                self.browser.execute_script(click_once)
                ActionChains(self.browser).click_and_hold().perform()
                self.await_frames()
                ActionChains(self.browser).release().perform()
                return
        raise AssertionError("no point of the scene was under the mouse")

    def await_frames(self):
        """Wait for two frames: a scene looks once a frame at the mouse and its buttons."""
        self.browser.execute_async_script(
            "requestAnimationFrame(() => requestAnimationFrame(() => arguments[0]()));"
        )

    def _place(self, graph, point):
        """In the pixels of a flat plot."""
        return self.browser.execute_script(
            "const g = document.querySelector(arguments[0] + ' .js-plotly-plot');"
            "if (!g || !g._fullLayout) return null;"
            "const [x, y] = [g._fullLayout.xaxis, g._fullLayout.yaxis];"
            "for (const t of g.data) { const i = t.customdata.indexOf(arguments[1]);"
            "if (i >= 0) return [x.d2p(t.x[i]), y.d2p(t.y[i])]; } return null;",
            f"#{graph}",
            point,
        )

    def keep(self, name):
        """A picture of the page as it is."""
        folder = os.environ.get("ICSSL_SCREENSHOTS")
        if folder:
            time.sleep(0.5)  # plots glide into place
            Path(folder).mkdir(parents=True, exist_ok=True)
            self.browser.save_screenshot(str(Path(folder) / f"{name}.png"))

    def view(self, width, height):
        """Make the view so large: Chromium's own windows may not be narrow."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def wide(self):
        return self.browser.execute_script(
            "return document.documentElement.scrollWidth - window.innerWidth;"
        )


def _quietly(condition):
    from selenium.common.exceptions import WebDriverException

    try:
        return condition()
    except WebDriverException:
        return False


@pytest.fixture
def page(browser, address):
    browser.set_window_size(1280, 1250)
    # Leave the page of the test before, so that nothing of it is logged from here on.
    browser.get("about:blank")
    browser.get_log("browser")
    page = Page(browser, address)
    yield page
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert page.unexpected_errors() == []
