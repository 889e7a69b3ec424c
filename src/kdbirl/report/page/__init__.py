"""The page: one look for reports, comparisons, reproductions and the studio; self-contained and offline."""
