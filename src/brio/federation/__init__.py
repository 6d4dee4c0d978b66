"""A model of sites that share no scan: what a site answers to a request, and what the sums of the answers give."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import export_lazily

if TYPE_CHECKING:
    from .coordinator import combine, start
    from .messages import Answer, Request, SiteScore, Terms, describe_message, digest, read_message, write_message
    from .record import Agreement, answer_and_record
    from .site import answer

__all__ = ["Agreement", "Answer", "Request", "SiteScore", "Terms", "answer", "answer_and_record", "combine"]
__all__ += ["describe_message", "digest", "read_message", "start", "write_message"]

_MESSAGES = ("Answer", "Request", "SiteScore", "Terms", "describe_message", "digest", "read_message", "write_message")
__getattr__, __dir__ = export_lazily(
    __name__,
    {
        "coordinator": ("combine", "start"),
        "messages": _MESSAGES,
        "record": ("Agreement", "answer_and_record"),
        "site": ("answer",),
    },
)
