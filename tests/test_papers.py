"""The reader's map is true: every row of papers.md points to something that exists."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROW = re.compile(r'^\| [^|]*\| [^|]*\| `([\w/]+\.py)` \| `([\w.]+(?:\["[\w-]+"\])?)` \|$', re.MULTILINE)
ROWS = ROW.findall((ROOT / "papers.md").read_text())


def names(path):
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            assigned = {target.id for target in targets if isinstance(target, ast.Name)}
            keys = node.value.keys if isinstance(node.value, ast.Dict) else []
            found |= assigned | {f'{name}["{key.value}"]' for name in assigned for key in keys if key is not None}
        if isinstance(node, ast.ClassDef):
            for item in node.body:
                if isinstance(item, ast.FunctionDef):
                    found.add(f"{node.name}.{item.name}")
                if isinstance(item, ast.AnnAssign):
                    found.add(f"{node.name}.{item.target.id}")
    return found


def test_the_map_has_its_rows():
    assert len(ROWS) > 60


def test_every_row_that_names_a_file_is_checked():
    named = re.findall(r"^\| .*\| `[^`|]*\.py` \|.*$", (ROOT / "papers.md").read_text(), re.MULTILINE)
    assert len(ROWS) == len(named)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: " ".join(row))
def test_every_row_of_papers_md_points_to_a_function(row):
    file, name = row
    assert name in names(ROOT / "src" / "genepool" / file)


def test_every_one_of_the_papers_differences_is_listed():
    listed = re.findall(r"^\| (\d+) \|", (ROOT / "papers.md").read_text(), re.MULTILINE)
    assert [int(number) for number in listed] == list(range(1, 33))


def test_every_one_of_aes_rls_differences_is_listed():
    listed = re.findall(r"^\| A(\d+) \|", (ROOT / "papers.md").read_text(), re.MULTILINE)
    assert [int(number) for number in listed] == list(range(1, 30))


def test_every_one_of_esacs_differences_is_listed():
    listed = re.findall(r"^\| E(\d+) \|", (ROOT / "papers.md").read_text(), re.MULTILINE)
    assert [int(number) for number in listed] == list(range(1, 27))


def test_every_place_that_gpo_leaves_open_is_listed():
    listed = re.findall(r"^\| G(\d+) \|", (ROOT / "papers.md").read_text(), re.MULTILINE)
    assert [int(number) for number in listed] == list(range(1, 22))
