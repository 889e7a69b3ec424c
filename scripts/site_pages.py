"""A hook of MkDocs (see mkdocs.yml): the pages of the site that are made from other files instead of kept in docs/.

The API reference has a page for each folder of the package, made from the table of public names in
`kdbirl/__init__.py`, so that no name can be missing; the changelog is CHANGELOG.md with its links as seen from docs/.
"""

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

import kdbirl

ROOT = Path(__file__).resolve().parents[1]
# In the order of the pipeline, with what README's layout says about them.
FOLDERS = {
    "data": "demonstrations and task banks, the files they are in",
    "features": "feature maps of a state and an action",
    "worlds": "worlds that behaviour can come from, planning in them, rollouts (never required)",
    "likelihood": "kernels and bandwidths",
    "posterior": "priors, samplers, the result",
    "trust": "can it be trusted: held-out tasks, calibration",
    "methods": "what users call: fit, then posterior",
    "evaluation": "how good is it: the expected value difference",
    "report": "plots",
    "store": "long work that can be interrupted",
    "errors": "what is raised on purpose, and warnings",
}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put every page of docs/decisions into the navigation, below their list."""
    (listed,) = (entry["Decisions"] for entry in config.nav if isinstance(entry, dict) and "Decisions" in entry)
    listed += decisions()
    return config


def decisions() -> list[dict[str, str]]:
    """{number and short name: address} of each decision, in their order."""
    found = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    return [{page.stem.replace("-", " ").capitalize(): f"decisions/{page.name}"} for page in found]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/."""
    for address, text in pages().items():
        files.append(File.generated(config, address, content=text))
    return files


def pages() -> dict[str, str]:
    """Text of each page that is made here, by its address in the site."""
    reference = {f"api/{folder}.md": folder_page(folder, FOLDERS[folder]) for folder in public_names()}
    return {"api/index.md": index_page(), **reference, "changelog.md": changelog()}


def public_names() -> dict[str, dict[str, str]]:
    """folder -> {public name: module that defines it}, in the order of the pipeline."""
    found: dict[str, dict[str, str]] = {folder: {} for folder in FOLDERS}
    for name, module in kdbirl._MODULE_OF.items():
        found[module.split(".")[1]][name] = module
    return found


def index_page() -> str:
    lines = ["# API reference", "", "Every public name of `import kdbirl as kb`, by the folder that it lives in.", ""]
    for folder, names in public_names().items():
        links = ", ".join(f"[`{name}`]({folder}.md#{module}.{name})" for name, module in sorted(names.items()))
        lines += [f"**[{folder}]({folder}.md)**: {FOLDERS[folder]}.", "", links, ""]
    return "\n".join(lines)


def folder_page(folder: str, meaning: str) -> str:
    blocks = [f"::: {module}.{name}" for name, module in public_names()[folder].items()]
    return "\n\n".join([f"# kdbirl.{folder}", f"{meaning[0].upper()}{meaning[1:]}. As `kb.NAME`.", *blocks, ""])


def changelog() -> str:
    return (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").replace("](docs/", "](")
