"""The tool by which an agent that runs once speaks to its user, as every part knows it.

It is told to models as it stands here, so a word changed is another benchmark.
"""

from __future__ import annotations

from typing import Any

SERVER = "user"
"""Name of the MCP server that has it."""
SPEAK = "respond_to_user"
"""Its wire name."""
TOOL: dict[str, Any] = {
    "name": SPEAK,
    "description": (
        "Say something to the user you are talking to, and get their reply. This is the only way to "
        "reach them: text that you write anywhere else is not seen by anyone. The result is what the "
        "user answers, or a note that the user has ended the conversation; when it has ended, stop."
    ),
    "input_schema": {
        "type": "object",
        "properties": {
            "message": {"type": "string", "description": "What you say to the user."},
        },
        "required": ["message"],
        "additionalProperties": False,
    },
}
