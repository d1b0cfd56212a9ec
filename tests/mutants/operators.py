"""Finds the places where a C++ source can be changed by a mechanical operator, and the changes.

The input is lines, the output is sites; nothing is read or written. The code is recognised by its layout,
which the formatter guarantees: a statement begins a line, a condition ends with `) {`, and binary
operators have spaces around them. Code with another layout is ignored.

A changed line holds both versions; `tm_mutant(ID)` chooses one at run time (mutant.hpp).
"""
import re
from dataclasses import dataclass
from typing import Callable, Iterator

OPERATORS = {
    "negate": "a condition is negated",
    "skip": "a check that returns early is skipped",
    "drop": "a statement is dropped",
    "wake": "a wake-up is dropped",
    "compare": "< and <=, or > and >=, are exchanged",
    "one": "an added or subtracted 1 is 0",
    "swap": "two neighbouring statements of which one sees the effect of the other are exchanged",
}


@dataclass
class Site:
    operator: str
    first: int  # The lines first .. last, counted from 0, are replaced.
    last: int
    change: Callable[[int], list[str]]  # Maps the mutant's id to the new lines.
    shown: str  # The text in the report.


def masked(lines: list[str]) -> list[str]:
    """The same lines with comments, literals and preprocessor lines blanked."""
    out = []
    for line in lines:
        if line.lstrip().startswith(("#", "//")):
            out.append("")
            continue
        line = re.sub(r'"(\\.|[^"\\])*"', lambda m: '"' + "_" * (len(m[0]) - 2) + '"', line)
        line = re.sub(r"'(\\.|[^'\\])'", lambda m: "'" + "_" * (len(m[0]) - 2) + "'", line)
        cut = line.find("//")
        out.append((line if cut < 0 else line[:cut]).rstrip())
    return out


def indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def balance(text: str) -> int:
    return sum(text.count(c) for c in "([{") - sum(text.count(c) for c in ")]}")


# An expression statement: a name, optionally with members, and a call, an assignment or ++.
NAME = r"(?:\*?[A-Za-z_][\w]*(?:(?:\.|->|::)[A-Za-z_]\w*|\[[^\]]*\]|\([^()]*\)(?=\.|->))*)"
STATEMENT = re.compile(rf"^\s+(?:(?:\+\+|--){NAME};|{NAME}(?:\(| [-+|&^]?= |\+\+;|--;))")
NOT_A_STATEMENT = re.compile(
    r"^\s*(return|assert|static_assert|using|case|default|else|if|for|while|switch|do|goto|"
    r"throw|delete|new|sizeof|co_\w+|TIERMEM_\w+|public|private|friend|explicit|template|~|"
    r"std::atomic_\w+_fence)\b")  # Memory orders are not changed.
WAKE = re.compile(r"\b(\w*wake\w*|\w*notify\w*|\w*signal\w*|\w*post)\(")


def statements(code: list[str], is_header: bool) -> Iterator[tuple[int, int]]:
    """First and last line of each expression statement."""
    least = 4 if is_header else 2  # Members of classes are declarations.
    for at, line in enumerate(code):
        if (indent(line) < least or not STATEMENT.match(line) or NOT_A_STATEMENT.match(line)
                or (at > 0 and code[at - 1] and not code[at - 1].endswith((";", "{", "}", ":")))):
            continue
        last, depth = at, balance(line)
        while depth > 0 and last + 1 < len(code) and last - at < 8:
            last += 1
            depth += balance(code[last])
        if depth == 0 and code[last].endswith(";") and "{" not in "".join(code[at:last + 1]):
            yield at, last


SHUT = re.compile(r"\) (\[\[\w+\]\] )?\{$")


def conditions(code: list[str]) -> Iterator[tuple[int, int, int]]:
    """First and last line of each `if (...) {`, and the column behind its parenthesis."""
    for at, line in enumerate(code):
        found = re.match(r"^\s+(?:\} else )?if \(", line)
        if not found:
            continue
        last, text = at, line
        while not SHUT.search(text) and last - at < 6 and last + 1 < len(code):
            last += 1
            text += "\n" + code[last]
        shut = SHUT.search(text)
        if not shut:
            continue
        inner = text[found.end():shut.start()]
        if ";" not in inner and not re.search(r"[^=!<>]=[^=]", inner) and balance(inner) == 0:
            yield at, last, found.end()


def around(text: str, at: int, end: int) -> tuple[int, int] | None:
    """The limits of the comparison with the operator text[at:end]; None if they are not simple."""
    depth, left = 0, at
    while left > 0:
        c = text[left - 1]
        if c in ")]":
            depth += 1
        elif c in "([":
            if depth == 0:
                break
            depth -= 1
        elif depth == 0 and (c in ";?{,=" or text[:left].endswith(("&& ", "|| ", "return "))):
            break
        left -= 1
    depth, right = 0, end
    while right < len(text):
        c = text[right]
        if c in "([":
            depth += 1
        elif c in ")]":
            if depth == 0:
                break
            depth -= 1
        elif depth == 0 and (c in ";?{}," or text[right:].startswith((" &&", " ||"))):
            break
        right += 1
    else:
        return None
    while text[left] == " ":
        left += 1
    return (left, right) if left < at and right > end and left > 0 else None


