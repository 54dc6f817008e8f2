"""Worker of a Herald server as a command: works on the tasks of one role, over HTTP.

    python -m agent_worker.worker --agent-name code-reviewer \\
        --agent-description "Python code review specialist" --server https://agents.example.com
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import sys
from typing import Optional

from herald import find

from . import agents
from .instance import Worker, log
from .server import Refused


def main(arguments: Optional[list[str]] = None) -> None:
    given = sys.argv[1:] if arguments is None else arguments
    args = _parser().parse_args(given)
    logging.basicConfig(level=args.log_level.upper(), format="%(asctime)s %(levelname)s %(message)s")
    if args.server is None:
        sys.exit("--server is missing: the URL of the server, such as https://agents.example.com")
    if not (args.handler or args.handler_package or args.exec):
        _run_herald(args, given)
    sys.path.insert(0, "")
    find.serve_old_imports()
    try:
        description = args.agent_description
        if args.exec:
            agent = agents.of_command(args.exec)
        else:
            handler = (
                agents.find_handler(args.handler)
                if args.handler
                else agents.choose_handler(args.handler_package, args.agent_name)
            )
            agent = agents.of_handler(handler)
            description = description or find.description(handler)
        worker = Worker(
            args.server,
            args.agent_name,
            description,
            instance=args.instance,
            concurrency=args.concurrency,
            labels=args.label,
            attempts=args.attempts,
            drain_timeout=args.drain_timeout,
            ca=args.ca_cert,
        )
        worker.run_agent(agent)
    except (find.Unusable, ImportError, ValueError) as fault:
        sys.exit(str(fault))
    except Refused as refusal:
        sys.exit(f"the server refused the worker: {refusal}")


def _run_herald(args: argparse.Namespace, given: list[str]) -> None:
    """Becomes `herald worker`, which works with the coding agent of this machine."""
    herald = os.environ.get("HERALD_BINARY") or shutil.which("herald")
    if herald is None:
        sys.exit(
            "no agent is given: choose one with --handler MODULE:CLASS, --handler-package PACKAGE or --exec COMMAND; "
            "or install herald, whose `herald worker` works with the coding agent of this machine"
        )
    command = [herald, "worker", "--server", args.server, "--agent-name", args.agent_name]
    command += ["--agent-description", args.agent_description] if args.agent_description else []
    command += ["--instance", args.instance] if args.instance else []
    command += ["--ca-cert", args.ca_cert] if args.ca_cert else []
    command += [word for label in args.label for word in ("--label", label)]
    command += ["--drain-timeout", f"{args.drain_timeout:g}s"]
    if "--concurrency" in given or "--max-concurrent-tasks" in given:
        command += ["--concurrency", str(args.concurrency)]
    log.info("no --handler, --handler-package or --exec: running %s", " ".join(command))
    os.execv(herald, command)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m agent_worker.worker",
        description="Works on the tasks of one role of a Herald server. Without --handler, --handler-package and "
        "--exec it becomes `herald worker`, which works with the coding agent of this machine.",
        epilog="The credential is A2ACLI_BEARER or A2ACLI_API_KEY.",
    )
    parser.add_argument("--server", default=os.environ.get("A2A_SERVER_URL"), help="URL of the server [A2A_SERVER_URL]")
    parser.add_argument("--agent-name", required=True, metavar="ROLE", help="the role, by which callers reach the agent")
    parser.add_argument("--agent-description", default="", metavar="TEXT", help="the description in its card [the docstring of the handler]")
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--handler", metavar="MODULE:CLASS", help="work with this handler")
    chosen.add_argument("--handler-package", action="append", default=[], metavar="PACKAGE",
                        help="work with the handler of this package that has the name of the role, or the only one")
    chosen.add_argument("--exec", metavar="COMMAND", help="work with a program: the message is its input")
    parser.add_argument("--concurrency", "--max-concurrent-tasks", type=int, default=2, metavar="N", help="turns at once [2]")
    parser.add_argument("--attempts", type=int, default=3, metavar="N", help="attempts at a turn that a crash interrupts [3]")
    parser.add_argument("--label", action="append", default=[], help="a label that tasks can require")
    parser.add_argument("--instance", "--worker-id", metavar="ID", help="the id of this worker [random]")
    parser.add_argument("--drain-timeout", type=float, default=30.0, metavar="SECONDS", help="time to end running turns [30]")
    parser.add_argument("--ca-cert", metavar="FILE", help="also trust this certificate authority (PEM)")
    parser.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    return parser


if __name__ == "__main__":
    main()
