"""Fit one model for sites that do not share scans. Each site is a process; messages travel by HTTP on this machine.

Run ``python federate_by_http.py OUT COHORT COHORT COHORT ...`` with the cohort folder of each site. For a real project,
use an engine with access control, such as Flower, vantage6 or NVFlare. The messages are the same.
"""

import sys
import tempfile
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from multiprocessing import Process
from pathlib import Path
from threading import Thread

from brio import Cohort, federation
from brio.models import Model, write_model

ENDED = b"ended"


def take_part(address: str, folder: str) -> None:
    """Answer every request, as one site."""
    cohort, record, answered = Cohort.load(folder), Path(folder, "federation", "by-http"), b""
    while (content := urllib.request.urlopen(address).read()) != ENDED:
        if content == answered:
            time.sleep(0.2)
            continue
        with tempfile.TemporaryDirectory() as place:
            request = Path(place, "request.brio")
            request.write_bytes(content)
            answer = federation.answer_and_record(request, cohort, record)
        urllib.request.urlopen(urllib.request.Request(address, federation.encode(answer))).close()
        answered = content


def coordinate(terms: federation.Terms, n_sites: int) -> tuple[HTTPServer, list[Model]]:
    """Make a server that returns the latest request and combines the answers of all sites."""
    state = {"request": federation.start(terms), "answers": {}}
    models: list[Model] = []

    class Coordinator(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.reply(ENDED if models else federation.encode(state["request"]))

        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            answer = federation.decode(content, Path("answer"))
            state["answers"][answer.site] = answer
            if len(state["answers"]) == n_sites:
                found = federation.combine(state["request"], list(state["answers"].values()))
                state["answers"] = {}
                if isinstance(found, Model):
                    models.append(found)
                else:
                    state["request"] = found
            self.reply(b"")

        def reply(self, content: bytes) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *words: object) -> None:
            """Print nothing."""

    return HTTPServer(("127.0.0.1", 0), Coordinator), models


def main(out: str, *folders: str) -> None:
    """Run the coordinator and the sites, and write the model."""
    first = Cohort.load(folders[0])
    rois = {"name": first.atlas.rois["name"].tolist()}
    terms = federation.Terms("by-http", "log-ridge", first.atlas.name, rois, first.classes)
    server, models = coordinate(terms, len(folders))
    Thread(target=server.serve_forever, daemon=True).start()
    sites = [Process(target=take_part, args=(f"http://127.0.0.1:{server.server_port}", one)) for one in folders]
    for site in sites:
        site.start()
    for site in sites:
        site.join()
    server.shutdown()
    write_model(models[0], out)
    print(models[0])


if __name__ == "__main__":
    main(*sys.argv[1:])