def ordered(one: str, two: str) -> bool:
    """Whether the order of two statements may matter: one writes a name that the other uses, or both call
    the same object. The order of two additions to the same name, and that of a count for the statistics, does
    not matter."""
    def written(text: str) -> str | None:
        found = re.match(rf"^\s+(?:(?:\+\+|--)({NAME});|({NAME})(?: [-+|&^]?= |\+\+;|--;))", text)
        return found and (found[1] or found[2])

    def named(name: str, text: str) -> int:
        # A member of another object may have the same name.
        return len(re.findall(rf"(?<![\w.>]){re.escape(name)}(?!\w)", text))

    def adds(text: str) -> bool:
        return re.match(rf"^\s+(?:\+\+|--|{NAME}(?: [-+]= |\+\+;|--;))", text) is not None

    def called(text: str) -> str | None:
        found = re.match(r"^\s+([\w.\[\]]+?)(?:\.|->)\w+\(", text)
        return found and found[1]

    def counts(text: str) -> bool:
        return re.search(r"(?:\.|->)(?:count|note_activity)\(", text) is not None

    left, right = written(one), written(two)
    if left and left == right and adds(one) and adds(two) \
            and named(left, one) == named(left, two) == 1:
        return False
    if left or right:
        return bool((left and named(left, two)) or (right and named(right, one)))
    return called(one) is not None and called(one) == called(two) and not counts(one + two)


# The self-checks of data structures are not tested.
EXAMINATION = re.compile(r"^( *)[\w:<>*& ]*?\b(?:\w+::)?(?:test_\w+|check|check_invariants|describe)\(")


def without_examination(code: list[str]) -> list[str]:
    """The same lines with the functions for self-checks blanked."""
    out, end = [], None
    for line in code:
        found = EXAMINATION.match(line) if end is None else None
        if found and line.endswith("{") and not re.match(r"^\s*(return|if|for|while)\b", line):
            end = found[1] + "}"
        out.append("" if end is not None else line)
        end = None if line == end else end
    return out


def sites(lines: list[str], is_header: bool) -> list[Site]:
    code = without_examination(masked(lines))
    # A comment would hide the rest of the line.
    lines = [line[:len(bare)] for line, bare in zip(lines, code)]
    out: list[Site] = []

    def text_of(first: int, last: int) -> str:
        return " ".join(line.strip() for line in lines[first:last + 1])

    for first, last, column in conditions(code):
        whole = "\n".join(lines[first:last + 1])
        shut = SHUT.search(whole).start()
        head, inner, tail = whole[:column], whole[column:shut], whole[shut:]

        def negate(mutant: int, head=head, inner=inner, tail=tail) -> list[str]:
            return [f"{head}tm_mutant({mutant}) != static_cast<bool>({inner}){tail}"]

        out.append(Site("negate", first, last, negate, text_of(first, last)))
        if (last + 2 < len(code) and re.match(r"^\s+return\b.*;$", code[last + 1])
                and code[last + 2].strip() == "}"):
            def skip(mutant: int, head=head, inner=inner, tail=tail) -> list[str]:
                return [f"{head}!tm_mutant({mutant}) && static_cast<bool>({inner}){tail}"]
            out.append(Site("skip", first, last, skip,
                            text_of(first, last) + " " + lines[last + 1].strip()))

    found = list(statements(code, is_header))
    for first, last in found:
        def drop(mutant: int, body=tuple(lines[first:last + 1])) -> list[str]:
            return [f"if (!tm_mutant({mutant})) {{", *body, "}"]
        kind = "wake" if WAKE.search("".join(code[first:last + 1])) else "drop"
        out.append(Site(kind, first, last, drop, text_of(first, last)))
    for (a, a_last), (b, b_last) in zip(found, found[1:]):
        if b != a_last + 1 or indent(code[a]) != indent(code[b]):
            continue
        if not ordered(*("".join(code[x:y + 1]) for x, y in ((a, a_last), (b, b_last)))):
            continue

        def swap(mutant: int, one=tuple(lines[a:a_last + 1]),
                 two=tuple(lines[b:b_last + 1])) -> list[str]:
            return [f"if (tm_mutant({mutant})) {{", *two, *one, "} else {", *one, *two, "}"]
        out.append(Site("swap", a, b_last, swap, text_of(a, b_last)))

    for at, line in enumerate(code):
        if indent(line) < 2 or re.match(r"^\s*(template|static_assert|assert|requires|using)\b", line):
            continue
        if re.match(r"^\s*(static |inline )*constexpr\b[^()]* = ", line):
            continue  # The compiler computes a constant, so a choice at run time has no effect.
        for match in re.finditer(r" (<=?|>=?) ", line):
            limits = around(line, match.start(), match.end())
            if limits is None:
                continue
            left, right = limits
            a, b = lines[at][left:match.start()], lines[at][match.end():right]
            plain = match[1]
            other = plain[:-1] if plain.endswith("=") else plain + "="

            def compare(mutant: int, at=at, left=left, right=right, a=a, b=b, plain=plain,
                        other=other) -> list[str]:
                return [f"{lines[at][:left]}(tm_mutant({mutant}) ? {a} {other} {b} : "
                        f"{a} {plain} {b}){lines[at][right:]}"]
            out.append(Site("compare", at, at, compare, f"{lines[at].strip()}  [{a} {other} {b}]"))
        for match in re.finditer(r" [-+] (1)\b(?![.'xuUlL])", line):
            start = match.start(1)

            def one(mutant: int, at=at, start=start) -> list[str]:
                return [f"{lines[at][:start]}(tm_mutant({mutant}) ? 0 : 1){lines[at][start + 1:]}"]
            out.append(Site("one", at, at, one, lines[at].strip()))
    return out
