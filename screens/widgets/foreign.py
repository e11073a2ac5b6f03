"""A Static for foreign text, which is never parsed as markup."""

from textual.content import Content
from textual.widgets import Static


class PlainStatic(Static):
    """Shows strings as they are. Styled text is passed as `Content`."""

    def __init__(self, content: str | Content = "", *, id: str | None = None, classes: str = "") -> None:
        super().__init__(content, markup=False, id=id, classes=classes)
        self._last_content: Content | None = None

    def update_if_new(self, content: Content, *, layout: bool = False) -> None:
        """Updates as `update` does, but only if the content is new.

        A new layout follows if `layout` asks for it, or if the widget's size follows its text and the length changed.
        """
        last = self._last_content
        if last is None or not content.is_same(last):
            self._last_content = content
            other = last is None or len(content.plain) != len(last.plain)
            self.update(content, layout=layout or (other and self.styles.auto_dimensions))
