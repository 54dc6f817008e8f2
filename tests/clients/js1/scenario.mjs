// Drives a running A2A 1.0 server with the official JavaScript SDK 1.x.
//
// usage: node scenario.mjs BASE_URL [--transport jsonrpc|rest|grpc]
//
// The server must offer the `conformance` agent at BASE_URL. Every step prints `ok` or `FAIL`;
// the exit code is 1 if any step failed.

import { randomUUID } from 'node:crypto';
import { inspect } from 'node:util';
import { Role, SendMessageRequest, TaskState } from '@a2a-js/sdk';
import {
  ClientFactory, DefaultAgentCardResolver, JsonRpcTransportFactory, RestTransportFactory,
} from '@a2a-js/sdk/client';
import { GrpcTransportFactory } from '@a2a-js/sdk/client/grpc';
import { TaskNotCancelableError, TaskNotFoundError, UnsupportedOperationError } from '@a2a-js/sdk/errors';
import { check, commandLine, equal, run } from './steps.mjs';

const TRANSPORTS = {
  jsonrpc: new JsonRpcTransportFactory(),
  rest: new RestTransportFactory(),
  grpc: new GrpcTransportFactory(),
};

const { base, name } = commandLine('scenario.mjs', TRANSPORTS);
const transport = TRANSPORTS[name];

function inState(task, state, what) {
  equal(TaskState[task?.status?.state], TaskState[state], what);
}

// Awaits `call` and insists that it fails with `type`. An error that arrives inside an open
// event stream is the cause of the error that the SDK throws.
async function refused(call, type, what) {
  let result;
  try {
    result = await call;
  } catch (error) {
    const found = error instanceof type || error.cause instanceof type;
    return check(found, `${what}: got ${error}, want ${type.name}`);
  }
  throw new Error(`${what}: got ${inspect(result)}, want ${type.name}`);
}

// A request in the wire's own notation; the SDK turns it into its types.
function user(text, { parts = [], ...ids } = {}) {
  const message = { role: 'ROLE_USER', messageId: randomUUID(), parts: [{ text }, ...parts], ...ids };
  return SendMessageRequest.fromJSON({ message });
}

function textOf(parts) {
  return parts.map((part) => (part.content?.$case === 'text' ? part.content.value : '')).join('');
}

async function collect(stream) {
  const events = [];
  for await (const event of stream) events.push(event.payload);
  return events;
}

let client;
let finished; // the task of step `send`
let streamed; // { id, message, text } of step `stream`

async function ask(request) {
  const answer = await client.sendMessage(request);
  check(answer.status, `answer: got ${inspect(answer)}, want a task`);
  return answer;
}

const look = (id) => client.getTask({ id, tenant: '' });

