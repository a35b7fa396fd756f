"""The shell itself: text only, rendered by the compiler room."""
