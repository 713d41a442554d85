"""The imports of genepool as a Mermaid graph of its folders, and the cycles among them.

    python -m benchmarks.import_graph           # the graph in CONTRIBUTING.md
    python -m benchmarks.import_graph --check   # exit code 1 if CONTRIBUTING.md holds another one, or if there is a
    cycle

The graph shows an import only if no longer path of imports leads to the same folder. Cycles are searched among the
folders and among the single modules, in all imports, also those inside functions.
"""

import argparse
import ast
import sys
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
ROOT = REPOSITORY / "src" / "genepool"
Graph = dict[str, set[str]]  # a folder or module -> what it imports
GROUND = "ground"  # small modules that all others may import
GROUPS = dict.fromkeys(("types", "trees", "errors", "parts", "cores", "xla", "buffer", "optimiser"), GROUND)


def imports(source: str, package: str) -> Iterator[str]:
    """Full names of all that a module imports, by statement or by importlib.import_module with a plain string."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            ancestors = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*ancestors, *([node.module] if node.module else [])])
            # `from genepool import buffer` names a module, `from genepool.types import Outcome` does not
            yield from (f"{base}.{alias.name}" for alias in node.names) if base == "genepool" else [base]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in (
            "importlib.import_module",
            "import_module",
            "__import__",
        ):
            yield from (a.value for a in node.args[:1] if isinstance(a, ast.Constant))


def modules() -> dict[str, set[str]]:
    """Path of each file within the package -> the names that it imports."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        within = path.relative_to(ROOT)
        package = ".".join(("genepool", *within.parts[:-1]))
        found[within.as_posix()] = set(imports(path.read_text(), package))
    return found


def folder_graph() -> Graph:
    """Which folder of genepool imports which. A file next to the folders counts as one."""
    graph: Graph = {}
    for path, names in modules().items():
        if path != "__init__.py":  # it names all public classes, and imports them when they are used
            folder = path.split("/")[0].removesuffix(".py")
            own = {name.split(".")[1] for name in names if name.startswith("genepool.")}
            graph.setdefault(folder, set()).update(own - {folder})
    return graph


def module_graph() -> Graph:
    """Which module of genepool imports which, by their dotted names."""
    named = {"genepool." + path.removesuffix(".py").replace("/", "."): names for path, names in modules().items()}
    found = {name.removesuffix(".__init__"): names for name, names in named.items() if name != "genepool.__init__"}
    return {name: {target for target in names if target in found} - {name} for name, names in found.items()}


def grouped(graph: Graph) -> Graph:
    """The graph with the small modules at the bottom as one group."""
    found: Graph = {}
    for name, targets in graph.items():
        group = GROUPS.get(name, name)
        found.setdefault(group, set()).update(GROUPS.get(target, target) for target in targets)
    return {name: targets - {name} for name, targets in found.items()}


def reachable(graph: Graph, start: str) -> set[str]:
    """All that `start` imports, directly or through others."""
    found: set[str] = set()
    left = list(graph.get(start, ()))
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += graph.get(name, ())
    return found


def cycles(graph: Graph) -> list[set[str]]:
    """The sets of names that import one another in a circle."""
    groups = []
    for name in graph:
        circle = {other for other in reachable(graph, name) if name in reachable(graph, other)}
        if circle and circle not in groups:
            groups.append(circle)
    return groups


def without_shortcuts(graph: Graph) -> Graph:
    """The graph without the imports that a longer path of imports implies."""
    return {
        name: {one for one in targets if not any(one in reachable(graph, other) for other in targets - {one})}
        for name, targets in graph.items()
    }


def mermaid(graph: Graph) -> str:
    """The graph in Mermaid's language."""
    lines = [f"    {name} --> {target}" for name in sorted(graph) for target in sorted(graph[name])]
    return "\n".join(["```mermaid", "graph TD", *lines, "```"])


def main() -> int:
    """Print the graph and the cycles, or check what CONTRIBUTING.md says; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.import_graph", description="the imports of genepool")
    parser.add_argument("--check", action="store_true", help="compare with CONTRIBUTING.md and print only differences")
    options = parser.parse_args()
    text = mermaid(without_shortcuts(grouped(folder_graph())))
    circles = [*cycles(folder_graph()), *cycles(module_graph())]
    for circle in circles:
        print("cycle:", ", ".join(sorted(circle)))
    if not options.check:
        print(text)
        return 0
    stale = text not in (REPOSITORY / "CONTRIBUTING.md").read_text()
    if stale:
        print("CONTRIBUTING.md holds another graph: put the output of `python -m benchmarks.import_graph` there")
    return int(stale or bool(circles))


if __name__ == "__main__":
    sys.exit(main())
