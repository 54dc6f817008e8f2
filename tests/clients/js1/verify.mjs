// Verifies the signatures of the cards at BASE_URL with the official JavaScript SDK 1.x.
//
// usage: node verify.mjs BASE_URL [TOKEN]
//
// With a token, the extended card is verified too, as JSON-RPC and REST return it. Every step prints `ok` or `FAIL`;
// the exit code is 1 if any step failed.

import { verifyAgentCardSignature } from '@a2a-js/sdk';
import { importJWK } from 'jose';

const [base, token] = process.argv.slice(2);
// The SDK reports each signature that does not match.
console.debug = () => {};

const { keys } = await (await fetch(`${base}/.well-known/jwks.json`)).json();
const verify = verifyAgentCardSignature(async (kid) => {
  const key = keys.find((one) => one.kid === kid);
  return importJWK(key, key.alg);
});

// Insists that the card is verified as it is, and refused after a change.
async function check(card) {
  await verify(card);
  const [first, ...others] = card.supportedInterfaces;
  const changes = [
    { name: `${card.name}!` },
    { supportedInterfaces: [{ ...first, url: 'https://evil.example/' }, ...others] },
  ];
  for (const change of changes) {
    const accepted = await verify({ ...card, ...change }).then(() => true, () => false);
    if (accepted) throw new Error('a changed card was verified');
  }
  return card;
}

async function get(path, headers = {}) {
  const response = await fetch(`${base}${path}`, { headers });
  if (!response.ok) throw new Error(`${path}: ${response.status}`);
  return response.json();
}

const v1 = { 'A2A-Version': '1.0' };
const steps = {
  'public card for every version': async () => check(await get('/.well-known/agent-card.json')),
  'public card of 1.0': async () => check(await get('/.well-known/agent-card.json', v1)),
};
if (token) {
  const headers = { ...v1, Authorization: `Bearer ${token}`, 'Content-Type': 'application/json' };
  steps['extended card over HTTP+JSON'] = async () => {
    const found = await check(await get('/extendedAgentCard', headers));
    const open = await get('/.well-known/agent-card.json', v1);
    if (found.skills.length <= open.skills.length) throw new Error('it has no further skill');
  };
  steps['extended card over JSONRPC'] = async () => {
    const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'GetExtendedAgentCard' });
    const response = await fetch(`${base}/a2a/jsonrpc`, { method: 'POST', headers, body });
    await check((await response.json()).result);
  };
}

let [passed, failed] = [0, 0];
for (const [name, step] of Object.entries(steps)) {
  try {
    await step();
    console.log(`ok ${name}`);
    passed += 1;
  } catch (error) {
    console.log(`FAIL ${name}: ${error.message}`);
    failed += 1;
  }
}
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed ? 1 : 0);
