"""How Sphinx builds the documentation: ``make docs``."""

import os
import re
from pathlib import Path

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx

import icssl

# One thread: tutorials are small, and threads that wait for each other cost more.
os.environ.setdefault("OMP_NUM_THREADS", "1")

ROOT = Path(__file__).resolve().parents[1]

project = "icssl"
author = "The icssl developers"
copyright = "The icssl developers"
release = version = icssl.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "myst_parser",
    "sphinx_gallery.gen_gallery",
]
root_doc = "index"
exclude_patterns = ["_build", "**/README.rst"]
# Markdown as GitHub reads it: headings are targets of links.
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence", "dollarmath"]

# Class pages are whole pages, so that numpydoc need not list members once more.
autosummary_generate = True
numpydoc_show_class_members = False
autodoc_member_order = "bysource"
# scikit-learn puts it on every estimator; its text refers to pages that are not here.
autodoc_default_options = {"exclude-members": "set_fit_request, set_score_request"}
templates_path = ["_templates"]

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "tutorials",
    "filename_pattern": r"/plot_",
    "within_subsection_order": "FileNameSortKey",
    "backreferences_dir": "tutorials/backreferences",
    "doc_module": ("icssl",),
    "reference_url": {"icssl": None},
    "abort_on_example_error": True,
    "remove_config_comments": True,
    "show_signature": False,
    "download_all_examples": False,
    "write_computation_times": False,
}

html_theme = "furo"
html_title = "icssl"
html_static_path: list[str] = []
html_show_sphinx = False
# MathML, which browsers draw themselves: pages fetch nothing from anywhere.
html_math_renderer = "mathml"


def _inline(writer: object, node: nodes.math) -> None:
    writer.body.append(tex2mathml(node.astext(), as_block=False))
    raise nodes.SkipNode


def _block(writer: object, node: nodes.math_block) -> None:
    writer.body.append(
        f'<div class="math">{tex2mathml(node.astext(), as_block=True)}</div>'
    )
    raise nodes.SkipNode


def _resolve_links(app: Sphinx, docname: str, source: list[str]) -> None:
    """Links that work on GitHub and leave docs/: tutorials are pages, others downloads.

    Sphinx knows no Markdown page outside its own folder.
    """
    page = Path(app.env.doc2path(docname))
    if page.suffix != ".md":
        return

    def resolved(found: re.Match[str]) -> str:
        text, target = found.groups()
        there = (page.parent / target).resolve()
        if there.parent == ROOT / "examples":
            return f"[{text}](/tutorials/{there.stem}.rst)"
        if there.is_relative_to(ROOT / "docs") or not there.is_file():
            return found.group()
        return f"{{download}}`{text} <{target}>`"

    source[0] = re.sub(r"(?<!!)\[([^]]+)\]\(((?:\.\./)+[^)#]+)\)", resolved, source[0])


def setup(app: Sphinx) -> None:
    """Formulas by docutils alone, and links out of docs/."""
    app.connect("source-read", _resolve_links)
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
