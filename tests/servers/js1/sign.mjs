// Keys, and a card that the official JavaScript SDK signed with them, each on a line; see ../README.md.

import { generateAgentCardSignature } from "@a2a-js/sdk";
import { exportJWK, generateKeyPair } from "jose";

const { privateKey, publicKey } = await generateKeyPair("ES256");
const keys = [{ ...(await exportJWK(publicKey)), kid: "js", alg: "ES256" }];
// Plain JSON: of the SDK's own type it would leave the security schemes out of what it signs.
const card = {
  name: "Signed “ä” 😀",
  description: "",
  version: "1",
  supportedInterfaces: [
    { url: "http://127.0.0.1:1/", protocolBinding: "JSONRPC", protocolVersion: "1.0" },
  ],
  capabilities: { streaming: false, extensions: [{ uri: "https://e.example", params: { a: 1.5 } }] },
  securitySchemes: { key: { apiKeySecurityScheme: { location: "header", name: "X-Key" } } },
  securityRequirements: [{ schemes: { key: { list: [] } } }],
  defaultInputModes: ["text/plain"],
  defaultOutputModes: [],
  skills: [{ id: "s", name: "S", description: "", tags: [] }],
};
const sign = generateAgentCardSignature(privateKey, { alg: "ES256", kid: "js", typ: "JOSE" });
console.log(JSON.stringify({ keys }));
console.log(JSON.stringify(await sign(card)));
