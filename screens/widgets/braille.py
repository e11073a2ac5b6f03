"""A grid of braille dots: two by four to a character cell."""

_BITS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


class BrailleGrid:
    """`width` x `height` cells, addressed in dots from the top left."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self._cells = [[0] * width for _ in range(height)]

    def set(self, x: int, y: int) -> None:
        """Sets one dot; outside the grid nothing happens."""
        if 0 <= x < self.width * 2 and 0 <= y < self.height * 4:
            self._cells[y // 4][x // 2] |= _BITS[y % 4][x % 2]

    def line(self, x0: int, y0: int, x1: int, y1: int) -> None:
        """Sets the dots between two points."""
        steps = max(abs(x1 - x0), abs(y1 - y0), 1)
        for step in range(steps + 1):
            self.set(x0 + round((x1 - x0) * step / steps), y0 + round((y1 - y0) * step / steps))

    def cell(self, x: int, y: int) -> str:
        """The character of one cell; a space where no dot is set."""
        bits = self._cells[y][x]
        return chr(0x2800 + bits) if bits else " "
