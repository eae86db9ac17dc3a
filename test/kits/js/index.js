'use strict';
// A broker for tests: a process of its own on free ports, empty, and gone at the end. index.d.ts says what each call does.

const { execFile, spawn } = require('node:child_process');
const { createHmac, randomUUID } = require('node:crypto');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { setTimeout: sleep } = require('node:timers/promises');
const { promisify } = require('node:util');

const START_LIMIT = 60_000;
const STOP_LIMIT = 10_000;
const KEY_NAME = 'RootManageSharedAccessKey';
const KEY = 'SAS_KEY_VALUE'; // of a broker for development: everybody knows it
const SCHEMA = 'http://schemas.microsoft.com/netservices/2010/10/servicebus/connect';
let numbers = 0;

exports.start = async function start(options = {}) {
  const broker = new Broker();
  try {
    await broker._start(options);
  } catch (fault) {
    await broker.stop().catch(() => {});
    throw new Error(`busbartest: ${fault.message}\n${broker.log}`.trimEnd(), { cause: fault });
  }
  return broker;
};

class Broker {
  _dir = fs.mkdtempSync(path.join(os.tmpdir(), 'busbartest-'));
  _lastLog = '';

  get log() {
    try {
      return fs.readFileSync(path.join(this._dir, 'log'), 'utf8');
    } catch {
      return this._lastLog;
    }
  }

  async queue(prefix, properties = {}) {
    const name = `${prefix}-${++numbers}`;
    await this._make(name, 'QueueDescription', properties);
    return name;
  }

  async topic(prefix, subscriptions = [], properties = {}) {
    const name = `${prefix}-${++numbers}`;
    await this._make(name, 'TopicDescription', properties);
    for (const subscription of subscriptions) {
      await this._make(`${name}/subscriptions/${subscription}`, 'SubscriptionDescription', {});
    }
    return name;
  }

  async reset() {
    await this._ask('POST', '/api/reset');
  }

  async stop() {
    try {
      if (this._process) await this._end();
    } finally {
      process.off('exit', this._onExit);
      if (!this._lastLog && this.log) {
        const log = (this._lastLog = this.log);
        process.once('exit', (code) => tellOf(log, code));
      }
      fs.rmSync(this._dir, { recursive: true, force: true });
    }
  }

  async [Symbol.asyncDispose ?? Symbol.for('Symbol.asyncDispose')]() {
    await this.stop();
  }

  async _start({ entities, program }) {
    this._begin(this._fileOf(entities), program);
    const { amqp, ops } = await this._addresses();
    this.connectionString =
      `Endpoint=sb://${amqp};SharedAccessKeyName=${KEY_NAME};SharedAccessKey=${KEY};UseDevelopmentEmulator=true`;
    this.operations = `http://${ops}`;
    await this._until('is not healthy yet', () => fetch(`${this.operations}/health`).then((r) => r.ok, () => false));
  }

  _fileOf(entities) {
    if (entities === undefined || typeof entities === 'string') return entities && path.resolve(entities);
    const file = path.join(this._dir, 'Config.json');
    fs.writeFileSync(file, JSON.stringify(entities));
    return file;
  }

  _begin(entities, given) {
    const program = given || process.env.BUSBAR_BINARY || onPath('busbar');
    const image = process.env.BUSBAR_IMAGE;
    let command;
    if (program) {
      command = [program, 'serve', '--dev', '--ephemeral', '--stop-with-stdin', '--log-format', 'text',
        '--ports-file', path.join(this._dir, 'ports.json'), '--amqp-listen', '127.0.0.1:0',
        '--tls-listen', '127.0.0.1:0', '--ops-listen', '127.0.0.1:0'];
      if (entities) command.push('--entities', entities);
    } else if (image) {
      this._container = `busbartest-${randomUUID()}`;
      command = ['docker', 'run', '--rm', '-i', '--name', this._container, '-p', '127.0.0.1::5672', '-p', '127.0.0.1::5300'];
      if (entities) command.push('-v', `${entities}:/ServiceBus_Emulator/ConfigFiles/Config.json:ro`);
      command.push(image, 'emulator', '--stop-with-stdin');
    } else {
      throw new Error('busbar is not on the path: set BUSBAR_BINARY to the program, or BUSBAR_IMAGE to an image');
    }
    // Settings of a node on this machine are none of the test's.
    const env = Object.fromEntries(Object.entries(process.env)
      .filter(([name]) => !name.startsWith('BUSBAR_') || name === 'BUSBAR_STANDIN'));
    const log = fs.openSync(path.join(this._dir, 'log'), 'w');
    // The broker ends with its standard input, and so with this process, even if this one is killed.
    const child = spawn(command[0], command.slice(1), { env, stdio: ['pipe', log, log] });
    fs.closeSync(log);
    this._process = child;
    this._ended = new Promise((resolve) => {
      child.once('exit', resolve);
      child.once('error', (fault) => { this._fault = fault; resolve(); });
    });
    child.stdin.on('error', () => {}); // the broker ended by itself
    child.unref(); // a test process that forgets to stop its broker ends none the less
    child.stdin.unref();
    this._onExit = (code) => tellOf(this.log, code);
    process.once('exit', this._onExit);
  }

