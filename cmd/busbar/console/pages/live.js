// What changes by itself: one stream of events for all parts of the page that watch entities or the cluster.

import { over, turn } from './api.js';

const keep = 90; // samples of each entity, one every two seconds

/** rows has the newest row of each entity that is watched, by path in lower case. */
export const rows = new Map();

/** series has the last counts of each entity: pairs of active messages and dead letters. */
const series = new Map();

const watchers = new Set();
let source = null;
let told = '';
let waiting = 0;

/** watch has fn called with each news of the entities, or of the cluster. The answer ends it. */
export function watch({ paths = [], cluster = false }, fn) {
  const one = { paths, cluster, fn };
  watchers.add(one);
  again();
  return () => {
    watchers.delete(one);
    again();
  };
}

/** nudge asks once for what is watched, so that a page need not wait for the next event after it changed something. */
export async function nudge() {
  const paths = new URLSearchParams([...new Set([...watchers].flatMap((w) => w.paths))].slice(0, 200).map((path) => ['path', path]));
  if ([...paths].length === 0) {
    return;
  }
  try {
    const response = await fetch(`/$console/port/api/entities?${paths}`, { cache: 'no-store' });
    if (response.ok) {
      take(await response.json());
    }
  } catch {
    // the next event tells
  }
}

function take(told) {
  for (const row of told.entities) {
    rows.set(row.name.toLowerCase(), row);
  }
  tell('entities');
}

/** stop ends the stream, as when nobody is signed in any more. */
export function stop() {
  source?.close();
  source = null;
  told = '';
}

/** samples returns the counts that an entity had. */
export function samples(path) {
  return series.get(path.toLowerCase()) ?? [];
}

function again() {
  clearTimeout(waiting);
  waiting = setTimeout(connect, 60);
}

function wanted() {
  const paths = [...new Set([...watchers].flatMap((w) => w.paths))].sort().slice(0, 200);
  const q = new URLSearchParams();
  for (const path of paths) {
    q.append('path', path);
  }
  if ([...watchers].some((w) => w.cluster)) {
    q.set('cluster', 'true');
  }
  return q.toString();
}

function connect() {
  const now = wanted();
  if (now === told && source && source.readyState !== EventSource.CLOSED) {
    return;
  }
  stop();
  told = now;
  if (!now) {
    return;
  }
  source = new EventSource(`/$console/events?${now}`);
  source.addEventListener('entities', (e) => take(JSON.parse(e.data)));
  for (const name of ['cluster', 'health']) {
    source.addEventListener(name, (e) => tell(name, JSON.parse(e.data)));
  }
  const asked = turn();
  source.addEventListener('end', () => {
    stop();
    over(asked);
  });
  const mine = source;
  source.addEventListener('error', () => {
    document.documentElement.classList.add('unheard');
    if (mine === source && mine.readyState === EventSource.CLOSED) {
      refused();
    }
  });
  source.addEventListener('open', () => document.documentElement.classList.remove('unheard'));
}

/** refused finds out why the node closed the stream for good: the session is over, or the node has no room for it. */
async function refused() {
  stop();
  const asked = turn();
  try {
    const response = await fetch('/$console/session', { cache: 'no-store' });
    if (response.ok && !(await response.json()).signedIn) {
      over(asked);
    }
  } catch {
    // the node does not answer: try again
  }
  clearTimeout(waiting);
  waiting = setTimeout(connect, 3000);
}

function tell(event, data) {
  for (const w of [...watchers]) {
    if (event === 'entities' ? w.paths.length > 0 : w.cluster) {
      w.fn(event, data);
    }
  }
}

/** sample keeps what the rows say now, so that a quiet entity has a flat line. */
function sample() {
  for (const [path, row] of rows) {
    if (!row.counts) {
      continue;
    }
    const all = series.get(path) ?? [];
    all.push([row.counts.active, row.counts.deadLetter]);
    series.set(path, all.slice(-keep));
  }
  tell('entities');
}

setInterval(sample, 2000);
