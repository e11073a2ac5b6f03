"""A Static for text that is not ours: never parsed as markup."""

from textual.content import Content
from textual.widgets import Static


class PlainStatic(Static):
    """Shows strings as they are. Styled text is passed as `Content`."""

    def __init__(self, content: str | Content = "", *, id: str | None = None, classes: str = "") -> None:
        super().__init__(content, markup=False, id=id, classes=classes)
