#!/usr/bin/env bash
# polars 2.1.0 (PyPI), Python 3.11.
# Behaviour: read_csv() infers floats for a column with "NaN", "inf" or "-inf", but not for one with "nan" or "Infinity": all of
#   the column is texts then, its numbers too. NumPy's savetxt, C's printf and std::to_chars write "nan", JSON5 "Infinity".
# A good guess: all spellings that Python's float() reads are floats, as pandas and DuckDB have it, or none.
# Cause: the inference of types looks for these three words as they are; the parser of floats, with a schema, knows "nan" too.
# Seen:
#   NaN Float64
#   nan String
#   inf Float64
#   -inf Float64
#   Infinity String
#   nan with a schema: [0.5, nan]
# Exit status: 0 while that is so, 1 once it is otherwise.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q polars==2.1.0
cat >words.py <<'END'
import polars

for word in ("NaN", "nan", "inf", "-inf", "Infinity"):
    with open(word + ".csv", "w") as file:
        file.write(f"x\n0.5\n{word}\n")
    print(word, polars.read_csv(word + ".csv")["x"].dtype)
column = polars.read_csv("nan.csv", schema_overrides={"x": polars.Float64})["x"]
print("nan with a schema:", column.to_list())
END
venv/bin/python words.py | tee seen
diff seen - <<'END'
NaN Float64
nan String
inf Float64
-inf Float64
Infinity String
nan with a schema: [0.5, nan]
END
