"""What tuning on some sites did: a method against others at the sites where it was developed, and at the rest.

    python benchmarks/development_sites.py METHOD results.csv [results.csv ...]

Sites of development are every second one by name. Seeds are averaged first; differences are paired over sites, METHOD
less the other, with a 95 % interval by resampling sites and the exact signed-rank test.
"""

import argparse

import pandas as pd

from brio.protocol import paired_difference, run_scores

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("method")
parser.add_argument("results", nargs="+")
args = parser.parse_args()
scores = 100 * run_scores(pd.concat([pd.read_csv(path) for path in args.results], ignore_index=True))
names = sorted(scores.index)
parts = {"development sites": names[::2], "other sites": names[1::2], "all sites": names}

print(f"| method | {' | '.join(f'AUC, {part} | {args.method} less it' for part in parts)} |")
print("| --- |" + " --- | --- |" * len(parts))
for name in scores.columns:
    cells = []
    for sites in parts.values():
        mine, other = scores.loc[sites, args.method], scores.loc[sites, name]
        cells.append(f"{other.mean():.1f}")
        d = paired_difference(mine, other)
        told = f"{d.mean:+.1f} ({d.low:+.1f} to {d.high:+.1f}, p = {d.p:.2g})"
        cells.append("-" if name == args.method else told)
    print(f"| {name} | {' | '.join(cells)} |")
