"""Methods for real tables that need more than icssl requires, and how a person gets that.

Their settings were chosen as those of the other peers, see :mod:`icssl.methods.entries`.
"""

from icssl.methods.lazy import make_estimator, peers_module, tabpfn_module
from icssl.methods.registry import MethodEntry, Need, Recipe, package_need

GRAPH_LEARNING = package_need("graphlearning", "GraphLearning")
_LIGHTGBM = package_need("lightgbm", "LightGBM")
_SSLEARN = package_need("sslearn", "sslearn")
_TABPFN = Need(
    "TabPFN v1",
    "python scripts/fetch_tabpfn.py fetches it into data/tabpfn",
    lambda: tabpfn_module().has_tabpfn(),
)

OPTIONAL = (
    MethodEntry(
        "poisson_mbo",
        "PoissonMBO",
        {
            "real": Recipe(
                lambda: peers_module().PoissonMBO(neighbours=20),
                "PoissonMBO(neighbours=20)",
                GRAPH_LEARNING,
            )
        },
    ),
    MethodEntry(
        "tri_training",
        "Tri-training",
        {
            "real": Recipe(
                lambda: peers_module().Transductive(
                    make_estimator(
                        "wrapper.TriTraining",
                        package="sslearn",
                        base_estimator=make_estimator(
                            "linear_model.LogisticRegression", C=100.0, max_iter=1000
                        ),
                    )
                ),
                "Transductive(estimator=TriTraining(base_estimator="
                "LogisticRegression(C=100.0, max_iter=1000)), gamma=None)",
                _SSLEARN,
            )
        },
    ),
    MethodEntry(
        "boosted_trees",
        "LightGBM",
        {
            "real": Recipe(
                # With its own defaults a leaf needs twenty labels, and nothing is split.
                lambda: peers_module().Supervised(
                    make_estimator(
                        "LGBMClassifier",
                        package="lightgbm",
                        colsample_bytree=0.3,
                        extra_trees=True,
                        min_child_samples=1,
                        min_data_in_bin=1,
                        n_jobs=1,
                        verbosity=-1,
                    )
                ),
                "Supervised(estimator=LGBMClassifier(colsample_bytree=0.3, "
                "extra_trees=True, min_child_samples=1, min_data_in_bin=1, n_jobs=1, "
                "verbosity=-1), temperature=1.0)",
                _LIGHTGBM,
            )
        },
    ),
    MethodEntry(
        "tabpfn",
        "TabPFN v1",
        {
            "real": Recipe(
                lambda: tabpfn_module().TabPFN(
                    configurations=8, scale_on_all_rows=False, components=5
                ),
                "TabPFN(configurations=8, scale_on_all_rows=False, components=5)",
                _TABPFN,
            )
        },
    ),
)
