"""What travels: everything that runs on the training machine. Standard library to import, Python 3.8."""
