// Runs every scenario that the JavaScript SDK can do and prints one line for each:
//   scenario <tab> id <tab> pass|fail|skip <tab> milliseconds <tab> text
// The Go package languages starts it, says where the broker is, and reads the lines.
'use strict';

const { Env, SkipError, sdkVersion } = require('./env');

// What waits for a lock or a lifetime is cheap, so many scenarios run at once.
const atOnce = 12;
const limitMs = Number(process.env.BUSBAR_LIMIT || 90) * 1000;
const closeMs = 20_000;

const cases = new Map();
for (const file of ['sending', 'receiving', 'settling', 'peeking', 'sessions', 'ordering', 'processors',
  'administration', 'topics']) {
  for (const [id, run] of Object.entries(require(`./${file}`))) {
    if (cases.has(id)) throw new Error(`scenario ${id} twice`);
    cases.set(id, run);
  }
}

function say(...fields) {
  process.stdout.write(fields.map((f) => String(f).replace(/[\t\r\n]+/g, ' ')).join('\t') + '\n');
}

// story tells an error with those behind it: the library gathers what each try met.
function story(err) {
  const tries = (err.errors || []).map((e) => `[${e.code || e.name}: ${e.message}]`);
  return [err.stack || err, ...tries].join(' ');
}

async function runCase(id, run, index) {
  const env = new Env(id, index, limitMs);
  const began = Date.now();
  let timer;
  try {
    const late = new Promise((_, reject) => {
      timer = setTimeout(() => reject(new Error(`not done after ${limitMs} ms`)), limitMs);
    });
    await Promise.race([run(env), late]);
    say('scenario', id, 'pass', Date.now() - began, '');
  } catch (err) {
    if (err instanceof SkipError) say('scenario', id, 'skip', Date.now() - began, err.message);
    else say('scenario', id, 'fail', Date.now() - began, story(err));
  } finally {
    clearTimeout(timer);
    // The library may wait for ever to close what never opened; what is left open ends with the process.
    let left;
    await Promise.race([env.close(), new Promise((resolve) => { left = setTimeout(resolve, closeMs); })]);
    clearTimeout(left);
  }
}

async function main() {
  if (process.argv[2] === '--list') {
    for (const id of cases.keys()) process.stdout.write(`${id}\n`);
    return;
  }
  say('sdk', '@azure/service-bus', sdkVersion);
  const ids = (name) => (process.env[name] || '').split(/\s+/).filter(Boolean);
  const [only, absent] = [ids('BUSBAR_ONLY'), ids('BUSBAR_ABSENT')];
  const todo = [...cases].filter(([id]) => !absent.includes(id) && (only.length === 0 || only.includes(id)));
  let next = 0;
  const worker = async () => {
    while (next < todo.length) {
      const index = next++;
      await runCase(...todo[index], index);
    }
  };
  await Promise.all(Array.from({ length: atOnce }, worker));
  say('end', todo.length);
}

// A promise that nobody waits for and that fails is a defect of a scenario or of the SDK: show it.
process.on('unhandledRejection', (err) => say('note', 'unhandled rejection', err && err.stack));
main().then(() => process.exit(0), (err) => {
  say('note', err.stack);
  process.exit(1);
});
