"""All methods: to add one, write its class and one entry here.

An entry states in which places a method appears, how it is made there, and its settings as
they stand in the keys of rows. Its title and style are the same in every place. The order
is that of tables. The paper's regressions as printed and null models are declared in
:mod:`icssl.methods.null_entries`, methods for real tables that need another package in
:mod:`icssl.methods.optional_entries`.
"""

from icssl.methods.lazy import make_estimator, peers_module
from icssl.methods.logistic import (
    EigenvectorRegression,
    KernelRegression,
    LogisticRegression,
    SupportVectors,
)
from icssl.methods.null_entries import NULL_MODELS, UNTUNED
from icssl.methods.optional_entries import GRAPH_LEARNING, OPTIONAL
from icssl.methods.propagation import (
    LabelPropagation,
    LabelSpreading,
    LaplaceLearning,
    PoissonLearning,
)
from icssl.methods.registry import (
    GRAPH_NEIGHBOURS,
    LABELLED_ONLY,
    OURS,
    MethodEntry,
    Recipe,
    Style,
    register,
)
from icssl.methods.simple import BayesCeiling, GaussianMixture, Majority, NearestNeighbour


def _ours(labelled_only: bool) -> str:
    return f"Ours(labelled_only={labelled_only}, weights={peers_module().weights_id()!r})"


_BY_GRAPH = {"neighbours": GRAPH_NEIGHBOURS}

# What works on eigenvectors is green, what works on coordinates pink; the colours are Okabe
# and Ito's without the yellow, which is hard to see on paper.
_MODELS = (
    # Not "Orig+E2E-ICL", which is the paper's name for what is "paper" here.
    MethodEntry(
        "e2e_icl", "Our variant of E2E-ICL", style=Style("#0072b2", "o"), is_trained=True
    ),
    MethodEntry("e2e_linear", "Our variant of E2E-ICL, linear kernel", is_trained=True),
    MethodEntry(
        "e2e_wide",
        "Our variant of E2E-ICL, k = 12, 4 steps",
        style=Style("#56b4e9", "s"),
        is_trained=True,
    ),
    MethodEntry(
        "e2e_encoder",
        "Orig+E2E, encoder head",
        style=Style("#d55e00", "o"),
        is_trained=True,
    ),
    MethodEntry("eig_icl", "Eig+ICL", style=Style("#009e73", "^"), is_trained=True),
    MethodEntry("orig_icl", "Orig+ICL", style=Style("#cc79a7", "D"), is_trained=True),
    MethodEntry(
        "transformer",
        "Transformer baseline",
        # Wider, for on most sources it lies under the curve of the encoder head.
        style=Style("#e69f00", "s", width=2.2),
        is_trained=True,
    ),
    MethodEntry(
        "transformer_unscaled", "Transformer baseline, unscaled points", is_trained=True
    ),
    MethodEntry("lap_linear", "Ablation: linear Laplacian", is_trained=True),
    MethodEntry("lap_pe_1layer", "Ablation: one layer per stage", is_trained=True),
    MethodEntry("paper", "Orig+E2E-ICL, as printed", is_trained=True),
    MethodEntry("paper_linear", "Orig+E2E-ICL, as printed, linear kernel", is_trained=True),
    MethodEntry(
        "paper_combined", "Orig+E2E-ICL, as printed, combined loss", is_trained=True
    ),
    MethodEntry("paper_8_32_8", "Orig+E2E-ICL, as printed, MLP 8-32-8", is_trained=True),
    MethodEntry("paper_24", "Orig+E2E-ICL, as printed, 6 x 4 heads", is_trained=True),
    MethodEntry(
        "paper_lap_linear", "Ablation as printed: linear Laplacian", is_trained=True
    ),
    MethodEntry(
        "paper_lap_pe_1layer", "Ablation as printed: one layer per stage", is_trained=True
    ),
    MethodEntry("paper_orig_icl", "Orig+ICL, as printed", is_trained=True),
    MethodEntry("paper_eig_icl", "Eig+ICL, as printed", is_trained=True),
    MethodEntry("paper_scalars", "Orig+E2E-ICL, unscaled points", is_trained=True),
    MethodEntry(
        "transformer_positions",
        "Transformer baseline, learned positions",
        is_trained=True,
    ),
)

