"""Every control of ``icssl explore`` can be clicked at its centre, and read when chosen."""

import re

import pytest
from selenium.webdriver.common.action_chains import ActionChains

from explore_browser import address, browser, downloads, needs_browser, page
from icssl.app.explore.state import TABS

__all__ = ["address", "browser", "downloads", "page"]  # fixtures
pytestmark = needs_browser

# Controls that are shown, each with what lies on top at its centre. A radio button is the
# label around it; the part of a menu or a field that is clicked may be inside it.
_CONTROLS = """
const kinds = 'button, a[href], summary, label:has(input), [role=slider], ' +
  'input:not([type=file]):not([type=radio]):not([type=checkbox]), select, ' +
  '.dash-dropdown, [data-row]';
const found = [];
for (const control of document.querySelectorAll(kinds)) {
  control.scrollIntoView({block: 'center', inline: 'center'});
  const box = control.getBoundingClientRect();
  const hidden = getComputedStyle(control).visibility === 'hidden';
  if (!box.width || !box.height || hidden || control.ariaHidden === 'true') continue;
  const top = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
  const name = control.tagName + '#' + control.id + ' ' + control.textContent.slice(0, 40);
  const hit = top && (control.contains(top) || top.contains(control) && top.closest(kinds));
  found.push([name, hit ? '' : top ? top.outerHTML.slice(0, 80) : 'nothing']);
}
return found;
"""


@pytest.mark.parametrize("width", [400, 1400])
@pytest.mark.parametrize("tab", TABS)
def test_no_control_lies_under_another(page, tab, width):
    page.view(width, 900)
    page.open(f"?tab={tab}")
    page.until(lambda: page.find(f"#panel-{tab}").is_displayed())
    page.until(page.settled)  # what is filled in later moves the controls
    if tab == "play":
        page.says("#play-scores", "from 2 labels")
    controls = page.browser.execute_script(_CONTROLS)
    assert len(controls) > len(TABS)
    covered = [(name, above) for name, above in controls if above]
    assert not covered


@pytest.mark.parametrize("width", [400, 1400])
def test_every_tab_opens_by_a_click_at_its_centre_and_can_be_read(page, width):
    page.view(width, 900)
    page.open()
    texts = {text: tab for tab, text in TABS.items()}
    page.until(lambda: _label(page, "tab", "Play"))
    order = [*texts, *reversed(texts)]  # to every tab from others, and back to the first
    for text in [*order, *list(texts)[::2], *list(texts)[::-2]]:
        label = _label(page, "tab", text)
        page.browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", label)
        ActionChains(page.browser).move_to_element(label).click().perform()
        panel = f"#panel-{texts[text]}"
        page.until(lambda panel=panel: page.find(panel).is_displayed())
        assert _contrast(label) >= 4.5, text  # the least that WCAG asks for
        ActionChains(page.browser).move_by_offset(0, 60).perform()
        assert _contrast(label) >= 4.5, f"{text}, after the mouse has left"


def _label(page, name, text):
    path = f"//*[@id='{name}']//label[normalize-space()='{text}']"
    return page.browser.find_element("xpath", path)


def _contrast(element):
    """Return the ratio of luminances of text and background, as WCAG has it."""
    colours = (
        element.value_of_css_property(name) for name in ("color", "background-color")
    )
    low, high = sorted(map(_luminance, colours))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour):
    shares = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
