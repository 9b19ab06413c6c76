#!/usr/bin/env bash
# DuckDB 2.0.1 (PyPI), Python 3.11.
# Behaviour: read_csv() takes a column's type from the first 20,480 rows. If those are whole numbers and a later one is 1.5, the
#   column is BIGINT, and 1.5 is rounded to 2 without a word; with sample_size=-1 it is DOUBLE. A later text is an error.
# A good guess: a value that does not fit the type is an error, as polars has it, or widens the column, as pandas has it.
# Cause: the cast of a text to an integer rounds, in read_csv() as in CAST('1.5' AS BIGINT), and CSV's strictness ends there.
# Seen:
#   [(2, 'BIGINT')]
#   whole file: [(1.5, 'DOUBLE')]
#   text: ConversionException
# Exit status: 0 while that is so, 1 once it is otherwise.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q duckdb==2.0.1
cat >rounds.py <<'END'
import duckdb


def column(name, last):
    with open(name, "w") as file:
        file.write("x\n" + "1\n" * 30000 + last + "\n")


column("a.csv", "1.5")
query = "SELECT max(x), typeof(max(x)) FROM read_csv('{}'{})"
print(duckdb.sql(query.format("a.csv", "")).fetchall())
print("whole file:", duckdb.sql(query.format("a.csv", ", sample_size = -1")).fetchall())
column("b.csv", "many")
try:
    print(duckdb.sql(query.format("b.csv", "")).fetchall())
except duckdb.Error as error:
    print("text:", type(error).__name__)
END
venv/bin/python rounds.py | tee seen
diff seen - <<'END'
[(2, 'BIGINT')]
whole file: [(1.5, 'DOUBLE')]
text: ConversionException
END
