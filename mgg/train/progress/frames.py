"""Show a running training in one line of a terminal, which each frame overwrites."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from mgg.records import METRIC_NAMES, EpochRecord
from mgg.train.progress import duration, parts

#: Seconds between two frames: an epoch may take less time than a frame.
FRAMES = 0.1
#: Least and most columns of the bar.
BAR = 10, 40


def writes_over() -> bool:
    """Whether the terminal can overwrite a line; if not, Rich's Live shows nothing."""
    return not Console(stderr=True).is_dumb_terminal


class Frames:
    """One line of a terminal, which each frame overwrites."""

    def __init__(self, title: str, epochs: int, done: int, metric: str, clock: Callable[[], float]) -> None:
        self._title, self._epochs, self._metric, self._clock = title, epochs, metric, clock
        self._console = Console(stderr=True)
        self._shown_at = clock()
        self._last: tuple[EpochRecord, float] | None = None
        before = _line(self._console.width, title, done, epochs, [f"{done}/{epochs}"])
        self._live = Live(before, console=self._console, auto_refresh=False)
        self._live.start(refresh=True)

    def show(self, record: EpochRecord, left: float) -> None:
        """Show a frame, unless the last one is too recent."""
        self._last = record, left
        if self._clock() - self._shown_at >= FRAMES:
            self._frame()

    def close(self) -> None:
        """Show the last epoch, which stays on the terminal."""
        self._frame()
        self._live.stop()

    def _frame(self) -> None:
        if self._last is None:
            return
        record, left = self._last
        texts = _texts(record, self._epochs, self._metric, left)
        self._live.update(_line(self._console.width, self._title, record.epoch, self._epochs, texts), refresh=True)
        self._shown_at = self._clock()


def _line(width: int, title: str, done: int, epochs: int, texts: list[str]) -> Table:
    """Return a line of the first of ``texts`` that fits ``width`` columns, with title and bar if there is room.

    The title is the first to be left out, then the bar.
    """
    text = next((each for each in texts if len(each) <= width), texts[-1])
    room = width - len(text) - 1
    grid = Table.grid(padding=(0, 1))
    cells: list[Text | ProgressBar] = []
    least, most = BAR
    if len(title) + 1 + least <= room:
        cells.append(Text(title, no_wrap=True))
        room -= len(title) + 1
    if least <= room:
        cells.append(ProgressBar(total=epochs, completed=done, width=min(most, room)))
    for _ in range(len(cells) + 1):
        grid.add_column(no_wrap=True)
    grid.add_row(*cells, Text(text, no_wrap=True, overflow="ellipsis"))
    return grid


def _texts(record: EpochRecord, epochs: int, metric: str, left: float) -> list[str]:
    """Return the full text of an epoch, with and without the metric's name."""
    counted, loss, scores, seconds = parts(record, epochs, metric)
    named = scores.replace("validation", "val").replace(",", "")
    names = named, named.removeprefix(f"{METRIC_NAMES[metric]} ")
    return [f"{counted} {loss} {each} {seconds} ETA {duration(left)}" for each in names]
