"""HTML and SVG put together from Python: whatever is not known to be HTML is escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable

_ALONE = frozenset({"meta", "link", "br", "hr"})


class Html(str):
    """Text that is HTML already; everything else is escaped when it is put into an element."""

    __slots__ = ()


def escaped(text: str) -> Html:
    """Text as it may stand between tags and in attributes.

    >>> escaped("<b> & 'c'")
    '&lt;b&gt; &amp; &#x27;c&#x27;'
    """
    if isinstance(text, Html):
        return text
    # A lone surrogate (from an undecodable file name) could not be written as UTF-8 later.
    return Html(html.escape(text.encode("utf-8", "replace").decode("utf-8"), quote=True))


def element(tag: str, *children: str | None, **attributes: str | float | None) -> Html:
    """One element; None is left out, and `class_` or `stroke_width` lose and change underscores.

    >>> element("p", "a < b", element("b", "!"), class_="note", aria_label=None)
    '<p class="note">a &lt; b<b>!</b></p>'
    """
    opening = f"<{tag}{''.join(_attribute(*pair) for pair in attributes.items())}>"
    if tag in _ALONE:
        return Html(opening)
    return Html(f"{opening}{joined(children)}</{tag}>")


def joined(children: Iterable[str | None], between: str = "") -> Html:
    """Elements and texts one after the other.

    >>> joined(["a", None, "<"], between=", ")
    'a, &lt;'
    """
    return Html(escaped(between).join(escaped(child) for child in children if child is not None))


def _attribute(name: str, value: str | float | None) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else f"{round(value, 1):g}"
    return f' {name.rstrip("_").replace("_", "-")}="{escaped(str(text))}"'
