"""Verifies the signatures of the cards at BASE_URL with the official Python SDK 1.x.

usage: verify.py BASE_URL [TOKEN]

With a token, the extended card is verified too, over every transport. Every step prints `ok` or `FAIL`; the exit
code is 1 if any step failed.
"""

import asyncio
import sys

import grpc
import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.client.client import ClientCallContext
from a2a.types import GetExtendedAgentCardRequest
from a2a.utils.signing import InvalidSignaturesError, create_signature_verifier
from jwt.api_jwk import PyJWK

BINDINGS = ["JSONRPC", "HTTP+JSON", "GRPC"]
ALGORITHMS = ["ES256", "EdDSA"]


def refused(card, verify, change):
    """Insists that the card is refused after a change."""
    copy = type(card)()
    copy.CopyFrom(card)
    change(copy)
    try:
        verify(copy)
    except InvalidSignaturesError:
        return
    raise AssertionError("a changed card was verified")


def rename(card):
    card.name += "!"


def redirect(card):
    card.supported_interfaces[0].url = "https://evil.example/"


async def public(http, base, verify, headers):
    card = await A2ACardResolver(http, base).get_agent_card(
        http_kwargs={"headers": headers}, signature_verifier=verify
    )
    refused(card, verify, rename)
    refused(card, verify, redirect)
    return card


async def extended(http, card, verify, token, binding):
    config = ClientConfig(
        httpx_client=http,
        supported_protocol_bindings=[binding],
        grpc_channel_factory=grpc.aio.insecure_channel,
    )
    client = ClientFactory(config).create(card)
    context = ClientCallContext(service_parameters={"Authorization": f"Bearer {token}"})
    found = await client.get_extended_agent_card(
        GetExtendedAgentCardRequest(), context=context, signature_verifier=verify
    )
    assert len(found.skills) > len(card.skills), "the extended card has no further skill"
    refused(found, verify, rename)


async def main(base, token):
    failed = passed = 0
    async with httpx.AsyncClient() as http:
        keys = (await http.get(f"{base}/.well-known/jwks.json")).raise_for_status().json()["keys"]
        keys = {key["kid"]: PyJWK(key) for key in keys}
        verify = create_signature_verifier(lambda kid, _: keys[kid], ALGORITHMS)
        cards = []

        async def keep(card):
            cards.append(await card)

        steps = [
            ("public card for every version", keep(public(http, base, verify, {}))),
            ("public card of 1.0", keep(public(http, base, verify, {"A2A-Version": "1.0"}))),
        ]
        for name, step in steps:
            passed, failed = await run(name, step, passed, failed)
        for binding in BINDINGS if token and cards else []:
            step = extended(http, cards[-1], verify, token, binding)
            passed, failed = await run(f"extended card over {binding}", step, passed, failed)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


async def run(name, step, passed, failed):
    try:
        await step
    except Exception as error:
        print(f"FAIL {name}: {error!r}")
        return passed, failed + 1
    print(f"ok {name}")
    return passed + 1, failed


sys.exit(asyncio.run(main(sys.argv[1].rstrip("/"), sys.argv[2] if len(sys.argv) > 2 else None)))
