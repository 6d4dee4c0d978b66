"""Did development on some sites flatter a method? Compare it with others at those sites and at the rest.

    python benchmarks/development_sites.py METHOD results.csv [results.csv ...]

The development sites are every second one by name. Prints a Markdown table: the mean AUC of each method at the
development sites, the other sites and all sites, and METHOD minus it, paired over sites, with a 95% interval
and the corrected t test over sites. The last column is the interaction: the gain at the development sites minus that at
the others. Seeds are averaged first; p values are not corrected.
"""

import argparse

import pandas as pd

from brio.protocol.statistics import compare_by_corrected_t, compare_groups
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
    print(f"| method | {' | '.join(f'AUC, {group} | {args.method} minus it' for group in groups)} | interaction |")
    print("| --- |" + " --- | --- |" * len(groups) + " --- |")
    for name in scores.columns:
        cells = []
        for group in groups.values():
            own, other = scores.loc[group, args.method], scores.loc[group, name]
            difference = compare_by_corrected_t(own, other, margin=2.0)
            interval = f"{difference.low:+.1f} to {difference.high:+.1f}"
            compared = f"{difference.mean:+.1f} ({interval}, p = {difference.p:.2g})"
            cells += [f"{other.mean():.1f}", "-" if name == args.method else compared]
        gain = scores[args.method] - scores[name]
        gap = compare_groups(*(gain[groups[group]] for group in ("development sites", "other sites")))
        change = "-" if name == args.method else f"{gap.mean:+.1f} ({gap.low:+.1f} to {gap.high:+.1f}, p = {gap.p:.2g})"
        print(f"| {name} | {' | '.join(cells)} | {change} |")


if __name__ == "__main__":
    main()
