"""What is done: the room with hands. Supervisor, store, launchers, verdict."""
