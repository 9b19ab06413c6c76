"""Errors of the driver, and how numbers and tables look."""

import difflib
import re
import statistics
from itertools import zip_longest

UNITS = {"GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10, "B": 1, "": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}


class Failed(Exception):
    """A system failed."""
    status = 3


class Refused(Failed):
    """A flag breaks a rule, or names what this machine lacks."""
    status = 2


def counted(count, one):
    return f"{count} {one}{'s' * (count != 1)}"


def did_you_mean(word, known):
    return "".join(f" (did you mean '{near}'?)" for near in difflib.get_close_matches(word, known, 1))


def parse_size(text):
    """The bytes of "8", "64KiB", "1MB"; 0 where it is no whole number from 1 on of a unit."""
    found = re.fullmatch(r"([0-9]{1,15}) *(\w*)", text)
    return int(found[1]) * UNITS.get(found[2], 0) if found else 0


def size_text(count):
    return next(f"{count // size} {unit}" for unit, size in UNITS.items() if count % size == 0)


def digits_text(value):
    """Three digits, or what four decimals show."""
    decimals = sum(abs(value) < limit for limit in (99.95, 9.995, 0.9995, 0.09995))
    return f"{value:.{decimals}f}"


def time_text(seconds):
    """The unit is that of the rounded time: 999.7 us is 1.00 ms."""
    for unit, factor in ("us", 1e6), ("ms", 1e3):
        if seconds < 999.5 / factor:
            return f"{digits_text(seconds * factor)} {unit}"
    return digits_text(seconds) + " s"


def percent(share):
    return f"{100 * share:.0f}%"


def quartiles(samples):
    """Interpolated linearly between neighbours, as NumPy's percentile does."""
    lower, median, upper = statistics.quantiles(samples, method="inclusive") if len(samples) > 1 else 3 * [*samples]
    return {"median": median, "lower_quartile": lower, "upper_quartile": upper}


def spread_text(seconds):
    """A median with the quartiles in percent of it: "3.02 us -1 +4%"."""
    middle, lower, upper = seconds["median"], seconds["lower_quartile"], seconds["upper_quartile"]
    return f"{time_text(middle)} -{100 * abs(lower / middle - 1):.0f} +{percent(abs(upper / middle - 1))}"


def table_text(rows):
    """Columns of one width, the first one to the left, the others to the right, and an empty line."""
    widths = [max(map(len, column)) for column in zip_longest(*rows, fillvalue="")]
    lines = ([cell.rjust(width) if number else cell.ljust(width) for number, (cell, width) in enumerate(zip(row, widths))]
             for row in rows)
    return "".join("  ".join(line).rstrip() + "\n" for line in lines) + "\n"
