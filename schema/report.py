"""Findings as people, programs and GitHub read them."""

from __future__ import annotations

from .check import Report
from .findings import ERROR, NOTE, WARNING, Finding


def line_of(path: str, finding: Finding) -> str:
    """`FILE:LINE:COL: LEVEL: PATH: MESSAGE`, with the hint after the message; always one line."""
    where = f"{finding.path}: " if finding.path else ""
    hint = f"; {finding.hint}" if finding.hint else ""
    return one_line(f"{path}:{finding.line}:{finding.column}: {finding.level}: {where}{finding.message}{hint}")


def one_line(text: str) -> str:
    """``text`` without what would break a line or drive a terminal."""
    return text if text.isprintable() else "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)


def as_text(report: Report, strict: bool) -> str:
    lines = [line_of(report.path, f) for f in report.findings]
    lines += [one_line(f"acknowledged: {report.path}:{f.line}:{f.column}: {f.path}: {f.message}")
              for f in report.acknowledged]
    lines.append(summary(report, strict))
    return "\n".join(lines)


def summary(report: Report, strict: bool) -> str:
    counts = [_count(len(report.of(level)), level) for level in (ERROR, WARNING, NOTE) if report.of(level)]
    if report.acknowledged:
        counts.append(f"{len(report.acknowledged)} acknowledged")
    verdict = "failed" if report.fails(strict) else "ok"
    return one_line(f"{report.path}: {verdict}" + (f" ({', '.join(counts)})" if counts else ""))


def _count(n: int, word: str) -> str:
    return f"{n} {word}" + ("" if n == 1 else "s")


def as_json(report: Report, strict: bool) -> dict:
    def plain(findings):
        return [{"path": f.path, "line": f.line, "column": f.column, "message": f.message, "hint": f.hint}
                for f in findings]

    return {"config_file": report.path, "ok": not report.fails(strict), "strict": strict,
            "errors": plain(report.of(ERROR)), "warnings": plain(report.of(WARNING)),
            "acknowledged": plain(report.acknowledged), "notes": plain(report.of(NOTE))}


_GITHUB_LEVELS = {ERROR: "error", WARNING: "warning", NOTE: "notice"}


def as_github(report: Report, strict: bool) -> str:
    """Workflow commands that GitHub Actions shows beside the lines of a pull request."""
    lines = []
    for f in report.findings:
        message = _escaped(f"{f.path}: {f.message}" if f.path else f.message) + (
            _escaped(f"; {f.hint}") if f.hint else "")
        lines.append(f"::{_GITHUB_LEVELS[f.level]} file={_property(report.path)},line={f.line},col={f.column},"
                     f"title=potato validate::{message}")
    lines.append(summary(report, strict))
    return "\n".join(lines)


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")
