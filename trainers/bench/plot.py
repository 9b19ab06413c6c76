#!/usr/bin/env python3
"""Draws the tables in a JSON text, such as bench --json writes.

A list of objects is a table. A row's keys are the first columns that tell it from the others. Those around the list have a
chart each, the row's own a line or a bar each; of the numbers among them the one with the most values, three or more, is
the x axis of lines. Drawn are the columns with quartiles (objects with a "median"), or where there are none all numbers;
--columns picks others. An object of numbers is a sum of parts. A column's unit is the end of its name (seconds, parts,
bytes, per_second), or stands beside the median. Rows with "own": false are set back, those with "reference": true left out.
"""
import argparse
import json
import os
import sys
import tempfile
from collections import namedtuple
from textwrap import fill

try:
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter
except ImportError as error:
    sys.exit(f"{sys.executable} cannot import matplotlib: {error}")

COLORS = ["#0072b2", "#d55e00", "#007a5a", "#b0578d", "#a87000", "#4b3fa8", "#1a1a1a", "#7a7a7a"]
UNITS = {"bytes_per_second": "B/s", "per_second": "/s", "seconds": "s", "_parts": "s", "bytes": "B"}
Figures = namedtuple("Figures", "measured parts middle below above unit")  # below and above the middle: the quartiles


