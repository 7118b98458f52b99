"""The distribution's Chromium, driven by Selenium: `apt-get install chromium chromium-driver`."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

SCREENSHOTS: Final = os.environ.get("TIDEMARK_SCREENSHOTS", "")
_WATCH_TASKS: Final = """
window.longTasks = [];
new PerformanceObserver((list) => {
  for (const one of list.getEntries()) window.longTasks.push([one.startTime, one.duration]);
}).observe({ type: "longtask", buffered: true });
"""


class Page:
    """A page in a browser.

    Attributes:
        driver: Selenium's.
    """

    def __init__(self, driver: Any, url: str) -> None:
        self.driver, self._url = driver, url

    def load(
        self, width: int = 1200, height: int = 1400, *, dark: bool = False, grey: bool = False
    ) -> "Page":
        """Load it again, in a window of that size, and wait until it is drawn."""
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self._tell("Emulation.setEmulatedMedia", features=features)
        vision = "achromatopsia" if grey else "none"
        self._tell("Emulation.setEmulatedVisionDeficiency", type=vision)
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self._tell("Emulation.setDeviceMetricsOverride", **size)
        self.driver.get(self._url)
        self.wait("return document.body.dataset.drawn !== undefined")
        return self

    def _tell(self, command: str, **arguments: Any) -> None:
        self.driver.execute_cdp_cmd(command, arguments)

    def run(self, script: str, *arguments: Any) -> Any:
        """What a script returns."""
        return self.driver.execute_script(script, *arguments)

    def wait(self, script: str, *arguments: Any) -> Any:
        """Wait until a script returns something true; returns it."""
        from selenium.webdriver.support.ui import WebDriverWait

        return WebDriverWait(self.driver, 30, 0.1).until(
            lambda _: self.run(script, *arguments), f"this stays false: {script}"
        )

    def text(self, selector: str = "body") -> str:
        """What a person reads of the first element that is found."""
        found: str = self.run("return document.querySelector(arguments[0]).innerText", selector)
        return found

    def redrawn(self) -> None:
        """Wait for a newer state."""
        before = self.run("return document.body.dataset.drawn")
        self.wait("return document.body.dataset.drawn !== arguments[0]", before)

    def complaints(self) -> list[str]:
        """What the browser has logged since it was last asked: errors, refused files."""
        return [str(one["message"]) for one in self.driver.get_log("browser")]

    def long_tasks(self) -> list[list[float]]:
        """When (ms since the load) the page was held above 50 ms, and how long."""
        found: list[list[float]] = self.run("return window.longTasks")
        return found

    def keep(self, name: str) -> None:
        """Keep a screenshot, where a directory for them is named."""
        if SCREENSHOTS:
            Path(SCREENSHOTS).mkdir(parents=True, exist_ok=True)
            assert self.driver.save_screenshot(str(Path(SCREENSHOTS) / f"{name}.png"))


def chromium_and_driver() -> tuple[str, str]:
    """Paths of both programs; skips where one of them, or Selenium, is not there."""
    pytest.importorskip("selenium", reason="Selenium is not installed: extra `test`")
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("there is no browser: apt-get install chromium chromium-driver")
    return chromium, driver


@contextmanager
def opened(url: str) -> Iterator[Page]:
    """A page that is not loaded yet, in a browser of its own; skips where there is none."""
    chromium, driver = chromium_and_driver()
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for one in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(one)
    options.add_argument("--hide-scrollbars")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service(driver))
    try:
        browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": _WATCH_TASKS})
        yield Page(browser, url)
    finally:
        browser.quit()