// The steps, in order. A step may use what an earlier one left behind.
const steps = {
  async card() {
    const card = await new DefaultAgentCardResolver().resolve(base);
    const offered = card.supportedInterfaces.map((i) => `${i.protocolBinding} ${i.protocolVersion}`);
    const wanted = `${transport.protocolName} 1.0`;
    check(offered.includes(wanted), `no ${wanted} among ${offered}`);
    check(card.capabilities.streaming, 'the card does not offer streaming');
    client = await new ClientFactory({ transports: [transport] }).createFromAgentCard(card);
  },

  async send() {
    const task = await ask(user('tck-complete-task hello'));
    inState(task, TaskState.TASK_STATE_COMPLETED, 'task');
    finished = task;
  },

  async stream() {
    const request = user('tck-stream-chunked chunks=10 size=16 delay_ms=5');
    const events = await collect(client.sendMessageStream(request));
    const kinds = events.map((event) => event.$case);
    equal(kinds[0], 'task', 'first event');
    equal(kinds.filter((kind) => kind === 'task').length, 1, 'number of task events');
    const firstChunk = kinds.indexOf('artifactUpdate');
    const before = events.slice(0, firstChunk).map((event) => event.value.status.state);
    check(before.includes(TaskState.TASK_STATE_WORKING), 'never working before the first chunk');
    const rest = [...Array(10).fill('artifactUpdate'), 'statusUpdate'];
    equal(kinds.slice(firstChunk), rest, 'events from the first chunk');
    const chunks = events.slice(firstChunk, -1).map((event) => event.value);
    equal(new Set(chunks.map((chunk) => chunk.artifact.artifactId)).size, 1, 'number of artifacts');
    equal(chunks.map((chunk) => chunk.append), [false, ...Array(9).fill(true)], 'append flags');
    const texts = chunks.map((chunk) => textOf(chunk.artifact.parts));
    equal(texts.map((text) => Buffer.byteLength(text)), Array(10).fill(16), 'chunk sizes');
    inState(events.at(-1).value, TaskState.TASK_STATE_COMPLETED, 'last event');
    streamed = { id: events[0].value.id, message: request.message, text: texts.join('') };
  },

  async get() {
    check(streamed, 'needs the task of step stream');
    const task = await look(streamed.id);
    inState(task, TaskState.TASK_STATE_COMPLETED, 'task');
    equal(task.artifacts.length, 1, 'number of artifacts');
    equal(textOf(task.artifacts[0].parts), streamed.text, 'text of the artifact');
    const mine = task.history.filter((m) => m.messageId === streamed.message.messageId);
    equal(mine.map((m) => textOf(m.parts)), [textOf(streamed.message.parts)], 'user message in history');
  },

  async list() {
    const tasks = [await ask(user('tck-complete-task 1'))];
    const { contextId } = tasks[0];
    for (const n of [2, 3]) tasks.push(await ask(user(`tck-complete-task ${n}`, { contextId })));
    const query = { tenant: '', contextId, status: TaskState.TASK_STATE_UNSPECIFIED, pageToken: '' };
    const whole = await client.listTasks(query);
    const ids = whole.tasks.map((task) => task.id);
    equal(ids.toSorted(), tasks.map((task) => task.id).toSorted(), 'tasks of the context');
    equal(whole.totalSize, 3, 'total size');
    const walked = [];
    let pageToken = '';
    for (const _ of ids) {
      const page = await client.listTasks({ ...query, pageSize: 1, pageToken });
      walked.push(...page.tasks.map((task) => task.id));
      pageToken = page.nextPageToken;
    }
    equal(walked, ids, 'tasks page by page');
    equal(pageToken, '', 'token after the last page');
  },

  async cancel() {
    check(finished, 'needs the task of step send');
    let id, canceled, last;
    for await (const { payload } of client.sendMessageStream(user('tck-cancel'))) {
      last = payload.value;
      id ??= payload.value.id;
      if (last.status?.state === TaskState.TASK_STATE_WORKING && !canceled) {
        canceled = await client.cancelTask({ id, tenant: '', metadata: undefined });
      }
    }
    check(canceled, 'the task never reported working');
    inState(canceled, TaskState.TASK_STATE_CANCELED, 'answer to cancel');
    inState(last, TaskState.TASK_STATE_CANCELED, 'last event of the stream');
    inState(await look(id), TaskState.TASK_STATE_CANCELED, 'task afterwards');
    const again = client.cancelTask({ id: finished.id, tenant: '', metadata: undefined });
    await refused(again, TaskNotCancelableError, 'cancel of a completed task');
  },

  async subscribe() {
    const connection = new AbortController();
    const request = user('tck-stream-chunked chunks=20 size=8 delay_ms=100');
    let id;
    let seen = 0;
    for await (const { payload } of client.sendMessageStream(request, { signal: connection.signal })) {
      id ??= payload.value.id;
      if (payload.$case === 'artifactUpdate' && ++seen === 3) break;
    }
    connection.abort(); // and with it the socket of the stream
    const events = await collect(client.resubscribeTask({ id, tenant: '' }));
    equal(events[0].$case, 'task', 'first event');
    const snapshot = events[0].value;
    inState(snapshot, TaskState.TASK_STATE_WORKING, 'snapshot');
    inState(events.at(-1).value, TaskState.TASK_STATE_COMPLETED, 'last event');
    const stored = (await look(id)).artifacts[0].parts;
    equal(stored.length, 20, 'chunks in the artifact');
    const known = snapshot.artifacts.flatMap((artifact) => artifact.parts);
    check(known.length >= 3, `snapshot holds ${known.length} chunks, fewer than were seen before`);
    const later = events.slice(1).map((event) => textOf(event.value.artifact?.parts ?? []));
    equal(textOf(known) + later.join(''), textOf(stored), 'snapshot and later chunks');
  },

  async 'multi-turn'() {
    const asked = await ask(user('tck-multi-turn'));
    inState(asked, TaskState.TASK_STATE_INPUT_REQUIRED, 'first turn');
    const { id: taskId, contextId } = asked;
    const more = await ask(user('more', { taskId }));
    inState(more, TaskState.TASK_STATE_INPUT_REQUIRED, 'second turn');
    const done = await ask(user('done', { taskId, contextId }));
    inState(done, TaskState.TASK_STATE_COMPLETED, 'third turn');
    equal([more.id, done.id], [taskId, taskId], 'task ids');
    equal([more.contextId, done.contextId], [contextId, contextId], 'context ids');
    const { history } = await look(taskId);
    const said = history.filter((m) => m.role === Role.ROLE_USER).map((m) => textOf(m.parts));
    equal(said, ['tck-multi-turn', 'more', 'done'], 'user messages in history');
  },

  async approval() {
    const asked = await ask(user('tck-auth-required'));
    inState(asked, TaskState.TASK_STATE_AUTH_REQUIRED, 'question');
    equal(textOf(asked.status.message.parts), 'Please sign in', 'text of the question');
    const done = await ask(user('allowed', { taskId: asked.id }));
    inState(done, TaskState.TASK_STATE_COMPLETED, 'after the answer');
    equal(done.id, asked.id, 'task id');
  },

  async errors() {
    check(finished, 'needs the task of step send');
    await refused(look(randomUUID()), TaskNotFoundError, 'get of an unknown task');
    const late = () => user('too late', { taskId: finished.id });
    await refused(ask(late()), UnsupportedOperationError, 'send to a completed task');
    let stream = client.sendMessageStream(late());
    await refused(stream.next(), UnsupportedOperationError, 'stream to a completed task');
    stream = client.resubscribeTask({ id: finished.id, tenant: '' });
    await refused(stream.next(), UnsupportedOperationError, 'subscribe to a completed task');
  },

  async parts() {
    const bytes = Buffer.from(Array.from({ length: 256 }, (_, i) => i));
    const parts = [
      { data: { n: 1, pi: 3.5, none: null, list: [1, 'zwei', true, { 鍵: '値' }] }, mediaType: 'application/json' },
      { raw: bytes.toString('base64'), filename: 'ümlaut 文.bin', mediaType: 'application/octet-stream' },
    ];
    const request = user('tck-complete-task 👩‍👩‍👧‍👦 e\u0301 漢字 \u202eשלום "\\\n\u2028 end', { parts });
    const task = await ask(request);
    inState(task, TaskState.TASK_STATE_COMPLETED, 'task');
    const { history } = await look(task.id);
    const mine = history.filter((m) => m.messageId === request.message.messageId);
    equal(mine.length, 1, 'user messages in history');
    equal(mine[0].parts, request.message.parts, 'parts');
  },
};

await run(steps, () => client);
