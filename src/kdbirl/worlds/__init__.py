"""Where behaviour comes from: tabular worlds, Gymnasium environments, simulators. Nothing here plans or learns."""
