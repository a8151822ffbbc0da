"""Points and rectangles of a drawing; y grows downwards."""

from __future__ import annotations

from dataclasses import dataclass

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Rect:
    """A rectangle; x and y are its upper left corner."""

    x: float
    y: float
    width: float
    height: float

    @property
    def bottom(self) -> float:
        """The lower edge."""
        return self.y + self.height

    @property
    def middle(self) -> float:
        """The centre, from left to right."""
        return self.x + self.width / 2

    def overlaps(self, other: Rect) -> bool:
        """Whether the two have a point in common."""
        return (
            self.x < other.x + other.width
            and other.x < self.x + self.width
            and self.y < other.bottom
            and other.y < self.bottom
        )

    def grown(self, by: float) -> Rect:
        """The rectangle with a margin."""
        return Rect(self.x - by, self.y - by, self.width + 2 * by, self.height + 2 * by)

    def moved(self, x: float, y: float) -> Rect:
        """The rectangle at another place."""
        return Rect(self.x + x, self.y + y, self.width, self.height)
