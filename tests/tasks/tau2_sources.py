"""Other sources of τ²-bench than the pinned package, made of it: a checkout as upstream 1.0.1 is laid out."""

from __future__ import annotations

import shutil
from pathlib import Path

VERSION = "1.0.1"
NEWER_USER = """
from tau2.agent.base.llm_config import LLMConfigMixin
from tau2.voice.speaking import Voice


class UserSimulator(LLMConfigMixin, Voice):
    def __init__(self, llm, instructions=None, tools=None, llm_args=None):
        super().__init__(llm=llm)
        self.instructions, self.tools = instructions, tools

    @property
    def system_prompt(self):
        return f"newer guidelines, tools: {self.tools is not None}\\n{self.instructions}"
"""
LLM_CONFIG = """
from tau2.utils.llm_utils import warn_if_param_unsupported


class LLMConfigMixin:
    def __init__(self, llm):
        self.llm = llm
"""


def make_checkout(package: Path, root: Path) -> Path:
    """A checkout in the layout of upstream 1.0.1, its code that of the package but for what a newer
    upstream was seen to do: packages that import everything, audio, and another user simulator.

    Args:
        package: the unpacked package.
        root: the folder to make.
    """
    code = root / "src" / "tau2"
    shutil.copytree(package / "tau2", code, ignore=shutil.ignore_patterns("data", "__pycache__"))
    shutil.copytree(package / "tau2" / "data" / "tau2", root / "data" / "tau2")
    (root / "pyproject.toml").write_text(f'[project]\nname = "tau2"\nversion = "{VERSION}"\n')
    results = root / "data" / "tau2" / "results"
    results.mkdir()
    (results / "huge.json").write_text("[]")
    (code / "utils" / "utils.py").write_text(
        (code / "utils" / "utils.py")
        .read_text()
        .replace(
            'DATA_DIR = Path(__file__).parent.parent / "data"',
            'import os\nDATA_DIR = Path(os.environ["TAU2_DATA_DIR"])',
        )
    )
    (code / "user" / "__init__.py").write_text("import a_library_for_microphones\n")
    (code / "user" / "user_simulator.py").write_text(NEWER_USER)
    (code / "agent" / "__init__.py").write_text("import websockets_for_speech\n")
    (code / "agent" / "base.py").unlink()
    (code / "agent" / "base").mkdir()
    (code / "agent" / "base" / "__init__.py").write_text("")
    (code / "agent" / "base" / "llm_config.py").write_text(LLM_CONFIG)
    return root
