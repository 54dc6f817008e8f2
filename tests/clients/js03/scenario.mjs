// Drives a running A2A server with the official JavaScript SDK 0.3.x, as an A2A 0.3 client.
//
// usage: node scenario.mjs BASE_URL [--transport jsonrpc|rest|grpc]
//
// The server must offer the `conformance` agent at BASE_URL. Every step prints `ok` or `FAIL`;
// the exit code is 1 if any step failed. There is no step `list`: 0.3 has no such operation.

import { randomUUID } from 'node:crypto';
import { inspect } from 'node:util';
import {
  ClientFactory, DefaultAgentCardResolver, JsonRpcTransportFactory, RestTransportFactory,
  TaskNotCancelableError, TaskNotFoundError, UnsupportedOperationError,
} from '@a2a-js/sdk/client';
import { GrpcTransportFactory } from '@a2a-js/sdk/client/grpc';
import { check, commandLine, equal, run } from './steps.mjs';

const TRANSPORTS = {
  jsonrpc: new JsonRpcTransportFactory(),
  rest: new RestTransportFactory(),
  grpc: new GrpcTransportFactory(),
};
// The REST and the gRPC client of this SDK share a converter, with what it loses.
const CONVERTED = ['rest', 'grpc'];

const { base, name } = commandLine('scenario.mjs', TRANSPORTS);
const transport = TRANSPORTS[name];

function inState(task, state, what) {
  equal(task?.status?.state, state, what);
}

// Awaits `call` and insists that it fails with `type`.
async function refused(call, type, what) {
  let result;
  try {
    result = await call;
  } catch (error) {
    return check(error instanceof type, `${what}: got ${error}, want ${type.name}`);
  }
  throw new Error(`${what}: got ${inspect(result)}, want ${type.name}`);
}

function user(text, { parts = [], ...ids } = {}) {
  const all = [{ kind: 'text', text }, ...parts];
  return { message: { kind: 'message', role: 'user', messageId: randomUUID(), parts: all, ...ids } };
}

function textOf(parts) {
  return parts.map((part) => part.text ?? '').join('');
}

async function collect(stream) {
  const events = [];
  for await (const event of stream) events.push(event);
  return events;
}

let client;
let finished; // the task of step `send`
let streamed; // { id, message, text } of step `stream`

async function ask(request) {
  const answer = await client.sendMessage(request);
  equal(answer.kind, 'task', 'kind of the answer');
  return answer;
}

// 0.3 leaves it to the server how much history comes unasked, so ask.
const look = (id) => client.getTask({ id, historyLength: 100 });

