"""A Static for text that is not ours: never parsed as markup."""

from textual.content import Content
from textual.widgets import Static


class PlainStatic(Static):
    """Shows strings as they are. Styled text is passed as `Content`."""

    def __init__(self, content: str | Content = "", *, id: str | None = None, classes: str = "") -> None:
        super().__init__(content, markup=False, id=id, classes=classes)
        self._last_content: Content | None = None

    def update_if_new(self, content: Content, *, layout: bool = False) -> None:
        """As `update`, without a new layout unless one is asked for, and nothing at all when it is shown already."""
        if self._last_content is None or not content.is_same(self._last_content):
            self._last_content = content
            self.update(content, layout=layout)
