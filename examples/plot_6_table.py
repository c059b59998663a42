"""
Rebuild a table of the paper
============================

Every table and figure is an artefact: specs, what the paper says, and how rows are drawn.
Every spec is run once and gives one row; tables only read rows. In a shell this is one
command, ``icssl reproduce params``. This tutorial shows its parts.
"""

import tempfile
from dataclasses import replace
from pathlib import Path

from icssl.bench.paper.artefact import PROFILES
from icssl.bench.paper.catalogue import ARTEFACTS, all_specs, render, rows_of
from icssl.bench.runner import run_missing
from icssl.bench.store import Store

# The command would use results/quick; this folder is deleted when the script ends.
temporary = tempfile.TemporaryDirectory()
folder = Path(temporary.name)

# %%
# A table that needs no run
# -------------------------
#
# ``params`` compares our parameter counts with the published ones.

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
# ``depth`` asks whether more descent steps in the head help. The profile here is even
# smaller than ``quick``: two training steps and a few episodes, only to show how it
# works. Only the classical methods of the table are run.

toy = replace(quick, steps=2, batch=4, episodes=4, tuning=2, product_budgets=(3, 20))
specs = all_specs(["depth"], toy)
classical = [spec for spec in specs if not spec.trainings]
print(f"{len(specs)} specs, {len(classical)} of them without training")
print(f"{run_missing(classical, store, workers=0)} rows added")
print(f"{run_missing(classical, store, workers=0)} rows added by the same call again")

# %%
# Missing cells stay empty until their rows exist.

rows = rows_of(ARTEFACTS["depth"], toy, store)
for cell, row in rows.items():
    accuracy = row["metrics"]["accuracy"]
    print(f"{cell.method}, {cell.labels:g} labels: {accuracy['mean']:.3f}")
temporary.cleanup()

# %%
# The rows of the full profile, on which the verdicts on the paper's :doc:`/claims` are
# based, are in ``results/full``; :doc:`/reproduce` says how they were made. To add a
# table of your own, see :doc:`/howto/artefact`.
