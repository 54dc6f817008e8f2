// Registers webhooks with the official JavaScript SDK 1.x and receives their deliveries with its types.
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
import { SendMessageRequest, StreamResponse, TaskPushNotificationConfig, TaskState } from '@a2a-js/sdk';
import {
  ClientFactory, DefaultAgentCardResolver, JsonRpcTransportFactory, RestTransportFactory,
} from '@a2a-js/sdk/client';
import { GrpcTransportFactory } from '@a2a-js/sdk/client/grpc';
import { TaskNotFoundError } from '@a2a-js/sdk/errors';

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
  return parts.map((part) => (part.content?.$case === 'text' ? part.content.value : '')).join('');
}

// The receiver accepts a delivery as that of the SDK's samples does: by its token, as a `StreamResponse`.
const deliveries = {}; // path to events
const faults = [];

function accept(request, body) {
  equal(request.headers['content-type'], 'application/a2a+json', 'content type');
  equal(request.headers['x-a2a-notification-token'], TOKEN, 'token');
  const scheme = request.url === '/basic' ? `Basic ${CREDENTIALS}` : `Bearer ${TOKEN}`;
  equal(request.headers.authorization, scheme, 'authorization');
  const { payload } = StreamResponse.fromJSON(JSON.parse(body));
  check(payload, 'no payload');
  (deliveries[request.url] ??= []).push(payload);
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
    const events = deliveries[path] ?? [];
    if (events.at(-1)?.value.status?.state === state) return events;
    await sleep(10);
  }
}

const config = (path, more = {}) => ({ url: `${hooks}${path}`, token: TOKEN, ...more });

function user(text, { configuration, ...ids } = {}) {
  const message = { role: 'ROLE_USER', messageId: randomUUID(), parts: [{ text }], ...ids };
  return SendMessageRequest.fromJSON({ message, configuration });
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
    const configuration = { returnImmediately: true, taskPushNotificationConfig: config('/inline') };
    const request = user('tck-stream-chunked chunks=5 size=16 delay_ms=5', { configuration });
    const { id } = await client.sendMessage(request);
    const events = await received('/inline', TaskState.TASK_STATE_COMPLETED);
    equal(events[0].$case, 'task', 'first delivery');
    equal(events[0].value.id, id, 'task');
    const chunks = events.filter((event) => event.$case === 'artifactUpdate').map((event) => event.value);
    equal(chunks.map((chunk) => chunk.append), [false, ...Array(4).fill(true)], 'append flags');
    const text = chunks.map((chunk) => textOf(chunk.artifact.parts)).join('');
    const stored = await client.getTask({ id, tenant: '' });
    equal(text, textOf(stored.artifacts[0].parts), 'text of the artifact');
  },

  async configs() {
    const { id: taskId, status } = await client.sendMessage(user('tck-multi-turn'));
    equal(status.state, TaskState.TASK_STATE_INPUT_REQUIRED, 'first turn');
    const create = (path, more) =>
      client.createTaskPushNotificationConfig(TaskPushNotificationConfig.fromJSON(config(path, { taskId, ...more })));
    const late = await create('/late');
    check(late.id, 'the config has no id');
    equal([late.taskId, late.url], [taskId, `${hooks}/late`], 'created config');
    const mine = await create('/basic', { id: 'mine', authentication: { scheme: 'Basic', credentials: CREDENTIALS } });
    equal([mine.id, mine.authentication.scheme], ['mine', 'Basic'], 'named config');
    const named = { taskId, id: 'mine', tenant: '' };
    equal(await client.getTaskPushNotificationConfig(named), mine, 'config');
    const query = { taskId, tenant: '', pageSize: 0, pageToken: '' };
    const { configs } = await client.listTaskPushNotificationConfig(query);
    equal(configs.map((one) => one.id).toSorted(), [late.id, 'mine'].toSorted(), 'listed configs');
    for (const path of ['/late', '/basic']) {
      const [first] = await received(path, TaskState.TASK_STATE_INPUT_REQUIRED);
      equal(first.$case, 'task', 'first delivery');
      check(first.value.status.message.parts.length, 'the question is missing');
    }
    await client.deleteTaskPushNotificationConfig(named);
    const gone = await client.getTaskPushNotificationConfig(named).then(() => null, (error) => error);
    check(gone instanceof TaskNotFoundError, `deleted config: got ${gone}`);
    const done = await client.sendMessage(user('done', { taskId }));
    equal(done.status.state, TaskState.TASK_STATE_COMPLETED, 'last turn');
    await received('/late', TaskState.TASK_STATE_COMPLETED);
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
