"""Progress: a rate and the remaining time in every line and bar, within 80 columns."""

import io
import warnings

import numpy as np
import pytest
from rich.console import Console

import kdbirl as kb
from kdbirl import progress
from kdbirl.errors import KDBIRLWarning


class Clock:
    """Time that passes when a test says so."""

    def __init__(self, monkeypatch):
        self.now = 100.0
        monkeypatch.setattr(progress.time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def test_lines_say_rate_and_remaining_time(clock):
    stream = io.StringIO()
    lines = progress.Lines(stream)
    lines.update("NUTS, 4 chains", 0, 2000, "warm-up")
    clock.now += 1
    lines.update("NUTS, 4 chains", 250, 2000, "warm-up")  # too soon for a line
    clock.now += 1
    lines.update("NUTS, 4 chains", 500, 2000, "draws")
    assert stream.getvalue() == "NUTS, 4 chains: 500 of 2,000, draws, 250/s, 0:06 left\n"


def test_a_job_that_starts_again_is_measured_again(clock):
    stream = io.StringIO()
    lines = progress.Lines(stream, every=0.0)
    lines.update("plan", 0, 10)
    clock.now += 1
    lines.update("plan", 10, 10)
    clock.now += 100
    lines.update("plan", 0, 10)
    clock.now += 2
    lines.update("plan", 4, 10)
    assert stream.getvalue().splitlines()[1::2] == ["plan: 10 of 10, 10/s", "plan: 4 of 10, 2/s, 0:03 left"]


@pytest.mark.parametrize(
    ("rate", "text"),
    [(0.1, "10 s each"), (2.5, "2.5/s"), (1234.0, "1234/s"), (45_600.0, "45.6k/s"), (7.3e8, "730M/s"), (2e9, "2G/s")],
)
def test_rates_are_short(rate, text):
    assert progress.rate_text(rate) == text


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0:00"), (59.6, "1:00"), (750.0, "12:30"), (10_800.0, "3:00:00")])
def test_clock(seconds, text):
    assert progress.clock(seconds) == text


def test_a_bar_shows_rate_and_remaining_time_within_80_columns(clock):
    stream = io.StringIO()
    bar = progress.Bar(Console(file=stream, force_terminal=True, width=80))
    bar.update("[red]NUTS[/red], 4 chains", 0, 2000, "warm-up")
    clock.now += 2
    bar.update(
        "[red]NUTS[/red], 4 chains", 500, 2000, "a note that is far too long to stand beside all the other things"
    )
    console = Console(file=io.StringIO(), width=80)
    console.print(bar._bars.get_renderable())
    bar.close()
    (shown,) = console.file.getvalue().splitlines()
    assert len(shown) <= 80
    assert all(part in shown for part in ("[red]NUTS[/red], 4 chains", "25 %", "250/s, 0:06 left"))
    assert bar._bars.tasks == []


class Heard:
    """Remembers what was reported."""

    def __init__(self):
        self.updates = []

    def update(self, name, done, total, note=""):
        self.updates.append((name, done, total))

    def close(self):
        pass


def test_a_bank_reports_each_of_its_tasks():
    heard = Heard()
    kb.make_bank(kb.Gridworld(2), np.eye(4)[:3], episodes=1, horizon=2, seed=0, progress=heard)
    assert heard.updates == [("demonstrations", done, 3) for done in range(4)]


def test_chains_report_every_part_of_their_steps():
    rng, heard = np.random.default_rng(0), Heard()
    bank = kb.TaskBank.from_arrays(rng.normal(size=(12, 2)), None, np.repeat([0, 1, 2], 4), rng.normal(size=(3, 2)))
    model = kb.KDBIRL(kb.Normal(0, 1), bandwidth=(1.0, 1.0), sampler=kb.NUTS(chains=2, warmup=150, draws=150)).fit(bank)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KDBIRLWarning)
        model.posterior(kb.Demonstrations(states=rng.normal(size=(5, 2))), seed=0, progress=heard)
    told = [(done, total) for name, done, total in heard.updates if "2 chains" in name]
    assert len(told) >= 2
    assert told[-1][0] == told[-1][1] == 300


def test_quiet_is_silent_and_a_pipe_gets_lines():
    stream = io.StringIO()
    assert isinstance(progress.for_stream(stream, quiet=True), progress.Silent)
    assert isinstance(progress.for_stream(stream, quiet=False), progress.Lines)
