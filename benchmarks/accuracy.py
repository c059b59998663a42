"""The accuracy table: trained models and every classical method on the same episodes.

Models are those of scripts/train_table.py. All methods are scored on the same test
episodes under the balanced protocol; classical ones are tuned on training episodes with as
many labels. Accuracies of several seeds are averaged episode by episode; intervals and
paired differences from the tuned SVC are over test episodes. Rows, with the hits of every
episode, go to results/accuracy.jsonl; one that is there is not measured again. The page
docs/results.md and the figures are made from rows alone. About an hour on two cores.

    python benchmarks/accuracy.py MODELS [--episodes 500] [--sources torus] [--root FOLDER]
"""

import argparse
import csv
import hashlib
import json
import statistics
from pathlib import Path

import torch

from icssl._util.files import replacing
from icssl.bench.plots import draw_label_curves
from icssl.episodes.data_config import DataConfig
from icssl.evaluation.metrics import compare_paired, interval
from icssl.evaluation.predictors import METHODS, ModelMethod, needed_truth
from icssl.evaluation.scoring import evaluate
from icssl.methods import BASELINES
from icssl.model.build import load_model

SOURCES = ("sphere", "cylinder", "torus", "swiss_roll", "cone", "product")
FIGURE = (
    "e2e_icl",
    "e2e_wide",
    "e2e_encoder",
    "transformer",
    "svc_rbf",
    "label_spreading",
    "bayes_ceiling",
)
POINTS = 100
SEED = 7  # of test episodes that no choice was made on
REFERENCE = "svc_rbf"
TITLES = {
    "e2e_icl": "Orig+E2E-ICL (RBF)",
    "e2e_icl_linear": "Orig+E2E-ICL (linear)",
    "e2e_wide": "Orig+E2E-ICL, k = 12, 4 steps (RBF)",
    "e2e_wide_linear": "Orig+E2E-ICL, k = 12, 4 steps (linear)",
    **{
        name: title
        for name, title in METHODS.items()
        if name not in ("e2e_icl", "e2e_wide")
    },
}


def budgets_of(source):
    """The paper's table of surfaces has 21 and 39 labels, its product curve 20 and 40."""
    return (3, 10, 20, 40) if source == "product" else (3, 10, 21, 39)


def methods_of(folder, source):
    """Methods by (name, seed), each with the digest of its weights; others have neither."""
    found = {}
    for name, method in BASELINES.items():
        if not (source == "swiss_roll" and name == "bayes_ceiling"):
            found[name, None] = (method, "")
    jobs = folder / "product" if source == "product" else folder
    for path in sorted(jobs.glob(f"*/{source}-?.safetensors")):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        key = (path.parent.name, int(path.stem[-1]))
        found[key] = (ModelMethod(load_model(path)), digest)
    return found


def identity(row):
    """What makes a row: one that is there already is not measured again."""
    names = ("source", "labels", "method", "seed", "model", "episodes", "tuning")
    return (*(row[name] for name in names), row["test_seed"])


def measure(source, labels, methods, wanted, options):
    """A row a method: metrics, and the hits of every episode for paired comparisons."""
    ready = {f"{name}/{seed}": m for (name, seed), (m, _) in methods.items()}
    rows = evaluate(
        ready,
        needed_truth(ready, DataConfig((source,))),
        [labels],
        episodes=options.episodes,
        tuning=options.tuning,
        seed=SEED,
        progress=lambda text: print(text, flush=True),
    )
    unlabelled = POINTS - labels
    return [
        {
            **row.to_dict(),
            **about,
            "hits": (row.accuracies * unlabelled).round().int().tolist(),
        }
        for row, about in zip(rows, wanted, strict=True)
    ]


def missing(source, folder, kept, options):
    """Rows that are not there yet, budget after budget."""
    done = {identity(row) for row in kept}
    for labels in budgets_of(source):
        methods, wanted = {}, []
        for (name, seed), (method, digest) in methods_of(folder, source).items():
            about = {"source": source, "labels": labels, "method": name, "seed": seed}
            about |= {"model": digest, "episodes": options.episodes}
            about |= {"tuning": options.tuning, "test_seed": SEED}
            if identity(about) not in done:
                methods[name, seed] = (method, digest)
                wanted.append(about)
        if methods:
            yield measure(source, labels, methods, wanted, options)


def joined(rows):
    """Rows of one method at one budget, its seeds averaged episode by episode."""
    hits = torch.tensor([row["hits"] for row in rows], dtype=torch.float64)
    return hits.mean(dim=0) / (POINTS - rows[0]["labels"])


def summary(rows):
    """One entry a method and budget: accuracy, interval, comparison with the reference."""
    by_key = {}
    for row in rows:
        by_key.setdefault((row["method"], row["labels"]), []).append(row)
    entries = []
    for (name, labels), own in by_key.items():
        each = joined(own)
        estimate = interval(each)
        against = compare_paired(each, joined(by_key[REFERENCE, labels]))
        value = {"mean": estimate.mean, "half_width": estimate.half_width}
        balanced = [row["metrics"]["balanced_accuracy"]["mean"] for row in own]
        means = [row["metrics"]["accuracy"]["mean"] for row in own]
        entries.append(
            {
                "method": name,
                "source": own[0]["source"],
                "labels": labels,
                "majority_rate": own[0]["majority_rate"],
                "metrics": {"accuracy": value},
                "versus": against.verdict,
                "balanced": statistics.fmean(balanced),
                "seeds": len(own),
                "sd": statistics.stdev(means) if len(own) > 1 else None,
            }
        )
    return entries


