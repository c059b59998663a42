"""
From a messy CSV to labels
==========================

This tutorial starts from a file as a spreadsheet in Germany exports it: semicolons between
cells, commas in decimal numbers, dates that begin with the day, an encoding from another
time. A few customers have a label: whether they left (``churned``). The others are to get
one.

The same in a terminal, without Python:
``icssl classify tests/messy/german.csv --target churned --report report.html``.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import icssl

# Where the script runs from: the repository, or its folder of examples.
folder = next(
    path for path in (Path("tests/messy"), Path("../tests/messy")) if path.exists()
)
print((folder / "german.csv").read_bytes()[:200].decode("cp1252"))

# %%
# Read it
# -------
#
# Nothing needs to be said. What was found out is in the table: check it once.

table = icssl.read_table(folder / "german.csv", target="churned")
print(table.notes)
print(table.columns)

# %%
# If a column is not what you think it is, say so:
# ``read_table(..., types={"rating": "category"}, missing=["?"])``. :doc:`/tables` has
# everything that can be set, and what is found out without it.
#
# Label it, and see how good that is
# ----------------------------------

classifier = icssl.ICSSLClassifier().fit(table.features, table.target)
print(classifier.label_score_)
print("Logistic regression on the same:", classifier.label_baseline_)

# %%
# These are labels that were hidden from the classifier, one after the other. There are few,
# so that the interval is wide. Here the truth is known, which is not so with your own file:

truth = np.array((folder / "truth.csv").read_text().split()[1:])
hidden = np.array([label is None for label in table.target])
print(f"right in truth: {(classifier.transduction_ == truth)[hidden].mean():.3f}")

# %%
# Which labels to check
# ---------------------
#
# Printed, an explanation is a sentence per row. The least certain rows:

explanation = classifier.explain()
sure = classifier.label_distributions_.max(axis=1)
for row in np.argsort(sure)[:3]:
    print(explanation.sentence(row))
figure, axes = plt.subplots(1, 2, figsize=(9.5, 3.8), layout="constrained")
classifier.plot_embedding(axes[0])
explanation.plot(int(sure.argmin()), ax=axes[1])
plt.show()

# %%
# What to label next
# ------------------
#
# If you can find out the truth about five customers more, ask about these:

print(classifier.suggest(5))

# %%
# ``icssl explore`` shows all of this in the browser: drop the file there, click on rows,
# and download the table with its labels.
