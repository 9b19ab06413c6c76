#!/usr/bin/env python3
"""Draws the tables in a JSON text, such as bench --json writes.

A list of objects is a table. A row's keys are the first columns that tell it from the others. Those around the list have a
chart each, the row's own a line or a bar each; of the numbers among them the one with the most values, three or more, is
the x axis of lines. Drawn are the columns with quartiles (objects with a "median"), or where there are none all numbers;
--columns picks others. An object of numbers is a sum of parts. A column's unit is the end of its name (seconds, bytes,
per_second), or stands beside the median. Rows with "own": false are set back, those with "reference": true left out.
"""
import argparse
import io
import json
import os
import sys
import textwrap
from types import SimpleNamespace

try:
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter
except ImportError as error:
    sys.exit(f"{sys.executable} cannot import matplotlib: {error}")

COLORS = ["#0072b2", "#d55e00", "#007a5a", "#b0578d", "#a87000", "#4b3fa8", "#1a1a1a", "#7a7a7a"]
UNITS = {"bytes_per_second": "B/s", "per_second": "/s", "seconds": "s", "bytes": "B"}


def unit_of(name):
    return next((UNITS[end] for end in UNITS if name.endswith(end)), "")


def is_number(value):
    """Whether it can be drawn: null, Infinity and NaN can not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300


def figures_of(name, cell):
    """The numbers in a cell: parts, their sum, and how far the quartiles are below and above it. None without numbers."""
    measured = isinstance(cell, dict) and "median" in cell
    parts = {name: cell["median"]} if measured else cell if isinstance(cell, dict) else {name: cell}
    if not parts or not all(map(is_number, parts.values())):
        return None
    middle = sum(parts.values())
    told = cell if measured else {}
    lower, upper = (told[end] if is_number(told.get(end)) else middle for end in ("lower_quartile", "upper_quartile"))
    unit = told["unit"] if isinstance(told.get("unit"), str) else unit_of(name)
    return SimpleNamespace(measured=measured, parts=parts, middle=middle, below=middle - lower, above=upper - middle, unit=unit)


def collect(node, around, path, tables):
    """Adds the rows in an object to `tables`: by path, the rows and what stands around them. Returns the object's own."""
    own, rows, objects = {}, [], [((), node)]
    for place, part in objects:  # which grows
        for name, value in part.items():
            if isinstance(value, list):
                rows += [((*place, name), row) for row in value if isinstance(row, dict)]
            elif isinstance(value, dict) and figures_of(name, value) is None:
                objects.append(((*place, name), value))
            else:
                own[".".join((*place, name))] = value
    for place, row in rows:
        collect(row, {**around, **own} if path else {}, path + place, tables)
    if not rows and own.get("reference") is not True:
        table = tables.setdefault(path, ([], {}))
        table[0].append({**around, **own})
        table[1].update({name: True for name in around if name not in own})
    return own


def text_of(value, unit):
    return EngFormatter(unit)(float(f"{value:.3g}")) if unit else f"{value:.4g}"


def number_text(name, value):
    """64 KiB, 1.2 GB, 100"""
    for power, prefix in (30, "Gi"), (20, "Mi"), (10, "Ki"):
        if unit_of(name) == "B" and value % (1 << power) == 0 and 0 < value >> power < 1024:
            return f"{value >> power} {prefix}B"
    return text_of(value, unit_of(name)) if unit_of(name) else str(value)


def key_text(name, value):
    """all_reduce, 2 replicas, 64 KiB, stage 0"""
    if isinstance(value, str) or unit_of(name):
        return value if isinstance(value, str) else number_text(name, value)
    return f"{value} {name[:-1] if value == 1 else name}" if name.endswith("s") else f"{name} {value}"


def title_of(name):
    words = "size" if name == "bytes" else name.replace("bytes_per_second", "bandwidth").replace("seconds", "time")
    return words.replace("_", " ").replace(".", " ")


def charts_of(path, rows, outer, columns):
    """By title and column: the name of the x axis, if there is one, and the figures of each line or bar by its label."""
    keys, told = [], 1
    for name in dict.fromkeys(name for row in rows for name in row):
        if all(isinstance(row.get(name), (str, int)) for row in rows):
            apart = len({tuple(row[key] for key in (*keys, name)) for row in rows})
            keys, told = ([*keys, name], apart) if apart > told else (keys, told)
    counts = {key: len({row[key] for row in rows}) for key in keys if all(is_number(row[key]) for row in rows)}
    x = max(reversed(counts), key=counts.get, default=None)
    x = x if x and counts[x] > 2 else None
    titles = [name for name in outer if name != x and (
        name in keys or "." not in name and isinstance(rows[0].get(name), (str, int)) and
        all(row.get(name) == rows[0][name] for row in rows))]
    cells = [{name: figures_of(name, row[name]) for name in row if name not in outer and name not in keys} for row in rows]
    found = [name for row in cells for name in row if row[name]]
    measured = [name for row in cells for name in row if row[name] and row[name].measured]
    units = {row[name].unit for row in cells for name in measured if row.get(name)}
    charts = {}
    for row, cell in zip(rows, cells):
        title = ", ".join(key_text(name, row[name]) for name in titles if row[name] != "") or title_of(path[0] if path else "")
        label = ", ".join(key_text(key, row[key]) for key in keys if key not in outer and key != x)
        for column in columns or dict.fromkeys(measured or found):
            if cell.get(column):
                if len(cell[column].parts) > 1 and len(units) == 1:  # parts of what is measured
                    cell[column].unit = cell[column].unit or min(units)
                lines = charts.setdefault((title, column), (x, {}))[1]
                lines.setdefault(label, []).append((row.get(x), row.get("own") is False, cell[column]))
    return charts


