"""A model of sites that share no scan: what a site answers to a request, and what the sums of the answers give."""

from .coordinator import combine, start
from .messages import Answer, Request, Terms, digest, read_message, write_message
from .record import Agreement, answer_and_record
from .site import answer
from .words import describe_message

__all__ = ["Agreement", "Answer", "Request", "Terms", "answer", "answer_and_record", "combine", "describe_message"]
__all__ += ["digest", "read_message", "start", "write_message"]
