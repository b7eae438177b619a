"""Numbers and tables for people: the same words as the command line, as text and as HTML."""
from __future__ import annotations

import html
from collections.abc import Sequence

# Control characters, which could move a terminal's cursor or break a table, written out.
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}

_CELL = "text-align:{};padding:0.1em 0.8em 0.1em 0"


def printable(text: str) -> str:
    """The text with control characters written out: it comes from others."""
    return text.translate(_CONTROLS)


def nanoseconds(ns: float) -> str:
    """"1.234 ms"; "-" for 0, which stands for unknown."""
    if ns <= 0:
        return "-"
    for limit, divisor, digits, unit in ((1e3, 1, 0, "ns"), (1e6, 1e3, 1, "us"), (1e9, 1e6, 3, "ms")):
        if ns < limit:
            return f"{ns / divisor:.{digits}f} {unit}"
    return f"{ns / 1e9:.3f} s"


def seconds(value: float) -> str:
    """"12.3s", "4m05s", "1h02m"."""
    if value < 60:
        return f"{value:.1f}s"
    whole = round(value)
    return f"{whole // 60}m{whole % 60:02}s" if whole < 3600 else f"{whole // 3600}h{whole // 60 % 60:02}m"


def ratio(value: float | None) -> str:
    """"1.23x"; "-" if unknown."""
    return f"{value:.2f}x" if value else "-"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lines of columns as wide as their widest cell."""
    cells = [[printable(cell) for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in cells)


def html_table(header: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    """A table whose cells are escaped; the columns in `numbers` align right."""
    styles = [_CELL.format("right" if i in numbers else "left") for i in range(len(header))]

    def line(tag: str, row: Sequence[str]) -> str:
        return "<tr>" + "".join(f'<{tag} style="{style}">{escaped(cell)}</{tag}>' for cell, style in zip(row, styles)) + "</tr>"

    return f"<table><thead>{line('th', header)}</thead><tbody>{''.join(line('td', row) for row in rows)}</tbody></table>"


def escaped(text: str) -> str:
    """The text as HTML shows it."""
    return html.escape(printable(text))
