// Steps of a client script: checks, the command line and the report. Copied beside each script.

import { inspect, isDeepStrictEqual, parseArgs } from 'node:util';

const STEP_TIMEOUT_MS = 30_000;

export function check(condition, why) {
  if (!condition) throw new Error(why);
}

export function equal(got, want, what) {
  const show = (value) => inspect(value, { depth: 6 });
  check(isDeepStrictEqual(got, want), `${what}: got ${show(got)}, want ${show(want)}`);
}

// The address of the server and the name of the transport, from the command line.
export function commandLine(script, transports) {
  const { values, positionals } = parseArgs({
    options: { transport: { type: 'string', default: 'jsonrpc' } },
    allowPositionals: true,
  });
  const [base] = positionals;
  if (!base || !transports[values.transport]) {
    console.error(`usage: node ${script} BASE_URL [--transport ${Object.keys(transports).join('|')}]`);
    process.exit(2);
  }
  return { base, name: values.transport };
}

// Runs the steps in order and ends the process. `goesOn` tells after each step whether the next one makes sense.
export async function run(steps, goesOn) {
  let passed = 0;
  let failed = 0;
  for (const [name, step] of Object.entries(steps)) {
    let timer;
    const timeout = new Promise((_, reject) => {
      timer = setTimeout(() => reject(new Error(`no end after ${STEP_TIMEOUT_MS} ms`)), STEP_TIMEOUT_MS);
    });
    try {
      await Promise.race([step(), timeout]);
      passed += 1;
      console.log(`ok ${name}`);
    } catch (error) {
      failed += 1;
      console.log(`FAIL ${name}: ${error.message.replace(/\s+/g, ' ')}`);
    }
    clearTimeout(timer);
    if (!goesOn()) break;
  }
  console.log(`${passed} passed, ${failed} failed`);
  process.exit(failed ? 1 : 0);
}
