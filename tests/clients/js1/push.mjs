// Registers webhooks with the official JavaScript SDK 1.x and receives their deliveries with its types.
//
// usage: node push.mjs BASE_URL [--transport jsonrpc|rest|grpc]
//
// The server must offer the `conformance` agent at BASE_URL and allow webhooks to 127.0.0.1. Every step prints
// `ok` or `FAIL`; the exit code is 1 if any step failed.

import { randomUUID } from 'node:crypto';
import { SendMessageRequest, StreamResponse, TaskPushNotificationConfig, TaskState } from '@a2a-js/sdk';
import {
  ClientFactory, DefaultAgentCardResolver, JsonRpcTransportFactory, RestTransportFactory,
} from '@a2a-js/sdk/client';
import { GrpcTransportFactory } from '@a2a-js/sdk/client/grpc';
import { TaskNotFoundError } from '@a2a-js/sdk/errors';
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
  return parts.map((part) => (part.content?.$case === 'text' ? part.content.value : '')).join('');
}

// The receiver accepts a delivery as that of the SDK's samples does: by its token, as a `StreamResponse`.
function read(body) {
  const { payload } = StreamResponse.fromJSON(JSON.parse(body));
  check(payload, 'no payload');
  return payload;
}

const receiver = await new Receiver('application/a2a+json', read, (event) => event.value.status?.state).listen();

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
    const configuration = { returnImmediately: true, taskPushNotificationConfig: receiver.config('/inline') };
    const request = user('tck-stream-chunked chunks=5 size=16 delay_ms=5', { configuration });
    const { id } = await client.sendMessage(request);
    const events = await receiver.received('/inline', TaskState.TASK_STATE_COMPLETED);
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
      client.createTaskPushNotificationConfig(TaskPushNotificationConfig.fromJSON(receiver.config(path, { taskId, ...more })));
    const late = await create('/late');
    check(late.id, 'the config has no id');
    equal([late.taskId, late.url], [taskId, `${receiver.base}/late`], 'created config');
    const mine = await create('/basic', { id: 'mine', authentication: { scheme: 'Basic', credentials: CREDENTIALS } });
    equal([mine.id, mine.authentication.scheme], ['mine', 'Basic'], 'named config');
    const named = { taskId, id: 'mine', tenant: '' };
    equal(await client.getTaskPushNotificationConfig(named), mine, 'config');
    const query = { taskId, tenant: '', pageSize: 0, pageToken: '' };
    const { configs } = await client.listTaskPushNotificationConfig(query);
    equal(configs.map((one) => one.id).toSorted(), [late.id, 'mine'].toSorted(), 'listed configs');
    for (const path of ['/late', '/basic']) {
      const [first] = await receiver.received(path, TaskState.TASK_STATE_INPUT_REQUIRED);
      equal(first.$case, 'task', 'first delivery');
      check(first.value.status.message.parts.length, 'the question is missing');
    }
    await client.deleteTaskPushNotificationConfig(named);
    const gone = await client.getTaskPushNotificationConfig(named).then(() => null, (error) => error);
    check(gone instanceof TaskNotFoundError, `deleted config: got ${gone}`);
    const done = await client.sendMessage(user('done', { taskId }));
    equal(done.status.state, TaskState.TASK_STATE_COMPLETED, 'last turn');
    await receiver.received('/late', TaskState.TASK_STATE_COMPLETED);
    equal(receiver.events['/basic'].length, 1, 'deliveries to the deleted config');
  },
};

await run(steps, () => client);
