"""Did development on some sites flatter a method? Compare it with others at those sites and at the rest.

    python benchmarks/development_sites.py METHOD results.csv [results.csv ...]

The development sites are every second one by name. Prints a Markdown table: the mean AUC of each method at the
development sites, the other sites and all sites, and METHOD minus it, paired over sites, with a 95 % bootstrap interval
and the exact signed-rank test. Seeds are averaged first; p values are not corrected.
"""

import argparse

import pandas as pd

from brio.protocol import compare_by_signed_rank
from brio.results import average_seeds


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("method")
    parser.add_argument("results", nargs="+")
    args = parser.parse_args()

    scores = 100 * average_seeds(pd.concat([pd.read_csv(path) for path in args.results], ignore_index=True))
    sites = sorted(scores.index)
    groups = {"development sites": sites[::2], "other sites": sites[1::2], "all sites": sites}
    print(f"| method | {' | '.join(f'AUC, {group} | {args.method} minus it' for group in groups)} |")
    print("| --- |" + " --- | --- |" * len(groups))
    for name in scores.columns:
        cells = []
        for group in groups.values():
            own, other = scores.loc[group, args.method], scores.loc[group, name]
            difference = compare_by_signed_rank(own, other)
            interval = f"{difference.low:+.1f} to {difference.high:+.1f}"
            compared = f"{difference.mean:+.1f} ({interval}, p = {difference.p:.2g})"
            cells += [f"{other.mean():.1f}", "-" if name == args.method else compared]
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
