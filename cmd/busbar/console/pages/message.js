// One message in full: what the broker and the sender say of it, and its body as text, JSON or hexadecimal digits.

import { View, button, bytes, h, id, moment } from './dom.js';

const facts = [['sequenceNumber', 'Number'], ['state', 'State'], ['messageId', 'Message id'], ['sessionId', 'Session'],
  ['subject', 'Subject'], ['correlationId', 'Correlation id'], ['contentType', 'Content type'], ['to', 'To'], ['replyTo', 'Reply to'],
  ['replyToSessionId', 'Reply to session'], ['partitionKey', 'Partition key'], ['deliveryCount', 'Deliveries'],
  ['deadLetterReason', 'Reason'], ['deadLetterErrorDescription', 'Description'], ['deadLetterSource', 'Dead-lettered from']];
const times = [['enqueuedAt', 'Enqueued'], ['scheduledAt', 'Scheduled for'], ['expiresAt', 'Expires'], ['lockedUntil', 'Locked until']];

/** octets returns the bytes of a body. */
export function octets(m) {
  if (m.bodyEncoding) {
    return Uint8Array.from(atob(m.body), (c) => c.charCodeAt(0));
  }
  return new TextEncoder().encode(m.body);
}

/** hex writes bytes sixteen to a line, with their offsets and what is readable. */
export function hex(all) {
  const lines = [];
  for (let at = 0; at < all.length; at += 16) {
    const part = [...all.slice(at, at + 16)];
    const digits = part.map((b) => b.toString(16).padStart(2, '0')).join(' ').padEnd(47);
    const text = part.map((b) => (b >= 32 && b < 127 ? String.fromCharCode(b) : '.')).join('');
    lines.push(`${at.toString(16).padStart(8, '0')}  ${digits}  ${text}`);
  }
  return lines.join('\n');
}

/** pretty indents a JSON text, and leaves any other as it is. */
export function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return null;
  }
}

/** forms are the ways to show a body, the one that fits first. */
export function forms(m) {
  const digits = ['hex', 'Hex', () => hex(octets(m))];
  if (m.bodyEncoding) {
    return [digits];
  }
  const text = ['text', 'Text', () => m.body];
  const json = pretty(m.body);
  return json === null ? [text, digits] : [['json', 'JSON', () => json], text, digits];
}

class Message extends View {
  open() {
    const m = this.message;
    const rows = facts.filter(([name]) => m[name] !== undefined && m[name] !== '').map(([name, title]) => [title, String(m[name])]);
    for (const [name, title] of times) {
      if (m[name]) {
        rows.push([title, moment(m[name])]);
      }
    }
    const properties = Object.entries(m.properties ?? {});
    this.body = h('pre', { tabindex: 0, 'aria-label': 'Body' });
    this.choice = h('div', { class: 'choice', role: 'group', 'aria-label': 'Form of the body' });
    this.show(h('div', { class: 'title' }, h('h2', {}, `Message ${m.sequenceNumber}`), h('span', { class: 'space' }),
      (this.acts ?? []).map(([label, fn, kind]) => button(label, fn, { class: kind ?? '' })),
      button('Close', () => this.dispatchEvent(new CustomEvent('closed')), { class: 'quiet' })),
    h('dl', { class: 'facts' }, rows.map(([title, value]) => h('div', {}, h('dt', {}, title), h('dd', {}, value)))),
    properties.length > 0 ? [h('h3', {}, 'Properties'), h('dl', { class: 'facts' }, properties.map(([name, value]) =>
      h('div', {}, h('dt', {}, name), h('dd', {}, typeof value === 'string' ? value : JSON.stringify(value)))))] : null,
    h('div', { class: 'title' }, h('h3', {}, `Body, ${bytes(m.bodyBytes)}`), h('span', { class: 'space' }), this.choice), this.body);
    this.choose(forms(m)[0][0]);
  }

  choose(name) {
    const group = id('form');
    const all = forms(this.message);
    this.choice.replaceChildren(...all.map(([one, title]) => h('label', {}, h('input', { type: 'radio', name: group, checked: one === name,
      onchange: () => this.choose(one) }), title)));
    this.body.textContent = all.find(([one]) => one === name)[2]() || '(empty)';
    this.body.className = name;
    this.choice.querySelector('input:checked')?.focus({ preventScroll: true });
  }
}

customElements.define('bb-message', Message);
