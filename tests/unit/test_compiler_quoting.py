"""Quoting by example, and the templates' own discipline."""

from __future__ import annotations

import re
from pathlib import Path

import jinja2
import pytest
from jinja2 import nodes
from potato_training.compiler import quoting
from potato_training.compiler.scripts import SCRIPTS, environment

TEMPLATES = Path(__file__).parents[2] / "templates"
NAMES = sorted(str(p.relative_to(TEMPLATES)) for p in TEMPLATES.rglob("*.j2"))


@pytest.mark.parametrize(("value", "written"), [
    ("plain", "'plain'"),
    ("", "''"),
    (3, "'3'"),
    ("two words", "'two words'"),
    ("it's", '"it\'s"'),
    ("$HOME", '"\\$HOME"'),
    ("`id`", '"\\`id\\`"'),
    ('say "hi"', "'say \"hi\"'"),
    ("~/x", "'~''/x'"),
    ("~", "'~'"),
    ("a\\", '"a\\\\"'),
    ("‘$x’ “$y”", '"‘\\$x’ "\'“\'"\\$y"\'”\''),
])
def test_words(value, written):
    assert quoting.word(value) == written


@pytest.mark.parametrize(("value", "written"), [
    ("~", '"$HOME"'),
    ("~/potato runs", '"$HOME"/\'potato runs\''),
    ("~/~", '"$HOME"/\'~\''),
    ("~bob/x", "'~''bob/x'"),
    ("/shared/x", "'/shared/x'"),
    ("-rf", "'-rf'"),
])
def test_paths(value, written):
    assert quoting.path(value) == written


@pytest.mark.parametrize(("value", "written"), [
    ("--gres=gpu:1", "--gres=gpu:1"),
    ("--exclusive", "--exclusive"),
    ("--constraint=[a|b]&c", "--constraint=[a|b]&c"),
    ("--comment=my job", '--comment="my job"'),
    ("--comment=a#b", '--comment="a#b"'),
    ("--comment=say \"hi\" \\o/", '--comment="say \\"hi\\" \\\\o/"'),
    ("--comment=$(id)", '--comment="$(id)"'),
])
def test_directives(value, written):
    assert quoting.directive(value) == written


@pytest.mark.parametrize("value", ["comment", "-c 4", "--a b", "--=x", "--exclusive --wrap=x", "# x", "--X=1"])
def test_what_is_no_flag_is_refused(value):
    with pytest.raises(ValueError, match="not a flag"):
        quoting.directive(value)


@pytest.mark.parametrize("value", ["a\nb", "a\0b", "a\rb"])
@pytest.mark.parametrize("how", [quoting.word, quoting.path, quoting.directive])
def test_lines_end_nowhere(how, value):
    with pytest.raises(ValueError):
        how("--x=" + value)


@pytest.mark.parametrize("value", [None, True, 1.5, ["a"], b"a"])
def test_only_texts_and_whole_numbers_reach_a_script(value):
    with pytest.raises(TypeError):
        quoting.finish(value)


def test_a_cached_number_does_not_let_its_lookalike_pass():
    assert quoting.word(1) == "'1'"
    with pytest.raises(TypeError):
        quoting.word(True)
    with pytest.raises(TypeError):
        quoting.word(1.0)


@pytest.mark.parametrize("value", ["a b", "", "-x", "a;b", "é"])
def test_what_needs_quotes_is_no_plain_name(value):
    with pytest.raises(ValueError):
        quoting.plain(value)


@pytest.mark.parametrize("value", ["1A", "A-B", "A B", "", "A=", "Ä"])
def test_names_of_variables(value):
    with pytest.raises(ValueError):
        quoting.variable(value)


@pytest.mark.parametrize(("given", "kept"), [
    ("/a//b/./c/", "/a/b/c"), ("//a", "/a"), ("/", "/"), ("~", "~"), ("~/", "~"), ("~//x/", "~/x"),
    ("/a/../b", "/a/../b"), ("~/a/..", "~/a/.."),
])
def test_normal_paths(given, kept):
    assert quoting.normal(given) == kept