// The steps, in order. A step may use what an earlier one left behind.
const steps = {
  async card() {
    const card = await new DefaultAgentCardResolver().resolve(base);
    const offered = [card.preferredTransport, ...(card.additionalInterfaces ?? []).map((i) => i.transport)];
    check(offered.includes(transport.protocolName), `no ${transport.protocolName} among ${offered}`);
    check(card.protocolVersion?.startsWith('0.3'), `protocol ${card.protocolVersion}`);
    check(card.capabilities.streaming, 'the card does not offer streaming');
    client = await new ClientFactory({ transports: [transport] }).createFromAgentCard(card);
  },

  async send() {
    const task = await ask(user('tck-complete-task hello'));
    inState(task, 'completed', 'task');
    finished = task;
  },

  async stream() {
    const request = user('tck-stream-chunked chunks=10 size=16 delay_ms=5');
    const events = await collect(client.sendMessageStream(request));
    const kinds = events.map((event) => event.kind);
    const firstChunk = kinds.indexOf('artifact-update');
    const before = events.slice(0, firstChunk).map((event) => event.status.state);
    check(before.includes('working'), 'never working before the first chunk');
    const rest = [...Array(10).fill('artifact-update'), 'status-update'];
    equal(kinds.slice(firstChunk), rest, 'events from the first chunk');
    const chunks = events.slice(firstChunk, -1);
    equal(new Set(chunks.map((chunk) => chunk.artifact.artifactId)).size, 1, 'number of artifacts');
    // The converter loses the flag on the way in.
    const appended = chunks.map((chunk) => Boolean(chunk.append));
    if (!CONVERTED.includes(name)) equal(appended, [false, ...Array(9).fill(true)], 'append flags');
    const texts = chunks.map((chunk) => textOf(chunk.artifact.parts));
    equal(texts.map((text) => Buffer.byteLength(text)), Array(10).fill(16), 'chunk sizes');
    const last = events.at(-1);
    inState(last, 'completed', 'last event');
    check(last.final, 'the last event is not marked final');
    streamed = { id: last.taskId, message: request.message, text: texts.join('') };
  },

  async get() {
    check(streamed, 'needs the task of step stream');
    const task = await look(streamed.id);
    inState(task, 'completed', 'task');
    equal(task.artifacts?.length, 1, 'number of artifacts');
    equal(textOf(task.artifacts[0].parts), streamed.text, 'text of the artifact');
    const mine = (task.history ?? []).filter((m) => m.messageId === streamed.message.messageId);
    equal(mine.map((m) => textOf(m.parts)), [textOf(streamed.message.parts)], 'user message in history');
  },

  async cancel() {
    check(finished, 'needs the task of step send');
    let id, canceled, last;
    for await (const event of client.sendMessageStream(user('tck-cancel'))) {
      last = event;
      id ??= event.taskId ?? event.id;
      if (event.status?.state === 'working' && !canceled) canceled = await client.cancelTask({ id });
    }
    check(canceled, 'the task never reported working');
    inState(canceled, 'canceled', 'answer to cancel');
    inState(last, 'canceled', 'last event of the stream');
    inState(await look(id), 'canceled', 'task afterwards');
    const again = client.cancelTask({ id: finished.id });
    await refused(again, TaskNotCancelableError, 'cancel of a completed task');
  },

  async resubscribe() {
    const connection = new AbortController();
    const request = user('tck-stream-chunked chunks=20 size=8 delay_ms=100');
    let id;
    let seen = 0;
    for await (const event of client.sendMessageStream(request, { signal: connection.signal })) {
      id ??= event.taskId ?? event.id;
      if (event.kind === 'artifact-update' && ++seen === 3) break;
    }
    // Leaving the loop only stops reading in this SDK; this closes the socket of the stream.
    connection.abort();
    const events = await collect(client.resubscribeTask({ id }));
    inState(events.at(-1), 'completed', 'last event');
    check(events.at(-1).final, 'the last event is not marked final');
    const later = events.filter((event) => event.kind === 'artifact-update');
    check(later.length, 'no chunk after the resubscription');
    const stored = (await look(id)).artifacts[0].parts;
    equal(stored.length, 20, 'chunks in the artifact');
    const text = textOf(stored);
    const tail = later.map((event) => textOf(event.artifact.parts)).join('');
    // 0.3 leaves open whether a snapshot comes first. With one, nothing may be missing.
    if (events[0].kind === 'task') {
      const known = (events[0].artifacts ?? []).map((artifact) => textOf(artifact.parts)).join('');
      equal(known + tail, text, 'snapshot and later chunks');
    }
    check(text.endsWith(tail), `later chunks: ${tail} is not the end of ${text}`);
  },

  async 'multi-turn'() {
    const asked = await ask(user('tck-multi-turn'));
    inState(asked, 'input-required', 'first turn');
    const { id: taskId, contextId } = asked;
    const more = await ask(user('more', { taskId }));
    inState(more, 'input-required', 'second turn');
    const done = await ask(user('done', { taskId, contextId }));
    inState(done, 'completed', 'third turn');
    equal([more.id, done.id], [taskId, taskId], 'task ids');
    equal([more.contextId, done.contextId], [contextId, contextId], 'context ids');
    const { history = [] } = await look(taskId);
    const said = history.filter((m) => m.role === 'user').map((m) => textOf(m.parts));
    equal(said, ['tck-multi-turn', 'more', 'done'], 'user messages in history');
  },

  async errors() {
    check(finished, 'needs the task of step send');
    await refused(look(randomUUID()), TaskNotFoundError, 'get of an unknown task');
    const late = user('too late', { taskId: finished.id });
    // The gRPC client knows this status for other methods only and passes it on as it is.
    const type = name === 'grpc' ? Error : UnsupportedOperationError;
    await refused(ask(late), type, 'send to a completed task');
  },

  async parts() {
    const bytes = Buffer.from(Array.from({ length: 256 }, (_, i) => i)).toString('base64');
    const data = { n: 1, pi: 3.5, none: null, list: [1, 'zwei', true, { 鍵: '値' }] };
    // The gRPC client cannot write a null.
    if (name === 'grpc') delete data.none;
    const file = { bytes, mimeType: 'application/octet-stream' };
    // The converter has no field for a file's name and drops it.
    if (!CONVERTED.includes(name)) file.name = 'ümlaut 文.bin';
    const parts = [{ kind: 'data', data }, { kind: 'file', file }];
    const request = user('tck-complete-task 👩‍👩‍👧‍👦 e\u0301 漢字 \u202eשלום "\\\n\u2028 end', { parts });
    const task = await ask(request);
    inState(task, 'completed', 'task');
    const { history = [] } = await look(task.id);
    const mine = history.filter((m) => m.messageId === request.message.messageId);
    equal(mine.length, 1, 'user messages in history');
    equal(mine[0].parts.map((part) => part.kind), ['text', 'data', 'file'], 'parts');
    const [text, echoed, attached] = mine[0].parts;
    equal(text.text, request.message.parts[0].text, 'text part');
    equal(echoed.data, data, 'data part');
    // The other official SDKs of 0.3 put base64 text into the protobuf's bytes; Herald writes what
    // most of them read, and this one encodes it once more.
    const received = { ...attached.file };
    if (CONVERTED.includes(name)) received.bytes = Buffer.from(received.bytes, 'base64').toString();
    equal(received, file, 'file part');
  },
};

await run(steps, () => client);
