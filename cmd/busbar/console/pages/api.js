// Requests to the node. The cookie of the session goes along by itself; the node puts the token in its place.

const prefix = '/$console/';

/** Problem is an answer that is no success, in the words of the node. */
export class Problem extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export const session = { signedIn: false, rights: [] };

let turns = 0;

/** turn returns how often a session has begun or ended, for over. */
export function turn() {
  return turns;
}

/** over tells the page that its session has ended. It does nothing if the page knows, or if a session has begun or ended since the request was made. */
export function over(asked) {
  if (session.signedIn && asked === turns) {
    dispatchEvent(new CustomEvent('signed-out'));
  }
}

/** may reports whether the session has a right: on the namespace, on the entity of its key, or on the one that is named. */
export function may(right, entity = '') {
  const path = entity.toLowerCase();
  return Boolean(session.rights?.includes(right) ||
    session.entities?.some((e) => (path === e.path || path.startsWith(`${e.path}/`)) && e.rights.includes(right)));
}

/** everywhere reports whether the session is for the namespace and may manage it. */
export function everywhere() {
  return !session.scope && may('Manage');
}

/** pathOf writes an entity's path for a URL. */
export function pathOf(entity) {
  return entity.split('/').map(encodeURIComponent).join('/');
}

async function send(url, method, headers, body, signal) {
  return (await answered(url, method, headers, body, signal)).text;
}

/** raw asks the data plane, whose answers say much in headers. */
export function raw(method, path) {
  return answered(`${prefix}port${path}`, method, {});
}

async function answered(url, method, headers, body, signal) {
  const asked = turns;
  let response;
  try {
    response = await fetch(url, { method, headers, body, signal, cache: 'no-store' });
  } catch (error) {
    if (error.name === 'AbortError') {
      throw error;
    }
    throw new Problem(0, 'The node does not answer.');
  }
  if (response.headers.get('Busbar-Console') === 'signed-out') {
    over(asked);
  }
  const text = await response.text();
  if (!response.ok) {
    throw new Problem(response.status, wordsOf(text, response.status));
  }
  if (method !== 'GET') {
    dispatchEvent(new CustomEvent('changed'));
  }
  return { status: response.status, headers: response.headers, text };
}

/** wordsOf finds the sentence in an answer, which is JSON, or XML of the management API. */
function wordsOf(text, status) {
  if (text.startsWith('{')) {
    try {
      const told = JSON.parse(text);
      return told.error ?? text;
    } catch {
      return text;
    }
  }
  const detail = new DOMParser().parseFromString(text, 'text/xml').querySelector('Detail, Text')?.textContent ?? text;
  return detail.replace(/SubCode=\d+\. */, '').replace(/^Bad Request\. */, '').replace(/ *To know more visit.*$/s, '').trim() ||
    `The node answers ${status}.`;
}

/**
 * parse reads JSON. A number of a message that a double does not hold stays a text: those of a partition from the 32nd on would be
 * rounded to the number of another message.
 */
export function parse(text) {
  return JSON.parse(text.replace(/"(sequenceNumber|number)":(\d{16,})/gi,
    (all, name, digits) => (Number.isSafeInteger(Number(digits)) ? all : `"${name}":"${digits}"`)));
}

/** query writes parameters. An empty text is left out, but for one in a list, which says that the empty text is meant. */
function query(values) {
  const q = new URLSearchParams();
  for (const [name, value] of Object.entries(values ?? {})) {
    if (Array.isArray(value)) {
      q.set(name, value[0]);
    } else if (value !== undefined && value !== null && value !== '') {
      q.set(name, value);
    }
  }
  const text = q.toString();
  return text ? `?${text}` : '';
}

/** call asks the operations port, and returns what the JSON of the answer says. */
export async function call(method, path, values, { body, headers, signal } = {}) {
  const text = await send(`${prefix}port${path}${query(values)}`, method, headers, body, signal);
  return text ? parse(text) : null;
}

/** view asks for the inside of an entity. */
export function view(entity, name, values, signal) {
  return call('GET', `/api/entities/${pathOf(entity)}/${name}`, values, { signal });
}

/** act has an operator's act done to an entity. */
export function act(entity, name, values, signal) {
  return call('POST', `/api/entities/${pathOf(entity)}/${name}`, values, { signal });
}

/** list asks for a page of entities. */
export function list(values, signal) {
  return call('GET', '/api/entities', values, { signal });
}

/** look asks for one entity of the list; null if there is none. */
export async function look(entity, signal) {
  const found = await call('GET', '/api/entities', { path: entity }, { signal });
  return found.entities[0].missing ? null : found.entities[0];
}

/** atom speaks with the management API, whose words are XML. */
export async function atom(method, entity, xml, { update, validate, signal } = {}) {
  const headers = { Accept: 'application/atom+xml' };
  if (xml) {
    headers['Content-Type'] = 'application/atom+xml;type=entry;charset=utf-8';
  }
  if (update) {
    headers['If-Match'] = '*';
  }
  const values = { 'api-version': '2021-05', validate: validate ? 'true' : '' };
  const text = await send(`${prefix}port/${pathOf(entity)}${query(values)}`, method, headers, xml, signal);
  return text ? new DOMParser().parseFromString(text, 'text/xml') : null;
}

/** post sends messages to an entity: a batch as JSON, all or none. */
export async function post(entity, messages) {
  const headers = { 'Content-Type': 'application/vnd.microsoft.servicebus.json' };
  await send(`${prefix}port/${pathOf(entity)}/messages`, 'POST', headers, JSON.stringify(messages));
}

/** who asks for the session, begins one with what signs in, or ends it. */
export async function who(method = 'GET', signIn = undefined) {
  const headers = signIn ? { 'Content-Type': 'application/json' } : {};
  const text = await send(`${prefix}session`, method, headers, signIn ? JSON.stringify(signIn) : undefined);
  for (const name of ['signedIn', 'policy', 'scope', 'ends', 'entities', 'issuer', 'providers', 'leave']) {
    delete session[name];
  }
  session.rights = [];
  turns++;
  Object.assign(session, JSON.parse(text));
  return session;
}

/** placeOf begins a sign-in at an identity provider, and returns where the browser goes for it. */
export async function placeOf(issuer) {
  return JSON.parse(await send(`${prefix}sign-in`, 'POST', { 'Content-Type': 'application/json' }, JSON.stringify({ issuer }))).to;
}
