"""What the parts of a backfitted model are."""

from dataclasses import dataclass

from locdist.jobs.telling.kept import Kept


@dataclass(frozen=True)
class Scales(Kept):
    """The scale of each term of a backfitted model, and how well they fit together.

    Parameters
    ----------
    terms : tuple of str
        "intercept", then the features.
    bandwidths : tuple of float
        Neighbors, or a distance.
    enp : tuple of float
        Effective number of parameters of each term; a term that is the same everywhere has 1.
    critical : tuple of float
        |t| beyond which a local coefficient differs from 0 at the level 5 %, for as many independent tests as
        the term has parameters.
    together : float
        The bandwidth of the regression with one for all terms, where it began.
    sweeps : int
    rests : bool
        Whether the parts have settled.
    change : float
        The score of change of the last sweep.
    n : int
        Rows.
    rss, r2, sigma2, aicc, aic, bic : float
        Of the standardized target, as software of MGWR tells them; sigma2 is RSS / (n − ENP).
    """

    terms: tuple[str, ...]
    bandwidths: tuple[float, ...]
    enp: tuple[float, ...]
    critical: tuple[float, ...]
    together: float
    sweeps: int
    rests: bool
    change: float
    n: int
    rss: float
    r2: float
    sigma2: float
    aicc: float
    aic: float
    bic: float

    def __str__(self) -> str:
        each = zip(self.terms, self.bandwidths, self.enp, self.critical, strict=True)
        lines = [
            f"{name}: bandwidth {width:g}, ENP {enp:.4f}, critical |t| {critical:.3f}"
            for name, width, enp, critical in each
        ]
        lines.append(f"R² {self.r2:.6f}, ENP {sum(self.enp):.4f}, AICc {self.aicc:.4f} (standardized)")
        said = f"{self.sweeps} sweeps from one bandwidth of {self.together:g}"
        return "\n".join([*lines, said if self.rests else f"{said}: the parts have not settled"])
