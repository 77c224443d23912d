"""Print the size of the code by package, beside that of an earlier commit.

A code line holds code: blank lines, comments and docstrings do not count. A token is one of
Python's tokens on these lines. Export lists (`__all__`) count with the imports. The complexity of
a function is 1 and its branches: conditions, loops, comprehensions, handlers, cases, `and` and
`or`. Benchmarks, scripts, tests and templates have rows of their own: what moved is seen as moved.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import tarfile
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

VERSION_07 = "a377473"
PACKAGE = "src/mfairfl/"
BESIDE = ("benchmarks", "scripts", "tests")
TEMPLATES = (".css", ".html", ".md", ".toml")
COLUMNS = ("lines", "files", "statements", "tokens", "imports")
BRANCHES = (
    ast.If,
    ast.IfExp,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ExceptHandler,
    ast.comprehension,
    ast.match_case,
)
NO_CODE = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)
Function = ast.FunctionDef | ast.AsyncFunctionDef


def files_of(commit: str) -> Iterator[tuple[str, str]]:
    """Yield path and text of each measured file of a commit."""
    folders = [PACKAGE, *BESIDE]
    archive = subprocess.run(["git", "archive", commit, *folders], check=True, capture_output=True)
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        for member in files:
            if PurePosixPath(member.name).suffix in (".py", *TEMPLATES):
                content = files.extractfile(member)
                if content is not None:
                    yield member.name, content.read().decode()


def row_of(path: str) -> str:
    """Return the row that a file is counted in: its package, or its folder."""
    if not path.endswith(".py"):
        return "templates"
    if not path.startswith(PACKAGE):
        return path.partition("/")[0]
    package, slash, _ = path.removeprefix(PACKAGE).partition("/")
    return package if slash else "(root)"


def docstring_of(node: ast.AST) -> ast.Expr | None:
    """Return the statement that documents a module, a class or a function, if there is one."""
    if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
        return None
    first = node.body[0] if node.body else None
    constant = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return first if constant and isinstance(first.value.value, str) else None


def is_import(node: ast.AST) -> bool:
    """Return whether a statement imports names, or lists those that are exported."""
    exports = isinstance(node, ast.Assign) and any(
        isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets
    )
    return exports or isinstance(node, (ast.Import, ast.ImportFrom))


def lines_of(nodes: Iterable[ast.stmt]) -> set[int]:
    """Return the numbers of the lines of some statements."""
    return {line for n in nodes for line in range(n.lineno, (n.end_lineno or n.lineno) + 1)}


def size_of(path: str, text: str) -> Counter[str]:
    """Return lines, statements, tokens and import lines of one file."""
    if not path.endswith(".py"):
        return Counter(files=1, lines=sum(bool(line.strip()) for line in text.splitlines()))
    nodes = list(ast.walk(ast.parse(text)))
    documentation = [node for node in map(docstring_of, nodes) if node is not None]
    documented = lines_of(documentation)
    code: set[int] = set()
    tokens = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE and token.start[0] not in documented:
            tokens += 1
            code.update(range(token.start[0], token.end[0] + 1))
    imports = [node for node in nodes if isinstance(node, ast.stmt) and is_import(node)]
    statements = sum(isinstance(node, ast.stmt) for node in nodes) - len(documentation)
    return Counter(
        files=1,
        lines=len(code),
        statements=statements,
        tokens=tokens,
        imports=len(lines_of(imports)),
    )


def complexity(function: Function) -> int:
    """Return 1 and the number of branches of a function; functions inside count by themselves."""
    branches, waiting = 1, list[ast.AST](function.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        branches += isinstance(node, BRANCHES)
        if isinstance(node, ast.BoolOp):
            branches += len(node.values) - 1
        waiting += ast.iter_child_nodes(node)
    return branches


def length(function: Function) -> int:
    """Return the number of lines of a function, without its docstring."""
    documentation = docstring_of(function)
    whole = (function.end_lineno or function.lineno) - function.lineno + 1
    return whole - (0 if documentation is None else len(lines_of([documentation])))


def functions_of(path: str, text: str) -> list[tuple[str, Function]]:
    """Return the functions of a file of the package, with their places."""
    if not (path.startswith(PACKAGE) and path.endswith(".py")):
        return []
    return [
        (f"{path.removeprefix(PACKAGE)}:{node.name}", node)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]


def measure(commit: str) -> tuple[dict[str, Counter[str]], list[str]]:
    """Return the sizes of a commit by row, and what is said of its functions, line by line."""
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    functions: list[tuple[str, Function]] = []
    for path, text in files_of(commit):
        size = size_of(path, text)
        rows[row_of(path)] += size
        if path.startswith(PACKAGE) and path.endswith(".py"):
            rows["src"] += size
        functions += functions_of(path, text)
    mean = sum(complexity(function) for _, function in functions) / len(functions)
    deepest, longest = (
        max(functions, key=lambda item, of=of: of(item[1])) for of in (complexity, length)
    )
    return rows, [
        f"{len(functions):,} functions of complexity {mean:.2f} on average",
        f"the most complex: {complexity(deepest[1])} ({deepest[0]})",
        f"the longest: {length(longest[1])} lines ({longest[0]})",
    ]


def main(base: str, commit: str) -> None:
    """Print both commits side by side."""
    before, functions_before = measure(base)
    after, functions_after = measure(commit)
    last = ("src", "templates", *BESIDE)
    packages = sorted((before.keys() | after.keys()) - {*last})
    print(f"{base} → {commit}")
    print(f"{'':12}" + "".join(f"{name:>20}" for name in COLUMNS))
    for name in (*packages, *last):
        pairs = (f"{before[name][key]:,} → {after[name][key]:,}" for key in COLUMNS)
        print(f"{name:12}" + "".join(f"{pair:>20}" for pair in pairs))
    old, new = before["src"], after["src"]
    for rows, facts in ((old, functions_before), (new, functions_after)):
        share = rows["imports"] / rows["lines"]
        print("; ".join([f"imports and export lists {share:.1%} of the lines", *facts]))
    print("; ".join(f"{key} {new[key] / old[key] - 1:+.1%}" for key in COLUMNS))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", nargs="?", default="HEAD")
    parser.add_argument("--base", default=VERSION_07, help="an earlier commit (version 0.7.0)")
    arguments = parser.parse_args()
    main(arguments.base, arguments.commit)
