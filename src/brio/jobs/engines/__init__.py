"""Engines: what executes the stacks of a plan, on this machine or on many.

An engine gets a job, its plan and the store of its runs (:class:`brio.jobs.spec.Engine`). The store is all that
processes share: a run is there whole or not at all, and a stack whose runs are all there is finished.
"""
