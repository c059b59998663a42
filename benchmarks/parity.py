"""Measure how much the other backends differ from the dense one, on real data sets.

Contexts have at most 1,000 rows with 2 and 10 labels per class, in all views. Each is read
by the dense backend, by the exact one, and by the sparse one with several numbers of exact
nearest neighbours, so the benchmark measures what leaving out weights does. Only rows
without a label count. Sure rows are those whose class has a probability of at least .7 with
the dense backend. The margin is the probability of the first class minus that of the
second, with the dense backend, for rows whose class changed. Writes
results/benchmark-parity.json, and the table of docs/scale.md as
results/benchmark-parity.md. Takes about 25 minutes on one core.

With ``--device cuda`` every backend runs on the GPU, the dense one too, and is compared
with the dense one on the CPU; the names of the files end with ``-cuda`` then.

    OMP_NUM_THREADS=1 python benchmarks/parity.py [--data data/real] [--kept 16,32,64]
        [--draws 2] [--labels 2,10] [--sets digits,iris] [--workers 1] [--device cpu]
        [--root FOLDER]
"""

import argparse
import json
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np

from icssl import ICSSLClassifier
from icssl.bench.real.datasets import HALVES, SETS, draw_context, read_set
from icssl.classifier.weights import weights_id
from processes import map_in_processes

SURE = 0.7


def half_of(name):
    """Return the half of the suite that a data set is in."""
    return next(half for half, names in HALVES.items() if name in names)


def compare_on(case, data, kept, device):
    """Return rows of one case: data set, labels per class, and draw."""
    name, labels, draw = case
    context = draw_context(read_set(data, name), name, draw, labels)
    about = {"set": name, "labels": labels, "draw": draw}
    return [about | row for row in compare(context, kept, device)]


def compare(context, kept, device="cpu"):
    """Compare every backend with the dense one on the CPU; return counts of rows."""
    hidden = ~context.labelled
    truth = context.y[hidden]

    def read(device=device, **options):
        fitted = ICSSLClassifier(device=device, **options).fit(
            context.table, context.visible_labels
        )
        assert fitted.backend_ == options["backend"]
        return fitted.label_distributions_[hidden], fitted.transduction_[hidden]

    p, expected = read("cpu", backend="dense")
    first, second = np.sort(p, axis=1)[:, :-3:-1].T
    sure = first >= SURE
    ways = {} if device == "cpu" else {"dense": {"backend": "dense"}}
    ways |= {"exact": {"backend": "exact"}}
    ways |= {k: {"backend": "sparse", "n_neighbors": k} for k in kept}
    for way, options in ways.items():
        q, predicted = read(**options)
        same, moved = predicted == expected, np.abs(p - q).max(axis=1)
        yield {
            "way": way,
            "rows": len(truth),
            "same": int(same.sum()),
            "sure": int(sure.sum()),
            "sure_same": int(same[sure].sum()),
            "right": int((predicted == truth).sum()),
            "dense_right": int((expected == truth).sum()),
            "torn": float((first - second)[~same].sum()),
            "moved": float(moved.mean()),
            "moved_most": float(moved.max()),
            "relative": float(np.linalg.norm(p - q) / np.linalg.norm(p)),
        }


def summarise(rows):
    """Summarise several contexts: fractions of all their rows, and means over data sets."""
    keys = ("rows", "same", "sure", "sure_same", "torn")
    total = {key: sum(row[key] for row in rows) for key in keys}
    gains = {}
    for row in rows:
        gain = (row["right"] - row["dense_right"]) / row["rows"]
        gains.setdefault(row["set"], []).append(gain)
    by_set = {name: float(np.mean(each)) for name, each in gains.items()}
    worst = max(by_set, key=lambda name: abs(by_set[name]))
    return {
        "agree": total["same"] / total["rows"],
        "sure": total["sure"],
        "sure_agree": total["sure_same"] / max(1, total["sure"]),
        "torn": total["torn"] / max(1, total["rows"] - total["same"]),
        "gain": float(np.mean(list(by_set.values()))),
        "worst_set": worst,
        "worst_gain": by_set[worst],
        "moved": float(np.mean([row["moved"] for row in rows])),
        "moved_most": max(row["moved_most"] for row in rows),
        "relative": max(row["relative"] for row in rows),
    }


def summaries(rows):
    """Return one summary per backend and half of the suite, and one for all data sets."""
    found = []
    for half in (*HALVES, "all"):
        chosen = [row for row in rows if half in ("all", half_of(row["set"]))]
        for way in dict.fromkeys(row["way"] for row in chosen):
            these = [row for row in chosen if row["way"] == way]
            found.append({"half": half, "way": way, **summarise(these)})
    return found


def as_table(found):
    """Return the table as Markdown."""
    lines = [
        "| sets | neighbours kept | same class | of sure rows | margin of the others "
        "| accuracy, points | set that moved most | probability moved |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in found:
        way = {"dense": "all", "exact": "all (exact)"}.get(row["way"], row["way"])
        worst = f"{row['worst_set']} {100 * row['worst_gain']:+.2f}"
        lines.append(
            f"| {row['half']} | {way} | {row['agree']:.4f} | {row['sure_agree']:.4f} "
            f"| {row['torn']:.3f} | {100 * row['gain']:+.2f} | {worst} "
            f"| {row['moved']:.4f} |"
        )
    return "\n".join(lines) + "\n"


def main():
    """Compare all backends, print and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, default=Path("data/real"))
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--labels", default="2,10")
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument("--kept", default="16,32,64,96,128")
    parser.add_argument("--workers", type=int, default=1, help="Processes.")
    parser.add_argument("--device", default="cpu", help="Of what is compared.")
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1])
    options = parser.parse_args()
    rows, numbers = [], [int(m) for m in options.labels.split(",")]
    cases = product(options.sets.split(","), numbers, range(options.draws))
    kept = [int(k) for k in options.kept.split(",")]
    run = partial(compare_on, data=options.data, kept=kept, device=options.device)
    for part in map_in_processes(run, cases, options.workers):
        rows += part
        print(*(row.values() for row in part), sep="\n", flush=True)
    found = summaries(rows)
    summary = {"benchmark": "parity", "weights": weights_id(), "device": options.device}
    summary["summaries"] = found
    name = "benchmark-parity" + ("" if options.device == "cpu" else f"-{options.device}")
    results = options.root / "results"
    results.mkdir(parents=True, exist_ok=True)
    line = json.dumps({**summary, "rows": rows})
    (results / f"{name}.json").write_text(line + "\n")
    (results / f"{name}.md").write_text(as_table(found))
    print(as_table(found))
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
