// Receiver of webhooks for the push scripts: checks the credentials of each delivery and keeps its event, by path.

import { once } from 'node:events';
import { createServer } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { check, equal } from './steps.mjs';

const TOKEN = 'a token of the receiver';
export const CREDENTIALS = 'dXNlcjpwYXNz';

export class Receiver {
  events = {}; // path to events
  #faults = [];

  // `read` makes an event of a body or throws, `stateOf` is the state of the task in an event.
  constructor(contentType, read, stateOf) {
    Object.assign(this, { contentType, read, stateOf });
  }

  async listen() {
    const server = createServer(async (request, response) => {
      let body = '';
      for await (const piece of request.setEncoding('utf8')) body += piece;
      try {
        this.#accept(request, body);
      } catch (error) {
        this.#faults.push(`${error.message} for ${body}`);
        response.statusCode = 400;
      }
      response.end();
    });
    await once(server.listen(0, '127.0.0.1'), 'listening');
    this.base = `http://127.0.0.1:${server.address().port}`;
    return this;
  }

  // The config of a webhook to this path.
  config(path, more = {}) {
    return { url: `${this.base}${path}`, token: TOKEN, ...more };
  }

  // Waits for a delivery of this state on this path, and returns all deliveries there.
  async received(path, state) {
    for (;;) {
      check(!this.#faults.length, this.#faults.join('; '));
      const events = this.events[path] ?? [];
      if (events.length && this.stateOf(events.at(-1)) === state) return events;
      await sleep(10);
    }
  }

  #accept(request, body) {
    equal(request.headers['content-type'], this.contentType, 'content type');
    equal(request.headers['x-a2a-notification-token'], TOKEN, 'token');
    const scheme = request.url === '/basic' ? `Basic ${CREDENTIALS}` : `Bearer ${TOKEN}`;
    equal(request.headers.authorization, scheme, 'authorization');
    (this.events[request.url] ??= []).push(this.read(body));
  }
}
