#!/usr/bin/env python3
"""Records what pandas and scikit-learn make of public tables, for tests/trainers/tables_test.cpp to
compare Lockstep with. Neither the build nor the tests run this.

    tests/data/tables/record.py            writes the tables and expected.json beside this file
    tests/data/tables/record.py --check    exits with 1 if it would write other bytes

It installs the packages that have the tables from PyPI into a throw-away environment (Python 3.11
or later) and runs itself there.

The tables, each cut to some rows, with the packages that have them:
    iris, wine, breast_cancer    scikit-learn (BSD); UCI Machine Learning Repository, CC BY 4.0
    diabetes                     scikit-learn (BSD); Efron et al., Least Angle Regression, 2004
    penguins, penguins_raw       palmerpenguins; Gorman, Williams and Fraser, 2014, CC0
    weather                      vega_datasets (MIT); NOAA, public domain
    cars                         vega_datasets (MIT); UCI Machine Learning Repository, CC BY 4.0
    tips                         plotly (MIT); Bryant and Smith, 1995
    gapminder                    plotly (MIT); Gapminder Foundation, CC BY 4.0
    mpg, sleep, pageviews        plotnine (MIT); mpg: EPA, sleep: Savage and West, 2007
    lupus                        lifelines (MIT); Merrell and Shulman, 1955
    longley, statecrime          statsmodels (BSD); public domain
"""

import gzip
import importlib.util
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parents[1] / "support"))
import recording  # noqa: E402

PINNED = ["numpy==2.4.6", "scipy==1.17.1", "pandas==3.1.1", "scikit-learn==1.9.1",
          "joblib==1.6.0", "cloudpickle==3.1.3", "threadpoolctl==3.8.0", "narwhals==2.29.0",
          "python-dateutil==4.0.0", "palmerpenguins==0.1.6", "vega_datasets==0.9.0",
          "plotly==5.24.1", "plotnine==0.15.9", "lifelines==0.30.3", "statsmodels==0.15.0"]

# Of each table the file in its package, how many rows are taken at most, and the keys of the data
# set under which Lockstep reads it. Every third row is the test's.
TABLES = {
    "iris": (None, 60, dict(target="species", task="classification")),
    "wine": (None, 60, dict(target="class", task="classification", features="*")),
    "breast_cancer": (None, 30, dict(target="diagnosis", task="classification")),
    "diabetes": (None, 60, dict(target="progression", normalize_targets=True)),
    "penguins": ("palmerpenguins/data/penguins.csv", 90,
                 dict(target="species", task="classification", missing="mean",
                      categories=["island", "sex"])),
    "penguins_raw": ("palmerpenguins/data/penguins-raw.csv", 60,
                     dict(target="Sex", task="classification", missing="mean",
                          ignore=["studyName", "Sample Number", "Region", "Stage",
                                  "Individual ID", "Comments"],
                          categories="auto", dates=["Date Egg"])),
    "weather": ("vega_datasets/_data/seattle-weather.csv", 60,
                dict(target="weather", task="classification", dates=["date"],
                     date_format="%Y/%m/%d", date_parts=["days", "year", "month", "day",
                                                         "weekday", "yearday"])),
    "cars": ("vega_datasets/_data/cars.json", 90,
             dict(target="Miles_per_Gallon", missing="mean", ignore=["Name"],
                  categories=["Cylinders", "Origin"], dates=["Year"], unseen="other",
                  normalize_targets=True)),
    "tips": ("plotly/package_data/datasets/tips.csv.gz", 60,
             dict(target="tip", categories="auto")),
    "gapminder": ("plotly/package_data/datasets/gapminder.csv.gz", 80,
                  dict(target="lifeExp", ignore=["country", "iso_alpha", "iso_num"],
                       categories=["continent"], normalize=False)),
    "mpg": ("plotnine/data/mpg.csv", 60,
            dict(target=["cty", "hwy"], ignore=["model"], categories="auto", unseen="other",
                 normalize_targets=True)),
    "sleep": ("plotnine/data/msleep.csv", 83,
              dict(target="sleep_total", missing="mean", ignore=["name", "genus", "awake"],
                   categories=["vore", "order", "conservation"], unseen="other",
                   normalize=False)),
    "pageviews": ("plotnine/data/pageviews.csv", 60,
                  dict(target="pageviews", dates=["date_hour"], date_parts=["days", "hour"])),
    "lupus": ("lifelines/datasets/merrell1955.csv", 99,
              dict(target="dead", task="classification", missing="drop",
                   ignore=["id", "year_month_of_diagnosis", "year_month_of_last_observation"])),
    "longley": ("statsmodels/datasets/longley/longley.csv", 16,
                dict(target="TOTEMP", ignore=["Obs"], separator=";", decimal=",", thousands=".",
                     normalize_targets=True)),
    "statecrime": ("statsmodels/datasets/statecrime/statecrime.csv", 51,
                   dict(target="murder", ignore=["state"])),
}


