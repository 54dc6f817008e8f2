// Registers webhooks with the official JavaScript SDK 0.3.x and receives their deliveries.
//
// usage: node push.mjs BASE_URL [--transport jsonrpc|rest|grpc]
//
// The server must offer the `conformance` agent at BASE_URL and allow webhooks to 127.0.0.1. Every step prints
// `ok` or `FAIL`; the exit code is 1 if any step failed.

import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { inspect, isDeepStrictEqual, parseArgs } from 'node:util';
import {
  ClientFactory, DefaultAgentCardResolver, JsonRpcTransportFactory, RestTransportFactory,
} from '@a2a-js/sdk/client';
import { GrpcTransportFactory } from '@a2a-js/sdk/client/grpc';

const TRANSPORTS = {
  jsonrpc: new JsonRpcTransportFactory(),
  rest: new RestTransportFactory(),
  grpc: new GrpcTransportFactory(),
};
const STEP_TIMEOUT_MS = 30_000;
const TOKEN = 'a token of the receiver';
const CREDENTIALS = 'dXNlcjpwYXNz';

const { values, positionals } = parseArgs({
  options: { transport: { type: 'string', default: 'jsonrpc' } },
  allowPositionals: true,
});
const [base] = positionals;
const transport = TRANSPORTS[values.transport];
if (!base || !transport) {
  console.error('usage: node push.mjs BASE_URL [--transport jsonrpc|rest|grpc]');
  process.exit(2);
}

function check(condition, why) {
  if (!condition) throw new Error(why);
}

function equal(got, want, what) {
  const show = (value) => inspect(value, { depth: 6 });
  check(isDeepStrictEqual(got, want), `${what}: got ${show(got)}, want ${show(want)}`);
}

function textOf(parts) {
  return parts.map((part) => part.text ?? '').join('');
}

// The receiver accepts what the SDK's own sender sends: a whole task, with the token in its header.
const deliveries = {}; // path to tasks
const faults = [];

function accept(request, body) {
  equal(request.headers['content-type'], 'application/json', 'content type');
  equal(request.headers['x-a2a-notification-token'], TOKEN, 'token');
  const scheme = request.url === '/basic' ? `Basic ${CREDENTIALS}` : `Bearer ${TOKEN}`;
  equal(request.headers.authorization, scheme, 'authorization');
  const task = JSON.parse(body);
  equal(task.kind, 'task', 'kind');
  check(task.id && task.contextId && task.status?.state, 'the task lacks a required member');
  (deliveries[request.url] ??= []).push(task);
}

const server = createServer(async (request, response) => {
  let body = '';
  for await (const piece of request.setEncoding('utf8')) body += piece;
  try {
    accept(request, body);
  } catch (error) {
    faults.push(`${error.message} for ${body}`);
    response.statusCode = 400;
  }
  response.end();
});
await once(server.listen(0, '127.0.0.1'), 'listening');
const hooks = `http://127.0.0.1:${server.address().port}`;

// Waits for a delivery of this state on this path, and returns all deliveries there.
async function received(path, state) {
  for (;;) {
    check(!faults.length, faults.join('; '));
    const tasks = deliveries[path] ?? [];
    if (tasks.at(-1)?.status.state === state) return tasks;
    await sleep(10);
  }
}

const config = (path, more = {}) => ({ url: `${hooks}${path}`, token: TOKEN, ...more });

function user(text, { configuration, ...ids } = {}) {
  const parts = [{ kind: 'text', text }];
  return { message: { kind: 'message', role: 'user', messageId: randomUUID(), parts, ...ids }, configuration };
}

let client;

// The steps, in order.
const steps = {
  async card() {
    const card = await new DefaultAgentCardResolver().resolve(base);
    check(card.capabilities.pushNotifications, 'the card does not offer push notifications');
    client = await new ClientFactory({ transports: [transport] }).createFromAgentCard(card);
  },

  async inline() {
    const configuration = { blocking: false, pushNotificationConfig: config('/inline') };
    const request = user('tck-stream-chunked chunks=5 size=16 delay_ms=5', { configuration });
    const { id } = await client.sendMessage(request);
    const tasks = await received('/inline', 'completed');
    equal([...new Set(tasks.map((task) => task.id))], [id], 'task');
    const stored = await client.getTask({ id });
    equal(textOf(tasks.at(-1).artifacts[0].parts), textOf(stored.artifacts[0].parts), 'text of the artifact');
  },

  async configs() {
    const asked = await client.sendMessage(user('tck-multi-turn'));
    const { id: taskId, contextId } = asked;
    equal(asked.status.state, 'input-required', 'first turn');
    const create = async (path, more) => {
      const pushNotificationConfig = config(path, more);
      const created = await client.setTaskPushNotificationConfig({ taskId, pushNotificationConfig });
      equal(created.taskId, taskId, 'task of the config');
      equal(created.pushNotificationConfig.url, `${hooks}${path}`, 'URL of the config');
      return created.pushNotificationConfig;
    };
    await create('/late', { id: 'late' });
    const mine = await create('/basic', { id: 'mine', authentication: { schemes: ['Basic'], credentials: CREDENTIALS } });
    const named = { id: taskId, pushNotificationConfigId: 'mine' };
    equal((await client.getTaskPushNotificationConfig(named)).pushNotificationConfig, mine, 'config');
    const listed = await client.listTaskPushNotificationConfig({ id: taskId });
    equal(listed.map((one) => one.pushNotificationConfig.id).toSorted(), ['late', 'mine'], 'listed configs');
    for (const path of ['/late', '/basic']) {
      const [first] = await received(path, 'input-required');
      check(first.status.message.parts.length, 'the question is missing');
    }
    await client.deleteTaskPushNotificationConfig(named);
    const done = await client.sendMessage(user('done', { taskId, contextId }));
    equal(done.status.state, 'completed', 'last turn');
    await received('/late', 'completed');
    equal(deliveries['/basic'].length, 1, 'deliveries to the deleted config');
  },
};

let passed = 0;
let failed = 0;
for (const [name, step] of Object.entries(steps)) {
  const timeout = sleep(STEP_TIMEOUT_MS).then(() => {
    throw new Error(`no end after ${STEP_TIMEOUT_MS} ms`);
  });
  try {
    await Promise.race([step(), timeout]);
    passed += 1;
    console.log(`ok ${name}`);
  } catch (error) {
    failed += 1;
    console.log(`FAIL ${name}: ${error.message.replace(/\s+/g, ' ')}`);
  }
}
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed ? 1 : 0);
