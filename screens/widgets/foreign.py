"""A Static for text that is not ours: never parsed as markup."""

from textual.content import Content
from textual.widgets import Static


class PlainStatic(Static):
    """Shows strings as they are. Styled text is passed as `Content`."""

    def __init__(self, content: str | Content = "", *, id: str | None = None, classes: str = "") -> None:
        super().__init__(content, markup=False, id=id, classes=classes)
        self._last_content: Content | None = None

    def update_if_new(self, content: Content, *, layout: bool = False) -> None:
        """As `update`, and nothing at all when it is shown already.

        A new layout is made where one is asked for, or where the widget is as large as its text and that has another length.
        """
        last = self._last_content
        if last is None or not content.is_same(last):
            self._last_content = content
            other = last is None or len(content.plain) != len(last.plain)
            self.update(content, layout=layout or (other and self.styles.auto_dimensions))
