"""
Rebuild a table of the paper
============================

Every table and figure is an artefact: specs, what the paper says, and how rows are drawn.
Specs are run once, a row each; tables only read rows. From a shell it is one command,
``icssl reproduce params``; below are its parts.
"""

import tempfile
from dataclasses import replace
from pathlib import Path

from icssl.bench.paper.artefact import PROFILES
from icssl.bench.paper.catalogue import ARTEFACTS, all_specs, render, rows_of
from icssl.bench.runner import run_missing
from icssl.bench.store import Store

# The folder would be results/quick; this one goes when the script ends.
temporary = tempfile.TemporaryDirectory()
folder = Path(temporary.name)

# %%
# A table that needs no run
# -------------------------
#
# ``params`` counts weights, ours beside the published numbers.

quick = PROFILES["quick"]
store = Store(folder / "rows.jsonl")
print(ARTEFACTS["params"].says)
(table,) = render("params", quick, store, folder)
for line in table.markdown().splitlines()[:14]:
    print(line)

# %%
# A table with rows
# -----------------
#
# ``depth`` asks whether more descent steps in the head help. The profile is still smaller
# than ``quick``: two steps of training and a few episodes, to show how it works and nothing
# else. Only the classical methods of the table are run here.

toy = replace(quick, steps=2, batch=4, episodes=4, tuning=2, product_budgets=(3, 20))
specs = all_specs(["depth"], toy)
classical = [spec for spec in specs if not spec.trainings]
print(f"{len(specs)} specs, {len(classical)} of them without training")
print(f"{run_missing(classical, store, workers=0)} rows added")
print(f"{run_missing(classical, store, workers=0)} rows added by the same call again")

# %%
# The missing cells stay empty until their rows are there.

rows = rows_of(ARTEFACTS["depth"], toy, store)
for cell, row in rows.items():
    accuracy = row["metrics"]["accuracy"]
    print(f"{cell.method}, {cell.labels:g} labels: {accuracy['mean']:.3f}")
temporary.cleanup()

# %%
# The rows of the full profile, which carry the verdicts on the paper's :doc:`/claims`, are
# in ``results/full``; how they were made is in :doc:`/reproduce`. To add a table of your
# own: :doc:`/howto/artefact`.
