// Runs a script that uses the official JavaScript SDK 1.x, and notes the results of every call of its clients.
//
// usage: node observe.mjs FILE SCRIPT ARGUMENT…
//
// FILE gets one JSON object per line and call, in the order of the calls: its name, and the results or the error.

import { writeFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { ClientFactory } from '@a2a-js/sdk/client';

const observed = [];

function failed(entry, error) {
  entry.error = `${error.constructor.name}: ${error.message}`;
  return error;
}

async function* stream(entry, results) {
  try {
    for await (const result of results) {
      entry.results.push(result);
      yield result;
    }
  } catch (error) {
    throw failed(entry, error);
  }
}

function observe(client) {
  return new Proxy(client, {
    get(target, name) {
      const original = target[name];
      if (typeof original !== 'function') return original;
      return (...args) => {
        const entry = { call: name, results: [] };
        observed.push(entry);
        const result = original.apply(target, args);
        if (result?.[Symbol.asyncIterator]) return stream(entry, result);
        return Promise.resolve(result).then(
          (value) => {
            entry.results.push(value);
            return value;
          },
          (error) => {
            throw failed(entry, error);
          },
        );
      };
    },
  });
}

const [, , file, script] = process.argv;
process.argv.splice(1, 3, resolve(script));
process.on('exit', () => {
  const plain = (_, value) => (typeof value === 'bigint' ? `${value}` : value);
  writeFileSync(file, observed.map((entry) => `${JSON.stringify(entry, plain)}\n`).join(''));
});
const original = ClientFactory.prototype.createFromAgentCard;
ClientFactory.prototype.createFromAgentCard = async function create(...args) {
  return observe(await original.apply(this, args));
};
await import(pathToFileURL(resolve(script)));
