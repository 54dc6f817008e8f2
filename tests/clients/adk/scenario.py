"""Drives a running A2A server with google-adk: a `RemoteA2aAgent` in a `Runner`, by the card's URL and without settings.

usage: scenario.py BASE_URL

The server must offer the `echo` agent at BASE_URL. Every step prints `ok` or `FAIL`; the exit code is 1 if any
step failed. No model is asked: the remote agent is the root agent.
"""

import argparse
import asyncio
import sys
import warnings

# Every class of google-adk's A2A support announces that it is experimental.
warnings.filterwarnings("ignore", message=".*EXPERIMENTAL.*")

from google.adk.agents.remote_a2a_agent import AGENT_CARD_WELL_KNOWN_PATH, RemoteA2aAgent
from google.adk.runners import InMemoryRunner
from google.genai import types

STEP_TIMEOUT = 60.0


def equal(got, want, what):
    if got != want:
        raise AssertionError(f"{what}: got {got!r}, want {want!r}")


class Scenario:
    def __init__(self, base):
        agent = RemoteA2aAgent(name="remote", agent_card=f"{base}{AGENT_CARD_WELL_KNOWN_PATH}")
        self.runner = InMemoryRunner(agent)

    async def session(self):
        sessions = self.runner.session_service
        return await sessions.create_session(app_name=self.runner.app_name, user_id="user")

    async def ask(self, session, text):
        """Sends one message of a session: the text of the answer and the A2A task that it came from."""
        message = types.Content(role="user", parts=[types.Part(text=text)])
        events = [
            event async for event in self.runner.run_async(
                user_id="user", session_id=session.id, new_message=message,
            )
        ]
        equal([event.error_message for event in events if event.error_message], [], "errors")
        # Each event of the stream is one of the session's, and those without content only tell a state.
        parts = [part for event in events if event.content for part in event.content.parts]
        answer = "".join(part.text or "" for part in parts if not part.thought)
        return answer, events[-1].custom_metadata["a2a:response"]

    # The steps, in order.

    async def answer(self):
        text, task = await self.ask(await self.session(), "Hello")
        equal(text, "Echo: Hello", "answer")
        equal(task["status"]["state"], "TASK_STATE_COMPLETED", "state")

    async def conversation(self):
        session = await self.session()
        texts, tasks = zip(*[await self.ask(session, text) for text in ("one", "two", "three")])
        equal(texts, ("Echo: one", "Echo: two", "Echo: three"), "answers")
        equal(len({task["contextId"] for task in tasks}), 1, "contexts of one session")
        _, other = await self.ask(await self.session(), "four")
        equal(other["contextId"] == tasks[0]["contextId"], False, "another session in the same context")

    async def characters(self):
        said = "👩‍👩‍👧‍👦 e\u0301 漢字 \u202eשלום \"\\\n\u0085\u2028\u2029 end"
        text, _ = await self.ask(await self.session(), said)
        equal(text, f"Echo: {said}", "answer")

    async def at_once(self):
        sessions = [await self.session() for _ in range(20)]
        answers = await asyncio.gather(*[self.ask(one, str(n)) for n, one in enumerate(sessions)])
        equal([text for text, _ in answers], [f"Echo: {n}" for n in range(20)], "answers")


async def main(base):
    scenario = Scenario(base)
    passed = failed = 0
    for step in [scenario.answer, scenario.conversation, scenario.characters, scenario.at_once]:
        name = step.__name__.replace("_", "-")
        try:
            await asyncio.wait_for(step(), STEP_TIMEOUT)
            passed += 1
            print(f"ok {name}", flush=True)
        except Exception as error:
            failed += 1
            why = str(error) if isinstance(error, AssertionError) else repr(error)
            print(f"FAIL {name}: {' '.join(why.split())}", flush=True)
    await scenario.runner.close()
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("base_url")
    sys.exit(asyncio.run(main(parser.parse_args().base_url)))
