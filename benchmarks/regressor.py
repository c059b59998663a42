"""Compare ``ICSSLRegressor`` with its peers on tables that come with scikit-learn.

    python benchmarks/regressor.py --output results/benchmark-regressor.json
    python benchmarks/regressor.py --development  # other tables, on which choices were made

Every method gets the same rows and the same targets. The error is the root mean square on
rows without a target, in units of the deviation of the targets there: one is the error of
whoever knows the mean. The last line is JSON, which ``--output`` writes to a file; the
first command makes the report that docs/classifier.md shows.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
from sklearn import datasets
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.neighbors import KNeighborsRegressor
from sklearn.preprocessing import StandardScaler

from icssl import ICSSLRegressor

ALPHAS = np.logspace(-3, 2, 11)
ROUNDS, SHARE = 5, 0.2  # of self-training: rounds, and rows that each of them adds


def swiss_roll(rng, n=600):
    """Return a Swiss roll, and the position along it."""
    return datasets.make_swiss_roll(n, noise=0.3, random_state=rng.integers(2**31))


def wave_on_a_roll(rng, n=600):
    """Return a Swiss roll, and a sine along it."""
    X, position = swiss_roll(rng, n)
    return X, np.sin(position)


def wave_on_a_circle(rng, n=600):
    """A closed curve in ten dimensions, and a sine of two periods along it."""
    angle = rng.uniform(0, 2 * np.pi, n)
    turns = np.stack([f(k * angle) / k for k in (1, 2, 3) for f in (np.sin, np.cos)], 1)
    basis = np.linalg.qr(rng.normal(size=(10, 6)))[0]
    return turns @ basis.T + 0.05 * rng.normal(size=(n, 10)), np.sin(2 * angle)


def s_curve(rng, n=600):
    """Return an S-curve, and the position along it."""
    return datasets.make_s_curve(n, noise=0.05, random_state=rng.integers(2**31))


def linear(rng, n=600):
    """Return a linear function of five of eight columns, with noise."""
    X, y = datasets.make_regression(
        n, 8, n_informative=5, noise=20, random_state=rng.integers(2**31)
    )
    return X, y


def friedman(number, noise):
    """Return what draws one of the three functions of Friedman, with relative noise."""
    make = getattr(datasets, f"make_friedman{number}")

    def draw(rng, n=600):
        X, y = make(n, noise=0, random_state=rng.integers(2**31))
        return X, y + noise * y.std() * rng.normal(size=n)

    return draw


def column_of(load, name):
    """One column of a table of scikit-learn, from the other columns."""

    def draw(rng):
        data = load()
        place = list(data.feature_names).index(name)
        return np.delete(data.data, place, axis=1), data.data[:, place]

    return draw


def diabetes(rng):
    """Return the progression of diabetes."""
    return datasets.load_diabetes(return_X_y=True)


REPORT = {
    "diabetes": diabetes,
    "wine: color_intensity": column_of(datasets.load_wine, "color_intensity"),
    "cancer: mean texture": column_of(datasets.load_breast_cancer, "mean texture"),
    "Swiss roll: position": swiss_roll,
    "Swiss roll: sine": wave_on_a_roll,
    "circle in 10-D: sine": wave_on_a_circle,
    "Friedman 1": friedman(1, 0.2),
    "Friedman 2": friedman(2, 0.2),
    "Friedman 3": friedman(3, 0.2),
}
DEVELOPMENT = {
    "iris: petal width (cm)": column_of(datasets.load_iris, "petal width (cm)"),
    "wine: alcohol": column_of(datasets.load_wine, "alcohol"),
    "wine: flavanoids": column_of(datasets.load_wine, "flavanoids"),
    "cancer: mean smoothness": column_of(datasets.load_breast_cancer, "mean smoothness"),
    "cancer: worst concavity": column_of(datasets.load_breast_cancer, "worst concavity"),
    "S-curve: position": s_curve,
    "linear": linear,
    "Friedman 1 without noise": friedman(1, 0.0),
}


def ours(X, y, known):
    """Return predictions of the regressor for all rows."""
    return ICSSLRegressor().fit(X, np.where(known, y, np.nan)).transduction_


def chosen(estimator, grid):
    """Return a method whose setting is chosen by cross-validation on known targets."""

    def predict(X, y, known):
        X = StandardScaler().fit_transform(X)
        folds = KFold(5, shuffle=True, random_state=0)
        error = "neg_mean_squared_error"
        search = GridSearchCV(estimator, grid, cv=folds, scoring=error)
        mean = y[known].mean()
        return mean + search.fit(X[known], y[known] - mean).predict(X)

    return predict


def ridge(X, y, known):
    """Return predictions of linear ridge regression, its penalty chosen."""
    X = StandardScaler().fit_transform(X)
    return RidgeCV(ALPHAS).fit(X[known], y[known]).predict(X)


def self_training(X, y, known):
    """Add the predicted targets of the rows on which many ridges agree most, and repeat."""
    X = StandardScaler().fit_transform(X)
    rng, target, used = np.random.default_rng(0), y.copy(), known.copy()
    for _ in range(ROUNDS):
        rows = np.flatnonzero(used)
        votes = []
        for _ in range(10):
            some = rng.choice(rows, len(rows))
            votes.append(RidgeCV(ALPHAS).fit(X[some], target[some]).predict(X))
        spread = np.where(used, np.inf, np.std(votes, axis=0))
        add = np.argsort(spread)[: int(SHARE * (~known).sum())]
        add = add[np.isfinite(spread[add])]
        target[add] = RidgeCV(ALPHAS).fit(X[used], target[used]).predict(X[add])
        used[add] = True
    return RidgeCV(ALPHAS).fit(X[used], target[used]).predict(X)


METHODS = {
    "ICSSLRegressor": ours,
    "kernel ridge": chosen(
        KernelRidge(kernel="rbf"),
        {"alpha": np.logspace(-3, 1, 5), "gamma": np.logspace(-3, 1, 9)},
    ),
    "k-NN": chosen(
        KNeighborsRegressor(),
        {"n_neighbors": [1, 2, 3, 5], "weights": ["uniform", "distance"]},
    ),
    "ridge": ridge,
    "self-training": self_training,
}


def relative_error(y, predicted, known):
    """Return the error on rows without a target, in deviations of the targets."""
    residual = (y - predicted)[~known]
    return float(np.sqrt(np.mean(residual**2)) / y[~known].std())


def measure(draws, counts, tables, methods):
    """Return a row for every table, number of targets, draw and method."""
    rows = []
    for name, draw in tables.items():
        for count in counts:
            for seed in range(draws):
                rng = np.random.default_rng([seed, count])
                X, y = draw(rng)
                known = np.zeros(len(y), dtype=bool)
                known[rng.choice(len(y), count, replace=False)] = True
                for method in methods:
                    start = time.perf_counter()
                    predicted = METHODS[method](X, y.astype(float), known)
                    seconds = time.perf_counter() - start
                    error = relative_error(y, predicted, known)
                    row = {"table": name, "targets": count, "seed": seed}
                    row |= {"method": method, "error": error, "seconds": seconds}
                    rows.append(row)
    return rows


def mean_error(rows, **where):
    """Return the mean error of the rows that agree with what is given."""
    errors = [row["error"] for row in rows if all(row[key] == where[key] for key in where)]
    return np.mean(errors)


def mean_errors(rows, method):
    """Return mean errors of a method: of all rows, by number of targets, and by table."""
    keys = [("targets", row["targets"]) for row in rows]
    keys += [("table", row["table"]) for row in rows]
    means = {"all": mean_error(rows, method=method)}
    for key, value in dict.fromkeys(keys):
        means[str(value)] = mean_error(rows, method=method, **{key: value})
    return {name: round(mean, 4) for name, mean in means.items()}


def difference(rows, method, tables):
    """Return how much larger errors are than those of the first method, over the tables.

    The second number is the standard error if these tables are taken as a sample of all:
    draws of one table are much alike, and do not count by themselves.
    """
    first = rows[0]["method"]
    gaps = [
        mean_error(rows, method=method, table=table)
        - mean_error(rows, method=first, table=table)
        for table in tables
    ]
    mean = round(float(np.mean(gaps)), 4)
    if len(gaps) == 1:
        return [mean, None]  # one table says nothing of others
    return [mean, round(float(np.std(gaps, ddof=1) / np.sqrt(len(gaps))), 4)]


def show(rows, counts, tables, methods):
    """Print the mean errors as a table of Markdown, best in bold."""
    print(f"| table | {' | '.join(methods)} |")
    print("|---|" + "---|" * len(methods))
    lines = [(name, {"table": name}) for name in tables]
    lines += [(f"all, {count} targets", {"targets": count}) for count in counts]
    for title, where in [*lines, ("all", {})]:
        errors = [mean_error(rows, method=method, **where) for method in methods]
        texts = [f"{error:.2f}" for error in errors]
        best = f"{min(errors):.2f}"
        cells = [f"**{text}**" if text == best else text for text in texts]
        print(f"| {title} | {' | '.join(cells)} |")
    seconds = [
        np.mean([row["seconds"] for row in rows if row["method"] == method])
        for method in methods
    ]
    print(f"| seconds | {' | '.join(f'{value:.2f}' for value in seconds)} |")


def main():
    """Measure, print a table and a line of JSON, and write the line if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--targets", default="10,20,50", help="how many are known")
    parser.add_argument("--development", action="store_true")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--tables", help="some of the tables, by the beginning of a name")
    parser.add_argument("--output", type=Path, help="file for the line of JSON")
    options = parser.parse_args()
    tables = DEVELOPMENT if options.development else REPORT
    if options.tables:
        tables = {k: v for k, v in tables.items() if k.startswith(options.tables)}
    counts = [int(count) for count in options.targets.split(",")]
    methods = options.methods.split(",")
    rows = measure(options.draws, counts, tables, methods)
    show(rows, counts, tables, methods)
    part = "development" if options.development else "report"
    line = {"benchmark": "regressor", "part": part, "draws": options.draws}
    line["error"] = {method: mean_errors(rows, method) for method in methods}
    line["behind"] = {method: difference(rows, method, tables) for method in methods[1:]}
    for method, (mean, error) in line["behind"].items():
        print(f"{method}: {mean:+} (standard error {error}) to {methods[0]}")
    if options.output is not None:
        options.output.write_text(json.dumps(line) + "\n")
    print(json.dumps(line))


if __name__ == "__main__":
    main()