  async _addresses() {
    const found = {};
    await this._until('does not listen yet', async () => {
      if (this._container) {
        found.amqp = await this._published('5672/tcp');
        found.ops = await this._published('5300/tcp');
        return found.amqp && found.ops;
      }
      try {
        const ports = JSON.parse(fs.readFileSync(path.join(this._dir, 'ports.json'), 'utf8'));
        Object.assign(found, { amqp: `localhost:${ports.amqp}`, ops: `localhost:${ports.ops}` });
        return true;
      } catch {
        return false;
      }
    });
    return found;
  }

  // Where a port of the container is on this machine, or nothing.
  async _published(port) {
    const said = await promisify(execFile)('docker', ['port', this._container, port]).catch(() => ({ stdout: '' }));
    return said.stdout.split('\n')[0].trim();
  }

  async _until(what, so) {
    for (const end = Date.now() + START_LIMIT; !(await so()); await sleep(20)) {
      if (this._fault) throw this._fault;
      if (this._process.exitCode !== null) throw new Error(`the broker ended with code ${this._process.exitCode}`);
      if (Date.now() > end) throw new Error(`the broker ${what}, after ${START_LIMIT / 1000} s`);
    }
  }

  async _end() {
    this._process.stdin.end();
    this._process.ref();
    let timer;
    const late = new Promise((resolve) => { timer = setTimeout(resolve, STOP_LIMIT, true); });
    if (await Promise.race([this._ended.then(() => false), late])) {
      this._process.kill('SIGKILL');
      await this._ended;
      throw new Error(`the broker did not stop within ${STOP_LIMIT / 1000} s, and was killed`);
    }
    clearTimeout(timer);
  }

  async _make(where, kind, properties) {
    const inner = Object.entries(properties).sort().map(([name, value]) => `<${name}>${escape(value)}</${name}>`).join('');
    const made = await this._ask('PUT', `/${where}?api-version=2021-05`,
      '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">' +
      `<${kind} xmlns="${SCHEMA}">${inner}</${kind}></content></entry>`);
    for (const name of Object.keys(properties)) { // the service ignores what it does not know, and a test would not notice
      if (!made.includes(`<${name}>`)) {
        throw new Error(`a ${kind} has no property ${name}; options of Busbar go into the file of entities`);
      }
    }
  }

  async _ask(method, where, body) {
    const headers = { Authorization: token(this.operations), 'Content-Type': 'application/atom+xml' };
    const answer = await fetch(this.operations + where, { method, body, headers });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${method} ${where}: ${answer.status}: ${text}`);
    return text;
  }
}

// What a broker printed is printed once more when the process fails, as it does with a failed test of node:test.
function tellOf(log, code) {
  if (code !== 0 || process.exitCode) process.stderr.write(`log of the broker:\n${log}\n`);
}

function onPath(name) {
  const endings = process.platform === 'win32' ? ['.exe'] : [''];
  return (process.env.PATH ?? '').split(path.delimiter).flatMap((dir) => endings.map((end) => path.join(dir, name + end)))
    .find((file) => { try { fs.accessSync(file, fs.constants.X_OK); return true; } catch { return false; } });
}

function escape(value) {
  return String(value).replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
}

// A shared access signature for the whole broker, good for an hour.
function token(of) {
  const until = Math.floor(Date.now() / 1000) + 3600;
  const where = encodeURIComponent(of);
  const signature = createHmac('sha256', KEY).update(`${where}\n${until}`).digest('base64');
  return `SharedAccessSignature sr=${where}&sig=${encodeURIComponent(signature)}&se=${until}&skn=${KEY_NAME}`;
}
