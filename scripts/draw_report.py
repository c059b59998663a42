"""Draw docs/figures/report-phone.png and report-dark.png: a report as a browser shows it.

The report is that of examples/data/wines.csv: its picture of the rows at the size of a
phone, and its beginning in the dark. It needs selenium, chromium and chromedriver; without
them nothing is drawn.

    python scripts/draw_report.py [--root FOLDER]
"""

import argparse
import os
import shutil
import sys
import warnings
from base64 import b64decode
from pathlib import Path
from tempfile import TemporaryDirectory

from icssl.app.label_options import LabelOptions
from icssl.app.labelling import label_file

# By file: the part of the report that is shown, the size of the window, and the theme.
PICTURES = {
    "report-phone": ("#rows", 400, 800, "light"),
    "report-dark": ("", 1400, 900, "dark"),
}
TABLE = Path(__file__).parents[1] / "examples" / "data" / "wines.csv"


def open_browser():
    """Return a browser without a window, or a sentence that says what is not installed."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    try:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service
    except ImportError:
        return "selenium is not installed: pip install selenium"
    if not (browser and driver):
        return "no browser: install chromium and chromedriver (Debian: chromium-driver)"
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for argument in ("headless=new", "no-sandbox", "disable-dev-shm-usage"):
        options.add_argument(f"--{argument}")
    options.add_argument("--hide-scrollbars")
    return webdriver.Chrome(options=options, service=Service(driver))


def screenshot(browser, address, width, height, theme):
    """Return what a window shows of a page as the bytes of a PNG file."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    scheme = {"name": "prefers-color-scheme", "value": theme}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    browser.get(address)
    shot = browser.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
    return b64decode(shot["data"])


def main():
    """Label the wines, and draw the report if there is a browser."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1])
    figures = parser.parse_args().root.absolute() / "docs" / "figures"
    browser = open_browser()
    if isinstance(browser, str):
        print(f"Nothing is drawn: {browser}", file=sys.stderr)
        return
    figures.mkdir(parents=True, exist_ok=True)
    try:
        with TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the report shows them
            report = Path(folder) / "report.html"
            os.chdir(TABLE.parent)  # so that its name in the report is short
            label_file(LabelOptions(Path(TABLE.name), "grower", report=report))
            for name, (part, *how) in PICTURES.items():
                picture = screenshot(browser, report.as_uri() + part, *how)
                (figures / f"{name}.png").write_bytes(picture)
    finally:
        browser.quit()


if __name__ == "__main__":
    main()
