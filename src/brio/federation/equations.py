"""Ridge regression across sites that share no scans: how a site answers, and how the answers are combined.

Site e has features A_e [n_e, d], centred, and labels b_e [n_e]. The pooled coefficients w solve

    (A'A + lambda I) w = A'b,    A'A = sum of A_e'A_e,    A'b = sum of A_e'b_e,

where the products A'A would reveal the scans. The sites are therefore asked only for the products of A'A with a few
vectors. Each site solves the problem on its own scans, and the solutions are averaged (an approximate Newton step:
Wang, Roosta, Xu & Mahoney 2018, GIANT). The best point in the span of all averages so far follows from their products
with A'A.
"""

from typing import Annotated, NamedTuple

import numpy as np
from msgspec import Meta
from scipy.special import logit as to_logit


def multiply_labels(A: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Compute A_e'b_e. Shapes: A [n, d], b [n]; returns [d]."""
    return A.T @ b


def multiply_vector(A: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Compute A_e'A_e v. Shapes: A [n, d], v [d]; returns [d]."""
    return A.T @ (A @ v)


def solve_alone(A: np.ndarray, g: np.ndarray, n_all: int, penalty: float) -> np.ndarray:
    """Solve (n_all / n_e A_e'A_e + lambda I) d = g, which is the problem if all sites are like this one.

    Shapes: A [n, d], g [d]; returns [d].
    """
    share = n_all / len(A)
    dual = np.linalg.solve(penalty * np.eye(len(A)) + share * (A @ A.T), A @ g)
    return (g - share * (A.T @ dual)) / penalty


class Point(NamedTuple):
    """The best coefficients so far. Shapes: w, residual, product [d]."""

    w: np.ndarray
    residual: np.ndarray  # A'b - (A'A + lambda I) w; zero for the pooled coefficients
    product: np.ndarray  # A'A w


def find_best_point(V: np.ndarray, Q: np.ndarray, c: np.ndarray, penalty: float) -> Point:
    """Find the best coefficients in the span of directions from their products Q = A'A V, and c = A'b.

    Shapes: V, Q [k, d], c [d].
    """
    if not len(V):
        return Point(np.zeros_like(c), c, np.zeros_like(c))
    size = np.linalg.norm(V, axis=1)
    V, Q = V / size[:, None], Q / size[:, None]
    a = np.linalg.lstsq(V @ (Q + penalty * V).T, V @ c, rcond=1e-14)[0]
    w, product = a @ V, a @ Q
    return Point(w, c - product - penalty * w, product)


LARGEST = 1e9
Finite = Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]
"""A margin, or a coefficient of margins."""
Size = Annotated[float, Meta(ge=0, le=LARGEST)]


class Spread(NamedTuple):
    """Sums over the margins of a site under a model that has not seen its scans; they add up over sites.

    With n_0 and n_1 scans of each class, m_0 and m_1 their mean margins.
    """

    pairs: Size  # n_0 n_1 / n
    gap: Finite  # n_0 n_1 / n (m_1 - m_0)
    within: Size  # squared distances from the mean of the own class
    freedom: Size  # n - 2

    def is_possible(self, n: int, n_sites: int = 1, squares: float = np.inf) -> bool:
        """Whether n scans of some sites can have margins with this spread, and at most this sum of squares."""
        is_possible = 0 < self.pairs <= n / 4 and self.within >= 0 and self.freedom == n - 2 * n_sites
        return bool(is_possible and self.within + self.gap**2 / self.pairs <= squares)


def measure_spread(margin: np.ndarray, label: np.ndarray) -> Spread:
    """Measure the spread of margins [n] with labels [n] of 0 or 1."""
    parts = [margin[label == k] for k in (0, 1)]
    n_0, n_1 = map(len, parts)
    pairs = n_0 * n_1 / (n_0 + n_1)
    within = sum(float(((part - part.mean()) ** 2).sum()) for part in parts)
    return Spread(pairs, pairs * float(parts[1].mean() - parts[0].mean()), within, n_0 + n_1 - 2.0)


LEAST_SLOPE = 0.1
"""Lower bound of the slope, as for models of one cohort; also the slope if each class has one scan at every site."""
SMALLEST_SHARE = 1e-6
"""Lower bound of the variance within the classes, relative to the squared distance between them."""


def calibrate(spread: Spread, scale: float, variance: float, share: float) -> tuple[float, float]:
    """Find the slope and intercept that turn margins with mean zero into log-odds.

    For margins that are normal in each class, the slope of the log-odds is the distance between the classes divided by
    the variance within them. ``scale`` is the size of the margins to calibrate relative to those of the spread, and
    ``variance`` is their variance over all scans. ``share`` is the share of patients, which the mean probability is set
    to equal (probit approximation of the logistic function: MacKay 1992).
    """
    distance = spread.gap / spread.pairs
    variance_within = max(spread.within / max(spread.freedom, 1.0), SMALLEST_SHARE * distance**2, 1e-300)
    slope = max(LEAST_SLOPE, distance / variance_within if spread.freedom else 0.0) / scale
    return slope, float(to_logit(share) * np.sqrt(1 + np.pi / 8 * slope**2 * variance))