def draw_lines(axes, x, lines):
    for number, (label, points) in enumerate(lines.items()):
        places, backs, cells = zip(*sorted(points, key=lambda point: point[0]))
        axes.errorbar(places, [cell.middle for cell in cells], label=label, capsize=2, color=COLORS[number % 8],
                      yerr=[[cell.below for cell in cells], [cell.above for cell in cells]],
                      marker="os^Dv<>"[number % 7], markersize=4, linestyle="--" if backs[0] else "-", linewidth=1.3)
    places = sorted({point[0] for points in lines.values() for point in points})
    if 0 < 4 * places[0] <= places[-1]:
        axes.set_xscale("log", base=2)
    shown = places[::-1][::-(-len(places) // 6)]
    axes.set_xticks(shown, [number_text(x, place) for place in shown])
    axes.set_xlabel(title_of(x))
    middles = [cell.middle for points in lines.values() for _, _, cell in points]
    if 0 < 20 * min(middles) < max(middles):
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=min(0, *middles))
    axes.minorticks_off()


def draw_bars(axes, lines, unit):
    bars = [(label, back, cell) for label, points in lines.items() for _, back, cell in points]
    for place, (_, back, cell) in enumerate(bars):
        end = 0
        for number, (part, width) in enumerate(cell.parts.items()):
            axes.barh(place, width, left=end, height=0.7, color=COLORS[number % 8] + ("66" if back else "ff"),
                      label=title_of(part) if place == 0 and len(cell.parts) > 1 else None)
            end += width
        if cell.below or cell.above:
            axes.errorbar(cell.middle, place, xerr=[[cell.below], [cell.above]], color="black", linewidth=1, capsize=2)
        axes.annotate(text_of(cell.middle, unit), (cell.middle + cell.above, place), xytext=(5, 0), va="center",
                      textcoords="offset points", fontsize=8)
    axes.set_yticks(range(len(bars)), [label for label, _, _ in bars])
    axes.set_ylim(len(bars) - 0.4, -0.6)
    axes.margins(x=0.2)
    axes.locator_params(axis="x", nbins=6)


def draw(document, columns):
    tables = {}
    facts = collect(document, {}, (), tables)
    charts = [chart for path, table in tables.items() for chart in charts_of(path, *table, columns).items()]
    if not charts:
        raise ValueError(f"no table has the column {' or '.join(columns)}" if columns else "there is no table with numbers")
    across = min(2, len(charts))
    heights = [max(3 if x else 0.9 + 0.22 * sum(map(len, lines.values())) for _, (x, lines) in charts[i:i + across])
               for i in range(0, len(charts), across)]
    figure = Figure(figsize=(4.6 * across, sum(heights) + 0.3), constrained_layout=True, edgecolor="#bbbbbb", linewidth=2)
    grid = figure.add_gridspec(len(heights), across, height_ratios=heights)
    for number, ((title, column), (x, lines)) in enumerate(charts):
        axes = figure.add_subplot(grid[number // across, number % across])
        unit = next(iter(lines.values()))[0][2].unit
        draw_lines(axes, x, lines) if x else draw_bars(axes, lines, unit)
        (axes.set_ylabel if x else axes.set_xlabel)(title_of(column))
        if unit:
            (axes.yaxis if x else axes.xaxis).set_major_formatter(EngFormatter(unit))
        axes.set_title("\n".join(textwrap.wrap(title, 60)), fontsize=10)
        axes.grid(axis="both" if x else "x", color="#e4e4e4", linewidth=0.6)
        axes.set_axisbelow(True)
        if number == 0 and len(axes.get_legend_handles_labels()[1]) > 1:
            axes.legend(fontsize=7)
    words = ", ".join(key_text(name.removeprefix("machine."), value) for name, value in facts.items()
                      if isinstance(value, (str, int)) and "." not in name.removeprefix("machine."))
    figure.supxlabel("\n".join(textwrap.wrap(words, 80 * across)), x=0.01, ha="left", fontsize=7, color="#595959")
    return figure


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", nargs="?", help="a file in JSON (default: stdin)")
    parser.add_argument("picture", nargs="?", help="a file that ends in .svg, .png or .pdf (default: an SVG on stdout)")
    parser.add_argument("--columns", type=lambda text: text.split(","), help="those that are drawn: a,b,c")
    parser.add_argument("--version", action="version", version=matplotlib.__version__)
    flags = parser.parse_args()
    kind = os.path.splitext(flags.picture or "stdout.svg")[1][1:]
    if kind not in ("svg", "png", "pdf"):
        parser.error(f"{flags.picture} does not end in .svg, .png or .pdf")
    matplotlib.rcdefaults()
    matplotlib.rcParams.update({"svg.fonttype": "none", "font.size": 9, "xtick.labelsize": 8, "ytick.labelsize": 8})
    image = io.BytesIO()
    try:
        with open(flags.table or 0, encoding="utf-8") as file:
            document = json.load(file)
        draw(document if isinstance(document, dict) else {"rows": document}, flags.columns).savefig(image, format=kind, dpi=150)
        if flags.picture is None:
            sys.stdout.buffer.write(image.getvalue())
            return
        path = os.path.realpath(flags.picture)
        with open(f"{path}.{os.getpid()}", "xb") as file:
            try:
                file.write(image.getvalue())
                file.flush()
                os.replace(file.name, path)
            except BaseException:
                os.unlink(file.name)
                raise
    except (ArithmeticError, OSError, RecursionError, ValueError) as error:
        sys.exit(f"plot.py: {flags.table or 'stdin'}: {error}")


if __name__ == "__main__":
    main()
