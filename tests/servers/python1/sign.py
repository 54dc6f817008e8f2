"""Cards signed by the official Python SDK, one per line, and before them the keys; see ../README.md.

Every card comes with the JSON the SDK's own server would answer with.
"""

import json

from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentExtension,
    AgentInterface,
    AgentSkill,
    APIKeySecurityScheme,
    SecurityRequirement,
    SecurityScheme,
    StringList,
)
from a2a.utils.signing import create_agent_card_signer
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from google.protobuf.json_format import MessageToDict
from google.protobuf.struct_pb2 import Struct
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

RSA = rsa.generate_private_key(65537, 2048)
KEYS = {
    "ES256": (ec.generate_private_key(ec.SECP256R1()), ECAlgorithm),
    "ES384": (ec.generate_private_key(ec.SECP384R1()), ECAlgorithm),
    "RS256": (RSA, RSAAlgorithm),
    "PS256": (RSA, RSAAlgorithm),
    "EdDSA": (ed25519.Ed25519PrivateKey.generate(), OKPAlgorithm),
}


def card():
    params = Struct()
    params.update({"ä": [1, 2.5, 1e21], "😀": {"empty": ""}, "\ufb33": True, "none": []})
    return AgentCard(
        name="Signed “ä” 😀",
        description="",
        version="1",
        supported_interfaces=[
            AgentInterface(url="http://127.0.0.1:1/", protocol_binding="JSONRPC", protocol_version="1.0")
        ],
        capabilities=AgentCapabilities(
            streaming=False, extensions=[AgentExtension(uri="https://e.example", params=params)]
        ),
        security_schemes={
            "key": SecurityScheme(api_key_security_scheme=APIKeySecurityScheme(location="header", name="X-Key"))
        },
        security_requirements=[SecurityRequirement(schemes={"key": StringList()})],
        default_input_modes=["text/plain"],
        default_output_modes=[],
        skills=[AgentSkill(id="s", name="S", description="", tags=[])],
    )


def sign(card, *algorithms):
    for algorithm in algorithms:
        header = {"alg": algorithm, "kid": algorithm, "typ": "JOSE", "jku": "https://127.0.0.1:1/keys"}
        create_agent_card_signer(KEYS[algorithm][0], header)(card)
    return MessageToDict(card)


def public(name):
    key, algorithm = KEYS[name]
    return {**algorithm.to_jwk(key.public_key(), as_dict=True), "kid": name, "use": "sig"}


print(json.dumps({"keys": [public(name) for name in KEYS]}))
for algorithm in KEYS:
    print(json.dumps(sign(card(), algorithm)))
print(json.dumps(sign(card(), "RS256", "ES256")))
