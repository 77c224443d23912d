"""Four things of somebody else: nothing here is known to mfairfl but by name."""

from dataclasses import dataclass

from torch import nn

from mfairfl.data import Dataset, Task
from mfairfl.fairness import Event, Notion
from mfairfl.strategies import Card, Step, Strategy, parameter
from mfairfl.testing import people


@dataclass(frozen=True)
class LossShift(Strategy):
    """Clients count by p_k (1 + t L_k)."""

    t: float = parameter(1.0, grid=(0.5, 1.0), least=0)
    update: str = "anything"  # no engine reads a hyper-parameter's name

    card = Card(title="Clients count a little more by their loss", protects="clients")

    def combine(self, state, round, reports, gram):
        c = round.shares(reports) * (1 + self.t * round.losses(reports))
        return Step(c / c.sum(), log={"t": self.t})


PREDICTIVE_EQUALITY = Notion("predictive_equality", (Event("y=0", (0,)),), "selection")


def read_applicants(path):
    return people()


APPLICANTS = Dataset(
    "applicants",
    read_applicants,
    Task(label="hired", favourable="yes", sensitive=("sex", "age"), client="site"),
    title="Applicants at four sites",
)


def tiny(inputs):
    return nn.Sequential(nn.Linear(inputs, 3), nn.Tanh(), nn.Linear(3, 1))