def is_number(value):
    """Whether it can be drawn: null, Infinity and NaN can not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300


def unit_of(name):
    return next((UNITS[end] for end in UNITS if name.endswith(end)), "")


def figures_of(name, cell):
    measured = cell if isinstance(cell, dict) and "median" in cell else {}
    parts = cell if isinstance(cell, dict) and not measured else {name: measured.get("median", cell)}
    if not parts or not all(map(is_number, parts.values())):
        return None
    middle = sum(parts.values())
    lower, upper = (measured[end] if is_number(measured.get(end)) else middle for end in ("lower_quartile", "upper_quartile"))
    unit = measured.get("unit")
    unit = unit if unit and isinstance(unit, str) else unit_of(name)
    return Figures(bool(measured), parts, middle, middle - lower, upper - middle, unit)


def rows_of(node, around, path=()):
    """The innermost rows: the path of their table, what stands around it, and the row. Lists may be one object deeper."""
    parts = [((), node)] + [((name,), part) for name, part in node.items() if isinstance(part, dict)]
    rows = [((*path, *place, name), row) for place, part in parts for name, value in part.items() if isinstance(value, list)
            for row in value if isinstance(row, dict)]
    inner = [found for place, row in rows for found in rows_of(row, {**around, **node} if path else {}, place)]
    return inner or [(path, around, node)]


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
    return words.replace("_", " ")


def charts_of(path, table, columns):
    """By title and column: the name of the x axis, if there is one, and the figures of each line or bar by its label."""
    def values(*names):
        return len({tuple(row[name] for name in names) for row in rows})

    rows = [{**around, **own} for around, own in table]
    shared = [name for name in rows[0] if all(isinstance(row.get(name), (str, int)) for row in rows)]
    keys = []
    for name in shared:
        if values(*keys, name) > values(*keys):
            keys.append(name)
    numbers = [key for key in keys if values(key) > 2 and all(is_number(row[key]) for row in rows)]
    x = max(reversed(numbers), key=values, default=None)
    cells = [{name: figures_of(name, own[name]) for name in own if name not in keys} for _, own in table]
    found = [(name, cell[name].measured) for cell in cells for name in cell if cell[name]]
    drawn = columns or [name for name, measured in found if measured] or [name for name, _ in found]
    charts = {}
    for (around, own), row, cell in zip(table, rows, cells):
        titles = [name for name in shared if name not in own and name != x and (name in keys or values(name) == 1)]
        title = ", ".join(key_text(name, around[name]) for name in titles if around[name] != "")
        label = ", ".join(key_text(key, own[key]) for key in keys if key in own and key != x)
        for column in dict.fromkeys(drawn):
            if cell.get(column):
                _, lines = charts.setdefault((title or title_of("".join(path[:1])), column), (x, {}))
                lines.setdefault(label, []).append((row.get(x), row.get("own") is False, cell[column]))
    return charts


def draw_lines(axes, x, lines):
    for number, (label, points) in enumerate(lines.items()):
        places, backs, cells = zip(*sorted(points, key=lambda point: point[0]))
        axes.errorbar(places, [cell.middle for cell in cells], label=label, capsize=2, color=COLORS[number % 8],
                      yerr=[[cell.below for cell in cells], [cell.above for cell in cells]],
                      marker="os^Dv<>"[number % 7], markersize=4, linestyle="--" if backs[0] else "-", linewidth=1.3)
    places = sorted({place for points in lines.values() for place, _, _ in points})
    middles = [cell.middle for points in lines.values() for _, _, cell in points]
    if 0 < 4 * places[0] <= places[-1]:
        axes.set_xscale("log", base=2)
    if 0 < 20 * min(middles) < max(middles):
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=min(0, *middles))
    shown = places[::-1][::-(-len(places) // 6)]
    axes.set_xticks(shown, [number_text(x, place) for place in shown])
    axes.set_xlabel(title_of(x))
    axes.minorticks_off()


def draw_bars(axes, lines):
    labels, backs, cells = zip(*((label, back, cell) for label, points in lines.items() for _, back, cell in points))
    ends = [0] * len(cells)
    errors = [[cell.below for cell in cells], [cell.above for cell in cells]] if any(cell.measured for cell in cells) else None
    for number, part in enumerate(dict.fromkeys(part for cell in cells for part in cell.parts)):
        widths = [cell.parts.get(part, 0) for cell in cells]
        colors = [COLORS[number % 8] + ("66" if back else "ff") for back in backs]
        drawn = axes.barh(range(len(cells)), widths, left=ends, height=0.7, label=title_of(part), color=colors,
                          xerr=errors, error_kw={"linewidth": 1, "capsize": 2})
        ends = [end + width for end, width in zip(ends, widths)]
    axes.bar_label(drawn, [text_of(cell.middle, cell.unit) for cell in cells], padding=5, fontsize=8)
    axes.set_yticks(range(len(cells)), labels)
    axes.set_ylim(len(cells) - 0.4, -0.6)
    axes.margins(x=0.2)
    axes.locator_params(axis="x", nbins=6)


def draw(document, columns):
    tables = {}
    for path, around, row in rows_of(document, {}):
        if row.get("reference") is not True:
            tables.setdefault(path, []).append((around, row))
    charts = [chart for path, table in tables.items() for chart in charts_of(path, table, columns).items()]
    if not charts:
        raise ValueError(f"no table has the column {' or '.join(columns)}" if columns else "there is no table with numbers")
    across, down = min(2, len(charts)), -(-len(charts) // 2)
    height = max(3 if x else 0.9 + 0.22 * sum(map(len, lines.values())) for _, (x, lines) in charts)
    figure = Figure((4.6 * across, height * down + 0.3), constrained_layout=True, edgecolor="#bbbbbb", linewidth=2)
    for number, ((title, column), (x, lines)) in enumerate(charts):
        axes = figure.add_subplot(down, across, number + 1, axisbelow=True)
        draw_lines(axes, x, lines) if x else draw_bars(axes, lines)
        measured = axes.yaxis if x else axes.xaxis
        measured.set_label_text(title_of(column))
        unit = next(iter(lines.values()))[0][2].unit
        if unit:
            measured.set_major_formatter(EngFormatter(unit))
        axes.set_title(fill(title, 60), fontsize=10)
        axes.grid(axis="both" if x else "x", color="#e4e4e4", linewidth=0.6)
        if number == 0 and len(axes.get_legend_handles_labels()[1]) > 1:
            axes.legend(fontsize=7)
    machine = document.get("machine")
    facts = {**document, **(machine if isinstance(machine, dict) else {})}
    words = ", ".join(key_text(name, value) for name, value in facts.items() if isinstance(value, (str, int)))
    figure.supxlabel(fill(words, 80 * across), x=0.01, ha="left", fontsize=7, color="#595959")
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
    try:
        with open(flags.table or 0, encoding="utf-8") as file:
            document = json.load(file)
        figure = draw(document if isinstance(document, dict) else {"rows": document}, flags.columns)
        if not flags.picture:
            return figure.savefig(sys.stdout.buffer, format=kind)
        picture = os.path.realpath(flags.picture)
        with tempfile.TemporaryDirectory(dir=os.path.dirname(picture)) as folder:  # the old one stays until the new is whole
            figure.savefig(f"{folder}/new", format=kind, dpi=150)
            os.replace(f"{folder}/new", picture)
    except (ArithmeticError, OSError, RecursionError, ValueError) as error:
        sys.exit(f"plot.py: {flags.table or 'stdin'}: {error}")


if __name__ == "__main__":
    main()