def original(name):
    """The whole table, every cell as the text that the package has."""
    import pandas as pd
    import sklearn.datasets
    path, _, keys = TABLES[name]
    if path is None:
        options = {"scaled": False} if name == "diabetes" else {}
        data = getattr(sklearn.datasets, f"load_{name}")(as_frame=True, **options)
        target = data.target
        if name in ("iris", "breast_cancer"):
            target = target.map(dict(enumerate(data.target_names)))
        return data.data.assign(**{keys["target"]: target}).map(str)
    package, _, rest = path.partition("/")
    # Found without being imported: their other requirements are not installed.
    file = pathlib.Path(importlib.util.find_spec(package).submodule_search_locations[0]) / rest
    if file.suffix == ".json":
        cells = [{key: "" if value is None else str(value) for key, value in row.items()}
                 for row in json.loads(file.read_text())]
        return pd.DataFrame(cells)
    opened = gzip.open(file, "rt") if file.suffix == ".gz" else open(file)
    with opened as text:
        return pd.read_csv(text, dtype=str, keep_default_na=False)


def as_written_in_german(text):
    """12345 as 12.345, and 1.5 as 1,5."""
    if text.isdigit():
        return f"{int(text):,}".replace(",", ".") if len(text) > 4 else text
    return text.replace(".", ",")


