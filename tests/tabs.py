"""A tab of the browser, for the tests of pages."""

from typing import Any


class Tab:
    """A page of the browser, with what it asked for, what it logged and what went wrong on it."""

    def __init__(self, page: Any):
        self.page, self.asked, self.logged, self.wrong = page, list[str](), list[str](), list[str]()
        page.on("request", lambda request: self.asked.append(request.url))
        page.on("console", lambda message: self.logged.append(message.text))
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("dialog", self._refuse)

    def _refuse(self, dialog: Any) -> None:
        self.wrong.append(dialog.message)
        dialog.dismiss()

    def empty(self) -> None:
        """Leave what is shown, and forget all of it."""
        self.page.unroute_all()
        self.page.goto("about:blank")
        self.page.mouse.move(0, 0)
        for noted in (self.asked, self.logged, self.wrong):
            noted.clear()
