"""The helper as Herald uses it: a process, lines in, lines out."""

import json
import os
import subprocess
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src"

HANDLERS = """
import asyncio
from a2a.json_rpc.spec import Artifact, Message, Role, TextPart
from a2a.json_rpc.spec import TaskArtifactUpdateEvent, TaskState, TaskStatus, TaskStatusUpdateEvent
from a2a.server.tasks.task_handler import TaskHandler
from herald import Answer

print("loaded")

def status(task, state, final, message=None):
    return TaskStatusUpdateEvent(id=task, status=TaskStatus(state=state, message=message), final=final)

class Obedient(TaskHandler):
    \"\"\"Does what it is told.\"\"\"

    @property
    def name(self):
        return "obedient"

    async def process_task(self, task_id, message, session_id=None, history=()):
        text = message.parts[0].text
        yield status(task_id, TaskState.working, False)
        if text == "fail":
            raise RuntimeError("broken")
        if text == "wait":
            await asyncio.sleep(600)
        words = Message(role=Role.agent, parts=[TextPart(text="which?")])
        if text in ("ask", "ask without final"):
            yield status(task_id, TaskState.input_required, True if text == "ask" else None, words)
            raise AssertionError("nothing may follow")
        if text in ("wait a moment", "leave"):
            yield status(task_id, TaskState.input_required, False, words)
            if text == "leave":
                return
            yield status(task_id, TaskState.working, False)
        print("at work")
        if text == "short":
            yield Answer("SHORT")
            raise AssertionError("nothing may follow")
        yield TaskArtifactUpdateEvent(
            id=task_id, artifact=Artifact(name="answer", parts=[TextPart(text=text.upper() + str(len(history)))]))
        yield status(task_id, TaskState.completed, True)
"""


QUESTION = {"type": "status", "turn": "1", "state": "input-required", "parts": [{"text": "which?"}]}


