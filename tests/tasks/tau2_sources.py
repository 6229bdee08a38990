"""Other sources of τ²-bench than the pinned package, made of it: a checkout as upstream 1.0.1 is laid out."""

from __future__ import annotations

import json
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
BANKING = """
from tau2.domains.mock.data_model import MockDB
from tau2.domains.mock.tools import MockTools
from tau2.domains.banking_knowledge.utils import KNOWLEDGE_DB_PATH
from tau2.environment.environment import Environment

DOCUMENTS = {"fees": "Fees are 3 dollars.", "limits": "The limit is 500 dollars."}


def get_knowledge_base():
    return DOCUMENTS


def resolve_variant(name):
    if name != "golden_retrieval":
        raise ValueError(f"{name} asks a provider")
    return name


def build_policy(variant, knowledge, task=None):
    wanted = (task.required_documents or []) if task else []
    return "\\n".join(["Be a bank.", *(knowledge[name] for name in wanted)])


def get_environment(db=None, retrieval_variant="alltools", task=None, solo_mode=False):
    variant = resolve_variant(retrieval_variant)
    db = db or MockDB.load(KNOWLEDGE_DB_PATH)
    return Environment("banking_knowledge", build_policy(variant, DOCUMENTS, task), MockTools(db))
"""
BANKING_PATHS = """
from tau2.utils.utils import DATA_DIR

KNOWLEDGE_DATA_DIR = DATA_DIR / "tau2" / "domains" / "banking_knowledge"
KNOWLEDGE_TASK_SET_PATH = KNOWLEDGE_DATA_DIR / "tasks"
KNOWLEDGE_DB_PATH = KNOWLEDGE_DATA_DIR / "db.json"
"""


def add_banking(checkout: Path) -> None:
    """A domain in the form of upstream's banking_knowledge (a folder with a file a task, retrieval
    variants of which only some work offline), its tools and tasks those of mock."""
    code = checkout / "src" / "tau2" / "domains" / "banking_knowledge"
    data = checkout / "data" / "tau2" / "domains" / "banking_knowledge"
    code.mkdir()
    (data / "tasks").mkdir(parents=True)
    (code / "__init__.py").write_text("")
    (code / "environment.py").write_text(BANKING)
    (code / "utils.py").write_text(BANKING_PATHS)
    mock = data.parent / "mock"
    shutil.copyfile(mock / "db.json", data / "db.json")
    tasks = json.loads((mock / "tasks.json").read_text())[:3]
    tasks[1]["required_documents"] = ["fees"]
    for number, task in enumerate(tasks):
        (data / "tasks" / f"task_{number:03}.json").write_text(json.dumps(task))
    model = checkout / "src" / "tau2" / "data_model" / "tasks.py"
    first = '    id: str = Field(description="The unique identifier for the task.")\n'
    more = "    required_documents: Optional[list[str]] = None\n"
    model.write_text(model.read_text().replace(first, first + more))


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
