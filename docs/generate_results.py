"""Generate the result pages from the stored results.

    python docs/generate_results.py [--pages docs/results] [--images docs/images] [--readme README.md]

Writes ``docs/results/*.md`` and their figures from ``evidence/``, curves of measurements to ``docs/images``, and the
small table of the README between its two markers. Nothing is trained. ``make results`` runs it.
"""

import argparse
from pathlib import Path

from result_pages import draw_figures, fill_readme, generate_pages

from brio.drawing import save_figure

REPOSITORY = Path(__file__).resolve().parents[1]


def main() -> None:
    """Read the command line and write the pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=Path, default=REPOSITORY / "docs" / "results", help="folder of the pages")
    parser.add_argument("--images", type=Path, default=REPOSITORY / "docs" / "images", help="folder of drawn figures")
    parser.add_argument("--readme", type=Path, default=REPOSITORY / "README.md", help="file with the two markers")
    args = parser.parse_args()
    (args.pages / "figures").mkdir(parents=True, exist_ok=True)
    for name, text in generate_pages().items():
        (args.pages / name).write_text(text, encoding="utf-8")
        print(args.pages / name)
    args.images.mkdir(parents=True, exist_ok=True)
    for name, figure in draw_figures().items():
        print(save_figure(figure, args.images / name))
    before = args.readme.read_text(encoding="utf-8")
    after = fill_readme(before)
    if after != before:
        args.readme.write_text(after, encoding="utf-8")
        print(args.readme)


if __name__ == "__main__":
    main()
