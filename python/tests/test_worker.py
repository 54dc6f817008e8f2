"""The parts of the worker that need no server: addresses, answers, writes of a turn, choice of a handler."""

import asyncio
import json
import os
import threading
import types
import unittest
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
import sys

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

from agent_worker import Cancelled, Refused, Unreachable, discover_agents, send_to_agent  # noqa: E402
from agent_worker import Worker, agents, worker  # noqa: E402
from agent_worker.server import Backoff, Interrupted, Request, Server, agent_path  # noqa: E402
from agent_worker.turn import Failed, Turn  # noqa: E402
from herald.handler import TaskHandler  # noqa: E402


def refusal(status, reason, text="no"):
    return status, {"error": {"code": status, "message": text, "details": [{"reason": reason}]}}


class Answers(BaseHTTPRequestHandler):
    """Answers each request with the next reply, and keeps it."""

    def answer(self):
        length = int(self.headers.get("Content-Length", 0))
        body = json.loads(self.rfile.read(length)) if length else None
        self.server.seen.append((self.command, self.path, body, dict(self.headers)))
        reply = self.server.replies.pop(0)
        if callable(reply):
            reply = reply()
        status, content = reply
        content = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_DELETE = answer

    def log_message(self, *_):
        pass


class WithServer(unittest.TestCase):
    def setUp(self):
        self.http = HTTPServer(("127.0.0.1", 0), Answers)
        self.http.seen, self.http.replies = [], []
        # A client that ends its request leaves a broken pipe.
        self.http.handle_error = lambda *_: None
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        self.addCleanup(self.http.server_close)
        self.addCleanup(self.http.shutdown)
        self.url = f"http://127.0.0.1:{self.http.server_port}"

    def turn(self, **more):
        task = {"id": "t", "contextId": "c", "history": []}
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "one"}, {"data": 1}, {"text": "two"}]}
        assignment = {"task": task, "message": message, "continued": [], "attempt": 1, **more}
        given = {"id": "turn-1", "epoch": 7, "head": 3, "turn": assignment}
        return Turn(Server(self.url), "role:host:1", "session", given)


class Connections(WithServer):
    def test_an_address_gets_its_scheme(self):
        self.assertEqual(Server("localhost:8000/").url, "http://localhost:8000")
        self.assertEqual(Server("agents.example.com").url, "https://agents.example.com")
        for wrong in ("ftp://a", "http://", "http://a/?x=1"):
            with self.assertRaises(ValueError):
                Server(wrong)
        self.assertEqual(agent_path("a:b:c", "/poll"), "/api/agents/a%3Ab%3Ac/poll")

    def test_refusals_are_told_apart_from_outages(self):
        server = Server(self.url)
        for status, reason, is_expired, is_over in [
            (410, "WORKER_EXPIRED", True, True),
            (404, "WORKER_UNKNOWN", True, True),
            (409, "TURN_OVER", False, True),
            (422, "WRITE_REFUSED", False, False),
        ]:
            self.http.replies.append(refusal(status, reason))
            with self.assertRaises(Refused) as caught:
                server.call("POST", "/x", {})
            self.assertEqual((caught.exception.is_expired, caught.exception.is_over), (is_expired, is_over))
        for reply in [refusal(503, "UNAVAILABLE"), (404, b"a proxy's page"), (200, b"not json"), refusal(429, "X")]:
            self.http.replies.append(reply)
            with self.assertRaises(Unreachable):
                server.call("POST", "/x", {})
        with self.assertRaises(Unreachable):
            Server("http://127.0.0.1:9").call("GET", "/")

    def test_credentials_come_from_the_environment(self):
        os.environ["A2ACLI_API_KEY"] = "k"
        self.addCleanup(os.environ.pop, "A2ACLI_API_KEY")
        self.http.replies += [(200, {}), (200, {})]
        Server(self.url).call("GET", "/")
        Server(self.url, "token").call("GET", "/")
        first, second = (seen[3] for seen in self.http.seen)
        self.assertEqual(first.get("X-API-Key"), "k")
        self.assertEqual((second.get("Authorization"), second.get("X-API-Key")), ("Bearer token", None))

    def test_another_thread_ends_a_request(self):
        request, held = Request(), threading.Event()
        self.addCleanup(held.set)

        def hold():
            request.end()
            held.wait(30)
            return 200, {}

        self.http.replies.append(hold)
        with self.assertRaises(Interrupted):
            Server(self.url).call("POST", "/poll", {}, 30, request)

    def test_delays_grow_to_a_limit(self):
        backoff = Backoff()
        delays = [backoff.next() for _ in range(20)]
        self.assertLess(delays[0], 0.3)
        self.assertTrue(all(delay <= 6 for delay in delays))
        self.assertEqual(Backoff().next(100), 6)


