"""A filter over a list."""

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widgets import Input


class FilterInput(Input):
    """Down goes into the list, as in any search box: the action `to_table` of the screen."""

    BINDING_GROUP_TITLE = "Filter"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("down", "screen.to_table", "to the list", show=False)]
