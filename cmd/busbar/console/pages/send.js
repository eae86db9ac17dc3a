// Send a message, now or at a time.

import { act, post } from './api.js';
import { View, announce, button, field, h, id, many, problem } from './dom.js';
import { open } from './dialog.js';

const fields = [['MessageId', 'Message id', 'messageId'], ['Label', 'Subject', 'subject'], ['SessionId', 'Session', 'sessionId'],
  ['CorrelationId', 'Correlation id', 'correlationId'], ['ContentType', 'Content type', 'contentType'], ['To', 'To', 'to'],
  ['ReplyTo', 'Reply to', 'replyTo'], ['ReplyToSessionId', 'Reply to session', 'replyToSessionId'], ['PartitionKey', 'Partition key', 'partitionKey']];

/** valueOf reads a property by its type; the error says what is wrong. */
export function valueOf(name, type, text) {
  switch (type) {
    case 'number':
      if (text.trim() === '' || !Number.isFinite(Number(text))) {
        throw new Error(`The property ${name} is no number.`);
      }
      return Number(text);
    case 'boolean':
      if (!/^(true|false)$/i.test(text.trim())) {
        throw new Error(`The property ${name} must be true or false.`);
      }
      return /^true$/i.test(text.trim());
    default:
      return text;
  }
}

/** Composer is the form of one message. */
export class Composer {
  constructor(m = {}) {
    this.inputs = new Map(fields.map(([name, , from]) => [name, h('input', { spellcheck: 'false', value: m[from] ?? '' })]));
    this.body = h('textarea', { rows: 10, spellcheck: 'false', value: m.body ?? '' });
    this.binary = h('input', { type: 'checkbox', checked: m.bodyEncoding === 'base64' });
    this.life = h('input', { inputmode: 'decimal', size: 10 });
    this.at = h('input', { type: 'datetime-local', step: 1 });
    this.properties = h('div', { class: 'properties' });
    for (const [name, value] of Object.entries(m.properties ?? {})) {
      this.property(name, typeof value === 'number' ? 'number' : typeof value === 'boolean' ? 'boolean' : 'text', String(value));
    }
  }

  property(name = '', type = 'text', value = '') {
    const inputs = [h('input', { 'aria-label': 'Name of the property', placeholder: 'name', spellcheck: 'false', value: name }),
      h('select', { 'aria-label': 'Type of the property' }, ['text', 'number', 'boolean'].map((t) => h('option', { selected: t === type }, t))),
      h('input', { 'aria-label': 'Value of the property', placeholder: 'value', spellcheck: 'false', value })];
    const row = h('div', { class: 'property' }, inputs, button('Remove', () => row.remove(), { class: 'quiet' }));
    row.read = () => inputs.map((i) => i.value);
    this.properties.append(row);
  }

  content() {
    const group = id('group');
    return [field('Body', this.body), field('The body is base64 of bytes', this.binary),
      h('div', { class: 'grid' }, fields.map(([name, title]) => field(title, this.inputs.get(name))),
        field('Time to live, seconds', this.life), field('Enqueue at (your time)', this.at, 'Empty: now.')),
      h('section', { 'aria-labelledby': group }, h('h2', { id: group }, 'Application properties'), this.properties,
        button('Add a property', () => this.property()))];
  }

  /** read returns the message as the HTTP API takes it. */
  read() {
    const broker = {};
    for (const [name, input] of this.inputs) {
      if (input.value !== '') {
        broker[name] = input.value;
      }
    }
    const life = this.life.value.trim();
    if (life !== '') {
      if (!(Number(life) > 0)) {
        throw new Error('The time to live must be a number of seconds above 0.');
      }
      broker.TimeToLive = Number(life);
    }
    if (this.at.validity.badInput) {
      throw new Error('The time to enqueue at is no date and time.');
    }
    if (this.at.value) {
      broker.ScheduledEnqueueTimeUtc = new Date(this.at.value).toISOString();
    }
    const user = {};
    for (const row of this.properties.children) {
      const [name, type, value] = row.read();
      if (name.trim() === '') {
        throw new Error('A property has no name.');
      }
      if (Object.hasOwn(user, name.trim())) {
        throw new Error(`The property ${name.trim()} is there twice.`);
      }
      user[name.trim()] = valueOf(name.trim(), type, value);
    }
    const item = { Body: this.body.value, BrokerProperties: broker, UserProperties: user };
    if (broker.ContentType) {
      item.ContentType = broker.ContentType;
      delete broker.ContentType;
    }
    if (this.binary.checked) {
      item.BodyEncoding = 'base64';
    }
    return item;
  }
}

class Send extends View {
  open() {
    this.composer = new Composer();
    this.copies = h('input', { type: 'number', min: 1, max: 1000, value: 1, size: 6 });
    this.error = h('div', {});
    const form = h('form', { class: 'compose', novalidate: true, onsubmit: (e) => this.send(e) }, this.composer.content(), field('Copies', this.copies), this.error,
      h('div', { class: 'actions' }, h('button', { type: 'submit', class: 'main' }, 'Send')));
    this.show(form);
  }

  async send(e) {
    e.preventDefault();
    this.error.replaceChildren();
    try {
      const n = Number(this.copies.value);
      if (!Number.isInteger(n) || n < 1 || n > 1000) {
        throw new Error('The number of copies must be from 1 to 1000.');
      }
      const m = this.composer.read();
      await post(this.path, Array(n).fill(m)); // who leaves the page meanwhile has sent it all the same
      announce(m.BrokerProperties.ScheduledEnqueueTimeUtc ? `${many(n, 'message')} scheduled.` : `${many(n, 'message')} sent.`);
    } catch (error) {
      this.error.replaceChildren(problem(error));
    }
  }
}

customElements.define('bb-send', Send);

/**
 * compose opens a message for editing and sends what comes of it to an entity. With remove the message that was edited
 * is deleted afterwards: it is there until the new one is stored. With judge the new one may be refused before.
 */
export function compose(to, m, title, remove = null, judge = null) {
  return new Promise((resolve) => {
    const composer = new Composer(m);
    const error = h('div', {});
    let sent = false;
    let done = false;
    const send = async (e) => {
      e.preventDefault();
      error.replaceChildren();
      try {
        if (!sent) {
          const item = composer.read();
          await judge?.(item.BrokerProperties);
          await post(to, [item]);
          sent = true;
        }
        await remove?.();
        done = true;
        announce(remove ? `The message was sent to ${to}, and the old one is deleted.` : `The message was sent to ${to}.`);
        box.close();
      } catch (wrong) {
        error.replaceChildren(problem(sent ? new Error(`The new message is stored, but the old one is still there: ${wrong.message}`) : wrong));
      }
    };
    const form = h('form', { class: 'compose', novalidate: true, onsubmit: send }, h('p', { class: 'said' }, `The message goes to ${to} as a new one, with a new number.`),
      composer.content(), error, h('div', { class: 'actions' }, button('Cancel', () => box.close()), h('button', { type: 'submit', class: 'main' }, 'Send')));
    const box = open(title, form);
    box.classList.add('wide');
    box.addEventListener('close', () => resolve(done));
  });
}

/** removeDead deletes one dead letter. */
export function removeDead(where, m) {
  return act(where, 'delete', { number: m.sequenceNumber });
}
