"""Rows of a table of a page, as a browser would read them."""

from html.parser import HTMLParser


class Row:
    """Attributes of a row; attributes and text of its cells."""

    def __init__(self, attributes):
        self.attributes, self.cells = attributes, []

    @property
    def text(self):
        return "".join(text for _, text in self.cells)


class _Table(HTMLParser):
    def __init__(self, page, name):
        super().__init__()
        self.name, self.inside, self.rows = name, False, []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        if tag == "table":
            self.inside = dict(attrs).get("id") == self.name
        elif self.inside and tag == "tr":
            self.rows.append(Row(dict(attrs)))
        elif self.inside and tag in ("th", "td"):
            self.rows[-1].cells.append([dict(attrs), ""])

    def handle_endtag(self, tag):
        self.inside = self.inside and tag != "table"

    def handle_data(self, data):
        if self.inside and self.rows and self.rows[-1].cells:
            self.rows[-1].cells[-1][1] += data


def read_rows(page, name):
    """Read the rows of the table with this id, without its head."""
    return [row for row in _Table(page, name).rows if "data-method" in row.attributes]


def read_section(page, name):
    """Cut the section with this id out of a page."""
    start = page.index(f'<section id="{name}"')
    return page[start : page.index("</section>", start)]
