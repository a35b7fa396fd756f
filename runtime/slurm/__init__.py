"""A cluster behind a login node: what differs from any other host that we log in to.

``plan`` is what a run needs to know beforehand, ``login`` reads what a login node says of itself, ``check``
asks the scheduler about a run that nobody has started. The way there is ``runtime/ssh``; jobs are submitted,
watched and cancelled by the agent on the login node, in the worker's room.
"""
