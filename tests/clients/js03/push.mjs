// Registers webhooks with the official JavaScript SDK 0.3.x and receives their deliveries.
//
// usage: node push.mjs BASE_URL [--transport jsonrpc|rest|grpc]
//
// The server must offer the `conformance` agent at BASE_URL and allow webhooks to 127.0.0.1. Every step prints
// `ok` or `FAIL`; the exit code is 1 if any step failed.

import { randomUUID } from 'node:crypto';
import {
  ClientFactory, DefaultAgentCardResolver, JsonRpcTransportFactory, RestTransportFactory,
} from '@a2a-js/sdk/client';
import { GrpcTransportFactory } from '@a2a-js/sdk/client/grpc';
import { CREDENTIALS, Receiver } from './receiver.mjs';
import { check, commandLine, equal, run } from './steps.mjs';

const TRANSPORTS = {
  jsonrpc: new JsonRpcTransportFactory(),
  rest: new RestTransportFactory(),
  grpc: new GrpcTransportFactory(),
};

const { base, name } = commandLine('push.mjs', TRANSPORTS);
const transport = TRANSPORTS[name];

function textOf(parts) {
  return parts.map((part) => part.text ?? '').join('');
}

// The receiver accepts what the SDK's own sender sends: a whole task, with the token in its header.
function read(body) {
  const task = JSON.parse(body);
  equal(task.kind, 'task', 'kind');
  check(task.id && task.contextId && task.status?.state, 'the task lacks a required member');
  return task;
}

const receiver = await new Receiver('application/json', read, (task) => task.status.state).listen();

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
    const configuration = { blocking: false, pushNotificationConfig: receiver.config('/inline') };
    const request = user('tck-stream-chunked chunks=5 size=16 delay_ms=5', { configuration });
    const { id } = await client.sendMessage(request);
    const tasks = await receiver.received('/inline', 'completed');
    equal([...new Set(tasks.map((task) => task.id))], [id], 'task');
    const stored = await client.getTask({ id });
    equal(textOf(tasks.at(-1).artifacts[0].parts), textOf(stored.artifacts[0].parts), 'text of the artifact');
  },

  async configs() {
    const asked = await client.sendMessage(user('tck-multi-turn'));
    const { id: taskId, contextId } = asked;
    equal(asked.status.state, 'input-required', 'first turn');
    const create = async (path, more) => {
      const pushNotificationConfig = receiver.config(path, more);
      const created = await client.setTaskPushNotificationConfig({ taskId, pushNotificationConfig });
      equal(created.taskId, taskId, 'task of the config');
      equal(created.pushNotificationConfig.url, `${receiver.base}${path}`, 'URL of the config');
      return created.pushNotificationConfig;
    };
    await create('/late', { id: 'late' });
    const mine = await create('/basic', { id: 'mine', authentication: { schemes: ['Basic'], credentials: CREDENTIALS } });
    const named = { id: taskId, pushNotificationConfigId: 'mine' };
    equal((await client.getTaskPushNotificationConfig(named)).pushNotificationConfig, mine, 'config');
    const listed = await client.listTaskPushNotificationConfig({ id: taskId });
    equal(listed.map((one) => one.pushNotificationConfig.id).toSorted(), ['late', 'mine'], 'listed configs');
    for (const path of ['/late', '/basic']) {
      const [first] = await receiver.received(path, 'input-required');
      check(first.status.message.parts.length, 'the question is missing');
    }
    await client.deleteTaskPushNotificationConfig(named);
    const done = await client.sendMessage(user('done', { taskId, contextId }));
    equal(done.status.state, 'completed', 'last turn');
    await receiver.received('/late', 'completed');
    equal(receiver.events['/basic'].length, 1, 'deliveries to the deleted config');
  },
};

await run(steps, () => client);
