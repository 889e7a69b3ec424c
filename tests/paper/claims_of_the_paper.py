"""What the paper claims, sentence by sentence, and the names under which the ledger decides it."""

SEPSIS = ("evd-against-avril", "evd-against-avril-prior", "less-spread", "prior-causes-spread")
CLAIMS = {
    "KD-BIRL is more concentrated at R* than each baseline in 2x2": (
        "fig1",
        ("concentrated-against-birl", "concentrated-against-avril", "concentrated-against-avril-prior"),
    ),
    "neither AVRIL is concentrated in all states": (
        "fig1",
        ("avril-not-in-all-states", "avril-prior-not-in-all-states"),
    ),
    "an informative prior is not enough": ("fig1", ("informative-prior-not-enough",)),
    "BIRL is close to the truth, but wider": ("fig1", ("birl-close", "birl-wider")),
    "sign and relative size are right in both settings": (
        "fig2",
        ("signs-a", "signs-b", "relative-size-a", "relative-size-b"),
    ),
    "featurising helps": ("fig2", ("featurising-helps",)),
    "the posterior mean is in the equivalence class, with wrong states": (
        "fig3",
        ("equivalence-class", "single-states-wrong"),
    ),
    "training demonstrations cover more states": ("fig3", ("training-covers-more",)),
    "EVD in sepsis: lower or comparable, less spread, the prior's fault": (
        "fig4",
        tuple(f"icu-sepsis-{name}" for name in SEPSIS),
    ),
    "the fifth posterior is concentrated": ("fig5", ("icu-sepsis-fifth-concentrated",)),
    "Lemma 4.1 and Theorem 4.2": ("contraction", ("lemma-4.1", "theorem-4.2")),
    "sampling is cheaper than BIRL's": ("timing", ("cheaper-than-birl",)),
    "cost grows with reward parameters and samples": ("limits", ("cost-parameters", "cost-samples")),
    "suboptimal training demonstrations make the likelihood worse": ("limits", ("suboptimal-training",)),
    "poorer features too": ("limits", ("poorer-features",)),
    "the choice of kernel and distance": ("limits", ("kernel-and-distance",)),
}
EXPECTED = {(experiment, name) for experiment, names in CLAIMS.values() for name in names}
