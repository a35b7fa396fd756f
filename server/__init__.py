"""The Training page, its API and the agent routes, in a web server of their own or mounted in another app."""