class Helper(unittest.TestCase):
    def setUp(self):
        self.place = tempfile.TemporaryDirectory()
        self.addCleanup(self.place.cleanup)
        self.path = Path(self.place.name)
        package = self.path / "custom" / "handlers"
        package.mkdir(parents=True)
        (self.path / "custom" / "__init__.py").touch()
        (package / "__init__.py").touch()
        (package / "mine.py").write_text(textwrap.dedent(HANDLERS))

    def start(self, *arguments):
        search = os.pathsep.join([str(SOURCE), str(self.path)])
        process = subprocess.Popen(
            # Without the installed packages, which may have handlers of their own.
            [sys.executable, "-S", "-m", "herald", *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": search},
        )
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def converse(self, *lines, turns=()):
        """Everything that is said until all of these turns have ended."""
        process = self.start("--package", "custom", "obedient")
        for line in ({"type": "hello", "protocol": 1, "agent": "x"}, *lines):
            process.stdin.write(json.dumps(line) + "\n")
        process.stdin.flush()
        said, open_turns = [], set(turns)
        while open_turns or not said:
            said.append(json.loads(process.stdout.readline()))
            ends = said[-1].get("state", "working") != "working" and said[-1].get("final") is not False
            if ends or said[-1]["type"] in ("answer", "error"):
                open_turns.discard(said[-1]["turn"])
        process.stdin.close()
        self.assertEqual(process.wait(20), 0)
        return said

    def begin(self, turn, text):
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]}
        return {"type": "begin", "turn": turn, "taskId": "t", "contextId": "c", "attempt": 1,
                "message": message, "history": [message], "artifacts": [], "acceptedOutputModes": []}

    def test_handlers_of_a_package_are_listed(self):
        process = self.start("--package", "custom", "--list")
        out, _ = process.communicate(timeout=20)
        listed, = json.loads(out)
        file = self.path / "custom" / "handlers" / "mine.py"
        self.assertEqual(listed, {
            "name": "obedient", "description": "Does what it is told.",
            "place": f"custom.handlers.mine.Obedient in {file}"})

    def test_handlers_of_entry_points_are_listed(self):
        self.install("mine", "obedient = custom.handlers.mine:Obedient")
        out, _ = self.start("--package", "entry-points", "--list").communicate(timeout=20)
        self.assertEqual([one["name"] for one in json.loads(out)], ["obedient"])

    def test_events_become_lines(self):
        said = self.converse(self.begin("1", "loud"), turns=["1"])
        self.assertEqual(said[0], {"type": "hello", "protocol": 1, "ping": 30})
        self.assertEqual(said[1], {"type": "status", "turn": "1", "state": "working"})
        self.assertEqual(said[2], {
            "type": "artifact", "turn": "1", "artifactId": "answer", "name": "answer",
            "parts": [{"text": "LOUD1"}], "append": False, "lastChunk": False})
        self.assertEqual(said[3]["state"], "completed")
        self.assertEqual(len(said), 4)

    def test_an_answer_is_one_line(self):
        said = self.converse(self.begin("1", "short"), turns=["1"])
        self.assertEqual(said[2:], [{"type": "answer", "turn": "1", "text": "SHORT"}])

    def test_turns_overlap_and_can_be_cancelled(self):
        said = self.converse(
            self.begin("1", "wait"), self.begin("2", "loud"), {"type": "ping", "id": 5},
            {"type": "cancel", "turn": "1"}, turns=["1", "2"])
        self.assertIn({"type": "status", "turn": "1", "state": "canceled"}, said)
        self.assertIn({"type": "pong", "id": 5}, said)
        self.assertIn({"type": "status", "turn": "2", "state": "completed"}, said)

    def test_an_exception_is_an_error_with_its_type(self):
        said = self.converse(self.begin("1", "fail"), turns=["1"])
        self.assertEqual((said[-1]["kind"], said[-1]["message"]), ("RuntimeError", "broken"))
        self.assertIn("Traceback", said[-1]["detail"])

    def test_a_question_ends_the_turn(self):
        for text in ("ask", "ask without final"):
            said = self.converse(self.begin("1", text), turns=["1"])
            self.assertEqual(said[-1], QUESTION)

    def test_a_handler_goes_on_after_a_state_that_is_not_final(self):
        said = self.converse(self.begin("1", "wait a moment"), turns=["1"])
        self.assertEqual(said[2], {**QUESTION, "final": False})
        self.assertEqual([line.get("state") for line in said[3:]], ["working", None, "completed"])

    def test_a_handler_that_returns_while_it_waits_leaves_the_question(self):
        said = self.converse(self.begin("1", "leave"), turns=["1"])
        self.assertEqual(said[2:], [{**QUESTION, "final": False}, QUESTION])

    def install(self, name, point):
        about = self.path / f"{name}-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text(f"[a2a.task_handlers]\n{point}\n")

    def test_installed_handlers_are_discovered_and_loaded_one_by_one(self):
        self.install("mine", "obedient = custom.handlers.mine:Obedient\nagain = custom.handlers.mine:Obedient")
        self.install("torn", "torn = no_such_module:Torn")
        self.install("odd", "odd = custom.handlers.mine:status")
        out, _ = self.start("--discover").communicate(timeout=20)
        found = json.loads(out)
        self.assertEqual([(one["name"], one["load"]) for one in found["handlers"]],
                         [("obedient", "custom.handlers.mine:Obedient")])
        self.assertEqual(len(found["skipped"]), 2)
        for words in ("entry point torn", "no_such_module", "custom.handlers.mine:status is not a handler"):
            self.assertIn(words, "\n".join(found["skipped"]))
        process = self.start("--load", "custom.handlers.mine:Obedient")
        out, _ = process.communicate('{"type":"hello","protocol":1,"agent":"x"}\n', timeout=20)
        self.assertEqual(json.loads(out)["type"], "hello")

    def test_two_handlers_of_one_name_are_refused_with_both_places(self):
        (self.path / "custom" / "handlers" / "second.py").write_text(textwrap.dedent(HANDLERS))
        _, said = self.start("--package", "custom", "--list").communicate(timeout=20)
        last = said.rstrip().splitlines()[-1]
        for file in ("mine.py", "second.py"):
            self.assertIn(str(self.path / "custom" / "handlers" / file), last)

    def test_an_unknown_handler_is_refused_with_those_there_are(self):
        process = self.start("--package", "custom", "other")
        _, said = process.communicate(timeout=20)
        self.assertNotEqual(process.returncode, 0)
        self.assertIn("obedient", said)

    def test_a_file_is_answered_with_the_name_of_its_module(self):
        process = self.start("--package", "./custom/handlers/mine.py", "--list")
        _, said = process.communicate(timeout=20)
        self.assertEqual(process.returncode, 1)
        self.assertIn("such as custom.handlers.mine", said)

    def test_what_cannot_be_a_handler_is_named_in_the_last_line(self):
        unfinished = "from herald import TaskHandler\nclass Half(TaskHandler):\n    name = 'half'\n"
        for module, text, words in (
            ("broken", "import os\nthis is no python\n", ["broken", "SyntaxError", "line 2"]),
            ("missing", "import no_such_module\n", ["missing", "'no_such_module'", "line 1"]),
            ("failing", "def f():\n    return 1 / 0\nf()\n", ["failing", "ZeroDivisionError", "line 2"]),
            ("unfinished", unfinished, ["unfinished.Half", "lacks process_task"]),
            ("empty", "", ["no handler in", "empty", "herald.TaskHandler"]),
        ):
            package = self.path / f"its_{module}"
            package.mkdir()
            (package / "__init__.py").touch()
            (package / f"{module}.py").write_text(text)
            process = self.start("--package", package.name, "--list")
            _, said = process.communicate(timeout=20)
            self.assertEqual(process.returncode, 1)
            last = said.rstrip().splitlines()[-1]
            for word in words:
                self.assertIn(word, last)


if __name__ == "__main__":
    unittest.main()
