"""Steps of a client script in Python: checks, the command line and the report."""

import argparse
import asyncio

STEP_TIMEOUT = 30.0


def check(condition, why):
    if not condition:
        raise AssertionError(why)


def equal(got, want, what):
    check(got == want, f"{what}: got {got!r}, want {want!r}")


def command_line(transports):
    """The address of the server and the transport, from the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("base_url")
    parser.add_argument("--transport", choices=transports, default="jsonrpc")
    options = parser.parse_args()
    return options.base_url, transports[options.transport]


async def run(steps, goes_on=lambda: True):
    """Runs the steps in order and returns the exit code. After a failure, `goes_on` tells whether the next one makes sense."""
    passed = failed = 0
    for step in steps:
        name = step.__name__.strip("_").replace("_", "-")
        try:
            await asyncio.wait_for(step(), STEP_TIMEOUT)
            passed += 1
            print(f"ok {name}", flush=True)
        except Exception as error:
            failed += 1
            why = str(error) if isinstance(error, AssertionError) else repr(error)
            print(f"FAIL {name}: {' '.join(why.split())}", flush=True)
            if not goes_on():
                break
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0
