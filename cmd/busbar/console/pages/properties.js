// The settings of entities: their names in the management API, how they are typed, and how they are shown.

import { field, h, select } from './dom.js';
import { entry, escape } from './rulexml.js';

const connect = 'http://schemas.microsoft.com/netservices/2010/10/servicebus/connect';
const own = 'urn:busbar:entity';
const all = ['queue', 'topic', 'subscription'];
const sends = ['queue', 'topic'];
const gets = ['queue', 'subscription'];

/** Each setting: element, title, type, kinds of entity, what more: 'new' can be set at the creation alone, 'own' is an option of Busbar. */
export const settings = [
  ['MaxDeliveryCount', 'Maximum deliveries', 'number', gets, '', 'After so many the message is dead-lettered.'],
  ['LockDuration', 'Lock duration', 'span', gets, ''],
  ['DefaultMessageTimeToLive', 'Time to live of messages', 'span', all, ''],
  ['DeadLetteringOnMessageExpiration', 'Dead-letter what expires', 'flag', gets, ''],
  ['DeadLetteringOnFilterEvaluationExceptions', 'Dead-letter what a filter fails on', 'flag', ['subscription'], ''],
  ['RequiresSession', 'Requires sessions', 'flag', gets, 'new'],
  ['RequiresDuplicateDetection', 'Detects duplicates', 'flag', sends, 'new'],
  ['DuplicateDetectionHistoryTimeWindow', 'Window of duplicates', 'span', sends, ''],
  ['EnablePartitioning', 'Partitioned', 'flag', sends, 'new', 'Over all partitions: faster, without an order of all messages.'],
  ['ForwardTo', 'Forward messages to', 'text', gets, ''],
  ['ForwardDeadLetteredMessagesTo', 'Forward dead letters to', 'text', gets, ''],
  ['MaxSizeInMegabytes', 'Maximum size, MB', 'number', sends, ''],
  ['MaxMessageSizeInKilobytes', 'Maximum message, KiB', 'number', sends, ''],
  ['AutoDeleteOnIdle', 'Deleted when idle for', 'span', all, ''],
  ['Status', 'Status', ['Active', 'Disabled', 'SendDisabled', 'ReceiveDisabled'], all, ''],
  ['UserMetadata', 'Note of users', 'text', all, ''],
  ['NoDeadLetter', 'No dead letters: drop them', 'flag', gets, 'own'],
  ['ProcessedHistory', 'Keep a history of processed messages', 'flag', gets, 'own'],
  ['ProcessedHistoryBody', 'with their bodies', 'flag', gets, 'own'],
  ['AcceptedHistory', 'Keep a history of accepted messages', 'flag', gets, 'own'],
  ['HistoryCount', 'Records that stay', 'number', gets, 'own', '0 stands for 100.'],
  ['HistoryAge', 'Records stay for', 'span', gets, 'own', 'At least so long; 0s stands for a day.'],
  ['RetryMin', 'Rest after a failed delivery', 'span', gets, 'own'],
  ['RetryMax', 'Longest rest', 'span', gets, 'own'],
  ['RetryMultiplierPercent', 'Each rest is longer by, percent', 'number', gets, 'own'],
  ['RetryJitterPercent', 'Less a random part of, percent', 'number', gets, 'own'],
].map(([name, title, type, kinds, more, hint]) => ({ name, title, type, kinds, more, hint }));

const units = [['d', 86400], ['h', 3600], ['m', 60], ['s', 1]];

/** spanText writes a duration of XML as people do: P1DT2H is 1d 2h. The largest one is unlimited. */
export function spanText(iso) {
  const found = /^P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:([\d.]+)S)?)?$/.exec(iso ?? '');
  if (!found) {
    return iso ?? '';
  }
  if (Number(found[1]) > 10_000_000) {
    return 'unlimited';
  }
  let left = units.reduce((sum, [, size], i) => sum + Number(found[i + 1] ?? 0) * size, 0);
  const said = [];
  for (const [unit, size] of units) {
    const n = size === 1 ? +left.toFixed(3) : Math.floor(left / size);
    left -= n * size;
    if (n > 0) {
      said.push(`${n}${unit}`);
    }
  }
  return said.join(' ') || '0s';
}

