"""A model of sites that share no scans: how a site answers requests, and how the answers are combined."""

from .coordinator import combine, start
from .folders import Agreement, answer, answer_and_record
from .messages import Answer, Request, Terms, decode, describe_message, digest, encode, read_message, write_message

__all__ = ["Agreement", "Answer", "Request", "Terms", "answer", "answer_and_record", "combine", "decode"]
__all__ += ["describe_message", "digest", "encode", "read_message", "start", "write_message"]