def published(root):
    """In-distribution accuracies of the paper, by method, source and labels."""
    with (root / "results" / "paper_values.csv").open() as file:
        rows = list(csv.DictReader(file))
    values = {}
    for row in rows:
        kernel = "_linear" if row["kernel"] == "linear" else ""
        if row["method"] == "e2e_icl" and row["setting"] in ("id", ""):
            source = row["data"].replace("product5", "product")
            key = (f"e2e_icl{kernel}", source, row["context"])
            values.setdefault(key, float(row["value"]))
    return values


def table_of(source, rows, paper):
    """Markdown: a line a method, the paper's own first."""
    labels = budgets_of(source)
    lines = [f"## {source.replace('_', ' ')}", ""]
    lines += [f"| labels | {' | '.join(map(str, labels))} |", "|---" * 5 + "|"]
    for kernel in ("", "_linear"):
        name = f"e2e_icl{kernel}"
        cells = [paper.get((name, source, str(m))) for m in labels]
        if any(cells):
            shown = " | ".join("" if c is None else f"{c:.3f}" for c in cells)
            lines.append(f"| *published*, {TITLES[name]} | {shown} |")
    by_key = {(row["method"], row["labels"]): row for row in rows}
    for name in sorted({row["method"] for row in rows}, key=list(TITLES).index):
        cells = [cell(by_key[name, m]) for m in labels]
        lines.append(f"| {TITLES.get(name, name)} | {' | '.join(cells)} |")
    rates = [by_key[REFERENCE, m]["majority_rate"] for m in labels]
    lines.append(f"| largest class | {' | '.join(f'{r:.3f}' for r in rates)} |")
    return "\n".join(lines)


def cell(row):
    """Accuracy, interval, sd over seeds; a sign where it differs from the SVC's."""
    value = row["metrics"]["accuracy"]
    sign = {"ahead": " **+**", "behind": " -", "level": ""}[row["versus"]]
    sd = "" if row["sd"] is None else f" ({row['sd']:.3f})"
    return f"{value['mean']:.3f} ± {value['half_width']:.3f}{sd}{sign}"


INTRODUCTION = """# Accuracy of every method

Made by `scripts/train_table.py` (training) and `benchmarks/accuracy.py` (this page).
Balanced classes, 100 points, labels at random, {episodes} test episodes at each number of
labels, the same for all methods. 95% intervals are over episodes, with accuracies of
several seeds averaged first; in brackets the sd over seeds, where there are several.
**+** is ahead of the tuned RBF-SVC and - behind it, paired over episodes, beyond the 95%
interval: for these weights, and not corrected for the number of comparisons. Models were
trained on episodes of their own source; classical methods were tuned on {tuning} training
episodes at each number of labels. Balanced accuracy, at most {apart:.3f} from accuracy
here, AUROC, log-loss and calibration error: `results/accuracy.jsonl`.

Accuracy against the number of training episodes (`benchmarks/sample_efficiency.py`):
![Accuracy against training episodes](figures/sample-efficiency.png)
"""


def main():
    """Score everything, write rows, tables and figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", type=Path)
    parser.add_argument("--episodes", type=int, default=500)
    parser.add_argument("--tuning", type=int, default=200)
    parser.add_argument("--sources", default=",".join(SOURCES))
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1])
    options = parser.parse_args()
    results = options.root / "results" / "accuracy.jsonl"
    results.parent.mkdir(parents=True, exist_ok=True)
    kept = []
    if results.exists():
        kept = [json.loads(line) for line in results.read_text().splitlines()]
    for source in options.sources.split(","):
        for new in missing(source, options.models, kept, options):
            kept += new
            with replacing(results) as unfinished:
                unfinished.write_text("".join(json.dumps(row) + "\n" for row in kept))
    render(kept, options)
    print(json.dumps({"benchmark": "accuracy", "rows": len(kept)}))


def render(kept, options):
    """The page and a figure a source, from rows; models that are gone are left out."""
    pages, apart = [], 0.0
    paper = published(Path(__file__).parents[1])
    for source in SOURCES:
        digests = {digest for _, digest in methods_of(options.models, source).values()}
        own = [r for r in kept if r["source"] == source and r["model"] in digests]
        setting = (options.episodes, options.tuning, SEED)
        own = [r for r in own if (r["episodes"], r["tuning"], r["test_seed"]) == setting]
        entries = summary(own)
        if {entry["labels"] for entry in entries} != set(budgets_of(source)):
            continue  # not measured to the end yet
        pages.append(table_of(source, entries, paper))
        gaps = [abs(e["balanced"] - e["metrics"]["accuracy"]["mean"]) for e in entries]
        apart = max([apart, *gaps])
        shown = [entry for entry in entries if entry["method"] in FIGURE]
        figure = options.root / "docs" / "figures" / f"accuracy-{source}.png"
        draw_label_curves(shown, "accuracy", figure)
    page = options.root / "docs" / "results.md"
    page.parent.mkdir(parents=True, exist_ok=True)
    about = INTRODUCTION.format(
        episodes=options.episodes, tuning=options.tuning, apart=apart
    )
    page.write_text("\n\n".join([about, *pages]) + "\n")


if __name__ == "__main__":
    main()