def files_of(name):
    """The training file's text and the test file's."""
    _, most, keys = TABLES[name]
    frame = original(name)
    every = -(-len(frame) // most)
    frame = frame.iloc[every - 1::every]  # rows from all over the table
    if "decimal" in keys:
        frame = frame.map(as_written_in_german)
    is_test = [i % 3 == 2 for i in range(len(frame))]
    parts = frame[[not test for test in is_test]], frame[is_test]
    return [part.to_csv(index=False, sep=keys.get("separator", ","), lineterminator="\n")
            for part in parts]


def rows_of(frames, keys):
    """The tables without the rows that Lockstep leaves out."""
    targets = keys["target"] if isinstance(keys["target"], list) else [keys["target"]]
    missing = keys.get("missing", "error")
    for frame in frames:
        ignored = frame.drop(columns=keys.get("ignore", []))
        if missing == "error":
            assert not ignored.isna().any().any()
        subset = list(ignored.columns) if missing == "drop" else targets
        yield frame.dropna(subset=subset), targets


def date_parts(column, keys):
    import pandas as pd
    form = keys.get("date_format", "ISO8601")
    time = pd.to_datetime(column, format=form)
    parts = {"days": lambda: (time - pd.Timestamp(0)) / pd.Timedelta(days=1),
             "weekday": lambda: time.dt.day_of_week, "yearday": lambda: time.dt.day_of_year}
    return pd.DataFrame({
        part: (parts[part]() if part in parts else getattr(time.dt, part)).astype(float)
        for part in keys.get("date_parts", ["days"])})


def numbers(keys, train, test):
    """Columns of numbers: scaled by those that are there, then the gaps filled."""
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, StandardScaler
    steps = [StandardScaler() if keys.get("normalize", True) else FunctionTransformer()]
    if keys.get("missing") == "mean":
        steps.append(SimpleImputer(strategy="mean"))
    pipeline = make_pipeline(*steps)
    return [pipeline.fit_transform(train.to_numpy(float)), pipeline.transform(test.to_numpy(float))]


def categories(keys, train, test):
    """A column as one-hot. What is missing in the training file is its last category."""
    import numpy as np
    from sklearn.preprocessing import OneHotEncoder
    other = keys.get("unseen") == "other"
    encoder = OneHotEncoder(sparse_output=False, handle_unknown="ignore" if other else "error")
    parts = [encoder.fit_transform(train), encoder.transform(test)]
    if other:
        parts = [np.hstack([part, 1 - part.sum(axis=1, keepdims=True)]) for part in parts]
    return parts


def expected_of(name, texts):
    import io
    import numpy as np
    import pandas as pd
    from sklearn.preprocessing import LabelEncoder, StandardScaler
    keys = TABLES[name][2]
    options = {"sep": keys.get("separator", ","), "decimal": keys.get("decimal", "."),
               "thousands": keys.get("thousands"), "na_values": ["?"]}
    frames = [pd.read_csv(io.StringIO(text), **options) for text in texts]
    (train, targets), (test, _) = rows_of(frames, keys)
    columns = [name for name in train if name not in targets + keys.get("ignore", [])]
    listed = keys.get("categories", [])
    inputs = [[], []]
    for column in columns:
        both = train[[column]], test[[column]]
        if column in keys.get("dates", []):
            parts = numbers(keys, *(date_parts(part[column], keys) for part in both))
        elif column in listed or (listed == "auto"
                                  and not pd.api.types.is_numeric_dtype(train[column])):
            parts = categories(keys, *both)
        else:
            parts = numbers(keys, *both)
        for into, part in zip(inputs, parts):
            into.append(part)
    parts = [np.hstack(part).astype(np.float32) for part in inputs]
    if keys.get("task") == "classification":
        encoder = LabelEncoder().fit(train[targets[0]])
        values = [encoder.transform(part[targets[0]]) for part in (train, test)]
        classes = [str(name) for name in encoder.classes_]
    else:
        values = [part[targets].to_numpy(float) for part in (train, test)]
        if keys.get("normalize_targets"):
            scaler = StandardScaler().fit(values[0])
            values = [scaler.transform(part) for part in values]
        values = [part.astype(np.float32) for part in values]
        classes = []
    return {"name": name, "keys": keys, "classes": classes,
            "train": {"inputs": parts[0], "targets": values[0]},
            "test": {"inputs": parts[1], "targets": values[1]}}


def number_text(value):
    """The shortest text of a float32 or an integer."""
    import numpy as np
    if float(value).is_integer():
        return str(int(value))
    return np.format_float_positional(value, trim="-") if abs(value) >= 1e-3 else str(value)


def json_text(value, indent=0):
    """A row of numbers stands on one line."""
    import numpy as np
    if isinstance(value, np.ndarray):
        if value.ndim == 1:
            return "[" + ",".join(map(number_text, value)) + "]"
        return "[\n" + ",\n".join(json_text(row) for row in value) + "]"
    if isinstance(value, dict) and indent < 2:
        return "{" + ",\n".join(f"{json.dumps(key)}: {json_text(part, indent + 1)}"
                                for key, part in value.items()) + "}"
    return json.dumps(value)


def inside(is_check):
    files = {}
    tables = []
    for name in TABLES:
        texts = files_of(name)
        files[f"{name}.csv"], files[f"{name}_test.csv"] = texts
        tables.append(json_text(expected_of(name, texts)))
    files["expected.json"] = ("{" + f'"recorded with": {json.dumps(PINNED)},\n"tables": [\n'
                              + ",\n".join(tables) + "]}\n")
    if is_check:
        other = [name for name, text in files.items() if (HERE / name).read_text() != text]
        print("not what is recorded now: " + ", ".join(other) if other else
              "all files are what is recorded now")
        return 1 if other else 0
    for name, text in files.items():
        (HERE / name).write_text(text)
    print(f"{len(tables)} tables, {sum(map(len, files.values()))} bytes")
    return 0


if __name__ == "__main__":
    recording.main(__file__, __doc__, PINNED, inside)
