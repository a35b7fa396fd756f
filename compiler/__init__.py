"""What will be done: a checked config and a request become a JobSpec and shell scripts. Pure."""
