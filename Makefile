# The same as the README's commands, for fingers used to make.
.PHONY: demo test test-all lint audit test-slurm-versions

demo:
	python3 dev.py demo

test:
	python3 dev.py test

# The long tests too, and every Python that is promised: an hour and more.
test-all:
	POTATO_TEST_ALL=1 POTATO_TEST_LAG=1 python3 dev.py test

lint:
	python3 dev.py lint

# Known holes in what is installed, and in ours. Needs the network; docs/security.md says what is left out.
audit:
	python3 -m venv .venvs/audit
	.venvs/audit/bin/pip install --quiet pip-audit bandit
	.venvs/audit/bin/bandit -q -r schema compiler templates project runtime worker server cli plugin -c pyproject.toml
	.venv/bin/pip freeze --exclude-editable > .venvs/audit/installed.txt
	.venvs/audit/bin/pip-audit --disable-pip --no-deps -r .venvs/audit/installed.txt

# The tests of the real Slurm on 20.11 and 24.11: root, debootstrap, a mirror of Debian, 700 MB under /var/cache.
test-slurm-versions:
	.venv/bin/python tests/real/slurm_versions/run.py