class Turns(WithServer):
    def test_writes_are_numbered_and_repeated_under_their_number(self):
        turn = self.turn()
        self.assertEqual(turn.text, "one\ntwo")
        self.http.replies += [(200, {"head": 4}), (503, b""), (200, {"head": 5}), (200, {"head": 6}), (200, {})]
        turn.progress("reading")
        turn.artifact("a", append=True, last=False)
        turn.artifact("b", append=True)
        turn.end({"kind": "done"})
        bodies = [body for _, _, body, _ in self.http.seen]
        self.assertEqual([body["number"] for body in bodies], [1, 2, 2, 3, 4])
        self.assertEqual([body.get("after") for body in bodies], [3, 4, 4, 5, None])
        self.assertEqual(bodies[0]["commands"][0]["report"]["state"], "TASK_STATE_WORKING")
        pieces = [body["commands"][0]["write"] for body in bodies[2:4]]
        self.assertEqual([(piece["append"], piece["last"]) for piece in pieces], [(False, False), (True, True)])
        self.assertEqual(self.http.seen[-1][1], "/api/agents/role%3Ahost%3A1/turns/turn-1/end")

    def test_an_artifact_of_an_earlier_attempt_is_continued(self):
        turn = self.turn(continued=["output"])
        self.http.replies.append((200, {"head": 4}))
        turn.artifact("more", append=True)
        self.assertTrue(self.http.seen[0][2]["commands"][0]["write"]["append"])

    def test_a_turn_that_is_over_stops_and_a_refused_write_fails(self):
        turn, stopped = self.turn(), []
        turn.on_cancel(lambda: stopped.append(True))
        self.http.replies += [refusal(422, "WRITE_REFUSED", "too large"), refusal(409, "TURN_OVER")]
        with self.assertRaisesRegex(Failed, "too large"):
            turn.artifact("x")
        with self.assertRaises(Cancelled):
            turn.artifact("x")
        self.assertTrue(turn.is_cancelled and turn.is_over and stopped)
        # The refused write has not used its number, so that the next one is not out of order.
        self.assertEqual([body["number"] for _, _, body, _ in self.http.seen], [1, 1])

    def test_nothing_is_written_once_a_turn_is_handed_back(self):
        turn = self.turn()
        turn.is_returned = True
        with self.assertRaises(Cancelled):
            turn.progress("more")
        self.assertEqual(self.http.seen, [])

    def test_an_answer_counts_only_after_its_question(self):
        asked, again = threading.Event(), threading.Event()
        turn = self.turn()
        turn._polls, turn._poll_again = lambda: 3, again.set

        def question():
            asked.set()
            return 200, {"head": 4}

        answer = {"message": {"parts": [{"text": "blue"}]}, "head": 6}
        self.http.replies += [question, (200, answer)]
        result = []
        thread = threading.Thread(target=lambda: result.append(turn.ask("which?")), daemon=True)
        thread.start()
        self.assertTrue(asked.wait(10))
        # The poll that was open when the question was written.
        turn.answer_is_there(3)
        thread.join(0.3)
        self.assertEqual(result, [])
        self.assertTrue(again.wait(10), "the next poll begins at once")
        turn.answer_is_there(4)
        thread.join(10)
        self.assertEqual(result, ["blue"])


