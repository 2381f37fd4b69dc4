"""How fast the engine is, beside the best that can be written by hand.

A *workload* is a scenario; each of its *arms* does the same work in a process tree of its own: the
engine in process, the engine on Ray, and its limits, loops without an engine around them. Arms take
turns, repetition by repetition, so that whatever else the machine does falls on all of them.
`gifair_ray.analysis.speed` reads the table that comes of it.
"""