/** spanISO reads 1d 2h, 90s, unlimited, or a duration of XML. The error names the setting. */
export function spanISO(text, title) {
  const t = text.trim();
  if (t === '' || /^P/i.test(t)) {
    return t.toUpperCase();
  }
  if (t.toLowerCase() === 'unlimited') {
    return 'P10675199DT2H48M5.4775807S';
  }
  if (!/^(\d+(\.\d+)?\s*[dhms]\s*)+$/i.test(t)) {
    throw new Error(`${title}: write a duration like 30s, 5m, 1d 12h or unlimited.`);
  }
  let seconds = 0;
  for (const [, n, , unit] of t.matchAll(/(\d+(\.\d+)?)\s*([dhms])/gi)) {
    seconds += Number(n) * units.find(([u]) => u === unit.toLowerCase())[1];
  }
  const days = Math.floor(seconds / 86400);
  return `P${days ? `${days}D` : ''}T${+(seconds - days * 86400).toFixed(3)}S`;
}

/** input makes the field of a setting with its value as the API has it. */
export function input(s, value) {
  if (Array.isArray(s.type)) {
    return select(s.type, value ?? s.type[0]);
  }
  if (s.type === 'flag') {
    return h('input', { type: 'checkbox', checked: value === 'true' });
  }
  return h('input', { value: s.type === 'span' ? spanText(value) : value ?? '', spellcheck: 'false', inputmode: s.type === 'number' ? 'numeric' : null });
}

/** part makes a part of a form: its fields, and below them what is on or off. make returns the input of a setting. */
export function part(title, some, make) {
  if (some.length === 0) {
    return null;
  }
  const one = (s) => field(s.title, make(s), s.hint);
  const flags = some.filter((s) => s.type === 'flag');
  const others = some.filter((s) => s.type !== 'flag');
  return h('fieldset', {}, h('legend', {}, title), others.length > 0 ? h('div', { class: 'grid' }, others.map(one)) : null,
    flags.length > 0 ? h('div', { class: 'grid flags' }, flags.map(one)) : null);
}

/** read returns the value of a field as the API takes it. */
export function read(s, field) {
  if (s.type === 'flag') {
    return String(field.checked);
  }
  const text = field.value.trim();
  if (s.type === 'span') {
    return spanISO(text, s.title);
  }
  if (s.type === 'number' && text !== '' && !/^\d+$/.test(text)) {
    throw new Error(`${s.title}: write a whole number.`);
  }
  return s.name === 'UserMetadata' ? field.value : text;
}

/** shownAs writes a value for a diff. */
export function shownAs(s, value) {
  return (s.type === 'span' ? spanText(value) : value) || '(none)';
}

const elements = { queue: 'QueueDescription', topic: 'TopicDescription', subscription: 'SubscriptionDescription' };

/** valuesOf reads the settings from an entry. */
export function valuesOf(doc) {
  const values = {};
  for (const s of settings) {
    const found = doc.getElementsByTagNameNS(s.more === 'own' ? own : connect, s.name)[0];
    values[s.name] = found?.textContent ?? (s.type === 'flag' ? 'false' : '');
  }
  return values;
}

/** description writes an entity with the settings that are given. */
export function description(kind, values) {
  const xml = (some) => some.filter((s) => values[s.name] !== undefined && values[s.name] !== '').map((s) => `<${s.name}>${escape(values[s.name])}</${s.name}>`).join('');
  const mine = settings.filter((s) => s.kinds.includes(kind));
  const options = xml(mine.filter((s) => s.more === 'own'));
  return entry(`<${elements[kind]} xmlns="${connect}">${xml(mine.filter((s) => s.more !== 'own'))}${options ? `<Options xmlns="${own}">${options}</Options>` : ''}</${elements[kind]}>`);
}

/** changed puts values into the entry that was read, so that what the page does not know stays. */
export function changed(doc, kind, values) {
  const root = doc.getElementsByTagNameNS(connect, elements[kind])[0];
  for (const [name, value] of Object.entries(values)) {
    const isOwn = settings.find((s) => s.name === name).more === 'own';
    let parent = root;
    if (isOwn) {
      parent = root.getElementsByTagNameNS(own, 'Options')[0] ?? root.appendChild(doc.createElementNS(own, 'Options'));
    }
    const space = isOwn ? own : connect;
    const was = [...parent.children].find((c) => c.localName === name);
    if (value === '' && !isOwn) {
      was?.remove();
      continue;
    }
    const e = was ?? parent.insertBefore(doc.createElementNS(space, name), isOwn ? null : root.getElementsByTagNameNS(own, 'Options')[0] ?? null);
    e.removeAttributeNS('http://www.w3.org/2001/XMLSchema-instance', 'nil');
    e.textContent = value;
  }
  return new XMLSerializer().serializeToString(root);
}
