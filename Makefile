# The same as the README's commands, for fingers used to make.
.PHONY: demo test lint golden

demo:
	python3 dev.py demo

test:
	python3 dev.py test

lint:
	python3 dev.py lint