class Agents(WithServer):
    def test_a_function_may_be_plain_or_async(self):
        async def later(turn):
            await asyncio.sleep(0)
            return turn.text.upper()

        for function in (lambda turn: turn.text.upper(), later):
            self.http.replies.append((200, {"head": 4}))
            agents.of_function(function)(self.turn())
            write, report = self.http.seen[-1][2]["commands"]
            expected = {"artifactId": "response", "name": "response", "parts": [{"text": "ONE\nTWO"}]}
            self.assertEqual(write["write"], {"artifact": expected, "append": False, "last": True})
            self.assertEqual(report["report"], {"state": "TASK_STATE_COMPLETED"})

    def test_the_answer_to_a_later_message_is_an_artifact_of_its_own(self):
        turn = self.turn()
        first = {"messageId": "m0", "role": "ROLE_USER", "parts": [{"text": "zero"}]}
        question = {"messageId": "q", "role": "ROLE_AGENT", "parts": [{"text": "which?"}]}
        turn.assignment["task"]["history"] = [first, question, turn.message]
        self.http.replies += [(200, {"head": 4}), (200, {"head": 5})]
        turn.answer("two")
        artifact = self.http.seen[-1][2]["commands"][0]["write"]["artifact"]
        self.assertEqual((artifact["artifactId"], artifact["name"]), ("response-2", "response"))
        turn.answer("")
        self.assertEqual(self.http.seen[-1][2]["commands"], [{"report": {"state": "TASK_STATE_COMPLETED"}}])

    def test_a_program_gets_the_text_and_its_status_counts(self):
        self.http.replies += [(200, {"head": 4}), (200, {"head": 5})]
        agents.of_command("tr a-z A-Z")(self.turn())
        write = self.http.seen[-1][2]["commands"][0]["write"]
        self.assertEqual((write["artifact"]["parts"], write["last"]), ([{"text": "ONE\nTWO"}], True))
        with self.assertRaisesRegex(Failed, "status 3"):
            agents.of_command("exit 3")(self.turn())

    def test_a_cancel_ends_the_program_and_its_children(self):
        for command in ("exec sleep 600", "sleep 600; true"):
            turn = self.turn()
            threading.Timer(0.2, turn.stop).start()
            self.http.replies.append(refusal(409, "TURN_OVER"))
            with self.assertRaises(Cancelled):
                agents.of_command(command)(turn)


class Calls(WithServer):
    def test_agents_are_listed_and_reached_by_role(self):
        found = {"agents": [{"name": "a:b:c", "role": "a"}], "routing_note": "..."}
        task = {"task": {"id": "t", "status": {"state": "TASK_STATE_COMPLETED"}}}
        self.http.replies += [(200, found), (200, task), refusal(404, "X", "use the role")]
        listed = asyncio.run(discover_agents(self.url, tag="python"))
        self.assertEqual(listed, found["agents"])
        self.assertEqual(self.http.seen[0][1], "/api/agents?tag=python")
        done = asyncio.run(send_to_agent(agent_name="a", message="Hello", server=self.url))
        self.assertEqual(done["id"], "t")
        method, path, body, headers = self.http.seen[1]
        self.assertEqual((path, headers["A2A-Version"]), ("/agents/a/message:send", "1.0"))
        self.assertEqual(body["message"]["parts"], [{"text": "Hello"}])
        with self.assertRaisesRegex(Refused, "use the role"):
            asyncio.run(send_to_agent(agent_name="a:b:c", message="Hello", server=self.url))


    def test_all_pages_of_a_list_are_read(self):
        first = {"agents": [{"role": "a"}], "routing_note": "...", "next_page_token": "t1"}
        self.http.replies += [(200, first), (200, {"agents": [{"role": "b"}], "routing_note": "..."})]
        listed = asyncio.run(discover_agents(self.url, tag="python"))
        self.assertEqual([agent["role"] for agent in listed], ["a", "b"])
        self.assertEqual(self.http.seen[1][1], "/api/agents?tag=python&page_token=t1")


class Descriptions(WithServer):
    """A worker that is refused, which shows its registration."""

    def registered(self, register):
        self.http.replies.append(refusal(403, "AUTHORIZATION_FAILED"))
        with self.assertRaises((Refused, SystemExit)):
            register()
        return self.http.seen[-1][2]["description"]

    def test_the_docstring_of_a_handler_is_the_description(self):
        class Documented(TaskHandler):
            """Reviews Python code.

            Slowly.
            """

            name = "reviewer"

            async def process_task(self, task_id, message, session_id=None):
                yield None

        class Silent(Documented):
            name = "silent"

        module = types.ModuleType("documented_handlers")
        module.Documented, module.Silent = Documented, Silent
        sys.modules[module.__name__] = module
        self.addCleanup(sys.modules.pop, module.__name__)
        common = ["--server", self.url, "--agent-name", "reviewer", "--handler"]
        for given, description in [
            (["documented_handlers:Documented"], "Reviews Python code.\n\nSlowly."),
            (["documented_handlers:Documented", "--agent-description", "Own"], "Own"),
            (["documented_handlers:Silent"], ""),
        ]:
            self.assertEqual(self.registered(lambda: worker.main(common + given)), description)

    def test_the_docstring_of_a_function_is_the_description(self):
        def review(turn):
            """Reviews Python code."""

        def run(function, *description):
            return self.registered(lambda: Worker(self.url, "reviewer", *description).run(function))

        self.assertEqual(run(review), "Reviews Python code.")
        self.assertEqual(run(review, "Own"), "Own")
        self.assertEqual(run(lambda turn: None), "")
        review.__doc__ = "ä" * 4000
        self.assertEqual(run(review), "ä" * 2048)


if __name__ == "__main__":
    unittest.main()
