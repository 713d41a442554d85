"""One page of HTML that needs no other file: it holds its styles and pictures, and has no script."""

import base64
from collections.abc import Sequence
from html import escape

from genepool.analysis.report.drawing import Drawing
from genepool.analysis.report.tables import Table

STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1b; --dim: #666; --line: #ddd; --ground: #fff; --card: #f6f6f4; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e8e8; --dim: #a2a2a2; --line: #444; --ground: #16181a; --card: #212426; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1120px; padding: 1rem; background: var(--ground); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; }
h2 { font-size: 1.3rem; margin-top: 3rem; border-top: 2px solid var(--line); padding-top: 1rem; }
h3 { font-size: 1.05rem; margin: 2rem 0 .4rem; }
p, li, figcaption, .note { max-width: 75ch; } .note, figcaption { color: var(--dim); font-size: .88rem; }
figure { margin: 0; } .scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: 6px; }
.picture { background: #fff; padding: 4px; } .picture img { display: block; width: 100%; height: auto; margin: 0 auto; }
table { border-collapse: collapse; font-size: .84rem; font-variant-numeric: tabular-nums; background: var(--card);
  min-width: 100%; }
th, td { padding: .3rem .6rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line);
  overflow-wrap: normal; }
td { min-width: 4.2rem; } td.long { min-width: 17rem; } th { color: var(--dim); font-weight: 600; }
a { color: inherit; } nav a { margin-right: 1rem; } code { font-size: .9em; }
"""


def page(title: str, head: Sequence[str], sections: Sequence[tuple[str, str, Sequence[str]]]) -> str:
    """The page: a head, then sections, each with its anchor, its title and its blocks of HTML."""
    links = "".join(f'<a href="#{escape(anchor)}">{escape(name)}</a>' for anchor, name, _ in sections)
    body = "".join(
        f'<section id="{escape(anchor)}"><h2>{escape(name)}</h2>{"".join(blocks)}</section>'
        for anchor, name, blocks in sections
    )
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<style>{STYLE}</style></head>"
        f"<body><h1>{escape(title)}</h1>{''.join(head)}<nav>{links}</nav>{body}</body></html>\n"
    )


def paragraph(text: str, kind: str = "") -> str:
    """Some text."""
    return f"<p{f' class={kind}' if kind else ''}>{escape(text)}</p>"


def bullets(lines: Sequence[str]) -> str:
    """Some lines."""
    return f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>" if lines else ""


def picture(drawing: Drawing, png: bytes, file: str) -> str:
    """A figure with its caption. A narrow screen scrolls it sideways, so that it stays legible."""
    inches = drawing.figure.get_figwidth()
    data = base64.b64encode(png).decode()
    size = f"min-width:{min(60 * inches, 640):.0f}px;max-width:{105 * inches:.0f}px"
    return (
        f"<figure><h3>{escape(drawing.title)}</h3><div class='scroll picture'>"
        f"<img alt='{escape(drawing.title, quote=True)}' style='{size}' src='data:image/png;base64,{data}'></div>"
        f"<figcaption>{escape(drawing.caption)} {_files(file, 'png', 'csv')}</figcaption></figure>"
    )


def table(found: Table, file: str) -> str:
    """A table. If it is too wide, it scrolls sideways."""
    title = f"<h3>{escape(found.title)}</h3>" if found.title else ""
    head = "".join(f"<th>{escape(name)}</th>" for name in found.header)
    rows = "".join(f"<tr>{''.join(_cell(cell) for cell in row)}</tr>" for row in found.rows)
    return (
        f"{title}<div class=scroll><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
        f"<p class=note>{escape(found.note)} {_files(file, 'csv')}</p>"
    )


def _cell(text: str) -> str:
    return f"<td{' class=long' if len(text) > 40 else ''}>{escape(text)}</td>"


def _files(file: str, *endings: str) -> str:
    return " ".join(f'<a href="{escape(file, quote=True)}.{ending}">{ending.upper()}</a>' for ending in endings)