# --- prelude --------------------------------------------------------------------------------------


def test_lines_that_source_get_their_directive():
    lines = ("module load cuda", "if [ -f x ]; then", "  source x", "fi", ". /opt/y")
    assert quoting.prelude(lines).splitlines() == [
        "module load cuda", "if [ -f x ]; then", "  # shellcheck source=/dev/null", "  source x", "fi",
        "# shellcheck source=/dev/null", ". /opt/y",
    ]


@pytest.mark.parametrize("lines", [
    ("cat > x <<E", "source y", "E"), ("echo \\", "source y"), ("echo 'a", "source y", "'"),
    ("test -f x && source x",), ("if true; then source x; fi", "source y"),
])
def test_where_no_directive_may_stand_the_prelude_is_left_alone(lines):
    assert quoting.prelude(lines) == "\n".join(lines)
    assert quoting.sources(lines)
    assert not quoting.sourced_lines_apart(lines)


def test_a_prelude_without_sources():
    assert not quoting.sources(("module load x.y", "echo source. x", "export A=.", "./configure"))


# --- the templates ---------------------------------------------------------------------------------


def test_there_are_templates_and_each_is_used():
    used = set()

    def use(name):
        if name not in used:
            used.add(name)
            for other in re.findall(r'{% include "([^"]+)" %}', (TEMPLATES / name).read_text("utf-8")):
                use(other)

    for scripts in SCRIPTS.values():
        for name in scripts.values():
            use(name)
    assert used == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_value_of_a_template_names_a_known_filter_last(name):
    tree = environment().parse((TEMPLATES / name).read_text("utf-8"))
    for output in tree.find_all(nodes.Output):
        for node in output.nodes:
            if not isinstance(node, nodes.TemplateData):
                assert isinstance(node, nodes.Filter), f"{name}:{node.lineno}: a value without a filter"
                assert node.name in quoting.FILTERS, f"{name}:{node.lineno}: {node.name}"
    for used in tree.find_all(nodes.Filter):
        assert used.name in quoting.FILTERS, f"{name}:{used.lineno}: {used.name}"


@pytest.mark.parametrize("name", NAMES)
def test_no_value_stands_in_quotes_of_the_template(name):
    text = (TEMPLATES / name).read_text("utf-8")
    assert not re.search(r"""["'\\]{{|}}["']""", text)
    assert "{%-" not in text
    assert "\t" not in text


@pytest.mark.parametrize("name", NAMES)
def test_templates_are_short_lines_of_ascii(name):
    for number, line in enumerate((TEMPLATES / name).read_text("ascii").splitlines(), 1):
        assert len(line) <= 120, f"{name}:{number}"


def test_the_prelude_filter_is_for_the_prelude():
    for name in NAMES:
        for used in re.findall(r"{{\s*(.*?)\s*\|\s*prelude\s*}}", (TEMPLATES / name).read_text("utf-8")):
            assert used == "place.prelude", name


def test_a_forgotten_filter_is_quoted_by_the_environment():
    made = environment().from_string("cd {{ x }}\n").render(x="/a b; rm -rf *")
    assert made == "cd '/a b; rm -rf *'\n"


def test_an_unknown_filter_is_refused():
    with pytest.raises(jinja2.TemplateAssertionError, match="No filter named"):
        environment().from_string("{{ x | upper }}")


@pytest.mark.parametrize("text", ["{{ nothing }}", "{{ x.nothing | word }}", "{% if nothing %}{% endif %}",
                                  "{% for a in nothing %}{% endfor %}"])
def test_what_is_not_there_is_an_error(text):
    with pytest.raises(jinja2.UndefinedError):
        environment().from_string(text).render(x="x")