# Settings for real tables are the best of a small grid by mean accuracy on the development
# half, and temperatures by log-loss: python scripts/choose_peers.py data/real
_OTHERS = (
    MethodEntry(
        OURS,
        "ICSSL",
        {
            "real": Recipe(lambda: peers_module().Ours(), lambda: _ours(False)),
            "scale": Recipe(
                lambda: peers_module().large_ours,
                lambda: {"weights": peers_module().weights_id()},
            ),
        },
    ),
    MethodEntry(
        LABELLED_ONLY,
        "ICSSL, labelled rows only",
        {
            "real": Recipe(
                lambda: peers_module().Ours(labelled_only=True), lambda: _ours(True)
            )
        },
    ),
    MethodEntry(
        "eig_lr",
        "Eig+LR",
        {
            "evaluate": Recipe(
                EigenvectorRegression,
                "EigenvectorRegression(C=1.0, scaling='isotropic', k=4)",
            )
        },
        Style("#009e73", "v"),
    ),
    MethodEntry(
        "orig_rbf_lr",
        "Orig+RBF-LR",
        {
            "evaluate": Recipe(
                KernelRegression,
                "KernelRegression(bandwidth=0.5, C=1.0, scaling='isotropic')",
            )
        },
        Style("#cc79a7", "P"),
    ),
    MethodEntry(
        "orig_lr",
        "Orig+LR",
        {
            "evaluate": Recipe(
                LogisticRegression, "LogisticRegression(C=1.0, scaling='isotropic')"
            )
        },
    ),
    MethodEntry(
        "label_spreading",
        "Label spreading",
        {
            "evaluate": Recipe(
                LabelSpreading,
                "LabelSpreading(alpha=0.9, kernel='rbf', bandwidth=0.2, neighbours=7, "
                "scaling='isotropic')",
            ),
            "real": Recipe(
                lambda: peers_module().Transductive(
                    make_estimator(
                        "semi_supervised.LabelSpreading", kernel="rbf", alpha=0.8
                    ),
                    gamma=10.0,
                ),
                "Transductive(estimator=LabelSpreading(alpha=0.8), gamma=10.0)",
            ),
        },
        Style("#777777", "*"),
    ),
    MethodEntry(
        "label_propagation",
        "Label propagation",
        {
            "evaluate": Recipe(
                LabelPropagation,
                "LabelPropagation(kernel='rbf', bandwidth=0.2, neighbours=7, "
                "scaling='isotropic')",
            ),
            "real": Recipe(
                lambda: peers_module().Transductive(
                    make_estimator("semi_supervised.LabelPropagation", kernel="rbf"),
                    gamma=30.0,
                ),
                "Transductive(estimator=LabelPropagation(), gamma=30.0)",
            ),
        },
    ),
    MethodEntry(
        "laplace_learning",
        "Laplace learning",
        {
            "evaluate": Recipe(
                LaplaceLearning, "LaplaceLearning(neighbours=10, scaling='isotropic')"
            )
        },
    ),
    MethodEntry(
        "poisson_learning",
        "Poisson learning",
        {
            "evaluate": Recipe(
                PoissonLearning,
                "PoissonLearning(neighbours=10, scaling='isotropic', temperature=1.0)",
            )
        },
    ),
    MethodEntry(
        "self_training",
        "Self-training",
        {
            "real": Recipe(
                lambda: peers_module().Transductive(
                    make_estimator(
                        "semi_supervised.SelfTrainingClassifier",
                        estimator=make_estimator(
                            "linear_model.LogisticRegression", C=10.0, max_iter=1000
                        ),
                        threshold=0.75,
                    )
                ),
                "Transductive(estimator=SelfTrainingClassifier(estimator="
                "LogisticRegression(C=10.0, max_iter=1000)), gamma=None)",
            )
        },
    ),
    MethodEntry(
        "logistic_regression",
        "Logistic regression",
        {
            "real": Recipe(
                lambda: peers_module().Supervised(
                    make_estimator("linear_model.LogisticRegression", C=1.0, max_iter=1000)
                ),
                "Supervised(estimator=LogisticRegression(max_iter=1000), temperature=1.0)",
            ),
        },
    ),
    MethodEntry(
        "svc",
        "SVC",
        {
            "real": Recipe(
                lambda: peers_module().Supervised(
                    make_estimator("svm.SVC", C=1.0, kernel="linear"), temperature=1.4
                ),
                "Supervised(estimator=SVC(kernel='linear'), temperature=1.4)",
            ),
        },
    ),
    MethodEntry(
        "nearest_neighbour",
        "1-NN",
        {
            "evaluate": Recipe(NearestNeighbour, "NearestNeighbour(scaling='isotropic')"),
            "real": Recipe(
                lambda: peers_module().Supervised(
                    make_estimator("neighbors.KNeighborsClassifier", n_neighbors=1)
                ),
                "Supervised(estimator=KNeighborsClassifier(n_neighbors=1), "
                "temperature=1.0)",
            ),
        },
    ),
    MethodEntry(
        "svc_rbf",
        "RBF-SVC",
        {
            "evaluate": Recipe(
                SupportVectors,
                "SupportVectors(bandwidth=1.0, C=10.0, scaling='isotropic', "
                "temperature=1.0)",
            )
        },
        Style("#000000", "x"),
    ),
    MethodEntry(
        "gaussian_mixture_em",
        "Gaussian mixture EM",
        {
            "evaluate": Recipe(
                GaussianMixture,
                "GaussianMixture(covariance='full', ridge=0.1, unlabelled_weight=1.0, "
                "scaling='isotropic', steps=30)",
            )
        },
    ),
    MethodEntry(
        "majority",
        "Class frequencies of the labels",
        {"evaluate": Recipe(Majority, "Majority()")},
    ),
    MethodEntry(
        "bayes_ceiling",
        "Bayes ceiling",
        {"evaluate": Recipe(BayesCeiling, "BayesCeiling(radius=None)")},
        Style("#000000", "", line=":"),
    ),
    MethodEntry(
        "random_forest",
        "Random forest",
        {
            "real": Recipe(
                lambda: peers_module().Supervised(
                    make_estimator("ensemble.RandomForestClassifier")
                ),
                "Supervised(estimator=RandomForestClassifier(), temperature=1.0)",
            )
        },
    ),
    MethodEntry(
        "spreading_knn",
        "Label spreading, nearest neighbours",
        # A search tree takes too long in many columns.
        {
            "scale": Recipe(
                lambda: peers_module().LargeSpreading("knn"), _BY_GRAPH, most_rows=100_000
            )
        },
    ),
    MethodEntry(
        "spreading_rbf",
        "Label spreading, Gaussian kernel",
        # It holds the matrix of all pairs.
        {
            "scale": Recipe(
                lambda: peers_module().LargeSpreading("rbf"), _BY_GRAPH, most_rows=20_000
            )
        },
    ),
    MethodEntry(
        "laplace",
        "Laplace learning",
        {
            "real": Recipe(
                lambda: peers_module().OnEpisode(LaplaceLearning(neighbours=20)),
                "OnEpisode(method=LaplaceLearning(neighbours=20, scaling='isotropic'))",
            ),
            "scale": Recipe(
                lambda: peers_module().GraphLearning("laplace"), _BY_GRAPH, GRAPH_LEARNING
            ),
        },
    ),
    MethodEntry(
        "poisson",
        "Poisson learning",
        {
            "real": Recipe(
                lambda: peers_module().OnEpisode(
                    PoissonLearning(neighbours=20, temperature=0.25)
                ),
                "OnEpisode(method=PoissonLearning(neighbours=20, scaling='isotropic', "
                "temperature=0.25))",
            ),
            "scale": Recipe(
                lambda: peers_module().GraphLearning("poisson"), _BY_GRAPH, GRAPH_LEARNING
            ),
        },
    ),
)

for _entry in (*_MODELS, *_OTHERS, *UNTUNED, *NULL_MODELS, *OPTIONAL):
    register(_entry)
