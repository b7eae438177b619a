"""Draws the curves of searches as SVG."""

COLOURS = ("#0072b2", "#009e73", "#56b4e9", "#cc79a7", "#e69f00", "#d55e00", "#999999", "#000000")


def plot(rows, path):
    """Draws a panel for each operator: mean curves, with a band from the worst to the best seed."""
    names = list(dict.fromkeys(row["name"] for row in rows))
    methods = list(dict.fromkeys(row["method"] for row in rows))
    width, height, across = 300, 200, 4
    parts = []
    for k, method in enumerate(methods):
        colour = COLOURS[k % len(COLOURS)]
        parts.append(f'<rect x="{20 + 130 * k}" y="10" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{36 + 130 * k}" y="20" font-size="12">{method}</text>')
    for n, name in enumerate(names):
        left, top = 40 + n % across * (width + 40), 50 + n // across * (height + 50)
        own = [row for row in rows if row["name"] == name]
        trials = len(own[0]["curve"])
        floor = min(row["curve"][min(15, trials - 1)] for row in own)

        def at(t, value):
            x = left + width * t / trials
            return f"{x:.1f},{top + height * (1 - max(value - floor, 0) / max(1 - floor, 1e-9)):.1f}"

        parts.append(f'<rect x="{left}" y="{top}" width="{width}" height="{height}" fill="none" stroke="#cccccc"/>')
        parts.append(f'<text x="{left}" y="{top - 6}" font-size="13">{name}: {100 * floor:.0f} to 100 % of the best known, {trials} trials</text>')
        steps = range(0, trials, max(1, trials // 200))
        for row in own:
            colour = COLOURS[methods.index(row["method"]) % len(COLOURS)]
            band = [at(t, row["high"][t]) for t in steps] + [at(t, row["low"][t]) for t in reversed(steps)]
            parts.append(f'<polygon points="{" ".join(band)}" fill="{colour}" opacity="0.08"/>')
            line = " ".join(at(t, row["curve"][t]) for t in steps)
            parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
    rows_of_panels = (len(names) + across - 1) // across
    size = f'width="{60 + across * (width + 40)}" height="{60 + rows_of_panels * (height + 50)}"'
    with open(path, "w") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif">\n')
        file.write('<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(parts) + "\n</svg>\n")
