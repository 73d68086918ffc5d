"""The building blocks of all pages: the document, tables, figures, badges."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources

from sensorveil.report.charts import STATUS_CLASS, symbol
from sensorveil.report.markup import Html, element, joined
from sensorveil.report.words import STATUS_WORDS

# Nothing may be fetched, whatever a name in the data contains: the browser itself refuses.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def document(title: str, *content: str | None) -> str:
    """A whole HTML page that needs nothing beside itself."""
    style = resources.files("sensorveil.report").joinpath("style.css").read_text("utf-8")
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="color-scheme", content="light dark"),
        element("link", rel="icon", href="data:,"),
        element("title", title),
        element("style", Html(style)),
    )
    body = element("body", element("main", *content))
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def badge(status: str, short: bool = False) -> Html:
    """A status as a sign and a word."""
    word = status if short else STATUS_WORDS[status]
    return element("span", symbol(status), word, class_=f"status {STATUS_CLASS[status]}")


def table(
    headers: Sequence[str], rows: Sequence[Sequence[str]], caption: str, prose: Sequence[int] = ()
) -> Html | None:
    """A table that scrolls inside its own box; the columns in `prose` hold whole sentences."""
    if not rows:
        return None
    head = element("tr", *[element("th", header, scope="col") for header in headers])
    body = [
        element(
            "tr",
            element("th", row[0], scope="row"),
            *[
                element("td", _cell(cell), class_="prose" if column in prose else None)
                for column, cell in enumerate(row[1:], start=1)
            ],
        )
        for row in rows
    ]
    whole = element(
        "table",
        element("caption", element("span", caption)),
        element("thead", head),
        element("tbody", *body),
    )
    return element("div", whole, class_="scroll", tabindex="0", role="region", aria_label=caption)


def _cell(text: str) -> str:
    """A figure and its interval may stand on two lines, each whole; the interval is softer."""
    value, bracket, interval = text.partition(" (")
    if isinstance(text, Html) or not (bracket and interval.endswith(")") and " to " in interval):
        return text
    return joined([f"{value} ", element("span", f"({interval}", class_="interval")])


def figure(chart: Html, caption: str | None = None) -> Html:
    """A chart with a line about it."""
    return element("figure", chart, element("figcaption", caption) if caption else None)


def paragraph(text: str | None, kind: str | None = None) -> Html | None:
    """A paragraph, or nothing."""
    return element("p", text, class_=kind) if text else None


def folded(summary: str, *content: str | None) -> Html:
    """What opens at a touch."""
    return element("details", element("summary", summary), *content)


def section(anchor: str, title: str, *content: str | None) -> Html | None:
    """A section with its heading, or nothing where there is nothing to show."""
    if not any(content):
        return None
    return element("section", element("h2", title), *content, id=anchor)


def contents(entries: Sequence[tuple[str, str]]) -> Html:
    """Links to the sections."""
    links = [element("li", element("a", title, href=f"#{anchor}")) for anchor, title in entries]
    return element("nav", element("ol", *links), aria_label="Contents")


def grid(*content: str | None) -> Html | None:
    """Two columns where there is room."""
    shown = joined(content)
    return element("div", shown, class_="grid") if shown else None
