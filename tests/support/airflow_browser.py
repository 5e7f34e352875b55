"""A person at a browser: logs in to Airflow, fills the release form, and walks to the pages of the privacy budget."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PATIENCE = 600
"""Seconds after which something that is not shown is missed."""

PASTE = """
const [field, text] = arguments;
field.focus();
Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value").set.call(field, text);
field.dispatchEvent(new Event("input", {bubbles: true}));
"""


@dataclass(frozen=True)
class Person:
    """Somebody who looks at what is shown and clicks on it."""

    browser: Any
    url: str
    pictures: Path

    def log_in(self, name: str, password: str) -> None:
        """From the first page."""
        self.browser.get(f"{self.url}/")
        self.shown("//input[@name='username']").send_keys(name)
        self.shown("//input[@name='password']").send_keys(password)
        self.press("//button[@type='submit']")
        self.shown("//nav//*[contains(., 'Dags')] | //a[contains(., 'Dags')]")
        self.browser.get_log("browser")  # Airflow asks for its settings before anybody has logged in

    def shown(self, xpath: str) -> Any:
        """The first such element, as soon as it can be clicked."""
        from selenium.webdriver.common.by import By
        from selenium.webdriver.support.expected_conditions import element_to_be_clickable

        return self._until(element_to_be_clickable((By.XPATH, xpath)), xpath)

    def press(self, xpath: str) -> None:
        """Click on the first such element; one that Airflow draws anew at that moment is looked for again."""
        from selenium.common.exceptions import ElementClickInterceptedException, StaleElementReferenceException

        def pressed(_: Any) -> bool:
            try:
                self.shown(xpath).click()
            except (StaleElementReferenceException, ElementClickInterceptedException):
                return False
            return True

        self._until(pressed, xpath)

    def click(self, words: str, *, kind: str = "self::a or self::button") -> None:
        """On the link or button with these words, or on another kind of thing."""
        self.press(f"//*[({kind}) and normalize-space()={words!r}]")

    def _until(self, ready: Any, xpath: str) -> Any:
        from selenium.webdriver.support.ui import WebDriverWait

        return WebDriverWait(self.browser, PATIENCE).until(ready, f"nothing can be clicked at {xpath}")

    def text(self) -> str:
        """All that can be read now."""
        return str(self.shown("//body").text)

    def open_form(self, dag: str) -> None:
        """The trigger form of a DAG, from the list of DAGs."""
        self.click("Dags")
        self.press(f"//a[contains(@href, '/dags/{dag}')]")
        self.press("//button[contains(., 'Trigger')]")
        self.shown("//*[@role='dialog']//input[@name='element_dataset']")

    def open_budget(self) -> None:
        """The page of all accounts, from the navigation."""
        self.click("Home")
        self.click("Browse")
        self.click("Privacy budget", kind="@role='menuitem'")

    def fill(self, name: str, value: object) -> None:
        """Paste over what a field of the form has, and leave it.

        Airflow draws the whole form anew for every letter, which on a busy machine takes longer than typing the next
        one, and letters are lost; what is pasted arrives at once.
        """
        from selenium.webdriver.common.keys import Keys

        place = f"//input[@name='element_{name}']"
        self.browser.execute_script(PASTE, self.shown(place), str(value))
        self.shown(place).send_keys(Keys.TAB)
        self._until(lambda _: self.shown(place).get_attribute("value") == str(value), place)

    def choose(self, name: str, value: str) -> None:
        """Pick one of a field's choices by typing."""
        from selenium.webdriver.common.keys import Keys

        place = f"//input[@name='element_{name}']"
        self.shown(f"{place}/..//input[@role='combobox']").send_keys(value, Keys.ENTER)
        field = self.browser.find_element("xpath", place)
        self._until(lambda _: field.get_attribute("value") == value, place)

    @contextmanager
    def in_frame(self, heading: str) -> Iterator[None]:
        """Inside the page of the privacy budget that Airflow shows in its frame, once it has this heading."""
        self.browser.switch_to.frame(self.shown("//iframe[contains(@src, 'budget/')]"))
        try:
            self.shown(f"//h1[normalize-space()={heading!r}]")
            yield
        finally:
            self.browser.switch_to.default_content()

    def wear(self, theme: str) -> None:
        """Choose between Airflow's light and dark colours."""
        self.click("User")
        self.click("Appearance", kind="@role='menuitem'")
        self.click(f"{theme} Mode", kind="@role='menuitemradio'")

    def background(self) -> str:
        """The colour behind what is shown."""
        return str(self.shown("//body").value_of_css_property("background-color"))

    def picture(self, name: str) -> None:
        """Keep what is shown now."""
        assert self.browser.save_screenshot(str(self.pictures / f"{name}.png"))

    def complaints(self) -> list[str]:
        """Errors in the console that pages of the privacy budget have caused since this was asked last."""
        found = self.browser.get_log("browser")
        return [one["message"] for one in found if one["level"] == "SEVERE" and "/budget/" in one["message"]]
