"""What is smaller in a quick run than in the real one, besides seeds and draws."""

from dataclasses import replace

from kdbirl.experiments.grid_settings import GridSetting


def sized(setting: GridSetting, quick: bool) -> GridSetting:
    """The setting itself, or with the `median` rule for `loto`, whose search takes longer than all the rest."""
    return replace(setting, bandwidth="median") if quick and setting.bandwidth == "loto" else setting
